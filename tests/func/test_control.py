"""cond, while_loop and scan over Python functions, against Python's own control flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp
from tests.references import by_numpy
from tracecomp.eager.tensor import Tensor
from tracecomp.func.associative_scan import associative_scan

RNG = np.random.default_rng(3)
X = RNG.standard_normal((5, 2, 3))
H = RNG.standard_normal((2, 3))
W = RNG.standard_normal((3, 3))


def unrolled(step: Callable[..., Any], init: Any, xs: Any, reverse: bool, stack: Callable[..., Any]) -> tuple[Any, Any]:
    """``scan`` along the first axis as a Python loop; the results of a step are a tuple."""
    carry, ys = init, []
    for i in reversed(range(len(xs))) if reverse else range(len(xs)):
        carry, y = step(carry, xs[i])
        ys.append(y)
    columns = zip(*(reversed(ys) if reverse else ys), strict=True)
    return carry, tuple(stack(list(c)) for c in columns)


def recurrence(lib: Any, w: Any) -> Callable[..., Any]:
    """A step that reads ``w`` from around it, a constant, and carries a dictionary."""

    def step(carry: Any, x: Any) -> Any:
        h = lib.tanh(carry["h"] @ w + x * lib.tensor([0.5, 1.0, 2.0], dtype=lib.float64))
        return {"h": h, "n": carry["n"] + 1}, (h * 2, (x * carry["h"]).sum(-1))

    return step


def start(lib: Any, h: Any) -> Any:
    return {"h": h, "n": lib.tensor(0)}


def loss(carry: Any, ys: Any) -> Any:
    return carry["h"].sin().sum() + (ys[0] ** 2).sum() + ys[1].sum()


def leaves(lib: Any, *arrays: Any) -> list[Any]:
    return [lib.tensor(a, requires_grad=True) for a in arrays]


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-9, atol=1e-9)


def nodes(program: Any, *args: Any) -> list[str]:
    graph = tracecomp.trace(program, *args)
    return [n.op.name for n in graph.live_nodes()]


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_and_its_gradients_are_those_of_torch_unrolled(reverse: bool) -> None:
    torch = pytest.importorskip("torch")
    x, h, w = leaves(tracecomp, X, H, W)
    tx, th, tw = leaves(torch, X, H, W)
    found = tracecomp.scan(recurrence(tracecomp, w), start(tracecomp, h), x, reverse=reverse)
    expected = unrolled(recurrence(torch, tw), start(torch, th), tx, reverse, torch.stack)
    assert found[0]["n"].item() == 5
    for a, b in zip((found[0]["h"], *found[1]), (expected[0]["h"], *expected[1]), strict=True):
        close(a, b)
    loss(*found).backward()
    loss(*expected).backward()
    for a, b in ((x, tx), (h, th), (w, tw)):
        close(a.grad, b.grad)


def test_scan_along_another_axis_of_several_tensors() -> None:
    x, y = tracecomp.tensor(X), tracecomp.tensor(X[:, :, 0])
    found = tracecomp.scan(
        lambda c, xs: (c + xs[0].sum() * xs[1].sum(), (xs[0] * 2, c)), tracecomp.zeros((), dtype=tracecomp.float64),
        (x, y), dim=1,
    )  # fmt: skip
    parts = X.sum((0, 2)) * X[:, :, 0].sum(0)
    close(found[0], tracecomp.tensor(parts.sum()))
    close(found[1][0], x * 2)
    close(found[1][1], tracecomp.tensor(np.array([0.0, parts[0]])))
    assert tracecomp.scan(lambda c, x: (c, x), x, ()) == (x, [])


def test_a_compiled_training_step_keeps_its_scans() -> None:
    w = tracecomp.tensor(W, requires_grad=True)

    def step(x: Tensor, h: Tensor) -> Any:
        w.grad = None
        found = loss(*tracecomp.scan(recurrence(tracecomp, w), start(tracecomp, h), x))
        found.backward()
        return found.detach(), w.grad

    x, h = tracecomp.tensor(X), tracecomp.tensor(H)
    expected = [t.clone() for t in by_numpy(step)(x, h)]
    compiled = tracecomp.compile(step)
    for _ in range(4):
        for a, b in zip(compiled(x, h), expected, strict=True):
            close(a, b)
    assert compiled.recordings == 1
    assert nodes(step, x, h).count("scan") == 3  # forwards, the carries on the way, backwards
    assert nodes(lambda x, h: tracecomp.scan(lambda c, x: (c @ w + x, c), h, x)[1], x, h) == ["scan"]


@pytest.mark.parametrize("holds", [True, False])
def test_cond_and_its_gradients_are_those_of_torch(holds: bool) -> None:
    torch = pytest.importorskip("torch")
    h, w = leaves(tracecomp, H, W)
    th, tw = leaves(torch, H, W)
    found = tracecomp.cond(
        tracecomp.tensor([holds]), lambda h: (h @ w, {"y": h.exp()}), lambda h: (h - 1, {"y": h @ w.t()}), (h,)
    )
    expected = (th @ tw, th.exp()) if holds else (th - 1, th @ tw.t())
    close(found[0], expected[0])
    close(found[1]["y"], expected[1])
    (found[0].sum() + (found[1]["y"] ** 2).sum()).backward()
    (expected[0].sum() + (expected[1] ** 2).sum()).backward()
    close(h.grad, th.grad)
    close(w.grad, torch.zeros_like(tw) if tw.grad is None else tw.grad)


def test_a_compiled_cond_is_one_node_for_both_ways() -> None:
    w = tracecomp.tensor(W)

    def choose(h: Tensor) -> Any:
        return tracecomp.cond(h.sum() > 0, lambda h: h @ w, lambda h: h - w.sum(), (h,))

    compiled = tracecomp.compile(choose)
    for _ in range(3):
        close(compiled(tracecomp.tensor(abs(H))), tracecomp.tensor(abs(H) @ W))
        close(compiled(tracecomp.tensor(-abs(H))), tracecomp.tensor(-abs(H) - W.sum()))
    assert compiled.recordings == 1
    assert nodes(choose, tracecomp.tensor(H)).count("cond") == 1


def test_cond_of_a_python_number_chooses() -> None:
    assert tracecomp.cond(1, lambda: "yes", lambda: "no") == "yes"
    assert tracecomp.cond(False, lambda: "yes", lambda: "no") == "no"


def test_while_loop_is_pythons() -> None:
    limit = tracecomp.tensor(50.0, dtype=tracecomp.float64)

    def collatz(n: Tensor, x: Tensor) -> Any:
        return tracecomp.while_loop(
            lambda n, x: (x.sum() < limit).logical_and(n < 20), lambda n, x: (n + 1, x * 1.5), (n, x)
        )

    n, x = tracecomp.tensor(0), tracecomp.tensor(abs(H))
    steps, value = 0, abs(H)
    while value.sum() < 50 and steps < 20:
        steps, value = steps + 1, value * 1.5
    compiled = tracecomp.compile(collatz)
    for run in (collatz, compiled, compiled, compiled):
        found = run(n, x)
        assert isinstance(found, tuple) and found[0].item() == steps
        close(found[1], tracecomp.tensor(value))
    assert compiled.recordings == 1 and nodes(collatz, n, x) == ["while_loop"]
    assert n.item() == 0


def nested(x: Tensor, h: Tensor, w: Tensor) -> Tensor:
    """A choice of two scans, whose steps choose too and read what the branch made."""

    def run(x: Tensor, h: Tensor) -> Tensor:
        scale = (w * 2).sum()

        def step(c: Tensor, row: Tensor) -> Any:
            c = tracecomp.cond(row.sum() > 0, lambda c: c @ w + row, lambda c: c * scale, (c,))
            return c, c.sum()

        return tracecomp.scan(step, h, x)[1]

    return tracecomp.cond(x[0, 0, 0] < 100, run, lambda x, h: x.sum((1, 2)) + h.sum(), (x, h))


def test_nested_regions_eager_compiled_and_differentiated() -> None:
    x, h, w = leaves(tracecomp, X, H, W)
    expected, c = [], h
    for row in x:
        c = c @ w + row if row.sum() > 0 else c * (w * 2).sum()
        expected.append(c.sum())
    wanted = tracecomp.autograd.grad(tracecomp.stack(expected).sum(), (x, h, w))
    compiled = tracecomp.compile(nested)
    for run in (nested, compiled, compiled, compiled):
        found = run(x, h, w)
        close(found, tracecomp.stack(expected))
        for a, b in zip(tracecomp.autograd.grad(found.sum(), (x, h, w)), wanted, strict=True):
            close(a, b)
    assert [n for n in nodes(nested, x, h, w) if n in ("cond", "scan", "contract")] == ["cond"]


def test_modules_inside_and_derivatives_outside() -> None:
    layer = tracecomp.nn.Linear(3, 3).double()

    def total(h: Tensor) -> Any:
        return tracecomp.scan(lambda c, x: (layer(c) + x, c), h, tracecomp.tensor(X))[1].sum()

    def looped(h: Tensor) -> Any:
        return unrolled(lambda c, x: (layer(c) + x, (c,)), h, tracecomp.tensor(X), False, tracecomp.stack)[1][0].sum()

    h = tracecomp.tensor(H)
    close(tracecomp.func.grad(total)(h), tracecomp.func.grad(looped)(h))
    batch = tracecomp.tensor(np.stack([H, 2 * H]))
    close(tracecomp.vmap(total)(batch), tracecomp.stack([looped(h), looped(2 * h)]))
    total(h).backward()
    found = layer.weight.grad
    layer.zero_grad()
    looped(h).backward()
    close(found, layer.weight.grad)


def test_a_derivative_inside_is_differentiated_through() -> None:
    w = tracecomp.tensor(W, requires_grad=True)

    def descend(c: Tensor, x: Tensor) -> Any:
        down = tracecomp.func.grad(lambda c: ((c @ w - x) ** 2).sum())(c)
        return c - 0.1 * down, (c,)

    found = tracecomp.scan(descend, tracecomp.tensor(H), tracecomp.tensor(X))[0]
    expected = unrolled(descend, tracecomp.tensor(H), tracecomp.tensor(X), False, tracecomp.stack)[0]
    close(found, expected)
    for a, b in zip(*(tracecomp.autograd.grad(t.sum(), w) for t in (found, expected)), strict=True):
        close(a, b)


def one(*shape: int) -> Tensor:
    return tracecomp.ones(*shape)


def learnt() -> Tensor:
    return one(3).requires_grad_()


YES = tracecomp.tensor(True)
BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "shapes": (lambda: tracecomp.cond(YES, lambda x: x, lambda x: x.sum(), (one(3),)), "branches return"),
    "dtypes": (lambda: tracecomp.cond(YES, lambda x: x, lambda x: x.long(), (one(3),)), "branches return"),
    "structures": (lambda: tracecomp.cond(YES, lambda x: x, lambda x: (x, x), (one(3),)), "different structures"),
    "predicate": (lambda: tracecomp.cond(one(2), lambda: 1, lambda: 2), "single-element tensor"),
    "branches": (lambda: tracecomp.cond(YES, 1, lambda: 2), "both branches to be callable"),  # type: ignore[arg-type]
    "operands": (lambda: tracecomp.cond(YES, abs, abs, (1,)), "consist of tensors"),
    "no tensor": (lambda: tracecomp.cond(YES, lambda: 1, lambda: 2), "return tensors only"),
    "python's if": (lambda: tracecomp.cond(YES, lambda x: x if x.sum() > 0 else -x, abs, (one(3),)), "use cond"),
    "in-place": (lambda: tracecomp.cond(YES, one(3).add_, abs, (one(3),)), "modifying its inputs"),
    "in-place, input": (lambda: tracecomp.cond(YES, lambda x: x.add_(1), abs, (one(3).long(),)), "modifying its"),
    "random": (lambda: tracecomp.cond(YES, tracecomp.rand_like, abs, (one(3),)), "random numbers"),
    "detach": (lambda: tracecomp.cond(YES, lambda x: x.detach() * x, abs, (learnt(),)), "uses detach"),
    "carry": (lambda: tracecomp.scan(lambda c, x: (c.sum(), x), one(3), one(2, 3)), "must return its carries"),
    "carry structure": (lambda: tracecomp.scan(lambda c, x: ((c,), x), one(3), one(2, 3)), "structure of init"),
    "no pair": (lambda: tracecomp.scan(lambda c, x: c, one(3), one(2, 3)), "must return a pair"),
    "lengths": (lambda: tracecomp.scan(lambda c, x: (c, c), one(3), (one(2), one(3))), "2 elements along"),
    "no steps": (lambda: tracecomp.scan(lambda c, x: (c, c), one(3), one(0, 3)), "scan dimension > 0"),
    "no carry": (lambda: tracecomp.scan(lambda c, x: (c, x), (), one(2)), "requires init leaves"),
    "test": (lambda: tracecomp.while_loop(lambda x: x, lambda x: (x,), (one(3),)), "cond_fn must return"),
    "body": (lambda: tracecomp.while_loop(lambda x: YES, lambda x: x, (one(3),)), "body_fn must return a tuple"),
    "body shape": (lambda: tracecomp.while_loop(lambda x: YES, lambda x: (x[:1],), (one(3),)), "body_fn must return"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str) -> None:
    call, message = BAD[name]
    with pytest.raises(RuntimeError, match=message):
        call()


def test_bad_axis() -> None:
    with pytest.raises(IndexError, match="dim 2 is out of range"):
        tracecomp.scan(lambda c, x: (c, x), one(3), one(2, 3), dim=2)


def test_detach_inside_without_gradients() -> None:
    with tracecomp.no_grad():
        found = tracecomp.cond(YES, lambda x: x.detach() * x, abs, (learnt(),))
    close(found, one(3))


OWN_MEMORY = {
    "cond, operand": lambda x: [tracecomp.cond(x.sum() > -100, lambda a: a, lambda a: -a, (x,))],
    "cond, view": lambda x: [tracecomp.cond(x.sum() > -100, lambda a: a[:1], lambda a: -a[:1], (x,))],
    "cond, tensor from around": lambda x: [tracecomp.cond(x.sum() > -100, lambda: x, lambda: -x)],
    "cond, nested": lambda x: [
        tracecomp.cond(
            x.sum() > -100, lambda a: tracecomp.cond(a.sum() > -9, lambda b: b, lambda b: -b, (a,)), abs, (x,)
        )
    ],
    "cond, twice the same": lambda x: tracecomp.cond(x.sum() > -100, lambda a: (a, a), lambda a: (-a, a), (x,)),
    "while_loop, no step": lambda x: tracecomp.while_loop(lambda a: a.sum() < -100, lambda a: (a,), (x,)),
    "scan, carry": lambda x: tracecomp.scan(lambda c, y: (c, y), x[0], x),
    "associative_scan": lambda x: [associative_scan(lambda a, b: a + b, x[:1], 0)],
}


@pytest.mark.parametrize("name", OWN_MEMORY)
def test_results_have_memory_of_their_own(name: str) -> None:
    """Eager and compiled: no write to an operand or to another result shows in a result."""

    def run(x: Any) -> list[Any]:
        found = list(OWN_MEMORY[name](x))
        x.add_(1)
        found[0].mul_(10)
        return found

    compiled = tracecomp.compile(run)
    for start in (0, 1, 2):
        x = tracecomp.arange(3.0, 9.0).reshape(2, 3) * (1 + start)
        first, second = x.clone(), x.clone()
        for a, b in zip(run(first), compiled(second), strict=True):
            assert a.equal(b)
        assert first.equal(x + 1) and second.equal(x + 1)

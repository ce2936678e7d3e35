"""Backward passes over graphs of one form: a program takes over; gradients, errors and visible state stay the same."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp.autograd import walks
from tracecomp.autograd.walks import AFTER_EAGER, Walk
from tracecomp.eager_kernels import background
from tracecomp.nn import functional as F

Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def _served(monkeypatch: pytest.MonkeyPatch, served_at_once: None) -> list[Walk]:
    """The walks that programs have run."""
    served: list[Walk] = []
    serve = Walk.serve

    def noted(self: Walk, *args: Any) -> bool:
        done = serve(self, *args)
        served.extend([self] if done else [])
        return done

    monkeypatch.setattr(Walk, "serve", noted)
    walks._walks.clear()
    return served


def data(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def leaf(*shape: int, seed: int = 0) -> Tensor:
    return data(*shape, seed=seed).requires_grad_()


def heat(call: Callable[[], Any]) -> None:
    for _ in range(5):
        for _ in range(AFTER_EAGER + 1):
            call()
        background.finish()


def bits(*tensors: Tensor | None) -> list[bytes | None]:
    return [None if t is None else t.detach().numpy().tobytes() for t in tensors]


def lstm_like(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    h = torch.zeros(4, 5)
    for step in x.unbind(1):
        h = torch.tanh(step @ w + h * b)
    return h.square().mean()


def clear(*tensors: Tensor) -> None:
    for t in tensors:
        t.grad = None


def grad_of(t: Tensor) -> Tensor:
    assert t.grad is not None
    return t.grad


CASES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "number": lambda x, w, b: (x * 2.5).sum(),
    "mlp": lambda x, w, b: F.cross_entropy(F.relu(x.reshape(-1, 6) @ w + b), torch.arange(12) % 5),
    "shared": lambda x, w, b: ((x @ w) * b + (x @ w).exp() - b.sum() * w.mean()).mean(),
    "views": lambda x, w, b: (x.permute(1, 0, 2)[1:, ::2].flatten() * 3).cumsum(0).amax() + w.t()[2].sum() * b[0],
    "norm": lambda x, w, b: F.layer_norm(x @ w, (5,), b, b).softmax(-1).std(),
    "index": lambda x, w, b: x[torch.tensor([0, 2, 0])].prod() + w.gather(0, torch.zeros(2, 5, dtype=torch.long)).sum(),
    "scan": lstm_like,
    "types": lambda x, w, b: (x.double() @ w.double()).float().sum() + b.half().sum().float(),
    "leaf twice": lambda x, w, b: torch.cat([b, b, w[0]]).norm() + x.sum() - x.mean(),
    "convolution": lambda x, w, b: F.max_pool2d(F.conv2d(x[None], w[:3, :3].expand(2, 4, 3, 3)), 1).sum() + b.sum(),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_keep_their_bits(name: str, _served: list[Walk]) -> None:
    given = [leaf(4, 3, 6, seed=1), leaf(6, 5, seed=2), leaf(5, seed=3)]

    def step() -> list[bytes | None]:
        clear(*given)
        CASES[name](*given).backward()
        return bits(*[t.grad for t in given])

    wanted = step()
    heat(step)
    _served.clear()
    assert step() == wanted
    assert _served, background.refused()
    for t in given:  # other numbers
        with torch.no_grad():
            t.copy_(data(*t.shape, seed=9))
    found = step()
    walks._walks.clear()
    assert step() == found


def loss(x: Tensor, w: Tensor) -> Tensor:
    return ((x * w).exp() * 2).sum()


def test_gradients_accumulate_in_place(_served: list[Walk]) -> None:
    x, w = leaf(3, seed=1), leaf(3, seed=2)
    heat(lambda: loss(x, w).backward())
    clear(x, w)
    loss(x, w).backward()
    kept = grad_of(x)
    once, version = [grad_of(t).clone() * 2 for t in (x, w)], kept._version
    _served.clear()
    loss(x, w).backward()
    assert _served and grad_of(x) is kept and kept._version > version
    assert bits(x.grad, w.grad) == bits(*once)


def test_a_graph_is_freed_or_retained(_served: list[Walk]) -> None:
    x, w = leaf(3, seed=1), leaf(3, seed=2)
    heat(lambda: loss(x, w).backward())
    result = loss(x, w)
    _served.clear()
    result.backward(retain_graph=True)
    result.backward()
    assert len(_served) == 2
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        result.backward()
    saved = x.detach().clone() + 1
    ref = weakref.ref(saved)
    result = (w * saved).exp().sum()
    result.backward()
    del saved
    gc.collect()
    assert ref() is None


def test_a_changed_operand_is_an_error(_served: list[Walk]) -> None:
    x, w = leaf(3, seed=1), data(3, seed=2)
    heat(lambda: loss(x, w).backward())
    result = loss(x, w)
    w.add_(1)
    clear(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()
    assert x.grad is None


def _on_tensor(x: Tensor, y: Tensor, seen: list[Any]) -> None:
    y.register_hook(seen.append)


def _on_leaf(x: Tensor, y: Tensor, seen: list[Any]) -> None:
    x.register_hook(seen.append)


def _after_leaf(x: Tensor, y: Tensor, seen: list[Any]) -> None:
    x.register_post_accumulate_grad_hook(seen.append)


def _on_node(x: Tensor, y: Tensor, seen: list[Any]) -> None:
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append(inputs))


def _before_node(x: Tensor, y: Tensor, seen: list[Any]) -> None:
    y.grad_fn.register_prehook(lambda outputs: seen.append(outputs))


@pytest.mark.parametrize("hook", [_on_tensor, _on_leaf, _after_leaf, _on_node, _before_node])
def test_hooks_are_called(hook: Callable[[Tensor, Tensor, list[Any]], None]) -> None:
    x, w = leaf(3, seed=1), data(3, seed=2)
    heat(lambda: (x * w).exp().sum().backward())
    seen: list[Any] = []
    y = x * w
    hook(x, y, seen)
    y.exp().sum().backward()
    assert len(seen) == 1


def test_retained_gradients_and_differentiable_passes(_served: list[Walk]) -> None:
    x, w = leaf(3, seed=1), leaf(3, seed=2)
    heat(lambda: (x * w).exp().sum().backward())
    y = x * w
    y.retain_grad()
    y.exp().sum().backward()
    assert grad_of(y).shape == (3,)
    clear(x)
    (x * w).exp().sum().backward(create_graph=True)
    assert grad_of(x).requires_grad
    clear(x, w)
    y = x * w
    with torch.autograd.set_detect_anomaly(True), pytest.warns(UserWarning, match="ExpBackward0"):
        y = y * float("inf") * 0.0
        with pytest.raises(RuntimeError, match="nan"):
            y.exp().sum().backward()


def test_own_functions_and_other_roots_take_the_engine() -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * 3

    x = leaf(3)

    def step() -> Tensor:
        clear(x)
        Doubled.apply(x).sum().backward()
        return grad_of(x)

    heat(step)
    assert step().tolist() == [3.0] * 3
    clear(x)
    torch.autograd.backward([x.sum(), (x * 2).sum()])
    assert grad_of(x).tolist() == [3.0] * 3


def test_forms_differ_by_attributes_and_edges(_served: list[Walk]) -> None:
    x, w = leaf(4, 4, seed=1), leaf(4, 4, seed=2)
    forms: list[Callable[[], Tensor]] = [
        lambda: (x * w).sum(0).max(), lambda: (x * w).sum(1).max(), lambda: (x * x).sum(0).max(),
        lambda: (w * x).sum(0).max(), lambda: (x[1:] * w[1:]).sum(0).max(), lambda: (x[:3] * w[:3]).sum(0).max(),
    ]  # fmt: skip

    def step(fn: Callable[[], Tensor]) -> list[bytes | None]:
        clear(x, w)
        fn().backward()
        return bits(x.grad, w.grad)

    wanted = [step(fn) for fn in forms]
    for fn in forms:
        heat(partial(step, fn))
    _served.clear()
    assert [step(fn) for fn in forms] == wanted
    assert len(_served) == len(forms)


OPERATORS: list[Callable[[Tensor, Tensor], Tensor]] = [
    lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a - 2 * b, lambda a, b: a / (b * b + 1),
    lambda a, b: a @ b.t(), lambda a, b: a.t() @ b, lambda a, b: a.exp().tanh() + b[:1],
    lambda a, b: F.softmax(a, 1) * b.sum(0), lambda a, b: torch.where(a > b, a, b.t()),
    lambda a, b: torch.cat([a[:2], b[2:]]), lambda a, b: a.flip(0).cumsum(1) + b,
    lambda a, b: F.layer_norm(a, (4,)) + b.mean(1, keepdim=True), lambda a, b: a.amax(1)[:, None] * b,
    lambda a, b: a.reshape(2, 8).sum(1).repeat(2)[:, None] + b, lambda a, b: a[[3, 0, 0, 1]] * b.detach(),
    lambda a, b: a.double().prod(0).float() + b, lambda a, b: a.clone().mul_(b),
    lambda a, b: F.gelu(a).expand(3, 4, 4)[1] + b,
]  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(60))
def test_random_graphs(seed: int, _served: list[Walk]) -> None:
    rng = np.random.default_rng(seed)
    given = [leaf(4, 4, seed=n) for n in range(3)]
    picks = [(rng.integers(len(OPERATORS)), *rng.integers(0, 3 + n, 2)) for n in range(rng.integers(2, 9))]

    def step() -> list[bytes | None]:
        clear(*given)
        values = list(given)
        for which, a, b in picks:
            values.append(OPERATORS[which](values[a], values[b]))
        (values[-1] + values[-2] * 0.5).sum().backward()
        return bits(*[t.grad for t in given])

    wanted = step()
    heat(step)
    _served.clear()
    assert step() == wanted
    assert _served, background.refused()


COMPILED = [torch.compile(fn, wait=True) for fn in OPERATORS]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_with_compiled_calls(seed: int) -> None:
    rng = np.random.default_rng(seed)
    given = [leaf(4, 4, seed=n) for n in range(3)]
    picks = [
        (rng.choice([OPERATORS, COMPILED])[k], *rng.integers(0, 3 + n, 2))
        for n, k in enumerate(rng.integers(0, len(OPERATORS), 5))
    ]

    def step() -> list[bytes | None]:
        clear(*given)
        values = list(given)
        for call, a, b in picks:
            values.append(call(values[a], values[b]))
        (values[-1] + values[-2] * 0.5).sum().backward()
        return bits(*[t.grad for t in given])

    wanted = step()
    heat(step)
    assert step() == wanted


@torch.compile(wait=True)
def layer(x: Tensor, w: Tensor) -> Tensor:
    return (x * w).exp() * 2


@torch.compile(wait=True)
def joined(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return x * w, x.exp()


@torch.compile(wait=True)
def apart(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return x.sin(), w.exp()


def test_a_compiled_call_is_part_of_the_program(_served: list[Walk]) -> None:
    x, w = leaf(3, seed=1), leaf(3, seed=2)

    def step() -> list[bytes | None]:
        clear(x, w)
        layer(x, w).square().sum().backward()
        return bits(x.grad, w.grad)

    wanted = step()
    heat(step)
    _served.clear()
    assert step() == wanted and len(_served) == 1, background.refused()
    result = layer(x, w).square().sum()
    result.backward(retain_graph=True)
    result.backward()
    assert len(_served) == 3
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        result.backward()
    result = layer(x, w).square().sum()
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()
    assert len(_served) == 3


USES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "both": lambda a, b: (a * 2).sum() + (b * 3).sum(), "first": lambda a, b: a.sum(), "second": lambda a, b: b.sum(),
}  # fmt: skip


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("call", [joined, apart])
def test_some_results_of_a_compiled_call(call: Any, use: str, _served: list[Walk]) -> None:
    x, w = leaf(3, seed=1), leaf(3, seed=2)

    def step() -> list[bytes | None]:
        clear(x, w)
        result = USES[use](*call(x, w))
        result.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            result.backward()
        return bits(x.grad, w.grad)

    wanted = step()
    heat(step)
    _served.clear()
    assert step() == wanted
    # An operand that leads to results with and without gradients needs the engine.
    assert bool(_served) == (use == "both" or call is apart)


def test_sums_within_a_compiled_call_are_added_one_by_one() -> None:
    x, w = leaf(300, seed=1), leaf(300, seed=2)
    twice = torch.compile(lambda x, w: x * w + x.exp() + (x * 0.3).sin(), wait=True)

    def step() -> list[bytes | None]:
        clear(x, w)
        (twice(x, w) * x.cos()).sum().backward()
        return bits(x.grad, w.grad)

    wanted = step()
    heat(step)
    assert step() == wanted


class Held(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(data(3))

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.w).exp()


def _heated() -> weakref.ref[Tensor]:
    """A parameter of a compiled module whose backward passes a program served."""
    model, x = Held(), data(3, seed=2)
    call = torch.compile(model, wait=True)
    heat(lambda: call(x).sum().backward())
    return weakref.ref(model.w)


def test_compiled_calls_are_let_go(_served: list[Walk]) -> None:
    ref = _heated()
    assert _served
    torch.compiler.reset()
    gc.collect()
    assert ref() is None

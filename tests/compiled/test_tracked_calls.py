"""Calls whose results have a history: machine code takes over; gradients, errors and visible state stay the same."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.compiled.frequent_calls import CALLS, data
from tracecomp.base.config import override
from tracecomp.compiled.tracked_calls import _TrackedNode
from tracecomp.eager_kernels import background
from tracecomp.nn import functional as F

Tensor = torch.Tensor
pytestmark = pytest.mark.usefixtures("served_at_once")


def heat(call: Callable[[], Any]) -> None:
    for _ in range(CALLS):
        call()
    background.finish()


def bits(*tensors: Tensor | None) -> list[bytes | None]:
    return [None if t is None else t.detach().numpy().tobytes() for t in tensors]


CASES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "softmax": lambda f, x, y: f.softmax(x, -1),
    "log_softmax": lambda f, x, y: f.log_softmax(x, 0),
    "cross_entropy": lambda f, x, y: f.cross_entropy(x, y.argmax(1)),
    "mse_loss": lambda f, x, y: f.mse_loss(x, y),
    "l1_loss": lambda f, x, y: f.l1_loss(x, y, reduction="sum"),
    "linear": lambda f, x, y: f.linear(x, y),
    "gelu": lambda f, x, y: f.gelu(x),
    "silu": lambda f, x, y: f.silu(x),
    "softplus": lambda f, x, y: f.softplus(x),
    "layer_norm": lambda f, x, y: f.layer_norm(x, (9,), y[0], y[1]),
    "normalize": lambda f, x, y: f.normalize(x),
    "batch_norm": lambda f, x, y: f.batch_norm(x, None, None, training=True),
    "binary_cross_entropy_with_logits": lambda f, x, y: f.binary_cross_entropy_with_logits(x, y.sigmoid()),
    "max_pool2d": lambda f, x, y: f.max_pool2d(x.view(1, 1, *x.shape), 2),
    "mul": lambda f, x, y: x * y,
    "square": lambda f, x, y: x * x,
    "exp": lambda f, x, y: x.exp(),
    "div": lambda f, x, y: x / (y + 9.0),
    "sum": lambda f, x, y: x.sum(1),
    "mean": lambda f, x, y: x.mean(),
    "amax": lambda f, x, y: x.amax(0),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", CASES)
def test_gradients_have_the_bits_of_many_nodes(name: str) -> None:
    """The operand has another use, whose gradient comes first: the order of additions shows."""
    x, y = (
        data(7, 9).requires_grad_(),
        data(7, 9, seed=1).requires_grad_(name in ("mse_loss", "linear", "layer_norm", "mul")),
    )

    def step() -> list[Any]:
        result = CASES[name](F, x, y)
        seed = data(*result.shape, seed=2)
        alone = torch.autograd.grad(result, x, seed, retain_graph=True)[0]
        more = torch.autograd.grad([result * 3.0, x * data(7, 9, seed=3)], [x], [seed, data(7, 9, seed=4)])[0]
        again = CASES[name](F, x, y)
        first = torch.autograd.grad((again * seed).sum(), x, create_graph=True)[0]
        second = torch.autograd.grad(first.sum(), x, allow_unused=True)[0] if first.requires_grad else None
        return [result, alone, more, first, second]

    cold = bits(*step())
    heat(step)
    warm = step()
    assert bits(*warm) == cold
    if name != "max_pool2d":  # its operand is a view here
        assert isinstance(warm[0].grad_fn, _TrackedNode)
    peer = pytest.importorskip("torch")
    given = [peer.tensor(t.detach().numpy(), requires_grad=t.requires_grad) for t in (x, y)]
    expected = CASES[name](peer.nn.functional, *given)
    seed = peer.tensor(data(*expected.shape, seed=2).numpy())
    wanted = peer.autograd.grad(expected, given[0], seed)[0]
    np.testing.assert_allclose(warm[0].detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(warm[1].numpy(), wanted.numpy(), rtol=1e-4, atol=1e-6)


ONCE = {"add": lambda x: x + 2.0, "mul": lambda x: x * 2.0, "sum": lambda x: x.sum(), "relu": lambda x: x.relu()}


def again(y: Tensor) -> str:
    try:
        y.backward(torch.ones_like(y))
    except RuntimeError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", ONCE)
def test_a_second_pass_is_an_error_where_it_was_one(name: str) -> None:
    """Nodes that keep nothing can be passed through again."""

    def step() -> str:
        x = data(7, 9).requires_grad_()
        y = ONCE[name](x)
        y.backward(torch.ones_like(y))
        return again(y)

    cold = step()
    heat(step)
    assert step() == cold


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return bits(*call())
    except RuntimeError as error:
        return str(error).split(":")[0]  # the rest of the text names which of the nodes' views of memory it was


WRITES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "to an operand": lambda x, result: x.mul_(2),
    "to the result": lambda x, result: result.mul_(2),
    "to the operand's data": lambda x, result: x.data.mul_(2),
    "to the result's data": lambda x, result: result.data.mul_(2),
    "other memory for the operand": lambda x, result: setattr(x, "data", x.data * 2),
    "nothing": lambda x, result: None,
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("name", ["softmax", "mse_loss", "linear", "cross_entropy", "gelu", "layer_norm"])
def test_what_is_written_meanwhile_is_seen_or_refused_as_ever(name: str, write: str) -> None:
    y = data(5, 6, seed=1)

    def step() -> list[Tensor]:
        x, w = data(5, 6).requires_grad_(), y.clone().requires_grad_(name in ("linear", "layer_norm"))
        result = CASES[name](F, x, w)
        with torch.no_grad():
            WRITES[write](w if name in ("linear", "layer_norm") else x, result)
        result.sum().backward()
        assert x.grad is not None
        return [x.grad]

    cold = outcome(step)
    heat(lambda: outcome(step))
    assert outcome(step) == cold


EXCLUDING: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "numpy": lambda: override(eager="numpy"), "autocast": lambda: torch.autocast("cpu"),
}  # fmt: skip


@pytest.mark.parametrize("mode", EXCLUDING)
def test_calls_under_a_mode_do_not_exclude_later_ones(mode: str) -> None:
    x = data(3, 11 + len(mode)).requires_grad_()  # a shape that no other test uses
    with EXCLUDING[mode]():
        heat(lambda: F.softmax(x, 1))
    heat(lambda: F.softmax(x, 1))
    assert isinstance(F.softmax(x, 1).grad_fn, _TrackedNode)


def test_history_is_freed_once_and_lets_go_of_what_it_kept() -> None:
    x = data(4, 5).requires_grad_()
    heat(lambda: F.softmax(x, 1))
    result = F.softmax(x, 1)
    assert isinstance(result.grad_fn, _TrackedNode)
    result.sum().backward(retain_graph=True)
    result.sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        result.sum().backward()
    heat(lambda: F.gelu(x))
    for function, reads in ((lambda x: F.softmax(x, 1), False), (F.gelu, True)):
        middle = x * 2
        seen, result = weakref.ref(middle), function(middle)
        del middle
        assert (seen() is not None) == reads  # an operand that backward does not read is not kept
        result.sum().backward()
        gc.collect()
        assert seen() is None


def test_hooks_flags_and_modes_are_as_ever() -> None:
    x = data(4, 5).requires_grad_()
    met: list[Any] = []
    heat(lambda: F.softmax(x, 1))
    result = F.softmax(x, 1)
    result.register_hook(lambda g: met.append(g.shape))
    result.retain_grad()
    (result * result).sum().backward()
    assert met == [(4, 5)]
    assert result.grad is not None
    with torch.no_grad():
        assert F.softmax(x, 1).grad_fn is None
    with torch.inference_mode():
        assert F.softmax(x.detach(), 1).is_inference()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: met.append(t), lambda t: t):
        F.softmax(x, 1)
    assert len(met) > 1


def test_gradients_inside_of_compiled_functions_do_not_see_it() -> None:
    x = data(4, 5).requires_grad_()

    def step(x: Tensor) -> Tensor:
        return torch.autograd.grad((F.softmax(x, 1) ** 2).sum(), x)[0]

    heat(lambda: F.softmax(x, 1))
    compiled = torch.compile(step)
    assert bits(compiled(x), compiled(x), compiled(x)) == 3 * bits(step(x))


STEPS: list[Callable[[Tensor, Tensor], Tensor]] = [
    lambda x, y: F.softmax(x, -1),
    lambda x, y: F.gelu(x) * y,
    lambda x, y: F.layer_norm(x, (6,)) + y,
    lambda x, y: F.silu(x - y),
    lambda x, y: F.linear(x, y),
    lambda x, y: x * F.mse_loss(x, y),
    lambda x, y: F.normalize(x) + y.relu(),
    lambda x, y: F.layer_norm(x, (6,), y[0], x[1]),
    lambda x, y: F.linear(x, x) + F.layer_norm(y, (6,), y[0], y[0]),
    lambda x, y: torch.log_softmax(x, 0).addcmul(x, y),
]


@pytest.mark.sampled(9)
@pytest.mark.parametrize("seed", range(8))
def test_values_used_in_many_places_get_gradients_in_one_order(seed: int) -> None:
    """Random programs, in which operands, views of them and results are used several times."""
    rng = np.random.default_rng(seed)
    drawn = [(int(rng.integers(len(STEPS))), rng.random(2)) for _ in range(8)]
    leaves = [data(6, 6, seed=seed + n).requires_grad_() for n in range(3)]

    def step(create: bool = False) -> list[Tensor | None]:
        values = list(leaves)
        for number, (a, b) in drawn:
            values.append(STEPS[number](values[int(a * len(values))], values[int(b * len(values))]))
        total = sum((v.sum() for v in values), torch.zeros(()))
        first = torch.autograd.grad(total, leaves, create_graph=create)
        if not create:
            return list(first)
        again = sum((g.square().sum() for g in first), total)  # through the first nodes and those of the gradients
        return [*first, *torch.autograd.grad(again, leaves, allow_unused=True)]

    cold, further = bits(*step()), bits(*step(create=True))
    heat(step)
    assert bits(*step()) == cold
    assert bits(*step(create=True)) == further


NORMS: dict[str, Callable[..., Any]] = {
    "batch_norm": lambda x, mean, var, w: F.batch_norm(x, mean, var, w, training=True),
    "instance_norm": lambda x, mean, var, w: F.instance_norm(x, mean, var, w),
}


def _norm_step(name: str) -> list[Any]:
    """The result, gradients, second ones, statistics and their counts of writes."""
    x, w = data(4, 3, 5).requires_grad_(), data(3, seed=1).requires_grad_()
    mean, var = torch.zeros(3), torch.ones(3)
    result = NORMS[name](x, mean, var, w)
    first = torch.autograd.grad((result * data(4, 3, 5, seed=2)).sum(), (x, w), retain_graph=True)
    again = torch.autograd.grad((result * data(4, 3, 5, seed=2)).sum(), x, create_graph=True)[0]
    second = torch.autograd.grad((again * again).sum(), (x, w))
    return [result, *first, *second, mean, var, torch.tensor(mean._version), torch.tensor(var._version)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", NORMS)
def test_statistics_that_run_along_are_written(name: str) -> None:
    cold = bits(*_norm_step(name))
    heat(lambda: _norm_step(name))
    warm = _norm_step(name)
    assert bits(*warm) == cold
    assert isinstance(warm[0].grad_fn, _TrackedNode)


def _overlapping_step(start: int) -> list[Any]:
    """Statistics that begin so far apart, and a weight in the memory of one."""
    memory, weight = torch.ones(6), torch.ones(3, requires_grad=True)
    x = data(4, 3, 5).requires_grad_()
    NORMS["batch_norm"](x, memory[:3], memory[start : start + 3], data(3, seed=1))
    result = NORMS["batch_norm"](x, weight.detach(), torch.ones(3), weight)
    return [memory, result, *torch.autograd.grad((result * data(4, 3, 5, seed=2)).sum(), (x, weight)), weight]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("start", range(4))
def test_statistics_that_overlap(start: int) -> None:
    cold = bits(*_overlapping_step(start))
    heat(lambda: _norm_step("batch_norm"))
    heat(lambda: _overlapping_step(start))
    assert bits(*_overlapping_step(start)) == cold


def test_statistics_that_may_not_be_written() -> None:
    heat(lambda: _norm_step("batch_norm"))
    norm = NORMS["batch_norm"]
    x, w = data(4, 3, 5).requires_grad_(), data(3, seed=1)
    array = np.zeros(3, np.float32)
    array.flags.writeable = False
    with pytest.raises(RuntimeError, match="read-only"):
        norm(x, torch.from_numpy(array), torch.ones(3), w)
    with torch.inference_mode():
        inferred = torch.zeros(3)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        norm(x, inferred, torch.ones(3), w)


class _Undefined(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        return None


@pytest.mark.parametrize("compiled", [False, True], ids=["served", "compiled"])
def test_where_no_gradient_arrives_none_is_made(compiled: bool) -> None:
    """As with the nodes of eager mode, results made from it have no gradient either."""
    x = data(3, 4).requires_grad_()
    run = torch.compile(F.softmax) if compiled else F.softmax
    for _ in range(3 if compiled else 1):
        if not compiled:
            heat(lambda: F.softmax(x, -1))
        result = run(x, -1)
        assert compiled or isinstance(result._grad_fn, _TrackedNode)
        (_Undefined.apply(result).sum() + 0 * x.sum()).backward()
        assert x.grad is not None and not x.grad.any()
        assert torch.autograd.grad(_Undefined.apply(run(x, -1)).sum(), x, allow_unused=True) == (None,)
        x.grad = None


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["exp", "sigmoid", "tanh", "sqrt", "softmax", "relu", "reciprocal"])
def test_second_derivatives_add_what_comes_to_a_saved_result_in_order(name: str) -> None:
    """Gradients through the result that backward has saved, and from its other uses, go to one node."""
    kind = getattr(torch, name)
    function: Callable[[Tensor], Tensor] = (lambda x: kind(x, -1)) if name == "softmax" else kind

    def step() -> list[Any]:
        x = (data(5, 11).abs() + 0.5).requires_grad_()
        y = function(x)
        loss = (y * 0.3).sum() + (y * y).sum() + (y.sin() * y).sum()
        (first,) = torch.autograd.grad(loss, x, create_graph=True)
        (second,) = torch.autograd.grad((first * first).sum() + (y * 1.7).sum(), x)
        return [y, first, second]

    cold = bits(*step())
    x = data(5, 11).abs().requires_grad_()
    heat(lambda: function(x))
    assert isinstance(function(x).grad_fn, _TrackedNode)
    assert bits(*step()) == cold

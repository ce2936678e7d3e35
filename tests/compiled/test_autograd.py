"""Compiled calls differentiated from outside, to higher orders: values, and what runs as native code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp
import tracecomp.utils.checkpoint
from tests.compiled.test_function import BACKENDS
from tracecomp import nn


def orders(torch: Any, fn: Callable[..., Any], order: int, x: Any, w: Any) -> list[Any]:
    """Gradients in x and w of a loss of ``fn``, of a sum of their squares and sines, and so on."""
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    y, found = fn(x, w).pow(2).sum(), []
    for _ in range(order):
        g, h = torch.autograd.grad(y, (x, w), create_graph=True)
        found += [g.detach().numpy(), h.detach().numpy()]
        y = (g * g).sum() + h.sin().sum()
    return found


def compare_with_torch(fn: Callable[..., Any], run: Callable[..., Any], order: int, seeds: int) -> None:
    torch = pytest.importorskip("torch")
    for seed in range(seeds):
        given = values(seed)
        want = orders(torch, fn, order, *map(torch.tensor, given))
        got = orders(tracecomp, run, order, *map(tracecomp.tensor, given))
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def tanh_layer(x: Any, w: Any) -> Any:
    return (x @ w).tanh() * x.exp()


def values(seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((3, 4)) / 2, rng.standard_normal((4, 4)) / 2


@pytest.mark.peers
@pytest.mark.parametrize("backend", BACKENDS)
def test_derivatives_to_order_four_are_those_of_torch(backend: str) -> None:
    run = tracecomp.compile(tanh_layer, backend=backend)
    compare_with_torch(tanh_layer, run, 4, seeds=5)


def routing_weights(x: Any, w: Any) -> Any:
    top, _ = (x @ w).exp().topk(2, dim=-1)
    top /= top.sum(-1, keepdim=True)
    return top


@pytest.mark.peers
def test_a_result_that_no_derivative_reads_may_be_overwritten() -> None:
    run = tracecomp.compile(routing_weights)
    compare_with_torch(routing_weights, run, 2, seeds=3)


def native_calls(run: Any) -> list[list[int]]:
    """How many calls the graphs of each order served, the forward graph first; each was recorded once.

    A backward pass that adds to gradients from outside has another graph than one that does not.
    """
    found, runs = [], [run]
    while entries := [e for run in runs for e in run.entries]:
        assert sum(run.recordings for run in runs) == len(entries)
        found.append([e.calls() for e in entries])
        runs = [e.plan.again for e in entries if e.plan is not None and e.plan.again is not None]
    return found


def test_each_order_is_recorded_once_and_then_runs_natively() -> None:
    run = tracecomp.compile(tanh_layer)
    for seed in range(6):
        orders(tracecomp, run, 2, *map(tracecomp.tensor, values(seed)))
    assert native_calls(run) == [[5], [4, 4], [3]]
    passes = run.entries[0].plan.again
    before = [e.recording.calls for e in passes.entries]
    orders(tracecomp, run, 2, *map(tracecomp.tensor, values(9)))
    assert [e.recording.calls for e in passes.entries] == [n + 1 for n in before]
    assert "tanh_layer_backward_backward: recordings 1, in use 1" in run.explain().text(everything=True)


def test_orders_that_nobody_asks_for_are_not_built() -> None:
    run = tracecomp.compile(tanh_layer)
    for seed in range(3):
        orders(tracecomp, run, 1, *map(tracecomp.tensor, values(seed)))
    assert run.entries[0].plan.again is not None  # the caller used create_graph=True
    run = tracecomp.compile(tanh_layer)
    for seed in range(3):
        x = tracecomp.tensor(values(seed)[0], requires_grad=True)
        run(x, tracecomp.tensor(values(seed)[1])).sum().backward()
    assert run.entries[0].plan.again is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_hessian_vector_products(backend: str) -> None:
    torch = pytest.importorskip("torch")

    def product(torch: Any, fn: Any, x: Any, w: Any, v: Any) -> Any:
        w = w.clone().requires_grad_()
        (g,) = torch.autograd.grad(fn(x, w).sin().sum(), w, create_graph=True)
        (hv,) = torch.autograd.grad(g, w, v)
        return hv.numpy()

    run = tracecomp.compile(tanh_layer, backend=backend)
    for seed in range(4):
        x, w = values(seed)
        v = np.random.default_rng(100 + seed).standard_normal(w.shape)
        want = product(torch, tanh_layer, *map(torch.tensor, (x, w, v)))
        got = product(tracecomp, run, *map(tracecomp.tensor, (x, w, v)))
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)
    assert native_calls(run) == [[3], [2]]


def penalised(model: Any, run: Any, x: Any) -> list[Any]:
    """A critic's loss with a gradient penalty computed outside of the compiled call."""
    model.zero_grad()
    x = x.clone().requires_grad_()
    score = run(x).mean()
    (g,) = tracecomp.autograd.grad(score, x, create_graph=True)
    ((g.norm(dim=1) - 1).pow(2).mean() - score).backward()
    return [g, *[p.grad for p in model.parameters()], *model.buffers()]


def test_state_is_updated_once_and_masks_are_those_of_the_call() -> None:
    def critic() -> Any:
        tracecomp.manual_seed(3)
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.4), nn.Linear(8, 1))

    given = [tracecomp.randn(6, 4) for _ in range(5)]
    eager, compiled = critic(), critic()
    run = tracecomp.compile(compiled)
    found = []
    for model, call in ((eager, eager), (compiled, run)):
        tracecomp.manual_seed(4)
        found.append([[t.detach().numpy().copy() for t in penalised(model, call, x)] for x in given])
    for step, want in zip(found[1], found[0], strict=True):
        for a, b in zip(step, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)
    # The loss reads one of the gradients: a third function serves the backward pass from some results of the second.
    assert native_calls(run) == [[4], [3], [2]]


def test_an_argument_may_be_computed_from_another() -> None:
    run = tracecomp.compile(lambda x, y: x * y * y)
    for _ in range(3):
        x = tracecomp.tensor([0.5, 0.7], requires_grad=True)
        (g,) = tracecomp.autograd.grad(run(x, x.exp()).sum(), x, create_graph=True)
        (h,) = tracecomp.autograd.grad(g.sum(), x)
        np.testing.assert_allclose(g.detach().numpy(), (1 + 2 * x).mul((2 * x).exp()).detach().numpy(), rtol=1e-6)
        np.testing.assert_allclose(h.numpy(), (4 + 4 * x).mul((2 * x).exp()).detach().numpy(), rtol=1e-6)


def test_weights_written_before_the_second_backward_are_noticed() -> None:
    w = tracecomp.ones(3, requires_grad=True)
    run = tracecomp.compile(lambda x: (w**3 * x).sum())
    for _ in range(3):
        (g,) = tracecomp.autograd.grad(run(tracecomp.ones(3)), w, create_graph=True)
        with tracecomp.no_grad():
            w.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            g.sum().backward()


class CubeByAttribute(tracecomp.autograd.Function):
    """x**3, which keeps x as an attribute of its context and not as a saved tensor."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.kept = {"x": x}
        return x**3

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 3 * ctx.kept["x"] ** 2


def test_tensors_in_attributes_of_a_context_are_those_of_the_call() -> None:
    run = tracecomp.compile(lambda x: CubeByAttribute.apply(x * 2).sum())
    for value in (1.0, 2.0, 3.0, 4.0):
        x = tracecomp.tensor([value], requires_grad=True)
        (g,) = tracecomp.autograd.grad(run(x), x, create_graph=True)
        (h,) = tracecomp.autograd.grad(g, x)
        assert (g.item(), h.item()) == (24 * value**2, 48 * value)


def test_a_hook_that_holds_tensors_of_the_call_is_refused_at_higher_orders() -> None:
    def step(x: Any) -> Any:
        y = x.exp()
        y.register_hook(lambda g: g * x)
        return y.sum()

    run = tracecomp.compile(step)
    for value in (1.0, 2.0, 3.0):
        x = tracecomp.tensor([value], requires_grad=True)
        assert tracecomp.autograd.grad(run(x), x)[0].item() == pytest.approx(value * np.exp(value))
    with pytest.raises(RuntimeError, match="a hook holds values of a compiled call"):
        tracecomp.autograd.grad(run(x), x, create_graph=True)


def test_results_of_checkpoints_over_weights_written_before() -> None:
    w = tracecomp.ones(3, requires_grad=True)
    with tracecomp.no_grad():
        w.mul_(2)

    def step(x: Any) -> Any:
        return tracecomp.utils.checkpoint.checkpoint(lambda x: (x * w).exp() * w, x).sum()

    run = tracecomp.compile(step)
    for seed in range(3):
        found = []
        for call in (step, run):
            x = tracecomp.tensor(np.random.default_rng(seed).standard_normal(3).astype(np.float32), requires_grad=True)
            found.append([t.numpy() for t in tracecomp.autograd.grad(call(x), (x, w))])
        np.testing.assert_allclose(found[0], found[1], rtol=1e-5)
    assert run.recordings == 1


def test_a_result_whose_weights_were_written_since_cannot_be_differentiated() -> None:
    w = tracecomp.ones(3, requires_grad=True)

    def step(x: Any) -> Any:
        loss = (w * w * x).sum()
        with tracecomp.no_grad():
            w.mul_(2)
        return loss

    run = tracecomp.compile(step)
    for k in range(3):
        loss = run(tracecomp.ones(3))
        assert loss.item() == 3.0 * 4**k
        with pytest.raises(RuntimeError):
            loss.backward()


def test_hooks_and_ended_gradients_count_at_every_order() -> None:
    w = tracecomp.tensor(values(7)[0])

    def step(x: Any) -> Any:
        y = x.exp()
        y.register_hook(lambda g: g * w)
        return (y * y.detach()).sum()

    run = tracecomp.compile(step)
    for seed in range(4):
        found = []
        for call in (step, run):
            x = tracecomp.tensor(values(seed)[0], requires_grad=True)
            (g,) = tracecomp.autograd.grad(call(x), x, create_graph=True)
            (h,) = tracecomp.autograd.grad(g.pow(2).sum(), x, create_graph=True)
            found.append([g.detach().numpy(), h.detach().numpy()])
        np.testing.assert_allclose(found[0], found[1], rtol=1e-12)
    assert native_calls(run)[:2] == [[3], [2]]


@pytest.mark.parametrize("name", ["exp", "sigmoid", "tanh", "sqrt", "reciprocal", "softmax", "sort"])
def test_what_comes_to_a_result_that_backward_reads_goes_there(name: str) -> None:
    """Second derivatives by a compiled function's result, and their sums with what comes there from elsewhere."""

    def function(x: tracecomp.Tensor) -> Any:
        kind = getattr(tracecomp, name)
        return kind(x, -1) if name == "softmax" else kind(x * x)[0] if name == "sort" else kind(x)

    def step(run: Any) -> list[Any]:
        x = (tracecomp.arange(24.0).reshape(4, 6) / 16 + 0.3).requires_grad_()
        y = run(x)
        (first,) = tracecomp.autograd.grad((y * y).sum() + (y.sin() * y).sum(), x, create_graph=True)
        (by_result,) = tracecomp.autograd.grad((first * first).sum(), y, retain_graph=True)
        (second,) = tracecomp.autograd.grad((first * first).sum() + (y * 1.7).sum(), x)
        return [t.detach().numpy() for t in (y, first, by_result, second)]

    compiled, want = tracecomp.compile(function), step(function)
    for _ in range(3):
        for found, wanted in zip(step(compiled), want, strict=True):
            # Some sums have a different order if one node combines several operators.
            np.testing.assert_allclose(found, wanted, rtol=0, atol=5e-6 * np.abs(wanted).max())


def test_a_condition_is_differentiated_outside() -> None:
    def branch(x: Any) -> Any:
        return tracecomp.cond(x.sum() > 0, lambda a: a * 2, lambda a: a.sin(), (x,))

    compiled = tracecomp.compile(branch)
    for value in (1.0, -1.0, 1.0, -1.0):
        grads = []
        for fn in (compiled, branch):
            x = tracecomp.full((2,), value, requires_grad=True)
            fn(x).sum().backward()
            assert x.grad is not None
            grads.append(x.grad)
        assert tracecomp.equal(*grads)

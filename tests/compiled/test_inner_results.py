"""Gradients through other results of a compiled call: a hook on an inner result sees the whole gradient."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as tc
from tests.references import by_numpy

Program = Callable[[tc.Tensor], tuple[tc.Tensor, ...]]


def _loss(x: tc.Tensor) -> tuple[tc.Tensor, ...]:
    y = x.tanh()
    return y, (y * y).sum()


def _chain(x: tc.Tensor) -> tuple[tc.Tensor, ...]:
    a = x.exp()
    b = a.sin() * a
    return a, b, (a * b).sigmoid()


def _parts(x: tc.Tensor) -> tuple[tc.Tensor, ...]:
    a, b = (x * 2).split(2)
    return b, a * b.exp(), (a + b).sqrt()


def _views(x: tc.Tensor) -> tuple[tc.Tensor, ...]:
    y = x.sigmoid()
    return y, y[0], (y.t() * 3).sum()


def _written(x: tc.Tensor) -> tuple[tc.Tensor, ...]:
    y = x.cos()
    y.mul_(2)
    return y, y.exp()


def _both(x: tc.Tensor) -> tuple[tc.Tensor, ...]:
    y = x * 3
    return y, y, y.square(), x


def _hook(results: tuple[tc.Tensor, ...], x: tc.Tensor, total: tc.Tensor, log: list[Any]) -> None:
    results[0].register_hook(lambda g: log.append(g.numpy().copy()) or g * 2)
    total.backward()


def _hooks(results: tuple[tc.Tensor, ...], x: tc.Tensor, total: tc.Tensor, log: list[Any]) -> None:
    for r in results[:2]:
        r.register_hook(lambda g: g * g)
    total.backward()


def _removed(results: tuple[tc.Tensor, ...], x: tc.Tensor, total: tc.Tensor, log: list[Any]) -> None:
    results[0].register_hook(lambda g: g * 2).remove()
    total.backward(retain_graph=True)
    total.backward()


def _retained(results: tuple[tc.Tensor, ...], x: tc.Tensor, total: tc.Tensor, log: list[Any]) -> None:
    for r in results:
        r.retain_grad()
    total.backward()
    log += [r.grad.numpy().copy() for r in results if r.grad is not None]


def _before(results: tuple[tc.Tensor, ...], x: tc.Tensor, total: tc.Tensor, log: list[Any]) -> None:
    assert results[0].grad_fn is not None
    results[0].grad_fn.register_prehook(lambda grads: tuple(None if g is None else g * 3 for g in grads))
    total.backward()


def _by_results(results: tuple[tc.Tensor, ...], x: tc.Tensor, total: tc.Tensor, log: list[Any]) -> None:
    log += [g.numpy() for g in tc.autograd.grad(total, results, retain_graph=True)]
    total.backward(inputs=[results[1], x])


def _twice(results: tuple[tc.Tensor, ...], x: tc.Tensor, total: tc.Tensor, log: list[Any]) -> None:
    gx, gr = tc.autograd.grad(total, [x, results[0]], create_graph=True)
    results[0].register_hook(lambda g: g * 2)
    (gx.square().sum() + gr.square().sum()).backward()


def _late(results: tuple[tc.Tensor, ...], x: tc.Tensor, total: tc.Tensor, log: list[Any]) -> None:
    (gx,) = tc.autograd.grad(total, x, create_graph=True)
    results[0].register_hook(lambda g: g * 2)
    gx.square().sum().backward()


def _numbers(f: Program, look: Callable[..., None], k: int) -> list[Any]:
    x = tc.tensor(np.arange(16.0).reshape(4, 4) / 20 + 0.05 + 0.1 * k, requires_grad=True)
    log: list[Any] = []
    results = f(x)
    total = sum((r.cos().sum() * (i + 1) for i, r in enumerate(results)), tc.zeros((), dtype=x.dtype))
    look(results, x, total, log)
    assert x.grad is not None
    return [x.grad.numpy(), *log]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("look", [_hook, _hooks, _removed, _retained, _before, _by_results, _twice, _late])
@pytest.mark.parametrize("f", [_loss, _chain, _parts, _views, _written, _both])
def test_what_comes_to_a_result_is_all_of_it(f: Program, look: Callable[..., None]) -> None:
    compiled = tc.compile(f)
    for k in range(3):
        for expected, found in zip(by_numpy(_numbers)(f, look, k), _numbers(compiled, look, k), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_nothing_is_taken_apart_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = tc.compile(_chain)
    compiled(tc.ones(4, 4, requires_grad=True))
    monkeypatch.setattr("tracecomp.compiled.autograd.CompiledNode.take_apart", lambda self: pytest.fail("taken apart"))
    x = tc.ones(4, 4, requires_grad=True)
    sum(r.sum() for r in compiled(x)).backward()
    assert x.grad is not None


@pytest.mark.parametrize("look", [False, True])
def test_results_go_without_a_collection(look: bool) -> None:
    compiled = tc.compile(_chain)
    for _ in range(3):
        x = tc.ones(4, 4, requires_grad=True)
        results = compiled(x)
    if look:
        results[0].register_hook(lambda g: g)
    node = weakref.ref(results[0].grad_fn)
    gc.disable()
    try:
        del results
        assert node() is None
    finally:
        gc.enable()


def test_where_what_backward_reads_was_written_to_the_pass_raises() -> None:
    compiled = tc.compile(_chain)
    for _ in range(2):
        x = tc.ones(4, 4, requires_grad=True)
        given = x * 1.0
        results = compiled(given)
    with tc.no_grad():
        given.mul_(2)
    results[0].register_hook(lambda g: g * 2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        results[1].sum().backward()


def _passed_on(x: tc.Tensor) -> tc.Tensor:
    h = x.tanh()
    a = h * h
    random.random()  # a graph break: the results of the first part, h behind a, reach a part with a backward pass
    loss = (a * 3 + h * 2).sum()
    loss.backward()
    return loss


@pytest.mark.filterwarnings("ignore:graph break")
def test_backward_pass_recorded_in_a_later_part_sees_all_of_it() -> None:
    compiled = tc.compile(_passed_on)
    for k in range(5):
        grads = []
        for f in (by_numpy(_passed_on), compiled):
            x = tc.linspace(0, 1 + k, 4, dtype=tc.float64).requires_grad_()
            f(x)
            assert x.grad is not None
            grads.append(x.grad.numpy())
        np.testing.assert_allclose(grads[1], grads[0], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("order", [1, -1])
def test_a_leaf_of_the_call_gets_the_gradient_of_a_result(order: int) -> None:
    def fn(x: tc.Tensor) -> Any:
        leaf = x.detach().clone().requires_grad_()
        return (leaf, leaf * x)[::order]

    run = tc.compile(fn)
    run.quiet = True
    for n in range(4):
        x = tc.ones(2) + n
        leaf, result = run(x)[::order]
        result.sum().backward()
        assert leaf.grad.tolist() == x.tolist()

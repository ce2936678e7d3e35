"""Gradients that a compiled call and its surroundings add up have the bits of eager mode: one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp.nn import functional as F

Fn = Callable[..., Any]


def normed(x: Any, w: Any) -> Any:
    return F.layer_norm(x, x.shape[-1:]) * w


def tied(x: Any, w: Any) -> Any:
    return torch.sin(x @ w) @ w / 3 + x * 0.3


def unrolled(x: Any, w: Any) -> Any:
    h = x
    for _ in range(4):
        h = torch.tanh(h @ w + x / 3)
    return h


def with_view(x: Any, w: Any) -> Any:
    y = F.layer_norm(x, x.shape[-1:]) * w
    return y * torch.sigmoid(x) + y, x[: x.shape[0] // 2]


FUNCTIONS = (normed, tied, unrolled, with_view)


def once(f: Fn, x: Any, w: Any) -> list[Any]:
    return [f(x, w)]


def before(f: Fn, x: Any, w: Any) -> list[Any]:
    return [x * 0.7, w.exp(), f(x, w)]


def after(f: Fn, x: Any, w: Any) -> list[Any]:
    return [f(x, w), x * 0.7, w.exp()]


def twice(f: Fn, x: Any, w: Any) -> list[Any]:
    return [f(x, w), f(x.cos(), w), f(x, w.sin()), w * 0.1]


def through_an_intermediate(f: Fn, x: Any, w: Any) -> list[Any]:
    h, v = x / 3, w * 0.9
    return [f(h, v), h * 0.2, h.cos(), v.sin()]


def with_hooks(f: Fn, x: Any, w: Any) -> list[Any]:
    h = x / 3
    h.register_hook(lambda g: g * 1.1)
    return [f(h, w), h * 0.7]


SURROUNDINGS = (once, before, after, twice, through_an_intermediate, with_hooks)


def gradients(f: Fn, call: Fn, around: Fn, seed: int, size: int) -> list[bytes]:
    """The gradients of two passes through ``call``, which is ``f``, eager or compiled."""
    rng = np.random.default_rng(seed)
    shape = (5, 5) if f in (tied, unrolled) else (5,)
    x = torch.tensor(rng.normal(size=(size, 5)).astype("float32"), requires_grad=True)
    w = torch.tensor(rng.normal(size=shape).astype("float32"), requires_grad=True)
    flat = [t for found in around(call, x, w) for t in (found if isinstance(found, tuple) else (found,))]
    loss = sum(((t * t).sum() for t in flat), torch.zeros(()))
    loss.backward(retain_graph=True)
    loss.backward()
    return [t.grad.numpy().tobytes() for t in (x, w)]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("around", SURROUNDINGS)
@pytest.mark.parametrize("f", FUNCTIONS)
def test_gradients_are_added_in_the_order_of_eager_mode(f: Fn, around: Fn, dynamic: bool) -> None:
    c = torch.compile(f, dynamic=dynamic)
    for seed, size in enumerate((4, 4, 4, 6, 6)):
        assert gradients(f, c, around, seed, size) == gradients(f, f, around, seed, size), (seed, size)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("f", (normed, tied, unrolled))
def test_a_node_that_the_program_calls_gives_the_sums(f: Fn, grad: bool) -> None:
    shape = (5, 5) if f in (tied, unrolled) else (5,)
    x, w = torch.randn(4, 5, requires_grad=True), torch.randn(shape, requires_grad=True)
    c, ones = torch.compile(f), torch.ones(4, 5)
    for _ in range(3):
        result = c(x, w)
    with torch.set_grad_enabled(grad):
        found = result.grad_fn(ones)
    wanted = torch.autograd.grad(f(x, w), (x, w), ones)
    assert [g.detach().numpy().tobytes() for g in found] == [g.numpy().tobytes() for g in wanted]

"""Attention: torch's function and the same by hand, results alone and with gradients."""

from __future__ import annotations

from typing import Any

from benchmarks.cases.rows import softmax
from benchmarks.workload import Workload, inputs, normal

Shape = tuple[int, int, int, int]


def _function(lib: Any) -> Any:
    return lib.nn.functional.scaled_dot_product_attention


def _by_hand(lib: Any) -> Any:
    return lambda q, k, v: lib.softmax(q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5, -1) @ v


def _weights(xp: Any, q: Any, k: Any) -> Any:
    return softmax(xp)(q @ k.swapaxes(-2, -1) * q.shape[-1] ** -0.5)


def _jax(xp: Any) -> Any:
    return lambda q, k, v: _weights(xp, q, k) @ v


def _with_gradients(attention: Any) -> Any:
    def make(lib: Any) -> Any:
        def f(q: Any, k: Any, v: Any, g: Any) -> Any:
            leaves = [x.detach().requires_grad_() for x in (q, k, v)]
            result = attention(lib)(*leaves)
            return (result.detach(), *lib.autograd.grad(result, leaves, g))

        return f

    return make


def _gradients_jax(xp: Any) -> Any:
    def f(q: Any, k: Any, v: Any, g: Any) -> Any:
        weights = _weights(xp, q, k)
        towards = g @ v.swapaxes(-2, -1)
        scores = weights * (towards - (towards * weights).sum(-1, keepdims=True)) * q.shape[-1] ** -0.5
        return weights @ v, scores @ k, scores.swapaxes(-2, -1) @ q, weights.swapaxes(-2, -1) @ g

    return f


def _inference(name: str, shape: Shape, attention: Any) -> Workload:
    b, h, t, d = shape
    return Workload(
        "attention", f"{name} {b}x{h}x{t}x{d}", inputs(*[normal(*shape)] * 3), attention, _jax,
        flops=4 * b * h * t * t * d, export=False,
    )  # fmt: skip


def _training(name: str, shape: Shape, attention: Any) -> Workload:
    b, h, t, d = shape
    return Workload(
        "attention", f"{name} and gradients {b}x{h}x{t}x{d}", inputs(*[normal(*shape)] * 4),
        _with_gradients(attention), _gradients_jax, flops=12 * b * h * t * t * d, export=False,
    )  # fmt: skip


_SHAPES: tuple[Shape, ...] = ((1, 12, 1024, 64), (4, 8, 512, 64), (8, 6, 256, 64), (1, 8, 2048, 64), (16, 4, 64, 32))
_WAYS = (("sdpa", _function), ("by hand", _by_hand))

WORKLOADS = [make(name, s, way) for make in (_inference, _training) for name, way in _WAYS for s in _SHAPES]

"""Elementwise chains with transcendental functions, and broadcasts that end in a reduction."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.workload import Workload, inputs, normal

SIZES = (10_000, 1_000_000)


def gelu(lib: Any) -> Any:
    return lambda x, w, b: lib.nn.functional.gelu(x * w + b, approximate="tanh")


def gelu_jax(xp: Any) -> Any:
    def f(x: Any, w: Any, b: Any) -> Any:
        y = x * w + b
        return 0.5 * y * (1 + xp.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))

    return f


def _black_scholes(xp: Any) -> Any:
    """The price of a call option; the logistic curve replaces the normal distribution."""

    def f(s: Any, t: Any) -> Any:
        spot, years = xp.exp(s * 0.2), xp.abs(t) + 0.1
        spread = 0.3 * xp.sqrt(years)
        d = (xp.log(spot) + 0.06 * years) / spread
        return spot / (1 + xp.exp(-1.6 * d)) - xp.exp(-0.02 * years) / (1 + xp.exp(-1.6 * (d - spread)))

    return f


def waves(xp: Any) -> Any:
    return lambda x, y: xp.sin(x) * xp.cos(y) + xp.exp(-(x * x)) * xp.log1p(xp.abs(y))


def _distance(xp: Any) -> Any:
    """Squared distances of all pairs, written with a broadcast."""
    return lambda x, y: ((x[:, None, :] - y[None, :, :]) ** 2).sum(-1)


def _nearest(xp: Any) -> Any:
    return lambda x, y: xp.argmin(((x[:, None, :] - y[None, :, :]) ** 2).sum(-1), axis=1)


def _row(name: str, size: int, operands: int, torch: Any, jax: Any, tolerance: float = 1e-4) -> Workload:
    return Workload(
        "elementwise", f"{name} {size}", inputs(*[normal(size)] * operands), torch, jax,
        bytes=4 * size * (operands + 1), tolerance=tolerance,
    )  # fmt: skip


_PAIRS = ((512, 512, 3), (512, 512, 64), (2000, 100, 16))

WORKLOADS = [
    *(_row("gelu(x * w + b)", n, 3, gelu, gelu_jax) for n in SIZES),
    *(_row("Black-Scholes", n, 2, _black_scholes, _black_scholes) for n in SIZES),
    *(_row("sin cos exp log1p", n, 2, waves, waves) for n in SIZES),
    *(_row("x * y + x", n, 2, lambda lib: lambda x, y: x * y + x, lambda xp: lambda x, y: x * y + x) for n in SIZES),
    *(
        Workload(
            "broadcast-reduce", f"squared distances {m} x {n}, {k}", inputs(normal(m, k), normal(n, k)),
            _distance, _distance, flops=3 * m * n * k,
        )
        for m, n, k in _PAIRS
    ),
    Workload(
        "broadcast-reduce", "nearest of 100 for 2000, 16", inputs(normal(2000, 16), normal(100, 16)),
        _nearest, _nearest, flops=3 * 2000 * 100 * 16,
    ),
]  # fmt: skip

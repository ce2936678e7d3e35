"""Products of matrices: square, skinny, batched, transposed, with a vector, with an epilogue."""

from __future__ import annotations

from typing import Any

from benchmarks.workload import Workload, inputs, normal


def _product(m: int, k: int, n: int, order: str = "") -> Workload:
    """``order`` names the operands that are given transposed."""
    a, b = ((k, m) if "A" in order else (m, k)), ((n, k) if "B" in order else (k, n))

    def multiply(_: Any) -> Any:
        return lambda x, y: (x.T if "A" in order else x) @ (y.T if "B" in order else y)

    label = {"": "", "A": ", A transposed", "B": ", B transposed"}[order]
    return Workload(
        "matmul", f"{m}x{k} @ {k}x{n}{label}", inputs(normal(*a), normal(*b)), multiply, multiply,
        flops=2 * m * k * n, bytes=4 * (m * k + k * n + m * n),
        smallest=min(m, k, n), tolerance=1e-3,
    )  # fmt: skip


def _batched(batch: int, m: int, k: int, n: int) -> Workload:
    return Workload(
        "matmul", f"{batch} of {m}x{k} @ {k}x{n}", inputs(normal(batch, m, k), normal(batch, k, n)),
        lambda lib: lambda x, y: x @ y, lambda xp: lambda x, y: x @ y, flops=2 * batch * m * k * n,
        smallest=min(m, k, n), tolerance=1e-3,
    )  # fmt: skip


def _layer(m: int, k: int, n: int) -> Workload:
    return Workload(
        "matmul", f"relu(x @ w + b) {m}x{k} @ {k}x{n}", inputs(normal(m, k), normal(n, k), normal(n)),
        lambda lib: lambda x, w, b: lib.relu(lib.nn.functional.linear(x, w, b)),
        lambda xp: lambda x, w, b: xp.maximum(x @ w.T + b, 0), flops=2 * m * k * n,
        smallest=min(m, k, n), tolerance=1e-3,
    )  # fmt: skip


WORKLOADS = [
    *(_product(n, n, n) for n in (64, 128, 256, 512, 1024)),
    *(_product(n, n, n, order) for n in (256, 512) for order in "AB"),
    _product(64, 784, 512),
    _product(512, 64, 784, "A"),
    _product(32, 512, 10),
    _product(256, 768, 3072),
    _product(200, 333, 147),
    _product(4096, 64, 64),
    _product(1, 768, 768),
    _product(1, 768, 3072, "B"),
    _product(1024, 1024, 1),
    _product(8, 2048, 2048, "B"),
    _batched(96, 128, 64, 128),
    _batched(32, 64, 64, 64),
    _batched(512, 16, 16, 16),
    _layer(64, 784, 512),
    _layer(256, 768, 3072),
]

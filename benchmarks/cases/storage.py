"""The same work in float64 and with float16 storage."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.cases.pointwise import gelu, gelu_jax, waves
from benchmarks.cases.rows import softmax
from benchmarks.workload import Workload, inputs, normal


def _rows(dtype: Any, label: str, tolerance: float) -> list[Workload]:
    size, width = 1_000_000, np.dtype(dtype).itemsize

    def row(name: str, shapes: Any, torch: Any, jax: Any, **more: Any) -> Workload:
        make = inputs(*(normal(*s, dtype=dtype) for s in shapes))
        return Workload(label, name, make, torch, jax, tolerance=tolerance, x64=dtype == np.float64, **more)

    return [
        row("gelu(x * w + b) 1M", [(size,)] * 3, gelu, gelu_jax, bytes=4 * width * size),
        row("sin cos exp log1p 1M", [(size,)] * 2, waves, waves, bytes=3 * width * size),
        row(
            "softmax 4096x512", [(4096, 512)], lambda lib: lambda x: lib.softmax(x, -1), softmax,
            bytes=2 * width * 4096 * 512,
        ),
        row(
            "sum of columns 4096x512", [(4096, 512)], lambda lib: lambda x: x.sum(0), lambda xp: lambda x: x.sum(0),
            bytes=width * 4096 * 512,
        ),
        row(
            "matmul 256", [(256, 256)] * 2, lambda lib: lambda x, y: x @ y, lambda xp: lambda x, y: x @ y,
            flops=2 * 256**3,
        ),
    ]  # fmt: skip


WORKLOADS = [*_rows(np.float64, "float64", 1e-9), *_rows(np.float16, "float16", 3e-2)]

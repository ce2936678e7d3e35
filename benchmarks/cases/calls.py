"""Calls on tiny tensors: nearly all of the time is the way from Python to the result."""

from __future__ import annotations

from typing import Any

from benchmarks.workload import Workload, inputs, normal


def _add_into(lib: Any) -> Any:
    def f(x: Any, y: Any, out: Any) -> None:
        lib.add(x, y, out=out)

    return f


def _mlp(lib: Any) -> Any:
    def f(x: Any, w: Any, v: Any) -> Any:
        return lib.tanh(x @ w) @ v

    return f


WORKLOADS = [
    Workload(
        "call", "add preallocated 4", inputs(normal(4), normal(4), normal(4)), _add_into, export=False,
    ),
    Workload(
        "call", "add 4", inputs(normal(4), normal(4)),
        lambda lib: lambda x, y: x + y, lambda xp: lambda x, y: x + y,
    ),
    Workload(
        "call", "sin(x) * y + 1, 16", inputs(normal(16), normal(16)),
        lambda lib: lambda x, y: lib.sin(x) * y + 1, lambda xp: lambda x, y: xp.sin(x) * y + 1,
    ),
    Workload(
        "call", "tanh(x @ w) @ v, 8", inputs(normal(8, 8), normal(8, 8), normal(8, 8)),
        _mlp, lambda xp: lambda x, w, v: xp.tanh(x @ w) @ v,
    ),
]  # fmt: skip

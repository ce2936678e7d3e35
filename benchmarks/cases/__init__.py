"""All workloads."""

from __future__ import annotations

from benchmarks.cases import (
    attention,
    calls,
    conv,
    fourier,
    indexing,
    matmul,
    models,
    movement,
    pointwise,
    rows,
    storage,
)
from benchmarks.workload import Workload

WORKLOADS: dict[str, Workload] = {
    w.id: w
    for module in (calls, pointwise, rows, movement, matmul, attention, conv, indexing, fourier, storage, models)
    for w in module.WORKLOADS
}
KINDS = tuple(dict.fromkeys(w.kind for w in WORKLOADS.values()))


def select(patterns: list[str]) -> list[Workload]:
    """The workloads whose id starts with, or contains, one of ``patterns``; all without any."""
    found = [w for w in WORKLOADS.values() if not patterns or any(p in w.id for p in patterns)]
    if not found:
        raise ValueError(f"no workload fits {', '.join(patterns)}; classes: {', '.join(KINDS)}")
    return found

"""Kernels whose parameters begin at the first element that they access.

Kernels that take different parts of memory, such as the slices of a concatenation, are then equal: one function serves
them, called with other addresses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tracecomp.ir.index import Index
from tracecomp.ir.loop_copy import Copier
from tracecomp.ir.loops import Buffer, Load, Prefetch, Store, ToLine, expressions, walk
from tracecomp.ir.program import Kernel


def from_starts(kernel: Kernel) -> tuple[Kernel, tuple[int, ...]]:
    """The kernel with each parameter from the first to the last element that it accesses, and these first elements."""
    ranges = _ranges(kernel)
    if all(accessed == (0, p.size) for p, accessed in ranges.items()):
        return kernel, (0,) * len(kernel.params)
    buffers = {p: replace(p, size=high - low) for p, (low, high) in ranges.items()}

    def move(buffer: Buffer, offset: Index) -> tuple[Buffer, Index]:
        return (buffers[buffer], offset - ranges[buffer][0]) if buffer in ranges else (buffer, offset)

    moved = replace(
        kernel, params=tuple(buffers.get(p, p) for p in kernel.params), body=Copier({}, move=move).stmts(kernel.body)
    )
    return moved, tuple(ranges[p][0] if p in ranges else 0 for p in kernel.params)


def _ranges(kernel: Kernel) -> dict[Buffer, tuple[int, int]]:
    """First and last element (exclusive) that the kernel accesses, by parameter; without those where it is unknown.

    A position outside the memory is read as element 0, so a parameter with such positions keeps its start.
    """
    found: dict[Buffer, tuple[int, int]] = {}
    unknown: set[Buffer] = set()
    for buffer, offset in _accesses(kernel):
        bounds = None if offset is None else offset.bounds
        if bounds is None or bounds[0] < 0 or bounds[1] >= buffer.size:
            unknown.add(buffer)
            continue
        low, high = found.get(buffer, (buffer.size, 0))
        found[buffer] = min(low, bounds[0]), max(high, bounds[1] + 1)
    return {p: found[p] for p in kernel.params if p in found and p not in unknown}


def _accesses(kernel: Kernel) -> Iterator[tuple[Buffer, Index | None]]:
    for stmt in walk(kernel.body):
        if isinstance(stmt, Store | Prefetch):
            yield stmt.buffer, stmt.offset
        for x in expressions((stmt,)):
            if isinstance(x, Load):
                yield x.buffer, x.offset
            elif isinstance(x, ToLine):
                yield x.buffer, None  # depends on the address itself

"""Memory plan: the call table's slots, and offsets in one arena by lifetimes.

Liveness of a value is from the first kernel that writes it to the last that reads it. Values that are not live together
share memory (buffer reuse).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass

from tracecomp.ir.graph import Value

ALIGNMENT = 64
"""Bytes: values begin at a cache line, so that whole vectors are loaded from one line."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A value needed from step ``first`` to step ``last``, both included."""

    value: Value
    nbytes: int
    first: int
    last: int


def plan_arena(lifetimes: Iterable[Lifetime]) -> tuple[dict[Value, int], int]:
    """Byte offsets such that values alive together do not overlap, and the arena's size.

    Largest first, each at the lowest free place: the usual greedy answer to dynamic storage allocation.
    """
    placed: list[tuple[int, int, int, int]] = []  # start and end in memory, first and last step
    offsets: dict[Value, int] = {}
    size = 0
    # Liveness decides: values that are never alive together may share memory. Large ones first: later they would fit
    # nowhere. Large ones first: later they would fit nowhere.
    for life in sorted(lifetimes, key=lambda x: (-x.nbytes, x.first)):
        # A whole number of lines: the next value then begins at a line, and threads do not contend for a shared line.
        need = max(-(-life.nbytes // ALIGNMENT) * ALIGNMENT, ALIGNMENT)
        start = 0
        # In order of memory, so that the first gap that is wide enough is the lowest.
        for low, high, first, last in placed:
            # Not alive at the same time: its memory does not count.
            if last < life.first or life.last < first:
                continue
            if low - start >= need:
                break
            start = max(start, high)
        insort(placed, (start, start + need, life.first, life.last))
        offsets[life.value] = start
        size = max(size, start + need)
    return offsets, size


def apart(lifetimes: Iterable[Lifetime]) -> tuple[dict[Value, int], int]:
    """Byte offsets at which no two values overlap, and the arena's size: memory is never reused."""
    return plan_arena(Lifetime(x.value, x.nbytes, 0, 0) for x in lifetimes)

"""Memory plan: the call table's slots, and offsets in one arena by lifetimes.

Liveness of a value is from the first kernel that writes it to the last that reads it. Values that are not live together
share memory (buffer reuse).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

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
    ordered = sorted(lifetimes, key=lambda x: (-x.nbytes, x.first))
    offsets: dict[Value, int] = {}
    placed = _Placed(len(ordered))
    size = 0
    # Liveness decides: values that are never alive together may share memory. Large ones first: later they would fit
    # nowhere.
    for life in ordered:
        # A whole number of lines: the next value then begins at a line, and threads do not contend for a shared line.
        need = max(-(-life.nbytes // ALIGNMENT) * ALIGNMENT, ALIGNMENT)
        start = offsets[life.value] = placed.lowest(need, life)
        placed.add(start, start + need, life)
        size = max(size, start + need)
    return offsets, size


class _Placed:
    """The places of values, in order of memory.

    Arrays, because each new value is compared with all placed ones: thousands in a large program.
    """

    def __init__(self, most: int) -> None:
        self._rows = np.empty((4, most), np.int64)  # start and end in memory, first and last step
        self._count = 0

    def lowest(self, need: int, life: Lifetime) -> int:
        """The first place of ``need`` bytes that no value alive at the same time occupies."""
        low, high, first, last = self._rows[:, : self._count]
        alive = np.flatnonzero((last >= life.first) & (first <= life.last))
        if not alive.size:
            return 0
        tops = np.maximum.accumulate(high[alive])
        # Before each of them, memory is free from the end of all lower ones.
        free = np.concatenate(([0], tops[:-1]))
        fits = low[alive] - free >= need
        at = int(fits.argmax())
        return int(free[at] if fits[at] else tops[-1])

    def add(self, start: int, end: int, life: Lifetime) -> None:
        """Insert a place."""
        at, count = int(self._rows[0, : self._count].searchsorted(start)), self._count
        self._rows[:, at + 1 : count + 1] = self._rows[:, at:count]
        self._rows[:, at] = start, end, life.first, life.last
        self._count += 1


def apart(lifetimes: Iterable[Lifetime]) -> tuple[dict[Value, int], int]:
    """Byte offsets at which no two values overlap, and the arena's size: memory is never reused."""
    return plan_arena(Lifetime(x.value, x.nbytes, 0, 0) for x in lifetimes)

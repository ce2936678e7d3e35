"""Plan of a transform along one axis: its passes, and the roots of unity that they read.

A transform of n points is a product of small ones (Cooley and Tukey 1965), in an order that needs no bit reversal
(Stockham). ``Columns`` are such passes over vectors: every element is as many lanes as one register has, and each lane
is a separate transform. ``n = n1 * n2`` points become two such stages (Bailey 1990): columns of n1 points, a root for
every element, columns of n2 points. The operations depend on the points alone, so a row has the same bits in any batch.
The memory layout determines only whether a vector's lanes belong to one transform or to several.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np

from tracecomp.ir.immutable import immutable
from tracecomp.ir.index import Index, computed
from tracecomp.ir.loops import Call, Const, IndexValue
from tracecomp.ir.types import int64
from tracecomp.ops.fourier.butterflies import LARGEST
from tracecomp.ops.fourier.roots import roots_of_unity

VECTOR = 64
"""Bytes of the widest register."""

FEW_POINTS = 256
"""Most points for which rows are lanes, if there are enough rows."""

Array = np.ndarray[Any, Any]


def radices(n: int) -> tuple[int, ...] | None:
    """The sizes of the passes of a transform of ``n`` points; None if a prime factor is too large."""
    found: list[int] = []
    odd = 3
    twos = (n & -n).bit_length() - 1
    n >>= twos
    while n > 1 and odd <= LARGEST:
        while n % odd == 0:
            found.append(odd)
            n //= odd
        odd += 2
    fours = {0: 0, 1: 2, 2: 1}[twos % 3] if twos > 1 else 0
    powers = [4] * fours + [8] * ((twos - 2 * fours) // 3) if twos != 1 else [2]
    return (*powers, *found) if n == 1 else None


@immutable
class Blocks:
    """``extent`` neighbours in blocks of one width; the last block ends at the last element and may repeat some."""

    extent: int
    width: int

    @property
    def count(self) -> int:
        return -(-self.extent // self.width)

    def start(self, block: Index | int) -> Index:
        """The first element of a block."""
        plain, last = Index() + block * self.width, self.extent - self.width
        if self.extent % self.width == 0 or plain.is_const:
            return plain if plain.const <= last else Index((), last)
        return computed(Call("min", (IndexValue(plain), Const(last, int64)), int64), (0, last))


def blocks(extent: int, lanes: int) -> Blocks:
    return Blocks(extent, min(extent, lanes))


@immutable
class Columns:
    """Passes over ``points`` vectors; ``at`` has the table positions of each pass's roots."""

    points: int
    radices: tuple[int, ...]
    at: tuple[int, ...]


@dataclass
class Table:
    """The roots of unity of a transform, computed on first use."""

    size: int = 0
    parts: list[Callable[[], Array]] = field(default_factory=list)

    def add(self, size: int, make: Callable[[], Array]) -> int:
        """Return the position in the table for the ``size`` numbers that ``make`` returns."""
        self.parts.append(make)
        self.size += size
        return self.size - size

    def array(self) -> Array:
        return np.concatenate([np.zeros(0), *(np.ravel(make()) for make in self.parts)])

    def columns(self, points: int) -> Columns:
        sizes = radices(points)
        assert sizes is not None
        rest, at = points, []
        for r in sizes:
            at.append(self.add(2 * (r - 1) * (rest // r), partial(_of_pass, rest, r)))
            rest //= r
        return Columns(points, sizes, tuple(at))


def _of_pass(n: int, radix: int) -> Array:
    return np.stack(roots_of_unity(np.outer(np.arange(n // radix), np.arange(1, radix)), n), -1)


@immutable
class Plan:
    """One transform of ``points`` complex numbers per row; ``second`` is None for a single stage.

    With ``in_row``, lanes of both stages belong to one transform, else every lane is a separate one. ``twiddles`` is
    the position of the roots between the stages, ``halves`` that of the roots which join a half spectrum.
    """

    points: int
    lanes: Blocks
    first: Columns
    second: Columns | None
    in_row: bool
    twiddles: int
    halves: int
    table: Table


@lru_cache(maxsize=256)
def plan(points: int, rows: int, inner: int, itemsize: int, real: bool) -> Plan:
    """The plan of transforms along the middle axis of (rows, points, inner)."""
    most = VECTOR // itemsize
    table = Table()
    halves = table.add(2 * points + 2, partial(_of_halves, points)) if real else 0
    beside = blocks(inner if inner > 1 else rows, most)
    split = _split(points, most)
    if split is None:
        return Plan(points, beside, table.columns(points), None, False, 0, halves, table)
    n1, n2 = split
    first, second = table.columns(n1), table.columns(n2)
    few = rows < most // 2 or points > FEW_POINTS or _wasted(split, most) == 1.0
    in_row = inner == 1 and few
    lanes = blocks(n2, most) if in_row else beside
    # In a row in the order in which blocks of lanes read them, otherwise in index order.
    roots = lanes if in_row else Blocks(n2, 1)
    twiddles = table.add(2 * roots.count * roots.width * n1, lambda: _between(n1, roots))
    return Plan(points, lanes, first, second, in_row, twiddles, halves, table)


def _of_halves(points: int) -> Array:
    return np.stack(roots_of_unity(np.arange(points + 1), 2 * points))


def _between(n1: int, lanes: Blocks) -> Array:
    """Roots for every element between the stages: block, k1, part, lane."""
    j2 = np.stack([lanes.start(b).const + np.arange(lanes.width) for b in range(lanes.count)])
    angles = np.arange(n1)[None, :, None] * j2[:, None, :]
    return np.stack(roots_of_unity(angles, n1 * lanes.extent), 2)


def _split(n: int, most: int) -> tuple[int, int] | None:
    """Return ``n = n1 * n2`` that leaves the fewest lanes idle, of these with the fewest passes; None if one is
    tiny."""
    small = [d for d in range(4, math.isqrt(n) + 1) if n % d == 0]
    pairs = [p for d in small for p in ((d, n // d), (n // d, d))]
    if not pairs:
        return None

    def passes(pair: tuple[int, int]) -> int:
        return sum(len(radices(n) or ()) for n in pair)

    # Among equally good ones the most equal, whose columns stay in the nearest cache.
    return min(pairs, key=lambda p: (_wasted(p, most), passes(p), abs(p[0] - p[1]), p[0]))


def _wasted(pair: tuple[int, int], most: int) -> float:
    """Lanes that run per lane that is needed, over both stages."""
    return sum(_lanes(n, most) / n for n in pair) / 2


def _lanes(n: int, most: int) -> int:
    return -(-n // most) * most if n >= most else 1 << (n - 1).bit_length()


def fast_size(least: int) -> int:
    """A number of at least ``least`` points that has small factors only: 1, 3 or 5 times a power of two."""
    return min(f << max(-(-least // f) - 1, 0).bit_length() for f in (1, 3, 5))

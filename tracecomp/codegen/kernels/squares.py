"""Squares of elements turned in registers: first within 128 bits, where processors shuffle fastest, then these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Vector = TypeVar("Vector")

_PIECE = 16
"""Bytes within which unpacking works."""


def turned_square(
    rows: Sequence[Vector], bytes: int, shuffled: Callable[[Vector, Vector, Sequence[int]], Vector]
) -> list[Vector]:
    """The columns of as many rows as each has elements of so many ``bytes``.

    ``shuffled`` picks elements from two vectors, which are numbered through.
    """
    lanes, piece = len(rows), min(_PIECE // bytes, len(rows))

    def unpacked(x: Vector, y: Vector, half: int, unit: int) -> Vector:
        """Of every piece, one half's units of both, in turn."""
        own = range(half * piece // 2, (half + 1) * piece // 2, unit)
        places = [(start + u, side) for start in range(0, lanes, piece) for u in own for side in (0, lanes)]
        return shuffled(x, y, [side + place + n for place, side in places for n in range(unit)])

    def joined(x: Vector, y: Vector, odd: int) -> Vector:
        """Every second piece of one, then of the other."""
        own = range(odd * piece, lanes, 2 * piece)
        return shuffled(x, y, [side + start + n for side in (0, lanes) for start in own for n in range(piece)])

    def within(rows: Sequence[Vector], unit: int) -> list[Vector]:
        if len(rows) == 1:
            return list(rows)
        pairs = list(zip(rows[0::2], rows[1::2], strict=True))
        return [x for half in (0, 1) for x in within([unpacked(*pair, half, unit) for pair in pairs], 2 * unit)]

    def across(rows: Sequence[Vector]) -> list[Vector]:
        if len(rows) == 1:
            return list(rows)
        pairs = list(zip(rows[0::2], rows[1::2], strict=True))
        even, odd = (across([joined(*pair, parity) for pair in pairs]) for parity in (0, 1))
        return [x for both in zip(even, odd, strict=True) for x in both]

    groups = [within(rows[start : start + piece], 1) for start in range(0, lanes, piece)]
    columns = [across([group[k] for group in groups]) for k in range(piece)]
    return [columns[k][start] for start in range(lanes // piece) for k in range(piece)]

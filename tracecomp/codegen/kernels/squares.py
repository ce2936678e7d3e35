"""Squares of elements turned in registers: first within 128 bits, where processors shuffle fastest, then these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Vector = TypeVar("Vector")

PIECE = 16
"""Bytes within which unpacking works."""


def turned_square(
    rows: Sequence[Vector], bytes: int, shuffled: Callable[[Vector, Vector, Sequence[int]], Vector]
) -> list[Vector]:
    """The columns of as many rows as each has elements of so many ``bytes``.

    ``shuffled`` picks elements from two vectors, which are numbered through.
    """
    lanes, piece = len(rows), min(PIECE // bytes, len(rows))

    def joined(x: Vector, y: Vector, odd: int) -> Vector:
        """Every second piece of one, then of the other."""
        own = range(odd * piece, lanes, 2 * piece)
        return shuffled(x, y, [side + start + n for side in (0, lanes) for start in own for n in range(piece)])

    def across(rows: Sequence[Vector]) -> list[Vector]:
        if len(rows) == 1:
            return list(rows)
        pairs = list(zip(rows[0::2], rows[1::2], strict=True))
        even, odd = (across([joined(*pair, parity) for pair in pairs]) for parity in (0, 1))
        return [x for both in zip(even, odd, strict=True) for x in both]

    groups = [turned_within(rows[start : start + piece], lanes, shuffled) for start in range(0, lanes, piece)]
    columns = [across([group[k] for group in groups]) for k in range(piece)]
    return [columns[k][start] for start in range(lanes // piece) for k in range(piece)]


def turned_within(
    rows: Sequence[Vector], lanes: int, shuffled: Callable[[Vector, Vector, Sequence[int]], Vector], unit: int = 1
) -> list[Vector]:
    """Squares beside each other, as wide as there are rows, each turned: of every piece element 0 of all rows, ....

    ``unit``: elements that are turned together already.
    """
    if len(rows) == 1:
        return list(rows)
    piece = len(rows) * unit
    pairs = list(zip(rows[0::2], rows[1::2], strict=True))

    def unpacked(x: Vector, y: Vector, half: int) -> Vector:
        """Of every piece, one half's units of both, in turn."""
        own = range(half * piece // 2, (half + 1) * piece // 2, unit)
        places = [(start + u, side) for start in range(0, lanes, piece) for u in own for side in (0, lanes)]
        return shuffled(x, y, [side + place + n for place, side in places for n in range(unit)])

    halves = ([unpacked(*pair, half) for pair in pairs] for half in (0, 1))
    return [x for half in halves for x in turned_within(half, lanes, shuffled, 2 * unit)]

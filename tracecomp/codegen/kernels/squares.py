"""Transposes of square blocks in registers: first within 128 bits, where processors shuffle fastest, then between
these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Vector = TypeVar("Vector")

SHUFFLE_BYTES = 16
"""Bytes of a 128-bit piece, within which unpack instructions work."""


def transposed_square(
    rows: Sequence[Vector], bytes: int, shuffled: Callable[[Vector, Vector, Sequence[int]], Vector]
) -> list[Vector]:
    """Transpose rows of elements of ``bytes`` bytes; there are as many rows as columns.

    ``shuffled`` picks elements from two vectors, numbered consecutively.
    """
    lanes, piece = len(rows), min(SHUFFLE_BYTES // bytes, len(rows))

    def joined(x: Vector, y: Vector, odd: int) -> Vector:
        """Take every second piece of one vector, then of the other."""
        own = range(odd * piece, lanes, 2 * piece)
        return shuffled(x, y, [side + start + n for side in (0, lanes) for start in own for n in range(piece)])

    def across(rows: Sequence[Vector]) -> list[Vector]:
        if len(rows) == 1:
            return list(rows)
        pairs = list(zip(rows[0::2], rows[1::2], strict=True))
        even, odd = (across([joined(*pair, parity) for pair in pairs]) for parity in (0, 1))
        return [x for both in zip(even, odd, strict=True) for x in both]

    groups = [transposed_within(rows[start : start + piece], lanes, shuffled) for start in range(0, lanes, piece)]
    columns = [across([group[k] for group in groups]) for k in range(piece)]
    return [columns[k][start] for start in range(lanes // piece) for k in range(piece)]


def transposed_within(
    rows: Sequence[Vector], lanes: int, shuffled: Callable[[Vector, Vector, Sequence[int]], Vector], unit: int = 1
) -> list[Vector]:
    """Transpose adjacent blocks, each as wide as the number of rows: of every piece element 0 of all rows, ....

    ``unit``: elements that are already transposed together.
    """
    if len(rows) == 1:
        return list(rows)
    piece = len(rows) * unit
    pairs = list(zip(rows[0::2], rows[1::2], strict=True))

    def unpacked(x: Vector, y: Vector, half: int) -> Vector:
        """Interleave one half's units of both vectors, in every piece."""
        own = range(half * piece // 2, (half + 1) * piece // 2, unit)
        places = [(start + u, side) for start in range(0, lanes, piece) for u in own for side in (0, lanes)]
        return shuffled(x, y, [side + place + n for place, side in places for n in range(unit)])

    halves = ([unpacked(*pair, half) for pair in pairs] for half in (0, 1))
    return [x for half in halves for x in transposed_within(half, lanes, shuffled, 2 * unit)]

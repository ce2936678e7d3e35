"""Squares that are transposed by shuffles of two vectors at a time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tracecomp.codegen.kernels.squares import transposed_square


@pytest.mark.parametrize("bytes", [1, 2, 4, 8])
@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16, 32])
def test_the_columns_of_a_square_are_its_rows_turned(lanes: int, bytes: int) -> None:
    def shuffled(x: list[tuple[int, int]], y: list[tuple[int, int]], order: Sequence[int]) -> list[tuple[int, int]]:
        assert len(order) == lanes
        return [(x + y)[n] for n in order]

    rows = [[(r, c) for c in range(lanes)] for r in range(lanes)]
    assert transposed_square(rows, bytes, shuffled) == [[(r, c) for r in range(lanes)] for c in range(lanes)]

"""Native steps on panels of batches of matrices, and products for the remaining columns and rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np

from tracecomp.codegen.kernels.eliminations import ARRAYS, STRIP_VECTORS, elimination_text
from tracecomp.eager_kernels.products import add_to_block
from tracecomp.ir.types import from_numpy_dtype
from tracecomp.ops.linalg import elimination
from tracecomp.runtime import compiler
from tracecomp.runtime.image import Image
from tracecomp.runtime.loaded import Loaded

Array = np.ndarray[Any, Any]

PANEL = 64
"""Rows of a panel of triangular solves; the rest are products. 64 rows of 64 doubles, 32 KB, fill a first cache."""
_SHARED_FROM = 1 << 18
"""Least operations for which threads share the matrices of a batch, and the columns of a solve."""


@dataclass(frozen=True, slots=True)
class Block:
    """A part of each matrix of an array: its start, and the steps between matrices, rows and columns, in bytes."""

    start: int
    matrix: int
    row: int
    column: int

    @staticmethod
    def of(x: Array) -> Block:
        """All of ``x``, which is contiguous and has three dimensions."""
        return Block(0, *x.strides)

    def at(self, row: int, column: int) -> Block:
        """The part that starts at a row and column of it."""
        return Block(self.start + row * self.row + column * self.column, self.matrix, self.row, self.column)

    def turned(self) -> Block:
        return Block(self.start, self.matrix, self.column, self.row)

    def reversed(self, rows: int, columns: int) -> Block:
        """The block with its ``rows`` rows and ``columns`` columns reversed."""
        start = self.start + (rows - 1) * self.row + (columns - 1) * self.column
        return Block(start, self.matrix, -self.row, -self.column)


@cache
def _loaded(kind: str, dtype: np.dtype[Any]) -> Loaded:
    target = compiler.host_target()
    code = compiler.object_code(elimination_text(kind, from_numpy_dtype(dtype), target, elimination.PANEL), target)
    count = ARRAYS[kind] + 1
    return Loaded(Image((code,), count, count, 0, 0, (kind,), parallel=True))


@lru_cache(4096)
def _table(sizes: tuple[int, ...]) -> Array:
    return np.array(sizes, np.int64)


def run(kind: str, arrays: tuple[Array, ...], sizes: tuple[int, ...], work: int) -> None:
    """The step ``kind`` of ``codegen/kernels/eliminations.py`` with these ``SIZES``, on contiguous arrays."""
    _loaded(kind, arrays[0].dtype).run((*arrays, _table(sizes)), None if work >= _SHARED_FROM and sizes[-1] > 1 else 1)


def add_product(factor: Array, y: Array, y_block: Block, out: Array, out_block: Block, columns: int) -> None:
    """Add ``factor``, which is contiguous, times a block of y to a block of ``out``, term by term."""
    lying, into = ((b.start, b.matrix, b.row) for b in (y_block, out_block))
    add_to_block(factor, y, lying, out, into, columns)


def less_product(factor: Array, y: Array, y_block: Block, out: Array, out_block: Block, columns: int) -> None:
    """Subtract ``factor`` times a block of y from a block of ``out``, term by term."""
    add_product(np.negative(factor, order="C"), y, y_block, out, out_block, columns)


def solve_rows(t: Array, t_block: Block, x: Array, x_block: Block, size: tuple[int, int], ending: str) -> None:
    """Solve T for a block of x with ``rows`` rows and columns, in place; T's rows are in the order of steps."""
    rows, columns = size
    batch = len(x)
    for first in range(0, rows, PANEL):
        count = min(PANEL, rows - first)
        here = x_block.at(first, 0)
        if first:
            left = _seen(t, t_block.at(first, 0), (count, first))
            less_product(left, x, x_block, x, here, columns)
        solve_panel(t, t_block.at(first, first), t, None, x, here, (count, columns), ending, batch)


def solve_panel(
    t: Array, t_block: Block, d: Array, d_steps: tuple[int, int, int] | None, x: Array, x_block: Block,
    size: tuple[int, int], ending: str, batch: int,
) -> None:  # fmt: skip
    """The same without products; divided by T's diagonal, or ``scaled`` by the elements at ``d_steps`` of ``d``."""
    rows, columns = size
    strips = -(-columns // _strip(x.dtype))
    diagonal = d_steps or (t_block.start, t_block.matrix, t_block.row + t_block.column)
    sizes = (
        t_block.start, t_block.matrix, t_block.row, t_block.column, *diagonal,
        x_block.start, x_block.matrix, x_block.row, rows, columns, strips, batch * strips,
    )  # fmt: skip
    run(f"solve_{ending}", (t, d, x), sizes, batch * rows * rows * columns)


def _seen(t: Array, block: Block, size: tuple[int, int]) -> Array:
    """A block of T as an array."""
    shape, strides = (len(t), *size), (block.matrix, block.row, block.column)
    return np.ndarray(shape, t.dtype, t, block.start, strides)


@cache
def _strip(dtype: np.dtype[Any]) -> int:
    """Columns of one strip of a triangular solve."""
    return STRIP_VECTORS * compiler.host_target().vector_bits // 8 // dtype.itemsize


def stack(x: Array) -> Array:
    """Return a copy with a single batch axis."""
    return np.array(x, order="C").reshape(math.prod(x.shape[:-2]), *x.shape[-2:])

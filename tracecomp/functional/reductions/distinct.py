"""Distinct elements and rows: ``unique``, ``unique_consecutive``."""

from __future__ import annotations

import math
from typing import Literal, overload

from tracecomp.eager.tensor import Tensor, create
from tracecomp.functional.dims import wrap_dim
from tracecomp.functional.indexing.positions import true_positions
from tracecomp.functional.primitives import prim
from tracecomp.functional.publish import function
from tracecomp.functional.shape.shaping import cut_range, movedim, to_shape
from tracecomp.ir.types import bool_, int64


def _distinct_rows(x: Tensor, dim: int | None) -> tuple[Tensor, tuple[int, ...]]:
    """The items to compare as rows of a matrix, and the shape of one of them."""
    if dim is None:
        return to_shape(x, (x.numel(), 1)), ()
    axis = wrap_dim(dim, x.ndim)
    moved = movedim(x, axis, 0)
    shape = tuple(moved.shape[1:])
    return to_shape(moved, (moved.shape[0], math.prod(shape))), shape


def _arranged(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows sorted lexicographically, and their order: stable sorts from the last column to the first."""
    n = rows.shape[0]
    if rows.shape[1] == 1:
        values, order = prim.sort(rows, axis=0, descending=False)
        return values, to_shape(order, (n,))
    order = create("iota", shape=(n,), axis=0, dtype=int64)
    for column in reversed(range(rows.shape[1])):
        keys = prim.take(to_shape(cut_range(rows.detach(), 1, column, column + 1), (n,)), order, axis=0)
        order = prim.take(order, prim.sort(keys, axis=0, descending=False)[1], axis=0)
    return prim.take(rows, order, axis=0), order


def _runs(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mark the start of each new row, and number the run of each row."""
    n = rows.shape[0]
    changed = prim.any(prim.ne(cut_range(rows, 0, 1, n), cut_range(rows, 0, 0, n - 1)), axes=(1,))
    starts = prim.concat(create("full", value=True, shape=(1,), dtype=bool_), changed, axis=0)
    return starts, prim.sub(prim.cumsum(prim.cast(starts, dtype=int64), axis=0), 1)


def _packed(
    x: Tensor, dim: int | None, ordered: bool, return_inverse: bool, return_counts: bool
) -> Tensor | tuple[Tensor, ...]:
    rows, inner = _distinct_rows(x, dim)
    n = rows.shape[0]
    if n == 0 or rows.shape[1] == 0:
        return _packed_empty(x, dim, return_inverse, return_counts)
    arranged, order = _arranged(rows) if ordered else (rows, None)
    starts, run = _runs(arranged)
    first = true_positions(starts)
    count = first.shape[0]
    values = to_shape(prim.take(arranged, first, axis=0), (count, *inner))
    values = to_shape(values, (count,)) if dim is None else movedim(values, 0, dim)
    results = [values]
    if return_inverse:
        base = create("full", value=0, shape=(n,), dtype=int64)
        inverse = run if order is None else prim.put(base, order, run, axis=0, mode="set")
        results.append(to_shape(inverse, tuple(x.shape)) if dim is None else inverse)
    if return_counts:
        ones = create("full", value=1, shape=(n,), dtype=int64)
        base = create("full", value=0, shape=(count,), dtype=int64)
        results.append(prim.put(base, run, ones, axis=0, mode="add"))
    return tuple(results) if len(results) > 1 else values


def _packed_empty(x: Tensor, dim: int | None, return_inverse: bool, return_counts: bool) -> Tensor | tuple[Tensor, ...]:
    if dim is not None and x.shape[wrap_dim(dim, x.ndim)] != 0:
        raise RuntimeError(
            "There are 0 sized dimensions, and they aren't selected by `dim`, so unique cannot be applied"
        )
    values = to_shape(x, (0,)) if dim is None else prim.cast(x, dtype=x.dtype)
    nothing = create("full", value=0, shape=(0,), dtype=int64)
    inverse = to_shape(nothing, tuple(x.shape)) if dim is None else nothing
    results = [values] + [inverse] * return_inverse + [nothing] * return_counts
    return tuple(results) if len(results) > 1 else values


@overload
def unique(
    input: Tensor, sorted: bool = True, return_inverse: Literal[False] = False,
    return_counts: Literal[False] = False, dim: int | None = None,
) -> Tensor: ...  # fmt: skip


@overload
def unique(
    input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False,
    dim: int | None = None,
) -> tuple[Tensor, ...]: ...  # fmt: skip


@function(composite=True)
def unique(
    input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False,
    dim: int | None = None,
) -> Tensor | tuple[Tensor, ...]:  # fmt: skip
    """Distinct elements (or slices along ``dim``), sorted; with their inverse indices and counts on request."""
    return _packed(input, dim, True, return_inverse, return_counts)


@overload
def unique_consecutive(
    input: Tensor, return_inverse: Literal[False] = False, return_counts: Literal[False] = False,
    dim: int | None = None,
) -> Tensor: ...  # fmt: skip


@overload
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, ...]: ...


@function(composite=True)
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Tensor | tuple[Tensor, ...]:
    """Runs of equal elements (or slices along ``dim``) reduced to one each."""
    return _packed(input, dim, False, return_inverse, return_counts)

"""Diagonals and triangles of matrices."""

from __future__ import annotations

import math

from tracecomp.eager.tensor import Tensor, create, inside
from tracecomp.functional.dims import wrap_dim
from tracecomp.functional.dtype_support import ALL
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import Number, scalar
from tracecomp.functional.publish import function
from tracecomp.functional.shape.shaping import movedim, row_major, to_shape
from tracecomp.ir.types import int64


@function(takes=ALL, composite=True)
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A matrix with a vector on a diagonal, or the diagonal of a matrix."""
    if input.ndim == 1:
        return diag_embed(input, diagonal)
    if input.ndim == 2:
        return prim.cast(input.diagonal(diagonal), dtype=input.dtype)
    raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input.ndim}D")


@function(takes=ALL, composite=True)
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The last dimension spread on a diagonal of two new dimensions."""
    ndim = input.ndim + 1
    a, b = wrap_dim(dim1, ndim), wrap_dim(dim2, ndim)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    n = input.shape[-1]
    size = n + abs(offset)
    rows = prim.pad(
        input, low=(0,) * (input.ndim - 1) + (max(offset, 0),), high=(0,) * (input.ndim - 1) + (max(-offset, 0),),
        interior=(0,) * input.ndim, value=0,
    )  # fmt: skip
    lifted = prim.expand(prim.reshape(rows, shape=(*input.shape[:-1], 1, size)), shape=(*input.shape[:-1], size, size))
    row = create("iota", shape=(size, size), axis=0, dtype=int64)
    column = create("iota", shape=(size, size), axis=1, dtype=int64)
    full = prim.where(inside(prim.eq(prim.sub(column, row), offset)), lifted, scalar(0, input.dtype))
    return movedim(full, (-2, -1), (a, b))


@function(takes=ALL, composite=True)
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """A matrix with the flattened elements on a diagonal."""
    return diag_embed(to_shape(input, (input.numel(),)), offset)


def _triangle(input: Tensor, diagonal: int, lower: bool, name: str) -> Tensor:
    if input.ndim < 2:
        raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
    rows, columns = input.shape[-2:]
    row = create("iota", shape=(rows, columns), axis=0, dtype=int64)
    column = create("iota", shape=(rows, columns), axis=1, dtype=int64)
    offset = prim.sub(column, row)
    mask = prim.le(offset, diagonal) if lower else prim.ge(offset, diagonal)
    return prim.where(inside(mask), row_major(input), scalar(0, input.dtype))


@function(takes=ALL, inplace=True, composite=True)
def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangle of matrices, the rest zero."""
    return _triangle(input, diagonal, True, "tril")


@function(takes=ALL, inplace=True, composite=True)
def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangle of matrices, the rest zero."""
    return _triangle(input, diagonal, False, "triu")


@function(takes=ALL, inplace=True)
def fill_diagonal(input: Tensor, fill_value: Number, wrap: bool = False) -> Tensor:
    """A copy with ``fill_value`` on the main diagonal."""
    if input.ndim < 2:
        raise RuntimeError("dimensions must larger than 1")
    if input.ndim > 2 and len(set(input.shape)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    step = sum(math.prod(input.shape[i + 1 :]) for i in range(input.ndim))
    count = input.numel()
    if input.ndim == 2 and not wrap:
        count = min(count, input.shape[1] * input.shape[1])
    flat = to_shape(input, (input.numel(),))
    place = create("iota", shape=(input.numel(),), axis=0, dtype=int64)
    hit = prim.bitwise_and(prim.eq(prim.remainder(place, step), 0), prim.lt(place, count))
    return to_shape(prim.where(inside(hit), scalar(fill_value, input.dtype), flat), tuple(input.shape))

"""Copies in another arrangement: repeated, reversed, rolled, rotated, on a block diagonal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracecomp.eager.tensor import Tensor, wrap
from tracecomp.functional.dims import Dim, Sizes, as_shape, wrap_dim, wrap_dims
from tracecomp.functional.dtype_support import ALL
from tracecomp.functional.memory_formats import common_format, copied
from tracecomp.functional.primitives import prim
from tracecomp.functional.publish import function
from tracecomp.functional.shape.shaping import clone, cut_range, in_new_memory, listed, to_shape, transpose
from tracecomp.ir.types import DType, promote


@function(takes=ALL)
def tile(input: Tensor, *dims: Sizes) -> Tensor:
    """Repeated ``dims`` times; missing leading entries are 1."""
    counts = as_shape(dims)
    counts = (1,) * (input.ndim - len(counts)) + counts
    return repeat(input, counts)


@function(to="Tensor", takes=ALL, composite=True)
def repeat(input: Tensor, *repeats: Sizes) -> Tensor:
    """Copies along every dimension."""
    counts = as_shape(repeats)
    lead = len(counts) - input.ndim
    if lead < 0:
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor")
    if any(c < 0 for c in counts):
        raise RuntimeError(f"Trying to create tensor with negative dimension: repeats {list(counts)}")
    shape = (1,) * lead + tuple(input.shape)
    pairs = tuple(n for s in shape for n in (1, s))
    wide = tuple(n for c, s in zip(counts, shape, strict=True) for n in (c, s))
    spread = prim.expand(prim.reshape(input, shape=pairs), shape=wide)
    copied = prim.reshape(spread, shape=tuple(c * s for c, s in zip(counts, shape, strict=True)))
    return in_new_memory(copied, input)


@function(takes=ALL, composite=True)
def flip(input: Tensor, *dims: Sizes) -> Tensor:
    """The order of elements reversed along ``dims``, as a copy."""
    if not dims:
        raise TypeError('flip() missing 1 required positional arguments: "dims"')
    axes = wrap_dims(as_shape(dims), input.ndim)
    return clone(prim.flip(input, axes=tuple(sorted(axes)) if input.ndim else ()))


@function(takes=ALL)
def fliplr(input: Tensor) -> Tensor:
    """Columns reversed."""
    if input.ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return flip(input, 1)


@function(takes=ALL)
def flipud(input: Tensor) -> Tensor:
    """Rows reversed."""
    if input.ndim < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return flip(input, 0)


@function(takes=ALL, composite=True)
def roll(input: Tensor, shifts: Sizes, dims: Dim = None) -> Tensor:
    """Elements moved around by ``shifts`` along ``dims``; without dims, in the flattened order."""
    shifts = as_shape((shifts,))
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        if len(shifts) != 1:
            raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:0")
        flat = prim.reshape(input, shape=(input.numel(),))
        return prim.reshape(_roll(flat, shifts[0], 0), shape=tuple(input.shape))
    dims = as_shape((dims,))
    if len(shifts) != len(dims):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}")
    if dims and input.ndim == 0:
        raise IndexError(f"Dimension specified as {dims[0]} but tensor has no dimensions")
    result = input
    for shift, dim in zip(shifts, dims, strict=True):
        result = _roll(result, shift, wrap_dim(dim, input.ndim))
    return clone(result) if result is input else copied(input, result, common_format([input]))


def _roll(x: Tensor, shift: int, axis: int) -> Tensor:
    if x.ndim == 0 or x.shape[axis] == 0 or shift % x.shape[axis] == 0:
        return clone(x)
    cut = x.shape[axis] - shift % x.shape[axis]
    return prim.concat(cut_range(x, axis, cut, x.shape[axis]), cut_range(x, axis, 0, cut), axis=axis)


@function(takes=ALL, composite=True)
def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Rotated by 90 degrees ``k`` times in the plane of ``dims``, from the first towards the second."""
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if input.ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {input.ndim}")
    if dims[0] == dims[1] or abs(dims[0] - dims[1]) == input.ndim:
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    a, b = wrap_dim(dims[0], input.ndim), wrap_dim(dims[1], input.ndim)
    turns = k % 4
    if turns == 2:
        return flip(input, a, b)
    if turns == 0:
        return clone(input)
    return transpose(flip(input, b if turns == 1 else a), a, b).clone()


def _atleast(ndim: int) -> Any:
    def one(x: Tensor) -> Tensor:
        shape = tuple(x.shape)
        if len(shape) >= ndim:
            return x
        if ndim == 3 and len(shape) == 2:
            return prim.reshape(x, shape=(*shape, 1))
        padded = {(1, 0): (1,), (2, 0): (1, 1), (2, 1): (1, *shape), (3, 0): (1, 1, 1), (3, 1): (1, *shape, 1)}
        return prim.reshape(x, shape=padded[ndim, len(shape)])

    def run(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
        if len(tensors) == 1 and isinstance(tensors[0], Tensor):
            return one(tensors[0])
        return tuple(one(x) for x in listed(tensors))

    run.__name__ = f"atleast_{ndim}d"
    run.__doc__ = f"Tensors with dimensions of size 1 added so that each has at least {ndim}."
    return function(to="torch", takes=ALL)(run)


for _ndim in (1, 2, 3):
    _atleast(_ndim)


@function(to="torch", takes=ALL)
def block_diag(*tensors: Tensor) -> Tensor:
    """Matrices placed along the diagonal of a matrix of zeros."""
    for i, x in enumerate(tensors):
        if not isinstance(x, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type(x).__name__}")
        if x.ndim > 2:
            raise RuntimeError(
                f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {i} has {x.ndim} dimensions"
            )
    if not tensors:
        return wrap(np.zeros((1, 0), np.float32))
    matrices = [to_shape(x, (1,) * (2 - x.ndim) + tuple(x.shape)) for x in tensors]
    width = sum(m.shape[1] for m in matrices)
    rows, left = [], 0
    dtype = promoted(matrices)
    for m in matrices:
        right = width - left - m.shape[1]
        padded = prim.pad(prim.cast(m, dtype=dtype), low=(0, left), high=(0, right), interior=(0, 0), value=0)
        rows.append(padded)
        left += m.shape[1]
    return prim.concat(*rows, axis=0)


def promoted(tensors: Sequence[Tensor]) -> DType:
    """The dtype that joins ``tensors``."""
    from_all = tensors[0].dtype
    for x in tensors[1:]:
        from_all = promote(from_all, x.dtype)
    return from_all

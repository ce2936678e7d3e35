"""Sorting, order statistics, searching and distinct values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, overload

from tracecomp.eager.tensor import Tensor, create
from tracecomp.functional.dims import keep_dims, one_axis, wrap_dim
from tracecomp.functional.dtype_support import NUMBERS
from tracecomp.functional.memory_formats import copied
from tracecomp.functional.named_results import (
    KthvalueResult,
    MedianResult,
    ModeResult,
    NanmedianResult,
    SortResult,
    TopkResult,
    ValuesIndices,
)  # fmt: skip
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import cast, scalar
from tracecomp.functional.publish import function
from tracecomp.functional.reductions.reduction import pick
from tracecomp.functional.shape.shaping import cut_range, movedim, to_shape
from tracecomp.functional.value_checks import is_fraction, required
from tracecomp.ir.types import int64


def sorted_pair(x: Tensor, axis: int, descending: bool = False) -> tuple[Tensor, Tensor]:
    """Sorted values and their positions; 0-d tensors are already sorted."""
    if x.ndim == 0:
        return prim.cast(x, dtype=x.dtype), create("full", value=0, shape=(), dtype=int64)
    values, indices = prim.sort(x, axis=axis, descending=descending)
    return values, indices


@overload
def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool | None = None) -> ValuesIndices: ...
@overload
def sort(input: Tensor, stable: bool | None = None, dim: int = -1, descending: bool = False) -> ValuesIndices: ...
@function(composite=True)
def sort(input: Tensor, *args: Any, **kwargs: Any) -> ValuesIndices:
    """``sort(dim=-1, descending=False, stable=False)``: (values, indices), equal elements in their old order."""
    names = ("stable", "dim", "descending") if len(args) == 3 else ("dim", "descending")
    given = dict(zip(names, args, strict=False)) | kwargs
    axis = wrap_dim(given.get("dim", -1), input.ndim)
    values, indices = sorted_pair(input, axis, bool(given.get("descending", False)))
    return SortResult(copied(input, values, None), copied(input, indices, None))


@function(composite=True)
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The indices that sort ``input`` along ``dim``."""
    return copied(input, sorted_pair(input, wrap_dim(dim, input.ndim), descending)[1], None)


@function(composite=True)
def msort(input: Tensor) -> Tensor:
    """Sorted along the first dimension."""
    return copied(input, sorted_pair(input, 0)[0], None)


@function(takes=NUMBERS, composite=True)
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> ValuesIndices:
    """The ``k`` largest (or smallest) elements along ``dim``, in order, and their positions."""
    axis = wrap_dim(dim, input.ndim)
    if k < 0 or k > (input.shape[axis] if input.ndim else 1):
        raise RuntimeError("selected index k out of range")
    if input.ndim == 0:
        return TopkResult(*sorted_pair(input, axis))
    return TopkResult(*prim.topk(input, axis=axis, count=k, descending=largest))


def _at_rank(x: Tensor, axis: int, rank: Any, keepdim: bool) -> tuple[Tensor, Tensor]:
    """The element of that rank (a number, or one per row) in sorted order, and its position."""
    if x.ndim == 0:
        return sorted_pair(x, 0)
    if isinstance(rank, int):
        _, order = prim.topk(x, axis=axis, count=rank + 1, descending=False)
        where = cut_range(order, axis, rank, rank + 1)
    else:
        where = prim.gather(sorted_pair(x, axis)[1], rank, axis=axis)
    return pick(x, where, axis, keepdim)


@function(takes=NUMBERS, composite=True)
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The ``k``-th smallest element (counted from 1) along ``dim`` and its position."""
    axis = one_axis(dim, input.ndim, "kthvalue", tuple(input.shape))
    if not 1 <= k <= (input.shape[axis] if input.ndim else 1):
        raise RuntimeError("kthvalue(): selected number k out of range for dimension " + str(axis))
    return KthvalueResult(*_at_rank(input, axis, k - 1, keepdim))


def _median_rank(x: Tensor, axis: int, skip_nan: bool) -> Any:
    """Rank of the lower median: of all, where any NaN wins, or of elements that are not NaN."""
    n = x.shape[axis] if x.ndim else 1
    if not x.dtype.is_floating_point or x.ndim == 0:
        return (n - 1) // 2
    nans = prim.sum(prim.cast(prim.isnan(x), dtype=int64), axes=(axis,))
    if skip_nan:
        rank = prim.floor_divide(prim.maximum(prim.sub(n - 1, nans), 0), 2)
    else:
        rank = prim.where(prim.gt(nans, 0), prim.sub(n, nans), (n - 1) // 2)
    return to_shape(rank, keep_dims(x.shape, (axis,)))


def _shared_by_equals(x: Tensor, value: Tensor) -> Tensor:
    """``value``, a float of the vector ``x``, with a gradient that all elements equal to it share, as in PyTorch.

    A finite one is the maximum of these, which has such a gradient and no error of rounding. Infinities and NaN are the
    mean of these.
    """
    same = prim.where(prim.isnan(value), prim.isnan(x), prim.eq(x, value))
    finite = prim.lt(prim.abs(value), math.inf)
    largest = prim.max(prim.where(prim.bitwise_and(same, finite), x, -math.inf), axes=(0,))
    count = prim.sum(prim.cast(same, dtype=x.dtype), axes=(0,))
    return prim.where(finite, largest, prim.div(prim.sum(prim.where(same, x, 0.0), axes=(0,)), count))


def _median(name: str, result: Any, x: Tensor, dim: int | None, keepdim: bool, skip_nan: bool) -> Any:
    if dim is None:
        if x.numel() == 0:
            return create("full", value=scalar(math.nan if x.dtype.is_floating_point else 0, x.dtype), shape=(),
                          dtype=x.dtype)  # fmt: skip
        flat = to_shape(x, (x.numel(),))
        value = _at_rank(flat.detach(), 0, _median_rank(flat, 0, skip_nan), False)[0]
        return _shared_by_equals(flat, value) if x.dtype.is_floating_point else value
    axis = one_axis(dim, x.ndim, name, tuple(x.shape))
    return result(*_at_rank(x, axis, _median_rank(x, axis, skip_nan), keepdim))


@overload
def median(input: Tensor) -> Tensor: ...
@overload
def median(input: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...
@function(takes=NUMBERS, composite=True)
def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median; with ``dim``, (values, indices). NaN if there is any."""
    return _median("median", MedianResult, input, dim, keepdim, False)


@overload
def nanmedian(input: Tensor) -> Tensor: ...
@overload
def nanmedian(input: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...
@function(takes=NUMBERS, composite=True)
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of elements that are not NaN; with ``dim``, (values, indices)."""
    return _median("nanmedian", NanmedianResult, input, dim, keepdim, True)


@function(composite=True)
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The most frequent value along ``dim`` (the smallest of several) and the position of its last occurrence."""
    axis = one_axis(dim, input.ndim, "mode", tuple(input.shape))
    if input.ndim == 0:
        return ModeResult(*sorted_pair(input, 0))
    x = movedim(input, axis, -1)
    n, last = x.shape[-1], x.ndim - 1
    values, order = sorted_pair(x.detach(), last)
    lead = tuple(x.shape[:-1])
    place = create("iota", shape=(*lead, n), axis=last, dtype=int64)
    new = prim.ne(cut_range(values, last, 1, n), cut_range(values, last, 0, n - 1))
    starts = prim.mul(cut_range(place, last, 1, n), prim.cast(new, dtype=int64))
    starts = prim.concat(cut_range(place, last, 0, 1), starts, axis=last)
    before = prim.sub(place, prim.cummax(starts, axis=last)[0])  # equal values in front
    end = to_shape(prim.argmax(before, axes=(last,)), (*lead, 1))
    where = prim.gather(order, end, axis=last)
    return ModeResult(*pick(input, movedim(where, -1, axis), axis, keepdim))


def _quantile(
    input: Tensor, q: float | Tensor, dim: int | None, keepdim: bool, interpolation: str, skip_nan: bool
) -> Tensor:
    """Quantiles; checks run in PyTorch's order, so that the same error is raised."""
    if interpolation not in ("linear", "lower", "higher", "midpoint", "nearest"):
        raise RuntimeError(
            "quantile() interpolation must be one of linear, lower, higher, midpoint or nearest, but got "
            + interpolation
        )
    if not input.dtype.is_floating_point or input.dtype.itemsize < 4:
        raise RuntimeError("quantile() input tensor must be either float or double dtype")
    levels = q if isinstance(q, Tensor) else create("full", value=float(q), shape=(), dtype=input.dtype)
    if levels.ndim > 1:
        raise RuntimeError("quantile() q must be a scalar or 1D tensor")
    if levels.dtype is not input.dtype:
        raise RuntimeError("quantile() q tensor must be same dtype as the input tensor")
    if input.numel() == 0:
        raise RuntimeError("quantile() input tensor must be non-empty")
    levels = required(levels, is_fraction, "quantile() q values must be in the range [0, 1]")
    # All elements are one row, or the axis is moved to the end: ``_ranked`` sorts along the last one.
    original = input.ndim
    axis = 0 if dim is None else wrap_dim(dim, input.ndim)
    kept = (1,) * original if dim is None else keep_dims(input.shape, (axis,) if original else ())
    x = to_shape(input, (input.numel(),)) if dim is None or input.ndim == 0 else movedim(input, axis, -1)
    found = _ranked(x, to_shape(levels, (levels.numel(),)), interpolation, skip_nan)
    # One quantile for each level, in front; a single level has no axis.
    shape = kept if keepdim else tuple(found.shape[1:])
    return to_shape(found, ((levels.numel(),) if levels.ndim else ()) + shape)


def _ranked(x: Tensor, levels: Tensor, interpolation: str, skip_nan: bool) -> Tensor:
    """Quantiles along the last axis, the levels in front."""
    last, n = x.ndim - 1, x.shape[-1]
    nans = prim.sum(prim.cast(prim.isnan(x), dtype=int64), axes=(last,))
    values, _ = sorted_pair(x, last)
    lead, k = tuple(x.shape[:-1]), levels.numel()
    top = prim.sub(n - 1, nans) if skip_nan else create("full", value=n - 1, shape=lead, dtype=int64)
    top = prim.cast(prim.maximum(top, 0), dtype=x.dtype)
    rank = prim.mul(prim.reshape(levels, shape=(k,) + (1,) * len(lead)), prim.reshape(top, shape=(1, *lead)))
    if not skip_nan:
        broken = prim.reshape(prim.gt(nans, 0), shape=(1, *lead))
        rank = prim.where(broken, float(n - 1), rank)
    if interpolation in ("lower", "higher", "nearest"):
        rank = getattr(prim, {"lower": "floor", "higher": "ceil", "nearest": "round"}[interpolation])(rank)
    low = prim.floor(rank)
    below = _rows(values, low)
    if interpolation not in ("linear", "midpoint"):
        return below
    above = _rows(values, prim.ceil(rank))
    weight = prim.sub(rank, low)
    if interpolation == "midpoint":
        weight = prim.mul(prim.cast(prim.gt(weight, 0.0), dtype=x.dtype), 0.5)
    return below.lerp(above, weight)


def _rows(values: Tensor, rank: Tensor) -> Tensor:
    """values[..., rank[k, ...]] with the level axis in front."""
    places = movedim(prim.cast(rank, dtype=int64), 0, -1)
    return movedim(prim.gather(values, places, axis=values.ndim - 1), -1, 0)


@function(composite=True)
def quantile(
    input: Tensor, q: float | Tensor, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """Quantiles at levels ``q`` along ``dim``; NaN if there is any."""
    return _quantile(input, q, dim, keepdim, interpolation, False)


@function(composite=True)
def nanquantile(
    input: Tensor, q: float | Tensor, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """:func:`quantile` of elements that are not NaN."""
    return _quantile(input, q, dim, keepdim, interpolation, True)


@function(to="torch", composite=True)
def unravel_index(indices: Tensor, shape: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Flat positions as one index tensor per dimension of ``shape``."""
    sizes = [int(n) for n in ([shape] if isinstance(shape, int) else shape)]
    if indices.dtype.kind != "int":
        raise TypeError(f"expected 'indices' to be integer dtype, but got {indices.dtype}")
    if any(n < 0 for n in sizes):
        raise ValueError(f"'shape' cannot have negative values, but got {tuple(sizes)}")
    found, rest = [], cast(indices, int64)
    for n in reversed(sizes):
        found.append(prim.remainder(rest, n))
        rest = prim.floor_divide(rest, n)
    return tuple(found[::-1])

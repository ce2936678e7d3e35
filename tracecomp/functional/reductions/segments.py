"""Reductions of consecutive segments of an axis."""

from __future__ import annotations

from tracecomp.eager.tensor import Tensor, create
from tracecomp.functional.dims import wrap_dim
from tracecomp.functional.indexing.gathering import scatter_reduce
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import Number, not_implemented, scalar
from tracecomp.functional.publish import function
from tracecomp.functional.reductions.cumulative import cumsum
from tracecomp.functional.reductions.searching import searchsorted
from tracecomp.functional.shape.joining import cat
from tracecomp.functional.shape.shaping import cut_range
from tracecomp.ir.types import int32, int64

_MODES = {"sum": "sum", "mean": "mean", "prod": "prod", "max": "amax", "min": "amin", "amax": "amax", "amin": "amin"}
_OF_NOTHING = {"sum": 0.0, "mean": float("nan"), "prod": 1.0, "amax": -float("inf"), "amin": float("inf")}


@function(composite=True)
def segment_reduce(
    data: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False, initial: Number | None = None,
) -> Tensor:  # fmt: skip
    """Reduce each segment of ``axis`` to one element: "sum", "mean", "max", "min" or "prod".

    Segments are consecutive: ``lengths`` (..., S) has their lengths, or ``offsets`` (..., S + 1) their starts and the
    end of the last one. The leading dimensions are those of ``data`` before ``axis``. ``initial`` takes part in every
    segment, and is the result of empty ones. RuntimeError when they do not fit; ``unsafe`` skips the check of values.
    """
    mode, given = _checked(data, reduce, lengths, indices, offsets)
    axis = wrap_dim(axis, data.ndim)
    name = "offsets" if lengths is None else "lengths"
    if given.ndim - 1 != axis:
        raise RuntimeError(f"segment_reduce(): Expected axis to be the last dimension of {name} but got {axis}.")
    if tuple(given.shape[:-1]) != tuple(data.shape[:axis]):
        raise RuntimeError(f"segment_reduce(): Expected {name} and data to have the same dimensions before the axis.")
    count, n = given.shape[-1] - (lengths is None), data.shape[axis]
    if lengths is not None:
        _check_lengths(given, n, unsafe)
        begin = create("full", value=0, shape=(*given.shape[:-1], 1), dtype=int64)
        given = cat([begin, cumsum(given, -1)], -1)
    place = create("iota", shape=(*given.shape[:-1], n), axis=axis, dtype=int64)
    at = searchsorted(cut_range(given, axis, 1, count + 1).contiguous(), place, right=True)
    outside = prim.bitwise_or(prim.lt(place, cut_range(given, axis, 0, 1)), prim.ge(at, count))
    at = prim.where(outside, count, at)  # an additional segment takes the elements outside all others
    return _reduced(data, at, axis, count, mode, initial)


def _checked(
    data: Tensor, reduce: str, lengths: Tensor | None, indices: Tensor | None, offsets: Tensor | None
) -> tuple[str, Tensor]:
    if reduce not in _MODES:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    if not data.is_floating_point():
        raise not_implemented("_segment_reduce_cpu", data.dtype)
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet.")
    given = offsets if lengths is None else lengths
    if given is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    if given.dtype not in (int32, int64):
        raise not_implemented("_segment_reduce_lengths_cpu_kernel1", given.dtype)
    return _MODES[reduce], prim.cast(given, dtype=int64)


def _check_lengths(lengths: Tensor, n: int, unsafe: bool) -> None:
    if unsafe or not lengths.numel():
        return
    if bool((lengths < 0).any()):
        raise RuntimeError("lengths contains negative value!")
    if bool((lengths.sum(-1) != n).any()):
        raise RuntimeError(
            "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when "
            "!unsafe."
        )


def _reduced(data: Tensor, at: Tensor, axis: int, count: int, mode: str, initial: Number | None) -> Tensor:
    """Reduce the elements of ``axis`` in ``data`` that have the same number below ``count`` in ``at``."""
    shape = (*data.shape[:axis], count + 1, *data.shape[axis + 1 :])
    at = prim.expand(prim.reshape(at, shape=(*at.shape, *[1] * (data.ndim - axis - 1))), shape=tuple(data.shape))
    given = 0.0 if mode == "sum" and initial is None else initial
    start = _OF_NOTHING[mode] if given is None else given
    base = create("full", value=start, shape=shape, dtype=data.dtype)
    if given is None or mode in ("sum", "prod"):
        found = scatter_reduce(base, axis, at, data, mode, include_self=mode in ("sum", "prod"))
    elif mode == "mean":  # the initial value is added, not counted
        ones = create("full", value=1, shape=tuple(data.shape), dtype=int64)
        counts = scatter_reduce(create("full", value=0, shape=shape, dtype=int64), axis, at, ones, "sum")
        total = scatter_reduce(base, axis, at, data, "sum")
        found = prim.div(total, prim.cast(counts.clamp(min=1), dtype=data.dtype))
    else:
        found = scatter_reduce(base, axis, at, data, mode, include_self=False)
        first = prim.gt(base, found) if mode == "amax" else prim.lt(base, found)
        found = prim.where(first, scalar(start, data.dtype), found)
    return cut_range(found, axis, 0, count)

"""The numpy meaning of ``sort`` and ``topk``."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracecomp.ir.arrays import Array
from tracecomp.ir.types import compute_dtype, from_numpy_dtype


def ordered(x: Array, *, axis: int, descending: bool) -> Any:
    """Return all elements along an axis in order, equal ones in their old order, and their positions."""
    # numpy knows only "less than" for bfloat16, and NaN is never less: it would end up anywhere.
    wide = x.astype(compute_dtype(from_numpy_dtype(x.dtype)).numpy) if x.dtype.kind == "V" else x
    if descending:
        flipped = np.flip(wide, axis)
        order = x.shape[axis] - 1 - np.flip(np.argsort(flipped, axis=axis, kind="stable"), axis)
    else:
        order = np.argsort(wide, axis=axis, kind="stable")
    return np.take_along_axis(x, order, axis), order.astype(np.int64, copy=False)


def first_ordered(x: Array, *, axis: int, count: int, descending: bool) -> Any:
    """The first ``count`` elements of that order, and their positions."""
    if not 0 < 4 * count < x.shape[axis]:
        first = (slice(None),) * axis + (slice(count),)
        return tuple(np.ascontiguousarray(r[first]) for r in ordered(x, axis=axis, descending=descending))
    lines = np.moveaxis(x, axis, -1)
    places = _first_places(_keys(lines, descending), count)
    found = np.take_along_axis(lines, places, -1), places.astype(np.int64, copy=False)
    return tuple(np.ascontiguousarray(np.moveaxis(r, -1, axis)) for r in found)


def _first_places(keys: Array, count: int) -> Any:
    """The positions of the ``count`` smallest of every line, in order; of equal ones the first."""
    limit = np.partition(keys, count - 1, axis=-1)[..., count - 1 : count]
    chosen, last = keys < limit, keys == limit
    wanted = count - chosen.sum(-1, keepdims=True)
    if (last.sum(-1, keepdims=True) > wanted).any():
        last &= last.cumsum(-1) <= wanted
    places = np.nonzero(chosen | last)[-1].reshape(*keys.shape[:-1], count)
    order = np.argsort(np.take_along_axis(keys, places, -1), axis=-1, kind="stable")
    return np.take_along_axis(places, order, -1)


def _keys(x: Array, descending: bool) -> Any:
    """Integers in the wanted order of the elements; zeros are equal, NaN is the greatest."""
    if x.dtype.kind in "biu":
        keys = x.view(np.uint8) if x.dtype.kind == "b" else x
    else:
        wide = x.astype(compute_dtype(from_numpy_dtype(x.dtype)).numpy) + 0.0  # of two zeros the positive one
        bits = wide.view(f"i{wide.dtype.itemsize}")
        greatest = np.iinfo(bits.dtype).max
        keys = bits ^ ((bits >> (8 * bits.itemsize - 1)) & greatest)
        keys[np.isnan(wide)] = greatest
    return ~keys if descending else keys

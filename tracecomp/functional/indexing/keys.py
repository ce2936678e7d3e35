"""Parsing of keys of ``x[key]``: integers, slices, Ellipsis, None, masks and index tensors, mixed.

All basic parts (integers, slices, None) become one view. The rest are index tensors for some dimensions of that view;
masks are converted to positions.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import lru_cache
from types import EllipsisType
from typing import Any, TypeAlias, TypeGuard

import numpy as np

from tracecomp.base.user_warnings import warn_as_pytorch
from tracecomp.eager.foreign import check_takes
from tracecomp.eager.modes import modes
from tracecomp.eager.tensor import Tensor, wrap
from tracecomp.eager.tensor_base import View
from tracecomp.functional.creation.creation import tensor_of
from tracecomp.functional.dims import Shape, as_index, clamped, is_index
from tracecomp.functional.indexing.positions import mask_positions
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import cast
from tracecomp.functional.shape.shaping import to_shape
from tracecomp.ir.op import OPS
from tracecomp.ir.types import bool_, int8, int16, int32, int64, same_shape, uint8

Part: TypeAlias = int | tuple[int | None, int | None, int | None] | EllipsisType | None
Advanced = list[tuple[int, Tensor]]
_LONG = 32
"""Length above which a list is always positions, for any contents."""


def normal_index(index: Tensor, size: int, axis: int) -> Tensor:
    """Non-negative positions in int64; IndexError when one is out of range."""
    places, here = index._data, getattr(size, "value", size)  # a dynamic size is not read
    if index.is_meta:
        return cast(index, int64)
    low, high = (places.min(), places.max()) if places.size else (0, -1)
    negative = modes.recorder is not None or low < 0
    if low < -here or high >= here:
        bad = int(places[(places < -here) | (places >= here)].flat[0])
        raise IndexError(f"index {bad} is out of bounds for dimension {axis} with size {size}")
    index = cast(index, int64)
    return prim.where(prim.lt(index, 0), prim.add(index, size), index) if negative else index


def byte_mask(mask: Tensor) -> Tensor:
    warn_as_pytorch("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.")
    return cast(mask, bool_)


def _index_tensor(item: object) -> Tensor:
    if isinstance(item, Tensor):
        number = not item.ndim and item.dtype in (int8, int16)
        if item.dtype not in (int64, int32, uint8, bool_) and not number:
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
        return byte_mask(item) if item.dtype is uint8 else item
    if isinstance(item, Sequence) and not len(item):
        return wrap(np.zeros((0,), np.int64))
    if isinstance(item, float | complex | set | frozenset | dict):
        kind = type(item).__name__
        raise IndexError(f"only integers, slices, `...`, None and tensors of integers or bools index (got {kind})")
    index = tensor_of(list(item) if isinstance(item, range) else item, None)
    if index.dtype.kind not in ("int", "bool"):
        raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    return index


def is_number(item: object) -> bool:
    """Whether an index entry is a tensor with a single integer."""
    return isinstance(item, Tensor) and not item.ndim and item.dtype not in (bool_, uint8)


def _is_basic(item: object) -> bool:
    if item is None or item is Ellipsis or isinstance(item, slice | bool | int | np.integer):
        return True
    if isinstance(item, Tensor | np.ndarray | list | tuple | range):
        return False
    check_takes("indexing", (type(item),))  # a tensor of PyTorch with one element has ``__index__``
    return is_index(item)


def _followed(item: object) -> Any:
    """An index entry, as a tensor if it is a dynamic number of the current recording."""
    follow = getattr(type(item), "__tracecomp_tensor__", None)
    sized = hasattr(type(item), "number")  # a size keeps its expression
    tensor = None if follow is None or sized or not isinstance(item, int) else follow(item)
    return item if tensor is None else tensor


def _consumed(item: object) -> int:
    """The number of dimensions that an index entry consumes."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    if isinstance(item, Tensor) and item.dtype is bool_:
        return item.ndim
    return 1


def _is_tuple(key: object) -> TypeGuard[Sequence[Any]]:
    """Whether each part of ``key`` indexes a dimension, as in short lists with entries other than numbers."""
    if isinstance(key, tuple):
        return True
    if not isinstance(key, list) or len(key) >= _LONG or not any(_indexes_alone(part) for part in key):
        return False
    warn_as_pytorch(
        "Using a non-tuple sequence for multidimensional indexing is deprecated: it is taken as x[tuple(seq)]; write "
        "that, or x[torch.tensor(seq)] for positions of the first dimension"
    )
    return True


def _indexes_alone(part: object) -> bool:
    return part is None or part is Ellipsis or isinstance(part, slice | Tensor | Sequence | np.ndarray)


def entries(key: object, ndim: int) -> list[Any]:
    """The index as one entry per dimension (None and masks aside): Ellipsis is expanded."""
    items = list(key) if _is_tuple(key) else [key]
    items = [_followed(x) if _is_basic(x) else _index_tensor(x) for x in items]
    items = [bool(x) if isinstance(x, Tensor) and x.dtype is bool_ and not x.ndim else x for x in items]
    # A recording keeps the tensor: another call may have another number.
    if modes.recorder is None:
        items = [int(x._data) if isinstance(x, Tensor) and is_number(x) and not x.is_meta else x for x in items]
    used = sum(map(_consumed, items))
    if used > ndim:
        raise IndexError(f"too many indices for tensor of dimension {ndim}")
    fill = [slice(None)] * (ndim - used)
    if not any(x is Ellipsis for x in items):
        return items + fill
    # As in PyTorch, each of several consumes as many dimensions as a single one.
    spelled = [entry for x in items for entry in (fill if x is Ellipsis else (x,))]
    while sum(map(_consumed, spelled)) > ndim and isinstance(spelled[-1], slice) and spelled[-1] == slice(None):
        spelled.pop()
    if sum(map(_consumed, spelled)) > ndim:
        raise IndexError(f"too many indices for tensor of dimension {ndim}: each Ellipsis is {len(fill)} dimensions")
    return spelled


def resolve(x: Tensor, key: object) -> tuple[Tensor, Advanced]:
    """The basic part of the index as a view of ``x``, and index tensors for some of its dimensions."""
    # First: a missing dimension has no size to compare with.
    if x.ndim == 0 and not isinstance(key, tuple) and isinstance(key, int) and not isinstance(key, bool):
        raise IndexError(
            "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to convert a "
            "0-dim tensor to a number"
        )
    starts, stops, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
    shape: list[int] = []
    advanced: Advanced = []
    axis = 0
    for item in entries(key, x.ndim):
        # None adds an axis. A bool does too, and then keeps or drops it: an index of one position or of zero.
        if item is None or isinstance(item, bool):
            if isinstance(item, bool):
                advanced.append((len(shape), wrap(np.zeros((1 if item else 0,), np.int64))))
            shape.append(1)
        elif isinstance(item, slice):
            starts[axis], stops[axis], steps[axis] = _slice(item, x.shape[axis])
            shape.append(-(-(stops[axis] - starts[axis]) // steps[axis]))
            axis += 1
        elif isinstance(item, Tensor):
            advanced += _tensor_entry(item, x, axis, len(shape))
            used = _consumed(item)
            shape += x.shape[axis : axis + used]
            axis += used
        else:
            # A number is a slice of length one whose axis is dropped from the shape.
            starts[axis] = _integer(as_index(item), x.shape[axis], axis)
            stops[axis] = starts[axis] + 1
            axis += 1
    view = x
    # One slice for the whole key, so that views of views stay short; no slice if nothing changes.
    whole = all(_same_size(a, 0) for a in starts) and all(map(_same_size, stops, x.shape))
    if not whole or any(s != 1 for s in steps):
        view = prim.slice(x, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))
    elif same_shape(shape, x.shape):
        view = prim.reshape(x, shape=tuple(shape)) if not advanced else x
    return to_shape(view, shape), advanced


def _same_size(a: int, b: int) -> bool:
    """Whether two sizes are equal in every call of a recording.

    A slice that happens to end at the size of an axis stays a slice: comparing a dynamic size with a number would
    exclude that number from the recording's valid sizes.
    """
    if type(a) is int and type(b) is int:
        return a == b
    return bool(getattr(a, "__graph_key__", a) == getattr(b, "__graph_key__", b))


@lru_cache(4096)
def steps_to(shape: Shape, parts: tuple[Part, ...]) -> tuple[View, ...]:
    """Return the views that select ``parts`` of the first dimensions; empty if ``resolve`` has to do it."""
    picks = sum(part is not None and part is not Ellipsis for part in parts)
    if not parts or picks > len(shape) or 0 in shape or parts.count(Ellipsis) > 1:
        return ()
    if Ellipsis in parts:
        at, rest = parts.index(Ellipsis), ((None, None, None),) * (len(shape) - picks)
        parts = (*parts[:at], *rest, *parts[at + 1 :])
    kept: list[int] = []
    bounds: list[tuple[int, int, int]] = []
    for part in parts:
        axis = len(bounds)
        if part is None:
            kept.append(1)
        elif isinstance(part, tuple):
            bounds.append(_slice(slice(*part), shape[axis]))
            kept.append(len(range(*bounds[-1])))
        elif isinstance(part, int):
            # A number is a slice of length one whose axis is dropped from the shape.
            start = _integer(part, shape[axis], axis)
            bounds.append((start, start + 1, 1))
    behind = shape[len(bounds) :]
    cuts = (*bounds, *[(0, n, 1) for n in behind])
    found: tuple[View, ...] = ()
    if any(cut != (0, n, 1) for cut, n in zip(cuts, shape, strict=True)):
        starts, stops, steps = zip(*cuts, strict=True)
        found = ((OPS["slice"], {"starts": starts, "stops": stops, "steps": steps}),)
    if all(type(part) is tuple for part in parts):
        return found
    return (*found, (OPS["reshape"], {"shape": (*kept, *behind)}))


def parts_of(items: tuple[object, ...]) -> tuple[Part, ...]:
    """``items`` with slices as their bounds, if all are None, Ellipsis, Python's own numbers, or slices of such."""
    parts: list[Part] = []
    for item in items:
        if type(item) is int or item is None or item is Ellipsis:
            parts.append(item)
        elif type(item) is slice:
            bounds = item.start, item.stop, item.step
            for b in bounds:
                if b is not None and type(b) is not int:
                    return ()
            parts.append(bounds)
        else:
            return ()
    return tuple(parts)


def _slice(item: slice, size: int) -> tuple[int, int, int]:
    step = 1 if item.step is None else _bound(item.step)
    if step <= 0:
        raise ValueError("step must be greater than zero")
    start = 0 if item.start is None else clamped(_bound(item.start), size)
    stop = size if item.stop is None else clamped(_bound(item.stop), size)
    return start, max(start, stop), step


def _bound(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value  # of any size, as in Python: ``clamped`` brings it into the range
    check_takes("indexing", (type(value),))
    if hasattr(value, "__index__"):
        return operator.index(value)
    raise TypeError(f"slice indices must be integers or None or have an __index__ method (got {type(value).__name__})")


def _integer(index: int, size: int, axis: int) -> int:
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of bounds for dimension {axis} with size {size}")
    return index + size if index < 0 else index


def _tensor_entry(item: Tensor, x: Tensor, axis: int, place: int) -> Advanced:
    """Index tensors for the dimensions ``item`` indexes, numbered from ``place`` in the view."""
    if item.dtype is not bool_:
        return [(place, normal_index(item, x.shape[axis], axis))]
    for i, n in enumerate(item.shape):
        if n != x.shape[axis + i]:
            raise IndexError(
                f"The shape of the mask {list(item.shape)} at index {i} does not match the shape of the indexed "
                f"tensor {list(x.shape)} at index {axis + i}"
            )
    return [(place + i, p) for i, p in enumerate(mask_positions(item))]

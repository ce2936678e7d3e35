"""``x[...]`` and ``x[...] = v``: integers, slices, Ellipsis, None, masks and index tensors, mixed.

An index is resolved in two steps. Everything basic (integers, slices, None) becomes one view. What is left are index
tensors for some dimensions of that view, with masks already turned into positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from types import EllipsisType
from typing import Any, Literal, NoReturn, TypeAlias, TypeGuard, overload

import numpy as np

from tracecomp.base.errors import warn_user
from tracecomp.eager.memory_formats import Order, order_by
from tracecomp.eager.modes import modes, unrecorded
from tracecomp.eager.tensor import Tensor, assign_, create, look_through, wrap
from tracecomp.eager.tensor_base import View
from tracecomp.functional.creation.creation import array_of, constant
from tracecomp.functional.dims import Shape, as_index, clamped, is_index, plain_shape
from tracecomp.functional.dtype_support import ALL
from tracecomp.functional.memory_formats import lay
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import Operand, bring_exact, cast
from tracecomp.functional.publish import function, publish
from tracecomp.functional.shape.shaping import row_major, to_shape
from tracecomp.ir.op import OPS
from tracecomp.ir.types import bool_, broadcast_shapes, int8, int16, int32, int64, type_word, uint8

Advanced = list[tuple[int, Tensor]]
_LONG = 32
"""The length from which on a list is positions, whatever is in it."""
OneIndex: TypeAlias = Tensor | int | slice | EllipsisType | np.ndarray[Any, Any] | Sequence[Any] | None
Index: TypeAlias = OneIndex | tuple[OneIndex, ...]


def true_positions(mask: Tensor) -> Tensor:
    """Positions of the true elements of a 1-d mask. In a recording their number is observed, their places computed."""
    if modes.recorder is None:
        return wrap(np.flatnonzero(mask._data))
    ones = cast(mask, int64)
    count = int(prim.sum(ones, axes=(0,)))
    running = prim.sub(prim.cumsum(ones, axis=0), 1)
    places = prim.where(mask, running, count)
    total = mask.numel()
    room = create("full", value=0, shape=(count + 1,), dtype=int64)
    filled = prim.put(room, places, create("iota", shape=(total,), axis=0, dtype=int64), axis=0, mode="set")
    return prim.slice(filled, starts=(0,), stops=(count,), steps=(1,))


def mask_positions(mask: Tensor) -> list[Tensor]:
    """One index tensor per dimension of a mask: where it is true."""
    flat = true_positions(to_shape(mask, (mask.numel(),)))
    found, rest = [], flat
    for n in reversed(mask.shape):
        found.append(prim.remainder(rest, max(n, 1)) if len(mask.shape) > 1 else rest)
        rest = prim.floor_divide(rest, max(n, 1)) if len(mask.shape) > 1 else rest
    return found[::-1]


def normal_index(index: Tensor, size: int, axis: int) -> Tensor:
    """Non-negative positions in int64; IndexError when one is out of range."""
    places, here = index._data, size.real
    if index.is_meta:
        return cast(index, int64)
    negative = modes.recorder is not None or (places.size and places.min() < 0)
    if places.size and (places.min() < -here or places.max() >= here):
        bad = int(places[(places < -here) | (places >= here)].flat[0])
        raise IndexError(f"index {bad} is out of bounds for dimension {axis} with size {size}")
    index = cast(index, int64)
    return prim.where(prim.lt(index, 0), prim.add(index, size), index) if negative else index


def _byte_mask(mask: Tensor) -> Tensor:
    warn_user("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.")
    return cast(mask, bool_)


def _index_tensor(item: object) -> Tensor:
    if isinstance(item, Tensor):
        number = not item.ndim and item.dtype in (int8, int16)
        if item.dtype not in (int64, int32, uint8, bool_) and not number:
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
        return _byte_mask(item) if item.dtype is uint8 else item
    if isinstance(item, Sequence) and not len(item):
        return wrap(np.zeros((0,), np.int64))
    if isinstance(item, float | complex | set | frozenset | dict):
        kind = type(item).__name__
        raise IndexError(f"only integers, slices, `...`, None and tensors of integers or bools index (got {kind})")
    array = array_of(list(item) if isinstance(item, range) else item, None)
    if array.dtype.kind not in "iub":
        raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    return wrap(array)


def _is_number(item: object) -> bool:
    """Whether an index entry is a tensor that stands for one whole number."""
    return isinstance(item, Tensor) and not item.ndim and item.dtype not in (bool_, uint8)


def _is_basic(item: object) -> bool:
    if item is None or item is Ellipsis or isinstance(item, slice | bool | int | np.integer):
        return True
    return not isinstance(item, Tensor | np.ndarray | list | tuple | range) and is_index(item)


def _followed(item: object) -> Any:
    """An index entry, as a tensor if it is a number that the present recording follows."""
    follow = getattr(type(item), "__tracecomp_tensor__", None)
    sized = hasattr(type(item), "number")  # a size keeps its formula
    tensor = None if follow is None or sized or not isinstance(item, int) else follow(item)
    return item if tensor is None else tensor


def _consumed(item: object) -> int:
    """How many dimensions an index entry uses up."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    if isinstance(item, Tensor) and item.dtype is bool_:
        return item.ndim
    return 1


def _is_tuple(key: object) -> TypeGuard[Sequence[Any]]:
    """Whether the parts of ``key`` index a dimension each, as those of short lists of other things than numbers do."""
    if isinstance(key, tuple):
        return True
    if not isinstance(key, list) or len(key) >= _LONG or not any(_indexes_alone(part) for part in key):
        return False
    warn_user(
        "Using a non-tuple sequence for multidimensional indexing is deprecated: it is taken as x[tuple(seq)]; write "
        "that, or x[torch.tensor(seq)] for positions of the first dimension"
    )
    return True


def _indexes_alone(part: object) -> bool:
    return part is None or part is Ellipsis or isinstance(part, slice | Tensor | Sequence | np.ndarray)


def _entries(key: object, ndim: int) -> list[Any]:
    """The index as one entry per dimension (None and masks aside): Ellipsis is spelled out."""
    items = list(key) if _is_tuple(key) else [key]
    items = [_followed(x) if _is_basic(x) else _index_tensor(x) for x in items]
    items = [bool(x) if isinstance(x, Tensor) and x.dtype is bool_ and not x.ndim else x for x in items]
    # A recording keeps the tensor: another call may have another number.
    if modes.recorder is None:
        items = [int(x._data) if isinstance(x, Tensor) and _is_number(x) and not x.is_meta else x for x in items]
    used = sum(map(_consumed, items))
    if used > ndim:
        raise IndexError(f"too many indices for tensor of dimension {ndim}")
    at = next((i for i, x in enumerate(items) if x is Ellipsis), None)
    fill = [slice(None)] * (ndim - used)
    if at is None:
        return items + fill
    rest = [x for x in items[at + 1 :] if x is not Ellipsis]
    return [*items[:at], *fill, *rest]


def _resolve(x: Tensor, key: object) -> tuple[Tensor, Advanced]:
    """The basic part of the index as a view of ``x``, and index tensors for some of its dimensions."""
    # Before all else: a dimension that is not there has no size to compare with.
    if x.ndim == 0 and not isinstance(key, tuple) and isinstance(key, int) and not isinstance(key, bool):
        raise IndexError(
            "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to convert a "
            "0-dim tensor to a number"
        )
    starts, stops, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
    shape: list[int] = []
    advanced: Advanced = []
    axis = 0
    for item in _entries(key, x.ndim):
        # None adds an axis. A bool does too, and then keeps or drops it: an index of one position or of none.
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
            # A number is a slice of length one whose axis is left out of the shape.
            starts[axis] = _integer(as_index(item), x.shape[axis], axis)
            stops[axis] = starts[axis] + 1
            axis += 1
    view = x
    # One slice for the whole key, so that views of views stay short;
    # without one, nothing is made where nothing changes.
    if any(starts) or stops != list(x.shape) or any(s != 1 for s in steps):
        view = prim.slice(x, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))
    elif tuple(shape) == tuple(x.shape):
        view = prim.reshape(x, shape=tuple(shape)) if not advanced else x
    return to_shape(view, shape), advanced


@lru_cache(4096)
def _steps_to(shape: Shape, numbers: tuple[int, ...]) -> tuple[View, ...]:
    """The views that lead to what ``numbers`` pick of the first dimensions; none where that is for ``_resolve``."""
    rest = (0,) * (len(shape) - len(numbers))
    if not numbers or len(numbers) > len(shape) or 0 in shape:
        return ()
    starts = (*[_integer(n, size, axis) for axis, (n, size) in enumerate(zip(numbers, shape, strict=False))], *rest)
    stops = (*[n + 1 for n in starts[: len(numbers)]], *shape[len(numbers) :])
    open_shape = (OPS["reshape"], {"shape": shape[len(numbers) :]})
    if stops == shape and not any(starts):
        return (open_shape,)
    return (OPS["slice"], {"starts": starts, "stops": stops, "steps": (1,) * len(shape)}), open_shape


def _slice(item: slice, size: int) -> tuple[int, int, int]:
    step = 1 if item.step is None else _bound(item.step)
    if step <= 0:
        raise ValueError("step must be greater than zero")
    start = 0 if item.start is None else clamped(_bound(item.start), size)
    stop = size if item.stop is None else clamped(_bound(item.stop), size)
    return start, max(start, stop), step


def _bound(value: object) -> int:
    if isinstance(value, Tensor) or hasattr(value, "__index__"):
        return as_index(value)
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


def _result_axis(advanced: Advanced) -> int:
    """Where the dimensions of the index stand in the result: where they index, if that is one place, else in front.

    Tensors that stand for one number take their dimension away first, as numbers do.
    """
    numbers = [d for d, t in advanced if not t.ndim]
    dims = [d - sum(n < d for n in numbers) for d, t in advanced if t.ndim] or [advanced[0][0]]
    return dims[0] if dims == list(range(dims[0], dims[0] + len(dims))) else 0


class _Plan:
    """Several index tensors as one: the dimensions they index are brought together and merged."""

    def __init__(self, view: Tensor, advanced: Advanced) -> None:
        dims = [d for d, _ in advanced]
        try:
            self.index_shape = broadcast_shapes(*(tuple(t.shape) for _, t in advanced))
        except RuntimeError:
            shapes = ", ".join(str(list(t.shape)) for _, t in advanced)
            raise IndexError(
                f"shape mismatch: indexing tensors could not be broadcast together with shapes {shapes}"
            ) from None
        self.axis = _result_axis(advanced)
        self.view = view
        rest = [i for i in range(view.ndim) if i not in dims]
        self.order: Shape = (*rest[: self.axis], *dims, *rest[self.axis :])
        sizes = [view.shape[i] for i in self.order]
        k = len(dims)
        self.open_shape = tuple(sizes)
        self.merged_shape = (*sizes[: self.axis], math.prod(sizes[self.axis : self.axis + k]), *sizes[self.axis + k :])
        self.index = self._linear(advanced)

    def _linear(self, advanced: Advanced) -> Tensor:
        (_, linear), *others = advanced
        for dim, index in others:
            linear = prim.add(prim.mul(linear, self.view.shape[dim]), index)
            if modes.recorder is not None:  # another call's index may be out of range and the sum of both in range
                inside = prim.bitwise_and(prim.ge(index, 0), prim.lt(index, self.view.shape[dim]))
                linear = prim.where(inside, linear, -1)
        return prim.expand(linear, shape=self.index_shape)

    def merged(self) -> Tensor:
        x = self.view
        if self.order != tuple(range(x.ndim)):
            x = prim.permute(x, dims=self.order)
        return to_shape(x, self.merged_shape)

    def read(self) -> Tensor:
        found = prim.take(self.merged(), self.index, axis=self.axis)
        return found if self.view._data.flags.c_contiguous else lay(found, self._order_of_result(found))

    def _order_of_result(self, found: Tensor) -> Order:
        """The view decides where it is not indexed, the index where it stands."""
        shape, index = found._data.shape, self.index._data
        behind = len(shape) - self.axis - index.ndim
        strides = [self.view._data.strides[d] for d in self.order]
        own = (*strides[: self.axis], *[0] * index.ndim, *strides[len(strides) - behind :])
        at = (*[0] * self.axis, *index.strides, *[0] * behind)
        return order_by(shape, ((shape, own), (shape, at)))

    def result_shape(self) -> Shape:
        return (*self.merged_shape[: self.axis], *self.index_shape, *self.merged_shape[self.axis + 1 :])

    def written(self, values: Tensor, mode: str) -> Tensor:
        """The view with the indexed elements set to (or increased by) ``values``."""
        src = fit(values, self.result_shape())
        new = to_shape(prim.put(self.merged(), self.index, src, axis=self.axis, mode=mode), self.open_shape)
        if self.order == tuple(range(self.view.ndim)):
            return new
        return prim.permute(new, dims=tuple(self.order.index(i) for i in range(len(self.order))))


def fit(values: Tensor, shape: Shape) -> Tensor:
    """``values`` broadcast to ``shape``; further leading dimensions of size 1 are dropped."""
    have = tuple(values.shape)
    while len(have) > len(shape) and have[0] == 1:
        have = have[1:]
    try:
        return prim.expand(to_shape(values, have), shape=tuple(shape))
    except RuntimeError:
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to indexing result of "
            f"shape {list(shape)}"
        ) from None


def getitem(self: Tensor, key: Index) -> Tensor:
    """``self[key]``: a view for basic indices, a copy for index tensors and masks."""
    numbers = (key,) if type(key) is int else key
    if type(numbers) is tuple and modes.recorder is None and all(type(n) is int for n in numbers):
        steps = _steps_to(self._data.shape, numbers)
        if steps:
            return look_through(self, steps)
    view, advanced = _resolve(self, key)
    if not advanced:
        return view
    found = _Plan(view, advanced).read()
    return _looking(view, advanced, found) if all(map(_is_number, (t for _, t in advanced))) else found


def _looking(x: Tensor, places: Advanced, found: Tensor) -> Tensor:
    """``found`` as what it is eagerly, a view of ``x``: in a recording the graph takes it where the tensors say."""
    if modes.recorder is None:
        return found
    starts, stops = [0] * x.ndim, list(x.shape)
    numbers = [(t, int(t._data)) for _, t in places]
    for (d, _), (_, at) in zip(places, numbers, strict=True):
        starts[d], stops[d] = at, at + 1
    step = {"starts": tuple(starts), "stops": tuple(stops), "steps": (1,) * x.ndim}
    numbered = dict(places)
    wide = prim.reshape(found, shape=tuple(1 if d in numbered else n for d, n in enumerate(x.shape)))
    with unrecorded():
        view = prim.slice(x, **{k: plain_shape(v) for k, v in step.items()})
    view._grad_fn, view._output_nr = wide._grad_fn, wide._output_nr
    modes.recorder.look_at(view, x, (OPS["slice"], step), wide, numbers)
    return to_shape(view, tuple(found.shape))


def _value_tensor(value: object, like: Tensor) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, bool | int | float | complex):
        return constant((), value, like.dtype)
    return wrap(array_of(value, None))


def _write_masked(x: Tensor, key: object, values: Tensor) -> bool:
    """Write where one mask among basic indices holds, if ``values`` are the same for all its places: so their number is
    not asked for, and a recording serves every mask."""
    items = _entries(key, x.ndim) if x.ndim else []
    tensors = [n for n, item in enumerate(items) if isinstance(item, Tensor)]
    if len(tensors) != 1 or items[tensors[0]].dtype is not bool_ or any(isinstance(item, bool) for item in items):
        return False
    (at,), mask = tensors, items[tensors[0]]
    axis = sum(item is None or isinstance(item, slice) for item in items[:at])
    view, _ = _resolve(x, (*items[:at], *[slice(None)] * mask.ndim, *items[at + 1 :]))
    behind = view.ndim - axis - mask.ndim
    same = values.ndim <= behind or values.shape[values.ndim - behind - 1] == 1
    if tuple(mask.shape) != tuple(view.shape[axis : axis + mask.ndim]) or not same or values.ndim > axis + 1 + behind:
        return False
    if values.ndim > behind:  # one dimension stands for all of the mask's
        cut = values.ndim - behind - 1
        values = to_shape(values, (*values.shape[:cut], *[1] * mask.ndim, *values.shape[cut + 1 :]))
    _check_put(x, values)
    wide = prim.expand(to_shape(mask, (*mask.shape, *[1] * behind)), shape=tuple(view.shape))
    assign_(view, prim.where(wide, fit(cast(values, x.dtype), tuple(view.shape)), view))
    return True


def _check_put(x: Tensor, values: Tensor) -> None:
    """RuntimeError for values of another type, unless they are one number."""
    if values.dtype is not x.dtype and values.ndim:
        raise RuntimeError(
            "Index put requires the source and destination dtypes match, got "
            f"{type_word(x.dtype)} for the destination and {type_word(values.dtype)} for the source."
        )


def setitem(self: Tensor, key: Index, value: Operand | np.ndarray[Any, Any] | Sequence[Any]) -> None:
    """``self[key] = value``, broadcast."""
    values = _value_tensor(value, self)
    if isinstance(key, Tensor) and key.dtype is uint8:
        key = _byte_mask(key)
    if _write_masked(self, key, values):
        return
    view, advanced = _resolve(self, key)
    if not advanced:
        target = view if view is not self else self
        assign_(target, fit(cast(values, self.dtype), tuple(target.shape)))
        return
    _check_put(self, values)
    assign_(view, _Plan(view, advanced).written(cast(values, self.dtype), "set"))


def delitem(self: Tensor, key: object) -> NoReturn:
    """TypeError: the elements of a tensor cannot be deleted."""
    raise TypeError("Tensor does not support deleting items")


getitem.__name__, setitem.__name__, delitem.__name__ = "__getitem__", "__setitem__", "__delitem__"
publish(getitem, "Tensor.__getitem__")
publish(setitem, "Tensor.__setitem__")
publish(delitem, "Tensor.__delitem__")


def _index_put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool) -> tuple[Tensor, Tensor]:
    key = tuple(slice(None) if i is None else i for i in indices)
    if values.dtype is not x.dtype:
        raise RuntimeError(
            f"Index put requires the source and destination dtypes match, got {type_word(x.dtype)} for the "
            f"destination and {type_word(values.dtype)} for the source."
        )
    view, advanced = _resolve(x, key)
    if not advanced:
        raise RuntimeError("index_put: expected at least one index tensor among indices")
    return view, _Plan(view, advanced).written(values, "add" if accumulate else "set")


@function(takes=ALL, composite=True)
def index_put(input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of ``input`` with ``values`` set (or added) at the index tensors."""
    return _index_put(input, indices, values, accumulate)[1]


@function(takes=ALL)
def index_put__(input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """In-place form of :func:`index_put`."""
    view, new = _index_put(input, indices, values, accumulate)
    assign_(view, new)
    return input


def nonzero_mask(x: Tensor) -> Tensor:
    return x if x.dtype is bool_ else prim.ne(x, 0)


@overload
def nonzero(input: Tensor, *, as_tuple: Literal[False] = False) -> Tensor: ...
@overload
def nonzero(input: Tensor, *, as_tuple: Literal[True]) -> tuple[Tensor, ...]: ...
@function(takes=ALL, composite=True)
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Tensor | tuple[Tensor, ...]:
    """Positions of the nonzero elements: rows of a matrix, or one tensor per dimension."""
    if input.ndim == 0:
        flat = true_positions(nonzero_mask(to_shape(input, (1,))))
        return (flat,) if as_tuple else create("full", value=0, shape=(flat.numel(), 0), dtype=int64)
    found = mask_positions(nonzero_mask(input))
    if as_tuple:
        return tuple(found)
    return prim.concat(*(to_shape(p, (p.numel(), 1)) for p in found), axis=1)


@function(takes=ALL, composite=True)
def argwhere(input: Tensor) -> Tensor:
    """:func:`nonzero` as a matrix."""
    return nonzero(input)


@function(takes=ALL, composite=True)
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """:func:`nonzero` with exactly ``size`` rows: cut off, or filled up."""
    found = nonzero(input)
    count, width = found.shape
    if count >= size:
        return found[:size]
    return (
        prim.pad(found, low=(0, 0), high=(size - count, 0), interior=(0, 0), value=fill_value)
        if width
        else (found.new_zeros((size, 0)))
    )


@function(takes=ALL, composite=True)
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where ``mask`` (broadcast) is true, in one dimension."""
    if mask.dtype not in (bool_, uint8):
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    shape = broadcast_shapes(tuple(input.shape), tuple(mask.shape))
    x, m = prim.expand(input, shape=shape), prim.expand(cast(mask, bool_), shape=shape)
    count = math.prod(shape)
    return prim.take(to_shape(x, (count,)), true_positions(to_shape(m, (count,))), axis=0)


def _need_mask(name: str, mask: Tensor) -> Tensor:
    if mask.dtype is not bool_:
        raise RuntimeError(f"{name} only supports boolean masks, but got mask with dtype {mask.dtype}")
    return mask


@function(takes=ALL, inplace=True)
def masked_fill(input: Tensor, mask: Tensor, value: Operand) -> Tensor:
    """``value`` where ``mask`` (broadcast) is true."""
    mask = _need_mask("masked_fill", mask)
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(
                "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with "
                f"{value.ndim} dimension(s)."
            )
        if value.dtype.is_complex and not input.dtype.is_complex:
            raise RuntimeError(f"value cannot be converted to type {input.dtype.name} without overflow")
        return row_major(prim.where(mask, cast(value, input.dtype), input))
    if not input.dtype.differentiable and isinstance(value, float) and not value.is_integer():
        raise RuntimeError(f"value cannot be converted to type {input.dtype.name} without overflow")
    return row_major(prim.where(mask, bring_exact(value, input.dtype), input))


@function(takes=ALL, inplace=True, composite=True)
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Elements of ``source``, in order, where ``mask`` (broadcast) is true."""
    if input.dtype is not source.dtype:
        raise RuntimeError(
            f"masked_scatter: expected self and source to have same dtypes but got {type_word(input.dtype)} and "
            f"{type_word(source.dtype)}"
        )
    shape = broadcast_shapes(tuple(input.shape), tuple(_need_mask("masked_scatter_", mask).shape))
    x, m = prim.expand(input, shape=shape), prim.expand(mask, shape=shape)
    count = math.prod(shape)
    if source.numel() == 0 or count == 0:
        return prim.cast(x, dtype=x.dtype)
    order = prim.sub(prim.cumsum(cast(to_shape(m, (count,)), int64), axis=0), 1)
    if source.numel() < count and int(order[-1]) >= source.numel():
        raise RuntimeError(
            f"masked_scatter: expected source to have at least as many elements ({source.numel()}) as the mask has ones"
        )
    order = prim.maximum(prim.minimum(order, source.numel() - 1), 0)
    taken = prim.take(to_shape(source, (source.numel(),)), order, axis=0)
    return prim.where(m, to_shape(taken, shape), x)

"""``x[...]`` and ``x[...] = v``: views for basic indices (``keys.py``), and index tensors merged to one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import EllipsisType
from typing import Any, NoReturn, TypeAlias

import numpy as np

from tracecomp.eager.aliasing import check_write
from tracecomp.eager.device import use
from tracecomp.eager.foreign import check_takes
from tracecomp.eager.memory_formats import Order, order_by
from tracecomp.eager.modes import modes, unrecorded
from tracecomp.eager.tensor import Tensor, assign_, look_through
from tracecomp.functional.creation.creation import constant, tensor_of
from tracecomp.functional.dims import Shape, plain_shape
from tracecomp.functional.dtype_support import ALL
from tracecomp.functional.indexing.keys import Advanced, byte_mask, entries, is_number, parts_of, resolve, steps_to
from tracecomp.functional.memory_formats import lay
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import Operand, cast
from tracecomp.functional.publish import function, publish
from tracecomp.functional.shape.shaping import to_shape
from tracecomp.ir.op import OPS
from tracecomp.ir.types import bool_, broadcast_shapes, int64, type_word, uint8

OneIndex: TypeAlias = Tensor | int | slice | EllipsisType | np.ndarray[Any, Any] | Sequence[Any] | None
Index: TypeAlias = OneIndex | tuple[OneIndex, ...]


def _result_axis(advanced: Advanced) -> int:
    """The position of the index's dimensions in the result: at the indexed ones if these are adjacent, else in front.

    Tensors that represent a number remove their dimension first, like numbers.
    """
    numbers = [d for d, t in advanced if not t.ndim]
    dims = [d - sum(n < d for n in numbers) for d, t in advanced if t.ndim] or [advanced[0][0]]
    return dims[0] if dims == list(range(dims[0], dims[0] + len(dims))) else 0


class _Plan:
    """Several index tensors as one: the indexed dimensions are made adjacent and merged."""

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
            if modes.recorder is not None:  # in another call single indices may be out of range, and their sum in range
                inside = prim.bitwise_and(prim.ge(index, 0), prim.lt(index, self.view.shape[dim]))
                linear = prim.where(inside, linear, -1)
        if modes.recorder is None and linear._data.shape == self.index_shape:
            return linear
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
        """The view determines the order of unindexed dimensions, the index that of the indexed ones."""
        shape, index = found._data.shape, self.index._data
        behind = len(shape) - self.axis - index.ndim
        strides = [self.view._data.strides[d] for d in self.order]
        own = (*strides[: self.axis], *[0] * index.ndim, *strides[len(strides) - behind :])
        at = (*[0] * self.axis, *index.strides, *[0] * behind)
        return order_by(shape, ((shape, own), (shape, at)))

    def result_shape(self) -> Shape:
        return (*self.merged_shape[: self.axis], *self.index_shape, *self.merged_shape[self.axis + 1 :])

    def written(self, values: Tensor, mode: str) -> Tensor:
        """Return the view with the indexed elements set to (or increased by) ``values``."""
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
    if modes.recorder is None:
        parts = (key,) if type(key) is int else parts_of(key if type(key) is tuple else (key,))
        steps = steps_to(self._data.shape, parts)
        if steps:
            return look_through(self, steps)
        if isinstance(key, Tensor) and not use.begun:
            found = _picked(self, key)
            if found is not None:
                return found
    view, advanced = resolve(self, key)
    if not advanced:
        return view
    found = _Plan(view, advanced).read()
    return _looking(view, advanced, found) if all(map(is_number, (t for _, t in advanced))) else found


def _picked(x: Tensor, key: Tensor) -> Tensor | None:
    """``x[key]`` by numpy, if that is equivalent; None otherwise, and for invalid keys."""
    array, places = x._data, key._data
    if not array.flags.c_contiguous or not places.ndim or not array.ndim:
        return None
    if modes.grad and (x._requires_grad or x._linked or x._grad_fn is not None) and x.requires_grad:
        return None
    if key.dtype is bool_:
        if places.shape != array.shape[: places.ndim]:
            return None
        return _made(array[places])
    if key.dtype is not int64:
        return None
    try:
        return _made(array.take(places, axis=0))
    except IndexError:
        return None


def _made(array: np.ndarray[Any, Any]) -> Tensor:
    """A new tensor, like an operator's result outside recordings."""
    found: Tensor = Tensor._wrap(array)
    if modes.inference:
        found._inference = True
    return found


def _looking(x: Tensor, places: Advanced, found: Tensor) -> Tensor:
    """Make ``found`` the view of ``x`` that it is eagerly: a recording indexes by the tensors."""
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
    check_takes("__setitem__", map(type, value) if isinstance(value, list | tuple) else (type(value),))
    return tensor_of(value, None)


def _write_masked(x: Tensor, key: object, values: Tensor) -> bool:
    """Write where one mask among basic indices is true, if ``values`` are the same for all its positions: their number
    is not read, and one recording is valid for every mask."""
    items = entries(key, x.ndim) if x.ndim else []
    tensors = [n for n, item in enumerate(items) if isinstance(item, Tensor)]
    if len(tensors) != 1 or items[tensors[0]].dtype is not bool_ or any(isinstance(item, bool) for item in items):
        return False
    (at,), mask = tensors, items[tensors[0]]
    axis = sum(item is None or isinstance(item, slice) for item in items[:at])
    view, _ = resolve(x, (*items[:at], *[slice(None)] * mask.ndim, *items[at + 1 :]))
    behind = view.ndim - axis - mask.ndim
    same = values.ndim <= behind or values.shape[values.ndim - behind - 1] == 1
    if tuple(mask.shape) != tuple(view.shape[axis : axis + mask.ndim]) or not same or values.ndim > axis + 1 + behind:
        return False
    if values.ndim > behind:  # one dimension represents all of the mask's
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


def _put_at_once(x: Tensor, key: Index, values: Tensor) -> bool:
    """``x[key] = values`` by numpy, if that is equivalent and no history is written; False otherwise, also for
    errors."""
    array, given = x._data, values._data
    if given.dtype is not array.dtype or not array.flags.c_contiguous or not array.size:
        return False
    if modes.grad and (x.requires_grad or values.requires_grad):
        return False
    place: Any
    if isinstance(key, Tensor):
        # One value for all positions: their order does not matter.
        mask = key.dtype is bool_ and key._data.shape == array.shape[: key._data.ndim]
        if given.ndim or not key._data.ndim or not (mask or key.dtype is int64):
            return False
        place, given = key._data, given[()]
    else:
        place = key if type(key) is tuple else (key,)
        if not parts_of(place) or any(type(item) is slice and (item.step or 1) < 0 for item in place):
            return False
    check_write(x, False)
    try:
        array[place] = given
    except (IndexError, ValueError):  # the tensor path reports errors
        return False
    x._shared_storage().wrote()
    return True


def setitem(self: Tensor, key: Index, value: Operand | np.ndarray[Any, Any] | Sequence[Any]) -> None:
    """``self[key] = value``, broadcast."""
    values = _value_tensor(value, self)
    if modes.recorder is None and not use.begun and _put_at_once(self, key, values):
        return
    if isinstance(key, Tensor) and key.dtype is uint8:
        key = byte_mask(key)
    if _write_masked(self, key, values):
        return
    view, advanced = resolve(self, key)
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
    view, advanced = resolve(x, key)
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

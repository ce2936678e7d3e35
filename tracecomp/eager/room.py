"""Arrays with room behind their elements, so that a longer one can continue in the same memory.

A compiled call that appends to a tensor leaves its result in a ``RoomArray``. The next call that appends to it writes
only the new elements. The strides of other axes include the room, which eager results do not have. So the tensor gets
a dense copy before other code reads more than its shape.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, Any]
dtype_of: Callable[[Array], np.dtype[Any]] = np.ndarray.dtype.__get__


class Holder(Protocol):
    """A tensor."""

    _data: Array


class Room:
    """Memory with place for more elements along ``axis`` than are ``used``. Those are zero."""

    __slots__ = ("axis", "memory", "used")

    def __init__(self, memory: Array, axis: int, used: int) -> None:
        self.memory = memory
        self.axis = axis
        self.used = used

    def filled(self, shape: tuple[int, ...]) -> RoomArray:
        """The first elements, as many as ``shape`` says, which are in use from now on."""
        self.used = shape[self.axis]
        found = self.first(shape).view(RoomArray)
        found.flags.writeable = False
        found.room = self
        return found

    def first(self, shape: tuple[int, ...]) -> Array:
        """The memory of the first elements."""
        found: Array = self.memory[tuple(map(slice, shape))]
        return found


class RoomArray(np.ndarray[Any, Any]):
    """The elements in use of a ``room``, as the array of the tensor ``owner``. They cannot be written."""

    room: Room | None = None
    owner: weakref.ref[Holder] | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype. Functions read that of their operands before they use their memory: the tensor gets its dense
        copy now."""
        settle(self)
        return dtype_of(self)


def plain(array: Array) -> Array:
    """``array``, or a view of one with room, whose attributes may be read."""
    return np.asarray(array) if type(array) is RoomArray else array


def settle(array: Array) -> None:
    """Give the tensor whose array this is a dense copy, if it has room."""
    if type(array) is RoomArray and array.owner is not None:
        t = array.owner()
        if t is not None and t._data is array:
            t._data = plain(array).copy()


def settled(t: Holder) -> Array:
    """The array of ``t`` without room behind its elements."""
    if type(t._data) is RoomArray:
        settle(t._data)
    return t._data

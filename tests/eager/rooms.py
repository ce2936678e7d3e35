"""Tensors with room behind their elements, as compiled calls that append leave them."""

from __future__ import annotations

import weakref
from typing import Any

from tracecomp.compiled.growing import room_for
from tracecomp.eager.room import RoomArray


def with_room(t: Any) -> Any:
    """Give ``t``, a row-major tensor of at least one dimension, room behind its elements; it is returned."""
    array = t._data
    axis = max(array.ndim - 2, 0)
    shape = tuple(n + 3 if k == axis else n for k, n in enumerate(array.shape))
    t._data = room_for(array, shape, axis).filled(array.shape)
    t._data.owner = weakref.ref(t)
    return t


def has_room(t: Any) -> bool:
    return type(t._data) is RoomArray

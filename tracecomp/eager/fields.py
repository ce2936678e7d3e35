"""The fields of a tensor that compiled calls read without Python: they stand at fixed offsets of the object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from tracecomp.eager.aliasing import Storage
    from tracecomp.eager.grad_fn import Node
    from tracecomp.eager.tensor import Tensor


class TensorFields:
    """``_data`` is set by whoever makes a tensor with ``blank``; the others have these first values."""

    __slots__ = ("_data", "_grad", "_grad_fn", "_linked", "_requires_grad", "_seen", "_storage")

    _data: np.ndarray[Any, Any]
    _grad: Tensor | None
    _grad_fn: Node | None
    _linked: bool
    _requires_grad: bool
    _seen: int
    _storage: Storage | None


_T = TypeVar("_T", bound=TensorFields)
_new_object = object.__new__


def blank(cls: type[_T]) -> _T:
    """A new tensor of class ``cls`` without data."""
    t = _new_object(cls)
    t._grad = t._grad_fn = t._storage = None
    t._linked = t._requires_grad = False
    t._seen = 0
    return t


def take_fields(target: TensorFields, source: TensorFields) -> None:
    """Give ``target`` the attributes of ``source`` that are other than the first values."""
    for name in TensorFields.__slots__:
        value = getattr(source, name)
        if value is not None and value is not False:
            setattr(target, name, value)
    target.__dict__.update(source.__dict__)

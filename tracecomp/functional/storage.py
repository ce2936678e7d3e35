"""``x.storage()``: the flat memory that a tensor and its views share; results of numpy functions as tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from tracecomp.eager.tensor import Tensor, wrap
from tracecomp.eager.tensor_base import owner
from tracecomp.functional.publish import publish
from tracecomp.ir.types import DType

Array: TypeAlias = np.ndarray[Any, Any]


def _memory(x: Tensor) -> Array:
    """The elements of the tensor that owns the memory ``x`` looks at, in the order of addresses."""
    x._shared_storage().share()
    return owner(x)[0]._data.ravel(order="K")


class TypedStorage:
    """The memory as a sequence of elements."""

    def __init__(self, x: Tensor) -> None:
        self._array = _memory(x)
        self.dtype: DType = x.dtype
        self.device = x.device

    def data_ptr(self) -> int:
        return int(self._array.__array_interface__["data"][0])

    def size(self) -> int:
        return self._array.size

    __len__ = size

    def nbytes(self) -> int:
        return self._array.nbytes

    def element_size(self) -> int:
        return self._array.itemsize

    def tolist(self) -> list[Any]:
        return list(self._array.tolist())

    def __getitem__(self, index: Any) -> Any:
        found = self._array[index]
        return found.tolist()

    def __setitem__(self, index: Any, value: Any) -> None:
        self._array[index] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __repr__(self) -> str:
        rows = "\n".join(f" {x}" for x in self.tolist())
        kind = f"dtype={self.dtype!r}, device={self.device}"
        return f"{rows}\n[torch.storage.TypedStorage({kind}) of size {len(self)}]"


class UntypedStorage:
    """The memory as bytes."""

    def __init__(self, x: Tensor) -> None:
        self._array = _memory(x).view(np.uint8)

    def data_ptr(self) -> int:
        return int(self._array.__array_interface__["data"][0])

    def nbytes(self) -> int:
        return self._array.nbytes

    size = __len__ = nbytes

    def __getitem__(self, index: Any) -> Any:
        found = self._array[index]
        return found.tolist()


def storage(self: Tensor) -> TypedStorage:
    """The memory of ``self`` and its views, element by element."""
    return TypedStorage(self)


def untyped_storage(self: Tensor) -> UntypedStorage:
    """The memory of ``self`` and its views, byte by byte."""
    return UntypedStorage(self)


def __array_wrap__(self: Tensor, array: Array, context: object = None, return_scalar: bool = False) -> Tensor:
    """What a numpy function made of ``self``, as a tensor."""
    return wrap(np.asarray(array))


for _method in (storage, untyped_storage, __array_wrap__):
    publish(_method, f"Tensor.{_method.__name__}")

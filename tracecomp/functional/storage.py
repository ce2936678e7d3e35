"""``x.storage()``: the flat memory that a tensor and its views share; results of numpy functions as tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, SupportsIndex, TypeAlias

import numpy as np

from tracecomp.base.capture_guide import Section
from tracecomp.base.errors import refuse_too_large
from tracecomp.eager.device import CPU, check_device
from tracecomp.eager.device import device as Device
from tracecomp.eager.meta import MetaArray, new_array
from tracecomp.eager.modes import modes
from tracecomp.eager.process_memory import Elements, block_of, share
from tracecomp.eager.room import settled
from tracecomp.eager.tensor import Tensor, wrap
from tracecomp.eager.tensor_base import owner
from tracecomp.functional.publish import publish
from tracecomp.ir.types import DType

Array: TypeAlias = np.ndarray[Any, Any]


def _memory(x: Tensor) -> Array:
    """The elements of the tensor that owns the memory of ``x``, in the order of addresses."""
    x._shared_storage().share()
    found = settled(owner(x)[0])
    if isinstance(found, MetaArray):
        return new_array((found.size,), found.dtype, place=found.place)
    return found.ravel(order="K")


def _pickled(array: Array) -> Any:
    """The elements of a storage for another process: the same memory if it is shared, else a copy."""
    return array if block_of(array) is None else Elements(array)


def _elements(storage: TypedStorage | UntypedStorage) -> Array:
    """The elements of ``storage``, which Python reads or changes: a graph does not repeat that."""
    if modes.recorder is not None:
        modes.recorder.refuse_here("reads or changes elements of a storage", Section.MEMORY, "Use the tensor")
    return storage._array


class TypedStorage:
    """The memory as a sequence of elements."""

    def __init__(self, x: Tensor) -> None:
        self._source = x
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
        return list(_elements(self).tolist())

    def is_shared(self) -> bool:
        return block_of(self._array) is not None

    def share_memory_(self) -> TypedStorage:
        """Move the elements, and the tensor that they are of, to memory that other processes can refer to."""
        share([self._source])
        self._array = _memory(self._source)
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return _typed, (_pickled(self._array),)

    def __getitem__(self, index: int | slice) -> Any:
        found = _elements(self)[index]
        return found.tolist()

    def __setitem__(self, index: int | slice, value: object) -> None:
        _elements(self)[index] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __repr__(self) -> str:
        rows = "\n".join(f" {x}" for x in self.tolist())
        kind = f"dtype={self.dtype!r}, device={self.device}"
        return f"{rows}\n[torch.storage.TypedStorage({kind}) of size {len(self)}]"


class UntypedStorage:
    """Memory as bytes: that of a tensor, a number of new bytes, a sequence, or a file.

    A slice is a storage over part of the same memory.
    """

    is_cuda = is_sparse = False

    def __init__(self, source: Any = 0, *, device: Any = None) -> None:
        self._array: Array
        self._source: Tensor | None = source if isinstance(source, Tensor) else None
        if device is not None and check_device(device).type == "meta" and isinstance(source, int):
            self._array = new_array((source,), np.uint8)
        elif isinstance(source, Tensor):
            self._array = _memory(source).view(np.uint8)
        elif isinstance(source, int):
            try:
                self._array = np.zeros(source, np.uint8)
            except (MemoryError, ValueError) as error:
                refuse_too_large("UntypedStorage", error)
                raise
        else:
            self._array = np.asarray(source, np.uint8)

    @classmethod
    def _over(cls, array: Array) -> UntypedStorage:
        """Return the storage with the bytes of ``array``."""
        found = cls()
        found._array = array
        return found

    @classmethod
    def from_file(cls, filename: str, shared: bool = False, nbytes: int = 0, size: int = 0) -> UntypedStorage:
        """Map the first ``nbytes`` bytes of a file, read lazily; writes reach it if ``shared``."""
        count = nbytes or size
        if not count:
            return cls()
        return cls._over(np.memmap(filename, np.uint8, "r+" if shared else "c", shape=(count,)))

    @classmethod
    def from_buffer(cls, buffer: Any) -> UntypedStorage:
        """The bytes of an object with Python's buffer protocol."""
        return cls._over(np.frombuffer(buffer, np.uint8))

    @property
    def device(self) -> Device:
        return self._array.place if isinstance(self._array, MetaArray) else CPU

    @property
    def __array_interface__(self) -> Any:
        return _elements(self).__array_interface__

    def data_ptr(self) -> int:
        return 0 if isinstance(self._array, MetaArray) else int(self._array.__array_interface__["data"][0])

    def nbytes(self) -> int:
        return self._array.nbytes

    size = __len__ = nbytes

    def element_size(self) -> int:
        return 1

    def tolist(self) -> list[Any]:
        return list(_elements(self).tolist())

    def clone(self) -> UntypedStorage:
        return self._over(_elements(self).copy())

    def copy_(self, source: UntypedStorage, non_blocking: bool = False) -> UntypedStorage:
        _elements(self)[...] = source._array
        return self

    def fill_(self, value: int) -> UntypedStorage:
        _elements(self)[...] = value
        return self

    def cpu(self) -> UntypedStorage:
        return self

    def untyped(self) -> UntypedStorage:
        return self

    def is_shared(self) -> bool:
        return block_of(self._array) is not None

    def share_memory_(self) -> UntypedStorage:
        """Move the bytes, and the tensor that they are of, to memory that other processes can refer to."""
        source = wrap(self._array) if self._source is None else self._source
        share([source])
        self._array = _memory(source).view(np.uint8)
        return self

    def is_pinned(self, device: Device | None = None) -> bool:
        return False

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return UntypedStorage._over, (_pickled(self._array),)

    def __getitem__(self, index: Any) -> Any:
        return self._over(self._array[index]) if isinstance(index, slice) else int(_elements(self)[index])

    def __setitem__(self, index: int | slice, value: object) -> None:
        _elements(self)[index] = value

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    def __repr__(self) -> str:
        rows = "\n".join(f" {x}" for x in self.tolist())
        return f"{rows}\n[torch.storage.UntypedStorage(device=cpu) of size {len(self)}]"


def _typed(array: Array) -> TypedStorage:
    """The storage with the elements ``array``, of which no tensor exists here."""
    return TypedStorage(wrap(array))


def storage(self: Tensor) -> TypedStorage:
    """The memory of ``self`` and its views, element by element."""
    return TypedStorage(self)


def untyped_storage(self: Tensor) -> UntypedStorage:
    """The memory of ``self`` and its views, byte by byte."""
    return UntypedStorage(self)


def __array_wrap__(self: Tensor, array: Array, context: object = None, return_scalar: bool = False) -> Tensor:
    """Convert the result of a numpy function of ``self`` to a tensor."""
    return wrap(np.asarray(array))


for _method in (storage, untyped_storage, __array_wrap__):
    publish(_method, f"Tensor.{_method.__name__}")
publish(UntypedStorage, "torch.UntypedStorage")
publish(TypedStorage, "torch.TypedStorage")

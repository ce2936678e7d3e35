"""Pickling like PyTorch's: tensors are references to raw memory, which is collected separately."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Callable
from types import FunctionType
from typing import Any, BinaryIO

import numpy as np

from tracecomp.base.code_origin import is_own, own_name
from tracecomp.eager.device import device
from tracecomp.eager.foreign import check_takes
from tracecomp.eager.size import Size
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.types import DType
from tracecomp.nn.parameter import Parameter
from tracecomp.nn.state import StateDict
from tracecomp.serialization.rebuilding import STORAGES

_STORAGE_OF = {dtype: storage for storage, dtype in STORAGES.items()}


class _Global:
    """A name in another module, written without importing it."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __call__(self, *args: Any) -> Any:
        """pickle wants what rebuilds an object to be callable; it is called by the reader only."""
        raise TypeError(f"{self.module}.{self.name} is a placeholder and cannot be used")


class _StorageRef:
    """Represents a tensor's memory in the pickle."""

    def __init__(self, dtype: DType, key: str, size: int) -> None:
        self.id = ("storage", _Global("torch", _STORAGE_OF[dtype.name]), key, "cpu", size)


class Writer(pickle._Pickler):
    """Pickles tensors as PyTorch does and collects their memory."""

    write: Callable[[bytes], Any]

    def __init__(self, file: BinaryIO, protocol: int) -> None:
        super().__init__(file, protocol)
        self.memory: dict[str, np.ndarray[Any, Any]] = {}
        self._keys: dict[int, str] = {}

    def persistent_id(self, obj: object) -> Any:
        return obj.id if isinstance(obj, _StorageRef) else None

    def reducer_override(self, obj: object) -> Any:
        if isinstance(obj, Size):
            return _Global("torch", "Size"), (tuple(obj),)
        if isinstance(obj, device):
            return _Global("torch", "device"), ((obj.type,) if obj.index is None else (obj.type, obj.index))
        if isinstance(obj, StateDict):
            return OrderedDict, (), {"_metadata": obj._metadata}, None, iter(obj.items())
        if type(obj) is Parameter:
            return _Global("torch._utils", "_rebuild_parameter"), (obj.detach(), obj.requires_grad, OrderedDict())
        if type(obj) is Tensor:
            return self._tensor(obj)
        check_takes("save", (type(obj),))
        return NotImplemented

    def save(self, obj: object, save_persistent_id: bool = True) -> None:
        if isinstance(obj, DType):
            obj = _Global("torch", obj.name)
        elif isinstance(obj, type | FunctionType) and own_name(obj.__module__) != obj.__module__ and is_own(obj):
            obj = _Global(own_name(obj.__module__), obj.__qualname__)  # for readers without ``as_torch``
        if isinstance(obj, _Global):
            self.write(pickle.GLOBAL + f"{obj.module}\n{obj.name}\n".encode())
        else:
            super().save(obj, save_persistent_id)  # type: ignore[misc]

    def _tensor(self, t: Tensor) -> Any:
        if not t.is_leaf:
            t = t.detach()
        if t.is_meta:
            shown = (t.dtype, tuple(t.shape), t.stride(), t.requires_grad)
            return _Global("torch._utils", "_rebuild_meta_tensor_no_storage"), shown
        array = t._read("save()")
        root = _root(array)
        key = self._keys.get(id(root))
        if key is None:
            key = self._keys[id(root)] = str(len(self._keys))
            self.memory[key] = root
        offset = (_address(array) - _address(root)) // array.itemsize if array.size else 0
        strides = tuple(s // array.itemsize for s in array.strides)
        place = (_StorageRef(t.dtype, key, root.size), offset, tuple(array.shape), strides)
        return _Global("torch._utils", "_rebuild_tensor_v2"), (*place, t.requires_grad, OrderedDict())


def _address(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _root(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The dense array whose memory contains ``array``, or a copy if the relation is not a plain view."""
    root = array
    while isinstance(root.base, np.ndarray) and root.base.dtype == array.dtype:
        root = root.base
    plain = root.flags.c_contiguous and all(s >= 0 and s % array.itemsize == 0 for s in array.strides)
    return root if plain else np.ascontiguousarray(array)

"""``save`` and ``load``: PyTorch's zip format, read and written without PyTorch, without running code by default.

A file is a zip archive with a pickle (``data.pkl``) in which tensors are references to raw memory (``data/0``, ...).
"""

from __future__ import annotations

import codecs
import io
import os
import pickle
import sys
import tempfile
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tracecomp.eager.device import device as Device
from tracecomp.eager.size import Size
from tracecomp.eager.tensor import Tensor, wrap
from tracecomp.ir.types import DTYPES, DType, dtype_named
from tracecomp.nn.parameter import Parameter
from tracecomp.nn.state import StateDict

File = str | os.PathLike[str] | BinaryIO

_STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool", "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}  # fmt: skip
_STORAGE_OF = {dtype: storage for storage, dtype in _STORAGES.items()}
_safe: dict[str, Any] = {}


class _Global:
    """A name in another module, written without importing it."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __call__(self, *args: Any) -> Any:
        """pickle wants what rebuilds an object to be callable; it is called by the reader only."""
        raise TypeError(f"{self.module}.{self.name} is only a name here")


class _StorageRef:
    """Stands for a tensor's memory in the pickle."""

    def __init__(self, dtype: DType, key: str, size: int) -> None:
        self.id = ("storage", _Global("torch", _STORAGE_OF[dtype.name]), key, "cpu", size)


class _Writer(pickle._Pickler):
    """Pickles tensors as PyTorch does and collects their memory."""

    write: Callable[[bytes], Any]

    def __init__(self, file: BinaryIO, protocol: int) -> None:
        super().__init__(file, protocol)
        self.memory: dict[str, np.ndarray[Any, Any]] = {}
        self._keys: dict[int, str] = {}

    def persistent_id(self, obj: Any) -> Any:
        return obj.id if isinstance(obj, _StorageRef) else None

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Size):
            return _Global("torch", "Size"), (tuple(obj),)
        if isinstance(obj, StateDict):
            return OrderedDict, (), {"_metadata": obj._metadata}, None, iter(obj.items())
        if type(obj) is Parameter:
            return _Global("torch._utils", "_rebuild_parameter"), (obj.detach(), obj.requires_grad, OrderedDict())
        if type(obj) is Tensor:
            return self._tensor(obj)
        return NotImplemented

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        if isinstance(obj, DType):
            obj = _Global("torch", obj.name)
        if isinstance(obj, _Global):
            self.write(pickle.GLOBAL + f"{obj.module}\n{obj.name}\n".encode())
        else:
            super().save(obj, save_persistent_id)  # type: ignore[misc]

    def _tensor(self, t: Tensor) -> Any:
        if not t.is_leaf:
            t = t.detach()
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
    """The dense array in whose memory ``array`` lies, or a copy where the relation is not a plain one."""
    root = array
    while isinstance(root.base, np.ndarray) and root.base.dtype == array.dtype:
        root = root.base
    plain = root.flags.c_contiguous and all(s >= 0 and s % array.itemsize == 0 for s in array.strides)
    return root if plain else np.ascontiguousarray(array)


def save(
    obj: Any, f: File, pickle_module: Any = pickle, pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
) -> None:  # fmt: skip
    """Write ``obj`` (tensors, containers of them, modules) to a path or a binary file.

    A path is replaced at once when everything is written, so a failure leaves the old file. ``torch.load`` reads it.
    """
    pickled = io.BytesIO()
    writer = _Writer(pickled, pickle_protocol)
    writer.dump(obj)
    if not isinstance(f, str | os.PathLike):
        _write_archive(f, "archive", pickled.getvalue(), writer.memory)
        return
    path = Path(f)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            _write_archive(file, path.stem or "archive", pickled.getvalue(), writer.memory)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _write_archive(file: BinaryIO, root: str, pickled: bytes, memory: dict[str, np.ndarray[Any, Any]]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(f"{root}/data.pkl", pickled)
        archive.writestr(f"{root}/byteorder", sys.byteorder)
        for key, array in memory.items():
            archive.writestr(f"{root}/data/{key}", array.tobytes())
        archive.writestr(f"{root}/version", "3\n")


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Allow classes and functions, or (object, name) pairs, in files that are loaded with ``weights_only``."""
    _safe.update(_named(safe_globals))


def get_safe_globals() -> list[Any]:
    """What ``add_safe_globals`` allowed."""
    return list(_safe.values())


def clear_safe_globals() -> None:
    """Forget what ``add_safe_globals`` allowed."""
    _safe.clear()


@contextmanager
def safe_globals(safe_globals: list[Any]) -> Iterator[None]:
    """``add_safe_globals`` for a block."""
    before = dict(_safe)
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        clear_safe_globals()
        _safe.update(before)


def _named(values: list[Any]) -> dict[str, Any]:
    pairs = (v if isinstance(v, tuple) else (v, f"{v.__module__}.{v.__qualname__}") for v in values)
    return {name: value for value, name in pairs}


class _Storage:
    """Raw memory of an archive."""

    def __init__(self, dtype: DType, data: bytearray, swap: bool) -> None:
        self.dtype = dtype
        self.array = np.frombuffer(data, dtype.numpy)
        if swap:
            self.array = self.array.byteswap()


def _rebuild_tensor(
    storage: _Storage, offset: int, size: Any, stride: Any, requires_grad: bool = False, hooks: Any = None,
    metadata: Any = None,
) -> Tensor:  # fmt: skip
    array, shape, item = storage.array, tuple(size), storage.array.itemsize
    last = offset + sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) if 0 not in shape else offset - 1
    if offset < 0 or last >= array.size or any(s < 0 for s in stride):
        raise pickle.UnpicklingError(
            f"a tensor of shape {list(shape)} at offset {offset} does not fit into {array.size} elements of memory"
        )
    if 0 in shape:
        return wrap(np.empty(shape, array.dtype)).requires_grad_(requires_grad)
    viewed = np.ndarray(shape, array.dtype, array, offset * item, tuple(s * item for s in stride))
    return wrap(viewed).requires_grad_(requires_grad)


def _rebuild_parameter(data: Tensor, requires_grad: bool, hooks: Any) -> Parameter:
    return Parameter(data, requires_grad)


_ALLOWED: dict[str, Any] = {
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils._rebuild_parameter": _rebuild_parameter,
    "torch.Size": Size,
    "torch.device": Device,
    "torch.serialization._get_layout": str,
    "collections.OrderedDict": OrderedDict,
    "collections.Counter": Counter,
    "builtins.set": set,
    "__builtin__.set": set,
    "builtins.complex": complex,
    "_codecs.encode": codecs.encode,
    **{f"torch.{name}": dtype_named(dtype) for name, dtype in _STORAGES.items()},
    **{f"torch.{t.name}": t for t in DTYPES},
    "torch.nn.parameter.Parameter": Parameter,
    "torch._tensor.Tensor": Tensor,
    "torch.Tensor": Tensor,
}


class _Reader(pickle.Unpickler):
    """Unpickles known names only, unless ``trust``."""

    def __init__(self, file: BinaryIO, storage: Callable[[DType, str], _Storage], trust: bool, encoding: str) -> None:
        super().__init__(file, encoding=encoding)
        self._storage = storage
        self._trust = trust

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        for table in (_ALLOWED, _safe):
            if full in table:
                return table[full]
        if self._trust:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(
            "Weights only load failed. Re-running `load` with `weights_only` set to `False` will likely succeed, but "
            "it "
            "can result in arbitrary code execution. Do it only if you got the file from a trusted source. "
            f"Unsupported global: GLOBAL {full} was not an allowed global by default; "
            f"`serialization.add_safe_globals([{name}])` allows it."
        )

    def persistent_load(self, pid: Any) -> _Storage:
        if not isinstance(pid, tuple) or len(pid) != 5 or pid[0] != "storage" or not isinstance(pid[1], DType):
            raise pickle.UnpicklingError(f"unknown persistent reference {pid!r}")
        return self._storage(pid[1], pid[2])


def load(
    f: File, map_location: Any = None, pickle_module: Any = None, *, weights_only: bool | None = None,
    mmap: bool | None = None, encoding: str = "utf-8", **pickle_load_args: Any,
) -> Any:  # fmt: skip
    """Read what ``save`` or ``torch.save`` wrote, from a path or a binary file. Everything lands on the CPU.

    By default (``weights_only``) a file can hold tensors, containers and plain values only; ``weights_only=False`` runs
    whatever code the file asks for. UnpicklingError for anything else and for files that are not a zip.
    """
    if isinstance(f, str | os.PathLike):
        with open(f, "rb") as file:
            return _read_archive(file, weights_only is False, encoding)
    return _read_archive(f, weights_only is False, encoding)


def _read_archive(file: BinaryIO, trust: bool, encoding: str) -> Any:
    if not zipfile.is_zipfile(file):
        raise pickle.UnpicklingError(
            "load: the file is not a zip archive. Files of PyTorch before 1.6 have to be saved again by a newer one."
        )
    file.seek(0)
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        pickled = next((n for n in names if n.endswith("/data.pkl")), None)
        if pickled is None:
            raise RuntimeError("load: the archive has no data.pkl; a TorchScript file cannot be loaded")
        root = pickled.removesuffix("data.pkl")
        order = archive.read(root + "byteorder").decode() if root + "byteorder" in names else "little"
        known: dict[str, _Storage] = {}

        def storage(dtype: DType, key: str) -> _Storage:
            if key not in known:
                known[key] = _Storage(dtype, bytearray(archive.read(f"{root}data/{key}")), order != sys.byteorder)
            return known[key]

        return _Reader(io.BytesIO(archive.read(pickled)), storage, trust, encoding).load()

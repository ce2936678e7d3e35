"""``save`` and ``load``: PyTorch's zip format, read and written without PyTorch, without running code by default.

A file is a zip archive with a pickle (``data.pkl``) in which tensors are references to raw memory (``data/0``, ...).
"""

from __future__ import annotations

import io
import os
import pickle
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from tracecomp.base.atomic import write_file
from tracecomp.base.errors import type_name
from tracecomp.eager.device import check_device, device
from tracecomp.eager.meta import memory_or
from tracecomp.serialization.archive import Archive, ArchiveError, write_archive
from tracecomp.serialization.pickling import Writer
from tracecomp.serialization.rebuilding import NAMES, Memory, call_of, set_any_state, state_setter_of
from tracecomp.serialization.unpickling import Allowed, Refused, SafeUnpickler, globals_of

File = str | os.PathLike[str] | BinaryIO

_safe: dict[str, Any] = {}


def save(
    obj: object, f: File, pickle_module: object = pickle, pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
) -> None:  # fmt: skip
    """Write ``obj`` (tensors, containers of them, modules) to a path or a binary file. ``torch.load`` reads it.

    A file at a path changes at once when everything is written: a failure (a full disk, Ctrl-C, an object that cannot
    be pickled) leaves the old one. It keeps its permissions; a link is followed; devices and pipes are written as they
    are. RuntimeError when the folder does not exist, PermissionError when the file may not be written.
    """
    pickled = io.BytesIO()
    writer = Writer(pickled, pickle_protocol)
    writer.dump(obj)
    if isinstance(f, str | os.PathLike):
        root = Path(f).stem or "archive"
        write_file(f, lambda file: write_archive(file, root, pickled.getvalue(), writer.memory))
    else:
        write_archive(f, "archive", pickled.getvalue(), writer.memory)


def add_safe_globals(safe_globals: list[object]) -> None:
    """Allow classes and functions, or (object, name) pairs, in files that are loaded with ``weights_only``."""
    _safe.update(_named(safe_globals))


def get_safe_globals() -> list[Any]:
    """The globals that ``add_safe_globals`` allowed."""
    return list(_safe.values())


def clear_safe_globals() -> None:
    """Forget the classes that ``add_safe_globals`` allowed."""
    _safe.clear()


@contextmanager
def safe_globals(safe_globals: list[object]) -> Iterator[None]:
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


def _find(module: str, name: str) -> Any:
    full = f"{module}.{name}"
    for table in (NAMES, _safe):
        if full in table:
            return table[full]
    known = vars(sys.modules.get(module, sys)).get(name)  # modules have several names
    if _is_users(known):
        return known
    raise Refused(
        "Weights only load failed. Re-running `load` with `weights_only` set to `False` will likely succeed, but it "
        "can result in arbitrary code execution. Do it only if you got the file from a trusted source. "
        f"Unsupported global: GLOBAL {full} was not an allowed global by default; "
        f"`serialization.add_safe_globals([{name}])` allows it."
    )


def get_unsafe_globals_in_checkpoint(f: File) -> list[str]:
    """Return the names of functions and classes in a file that ``load(weights_only=True)`` refuses."""
    if isinstance(f, str | os.PathLike):
        with open(f, "rb") as file:
            return get_unsafe_globals_in_checkpoint(file)
    with faults_of("get_unsafe_globals_in_checkpoint", f, getattr(f, "name", "the file")), closing(Archive(f)) as read:
        return sorted(set(filter(_is_refused, globals_of(read.pickled))))


def _is_refused(full: str) -> bool:
    try:
        _find(*full.rsplit(".", 1))
    except Refused:
        return True
    return False


def _is_users(value: object) -> bool:
    return any(value is allowed for allowed in _safe.values())


def _allowed(storage: Callable[[object], Memory]) -> Allowed:
    return Allowed(
        find=_find,
        call=lambda named: named if _is_users(named) else call_of(named),
        set_state=lambda kind: set_any_state if _is_users(kind) else state_setter_of(kind),
        is_users=_is_users,
        storage=storage,
    )


class _TrustingReader(pickle.Unpickler):
    """Run any code that the pickle requests."""

    def __init__(self, data: bytes, storage: Callable[[Any], Memory], encoding: str) -> None:
        super().__init__(io.BytesIO(data), encoding=encoding)
        self._storage = storage

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        return NAMES[full] if full in NAMES else super().find_class(module, name)

    def persistent_load(self, pid: object) -> Memory:
        return self._storage(pid)


def load(
    f: File, map_location: object = None, pickle_module: object = None, *, weights_only: bool | None = None,
    mmap: bool | None = None, encoding: str = "utf-8", **pickle_load_args: Any,
) -> Any:  # fmt: skip
    """Read a file of ``save`` or ``torch.save``, from a path or a binary file, to the CPU. Tensors are on the CPU.

    With ``map_location="meta"`` tensors have shapes and no memory. With ``mmap``, for a path, elements are read from
    the file lazily, and writes stay in memory.

    By default (``weights_only``) a file can contain only tensors, containers and plain values, and change only its own
    objects. Its time and memory are proportional to its size. ``weights_only=False`` runs arbitrary code of the file.
    UnpicklingError, with the file and the reason, for anything else and for damaged files, where it is a RuntimeError,
    too; RuntimeError for files of TorchScript. A function as ``map_location`` is not called.
    """
    place = _place(map_location)
    if unknown := pickle_load_args.keys() - _OF_UNPICKLERS:
        raise TypeError(f"load() got an unexpected keyword argument '{min(unknown)}'")
    if weights_only and pickle_module is not None:
        raise RuntimeError("load(): weights_only=True takes no pickle_module. Leave one of them out")
    if isinstance(f, str | os.PathLike):
        with open(f, "rb") as file:
            return _read(file, weights_only is False, encoding, os.fspath(f), place, os.fspath(f) if mmap else None)
    if mmap:
        raise ValueError("load(): f must be a file path in order to use mmap")
    if not hasattr(f, "seekable"):
        raise AttributeError(f"load(): f must be a path, or a file that can be read and seeked, not {type_name(f)}")
    return _read(f, weights_only is False, encoding, getattr(f, "name", "the file"), place)


_OF_UNPICKLERS = {"buffers", "errors", "fix_imports"}
"""Further options of Python's unpicklers."""


def _place(where: object) -> device | None:
    """The place without memory that ``map_location`` names, if any."""
    if isinstance(where, Mapping):
        for place in where.values():
            _place(place)
        return _place(where.get("cpu"))
    if not (where is None or isinstance(where, str | device) or callable(where)):
        raise TypeError(
            f"load(): map_location must be a str, a torch.device, a dict, a function or None, not {type_name(where)}"
        )
    try:
        return memory_or(check_device(where)) if isinstance(where, str | device) else None
    except AssertionError as error:
        raise RuntimeError(f"load(): map_location={where!r}: {error}. Use map_location='cpu'") from None


def _read(
    file: BinaryIO, trust: bool, encoding: str, name: str, place: device | None, mapped: str | None = None
) -> Any:
    with faults_of("load", file, name), closing(Archive(file, place, mapped)) as archive:
        if trust:
            return _TrustingReader(archive.pickled, archive.memory, encoding).load()
        return SafeUnpickler(archive.pickled, _allowed(archive.memory), encoding).load()


@contextmanager
def faults_of(function: str, file: BinaryIO, name: str) -> Iterator[None]:
    """Name the function and the file in errors of reading an archive; whatever a damaged one raises is one of these."""
    if not file.seekable():
        raise io.UnsupportedOperation(f"{function}: {name} must be seekable to read an archive")
    where = f"{function}: {name}"
    try:
        yield
    except pickle.UnpicklingError as error:
        fault = error.__cause__ if isinstance(error.__cause__, ArchiveError) else error
        kind = type(fault) if isinstance(fault, ArchiveError) else pickle.UnpicklingError
        raise kind(f"{where}: {error}") from error.__cause__
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise ArchiveError(f"{where}: damaged file: {error}") from error
    except (ValueError, OverflowError) as error:
        raise pickle.UnpicklingError(f"{where}: damaged file: {error}") from error
    except RuntimeError as error:
        raise RuntimeError(f"{where}: {error}") from error.__cause__

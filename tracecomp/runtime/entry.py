"""Calling native entries from Python: a builtin function whose body is compiled code, and the memory of its calls.

The builtin reads the arrays' data pointers, releases the interpreter lock, runs the entry and returns the number of the
step whose index check failed (0: none), or -1 without doing anything when it is not given the right number of plain
C-contiguous ndarrays.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from tracecomp.base.errors import CompileError
from tracecomp.base.locks import Lock
from tracecomp.codegen.text import native
from tracecomp.codegen.text.native import Library
from tracecomp.codegen.threads import sync
from tracecomp.ir.loops import LINE
from tracecomp.runtime import object_cache as objects
from tracecomp.runtime.malloc import aligned_bytes

_METH_FASTCALL = 0x80
_making = Lock()  # one thread at a time fills the caches below: builtins keep pointers into what they hold


class MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@cache
def library() -> Library:
    """The native code that all programs share."""
    for name in sync.CALL_SYMBOLS:
        function = getattr(ctypes.pythonapi, name)
        native.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value or 0)
    shared = objects.library(sync.shared_text(native.host_target()), native.host_target())
    for name in sync.SHARED_SYMBOLS:
        native.add_symbol(name, shared.address(name))
    return shared


def load(parts: Sequence[bytes]) -> Library:
    """A program's machine code, loaded; it may call the shared code."""
    with _making:
        library()
    return Library(parts, native.host_target())


@cache
def _method() -> MethodDef:
    _check_layout()
    return MethodDef(b"run", library().address("tc_call"), _METH_FASTCALL, b"Run a compiled program on arrays.")


def _check_layout() -> None:
    """The builtin reads data pointers out of array objects: see that they are where it looks."""
    for shape in ((3,), (), (2, 5)):
        probe = np.zeros(shape)
        fields = [ctypes.c_void_p.from_address(id(probe) + offset).value for offset in (8, sync.DATA_OFFSET)]
        flags = [ctypes.c_int.from_address(id(a) + sync.FLAGS_OFFSET).value for a in (probe, np.zeros((4, 4))[:, ::2])]
        if fields != [id(np.ndarray), probe.ctypes.data] or flags != [probe.flags.num, 0x500]:
            raise CompileError("this Python's array objects have an unknown layout")


def new_call(
    entry: int, arrays: int, arena_bytes: int, threads: int, pool: int
) -> tuple[Callable[..., int], np.ndarray[tuple[int], np.dtype[np.uint8]]]:
    """A builtin that runs ``entry`` on ``arrays`` arrays, for one call at a time, and the arena that is its own."""
    table = sync.RECORD_BYTES
    arena = table + -(-8 * arrays // LINE) * LINE
    block = aligned_bytes(arena + arena_bytes)
    start = block.ctypes.data
    record = (entry, start + table, start + arena, pool, threads, arrays, id(np.ndarray), 0)
    block[: sync.RECORD_BYTES].view(np.uintp)[:] = record
    create = ctypes.pythonapi.PyCFunction_NewEx
    create.restype = ctypes.py_object
    create.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    with _making:
        method = _method()
    made: Any = create(ctypes.addressof(method), block, None)
    return made, block[arena:]

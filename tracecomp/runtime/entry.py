"""Calling native entries from Python: the builtin on arrays (``codegen.calls.array_call``), and the memory of calls."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from tracecomp.base.errors import CompileError
from tracecomp.base.interrupts import uninterrupted
from tracecomp.base.locks import Lock
from tracecomp.codegen.calls import array_call
from tracecomp.codegen.text.assembler import module_text
from tracecomp.codegen.threads import pauses, sync
from tracecomp.ir.loops import LINE
from tracecomp.runtime import compiler
from tracecomp.runtime.library import Library, add_functions, add_symbol
from tracecomp.runtime.malloc import aligned_bytes
from tracecomp.runtime.object_layout import arrays_are_known

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]

METH_FASTCALL = 0x80
"""CPython's flag of a builtin that takes an array of arguments."""
_making = Lock()  # one thread at a time fills the caches below, into which builtins keep pointers


class MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def builtin(method: MethodDef, bound: object) -> Callable[..., Any]:
    """A Python builtin function that runs native code, whose self is ``bound``; ``method`` must stay alive as long."""
    create = ctypes.pythonapi.PyCFunction_NewEx
    create.restype = ctypes.py_object
    create.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    made: Callable[..., Any] = create(ctypes.addressof(method), bound, None)
    return made


_on_pause = uninterrupted.handle_in_loop
"""Called by loops of native code; referenced here, as they have its address only."""


@cache
def library() -> Library:
    """The native code that all programs share."""
    add_functions(ctypes.pythonapi, (*array_call.SYMBOLS, *pauses.SYMBOLS))
    host = compiler.host_target()
    shared = compiler.library(
        module_text(sync.shared_text(host), pauses.pause_text(host, hook=True), array_call.call_text())
    )
    for name in (*sync.SYMBOLS, pauses.PAUSE):
        add_symbol(name, shared.address(name))
    ctypes.c_void_p.from_address(shared.address(pauses.HOOK)).value = id(_on_pause)
    return shared


def load(parts: Sequence[bytes]) -> Library:
    """A program's machine code, loaded; it may call the shared code."""
    with _making:
        library()
    return Library(parts)


@cache
def _method() -> MethodDef:
    if not arrays_are_known():
        raise CompileError("this Python's array objects have an unknown layout")
    return MethodDef(b"run", library().address(array_call.CALL), METH_FASTCALL, b"Run a compiled program on arrays.")


def new_call(
    entry: int, arrays: int, arena_bytes: int, threads: int, pool: int, memory: Callable[[int], Bytes] = aligned_bytes
) -> tuple[Callable[..., int], Bytes]:
    """A builtin that runs ``entry`` on ``arrays`` arrays, for one call at a time, and its separate arena.

    ``memory`` allocates the given number of bytes, starting at a cache line.
    """
    table = -(-8 * len(array_call.RECORD) // LINE) * LINE
    arena = table + -(-8 * arrays // LINE) * LINE
    block = memory(arena + arena_bytes)
    start = block.ctypes.data
    words = {
        "entry": entry, "table": start + table, "arena": start + arena, "pool": pool, "threads": threads,
        "arrays": arrays, "type": id(np.ndarray), "failed": 0,
    }  # fmt: skip
    block[: 8 * len(array_call.RECORD)].view(np.uintp)[:] = [words[name] for name in array_call.RECORD]
    with _making:
        method = _method()
    return builtin(method, block), block[arena:]

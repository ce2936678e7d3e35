"""Arrays that begin at a cache line, unlike numpy's own large ones: non-temporal stores need this."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tracecomp.codegen.text.assembler import module_text
from tracecomp.codegen.threads import allocator
from tracecomp.ir.arrays import SMALL_BYTES
from tracecomp.ir.loops import LINE
from tracecomp.runtime import compiler
from tracecomp.runtime.library import add_functions
from tracecomp.runtime.malloc import use_large_pages

Array = np.ndarray[Any, Any]
Make = Callable[[tuple[int, ...], Any], Array]

# Indices in numpy's table of C functions.
_SET_HANDLER, _DEFAULT_HANDLER = 304, 306
_NAME = b"mem_handler"


class _Handler(ctypes.Structure):
    """numpy's ``PyDataMem_Handler``."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


def maker(nbytes: int) -> Make:
    """A function that allocates arrays of ``nbytes`` bytes from shape and dtype."""
    return (_aligned() if nbytes > SMALL_BYTES else None) or np.empty


@cache
def _aligned() -> Make | None:
    """Allocate arrays at cache lines; None if numpy has an unknown layout."""
    try:
        version, set_handler = _numpy_allocator()
        add_functions(ctypes.CDLL(None), allocator.SYMBOLS)
    except (AttributeError, OSError, TypeError, ValueError):
        return None
    library = compiler.library(module_text(allocator.allocator_text()))
    functions = (library.address(name) for name in ("tc_malloc", "tc_calloc", "tc_realloc", "tc_free"))
    handler = _Handler(b"cache_lines", version, None, *functions)
    for lasting in (library, handler):  # arrays may be freed after all modules are gone
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(lasting))
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    capsule = new(ctypes.addressof(handler), _NAME, None)

    def empty(shape: tuple[int, ...], dtype: Any) -> Array:
        before = set_handler(capsule)
        try:
            array = np.empty(shape, dtype)
        finally:
            set_handler(before)
        use_large_pages(array.ctypes.data, array.nbytes)
        return array

    return empty if empty((SMALL_BYTES,), np.uint8).ctypes.data % LINE == 0 else None


def _numpy_allocator() -> tuple[int, Callable[[Any], Any]]:
    """The version of numpy's allocators, and the function that sets the current one and returns the previous one."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    core: Any = np._core.multiarray  # type: ignore[attr-defined]
    table = ctypes.cast(pointer(core._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
    default = ctypes.cast(table[_DEFAULT_HANDLER], ctypes.POINTER(ctypes.py_object)).contents.value
    set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[_SET_HANDLER])
    return int(_Handler.from_address(pointer(default, _NAME)).version), set_handler

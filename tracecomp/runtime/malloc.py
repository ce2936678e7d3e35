"""The process's memory: freed memory that it keeps, and separate pages for large blocks."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tracecomp.ir.loops import LINE

_OWN_PAGES = 1 << 20
"""Bytes above which memory has separate pages, which take physical memory only when written."""
_LARGE, _PAGE, _HUGEPAGE = 1 << 22, 4096, 14
"""Bytes above which large pages are requested, bytes of a small one, and Linux's number of the advice."""
_THRESHOLDS = {"MALLOC_MMAP_THRESHOLD_": (-3, 32 << 20), "MALLOC_TRIM_THRESHOLD_": (-1, 64 << 20)}


def keep_freed() -> None:
    """Let glibc keep up to 64 MB of freed memory from the start, including blocks below 32 MB.

    glibc reaches these thresholds only after a program has freed 32 MB at a time. Until then the temporaries of eager
    operators would return to the system, whose new pages take longer than the arithmetic. Thresholds set in the
    environment stay.
    """
    adjust = _function("mallopt") if sys.platform == "linux" else None
    if adjust is not None and not _THRESHOLDS.keys() & os.environ.keys():
        for parameter, nbytes in _THRESHOLDS.values():
            adjust(parameter, nbytes)


def return_unused() -> None:
    """Return freed memory to the system, if the C library can: temporaries of an eager call would otherwise stay in
    use."""
    trim = _trim()
    if trim is not None:
        trim(0)


def aligned_bytes(nbytes: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Zeroed memory that starts at a cache line; if large, in new pages, which take physical memory when written."""
    if nbytes < _OWN_PAGES:
        memory = np.zeros(nbytes + LINE, np.uint8)
        start = -memory.ctypes.data % LINE
        return memory[start : start + nbytes]
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    memory = np.frombuffer(mmap.mmap(-1, nbytes, **private), np.uint8)
    use_large_pages(memory.ctypes.data, nbytes)
    return memory


def use_large_pages(address: int, nbytes: int) -> None:
    """Request large pages for new memory, as numpy does above a size."""
    advise = _advise()
    if nbytes >= _LARGE and advise is not None:
        start = -(-address // _PAGE) * _PAGE
        advise(ctypes.c_void_p(start), ctypes.c_size_t(address + nbytes - start), _HUGEPAGE)


@cache
def _trim() -> Callable[[int], Any] | None:
    return _function("malloc_trim")


@cache
def _advise() -> Callable[..., Any] | None:
    return _function("madvise") if sys.platform == "linux" else None


def _function(name: str) -> Callable[..., Any] | None:
    """A function of the C library."""
    try:
        return getattr(ctypes.CDLL(None), name, None)
    except (OSError, TypeError):  # no symbols of the process itself, as on Windows
        return None

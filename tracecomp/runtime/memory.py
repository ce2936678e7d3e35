"""Memory that the process holds and does not use."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

_LARGE, _PAGE, _HUGEPAGE = 1 << 22, 4096, 14


def return_unused() -> None:
    """Give freed memory back to the system, where the C library can: what an eager call leaves would stay in use."""
    trim = _trim()
    if trim is not None:
        trim(0)


def use_large_pages(address: int, nbytes: int) -> None:
    """Ask for large pages under new memory, as numpy does from so many bytes on."""
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

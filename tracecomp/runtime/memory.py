"""Memory that the process holds and does not use."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any


def return_unused() -> None:
    """Give freed memory back to the system, where the C library can: what an eager call leaves would stay in use."""
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], Any] | None:
    try:
        return getattr(ctypes.CDLL(None), "malloc_trim", None)
    except (OSError, TypeError):  # no symbols of the process itself, as on Windows
        return None

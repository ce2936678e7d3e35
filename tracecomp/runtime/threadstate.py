"""The interpreter's dictionary of the present thread, where native calls find the thread's modes."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

MODES_KEY = "tracecomp.eager.modes"
"""The entry of a thread's dictionary that holds the dictionary of its modes."""


def know_thread(modes: Mapping[str, object]) -> None:
    """Let native calls of this thread see its modes."""
    get = ctypes.pythonapi.PyThreadState_GetDict
    get.restype = ctypes.c_void_p  # borrowed, which py_object as the result type would not know
    ctypes.cast(get(), ctypes.py_object).value[MODES_KEY] = modes

"""The interpreter's dictionary of the present thread, where native calls find the thread's modes."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

MODES_KEY = "tracecomp.eager.modes"
"""The key of the modes' dictionary in a thread's dictionary."""


def know_thread(modes: Mapping[str, object]) -> None:
    """Make this thread's modes visible to native calls."""
    thread_dictionary()[MODES_KEY] = modes


def thread_dictionary() -> dict[str, object]:
    """The present thread's dictionary."""
    get = ctypes.pythonapi.PyThreadState_GetDict
    get.restype = ctypes.c_void_p  # a borrowed reference, which py_object would release
    own: dict[str, object] = ctypes.cast(get(), ctypes.py_object).value
    return own

"""The function whose call a frame is. Python does not tell it; CPython's interpreter frame holds it."""

from __future__ import annotations

import ctypes
import gc
import sys
from functools import cache
from types import FrameType, FunctionType

_FRAME_OBJECT = 16 + 8
"""Where a frame object points to the interpreter's own: after its header and the frame before."""
_WORDS = 8


def function_of(frame: FrameType) -> FunctionType | None:
    """The function that runs in ``frame``; None where it cannot be found."""
    word = _function_word()
    if word is None:
        return _searched(frame)
    found = ctypes.cast(_words(frame)[word], ctypes.py_object).value  # alive, because the frame refers to it
    return found if isinstance(found, FunctionType) and found.__code__ is frame.f_code else _searched(frame)


def _words(frame: FrameType) -> list[int]:
    """The first words of the interpreter's frame, without the bits that newer versions mark pointers with."""
    start = ctypes.c_void_p.from_address(id(frame) + _FRAME_OBJECT).value
    return [w & ~7 for w in (ctypes.c_uint64 * _WORDS).from_address(start or id(frame))]


@cache
def _function_word() -> int | None:
    """Which word of the interpreter's frame is the function, by trial; None on a Python that is built otherwise."""
    if sys.implementation.name != "cpython" or object.__basicsize__ != 16:
        return None

    def probe() -> int | None:
        words = _words(sys._getframe())
        return words.index(id(probe)) if id(probe) in words else None

    def other() -> int | None:
        words = _words(sys._getframe())
        return words.index(id(other)) if id(other) in words else None

    return probe() if probe() == other() else None


def _searched(frame: FrameType) -> FunctionType | None:
    """The same by a search through all objects, for a function whose variables hold what the frame's do."""
    held = frame.f_locals
    for fn in gc.get_referrers(frame.f_code):
        if isinstance(fn, FunctionType) and fn.__code__ is frame.f_code:
            cells = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
            if all(held.get(name) is cell.cell_contents for name, cell in cells):
                return fn
    return None

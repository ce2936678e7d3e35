"""The function whose call a frame is, and the values on its stack. Python does not tell; CPython's own frame does."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from functools import cache
from opcode import opname
from types import FrameType, FunctionType
from typing import Any

from tracecomp.record.stack_depths import stack_depths, variables_of

_FRAME_OBJECT = 16 + 8
"""Offset in a frame object of the pointer to the interpreter's frame: after its header and the previous frame."""
_WORDS = 16
"""Words of the interpreter's frame that are examined: 9 to 11 fields, then variables."""
_PYTHONS = ((3, 11), (3, 12), (3, 13), (3, 14))
"""Versions whose instructions are known (``instructions.py``)."""


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


class Stack:
    """The variables and the stack of a function that is traced, before one of its instructions."""

    __slots__ = ("_start", "_top", "frame")

    def __init__(self, frame: FrameType, depth: int) -> None:
        """``depth`` is the number of values on the stack there (``stack_depths``)."""
        self.frame = frame
        start = ctypes.c_void_p.from_address(id(frame) + _FRAME_OBJECT).value or 0
        self._start = start + 8 * (_variables_word() or 0)
        self._top = self._start + 8 * (variables_of(frame.f_code) + depth)

    def peek(self, depth: int) -> Any:
        """The value ``depth`` below the end of the stack; 1 is the last. None where there is none."""
        return _value(self._top - 8 * depth)

    def put(self, depth: int, value: object) -> None:
        """Let ``value`` be what ``peek`` finds, for the instruction that runs next."""
        word = ctypes.c_uint64.from_address(self._top - 8 * depth)
        before, owned = self.peek(depth), word.value & 7 == 0
        if value is not before:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))  # the stack's own
            word.value = id(value)
            if owned:  # newer versions mark references that are not counted
                ctypes.pythonapi.Py_DecRef(ctypes.py_object(before))

    def variable(self, number: int) -> Any:
        """The object in a variable's slot: the cell for those shared with inner functions."""
        return _value(self._start + 8 * number)


def _value(address: int) -> Any:
    """The object that a word points to; newer versions mark pointers in bits that are 0 in addresses."""
    word = ctypes.c_uint64.from_address(address).value & ~7
    return ctypes.cast(word, ctypes.py_object).value if word else None


@cache
def _variables_word() -> int | None:
    """Which word of the interpreter's frame is the first variable, by trial; None on a Python built otherwise."""

    def probe(given: object) -> int | None:
        words = _words(sys._getframe())
        return words.index(id(given)) if id(given) in words else None

    one, other = object(), object()
    return probe(one) if probe(one) == probe(other) else None


def watch_instructions(frame: FrameType, traced: Callable[..., Any]) -> None:
    """Call ``traced`` for every instruction of ``frame``, whose call event a trace function is handling."""
    frame.f_trace = traced  # from Python 3.13 on, what follows does nothing to a frame without
    frame.f_trace_opcodes = True


@cache
def stack_is_known() -> bool:
    """Whether ``Stack`` shows the right values, tested on this Python."""
    if sys.version_info[:2] not in _PYTHONS or _function_word() is None or _variables_word() is None:
        return False
    seen: list[Any] = []
    owner, before = object(), sys.gettrace()
    depths: dict[int, int] = {}

    def traced(frame: FrameType, event: str, arg: object) -> Any:
        watch_instructions(frame, traced)
        if event == "opcode" and opname[frame.f_code.co_code[frame.f_lasti]] == "IS_OP":
            stack = Stack(frame, depths[frame.f_lasti])
            seen.extend((stack.peek(1), stack.peek(2), stack.variable(0)))
        return traced

    def probe(given: object) -> tuple[object, bool]:
        return given, given is seen

    depths.update(stack_depths(probe.__code__))
    try:
        sys._getframe().f_trace_opcodes = True  # Python 3.12 reports instructions once some frame has enabled them
        sys.settrace(traced)
        probe(owner)
    finally:
        sys.settrace(before)
    return len(seen) == 3 and seen[0] is seen and seen[1] is owner and seen[2] is owner

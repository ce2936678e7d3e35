"""The function whose call a frame is, and the values on its stack. Python does not tell; CPython's own frame does."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from opcode import opname
from types import FrameType, FunctionType
from typing import Any, NamedTuple

from tracecomp.base.interpreter import bytecode_is_known
from tracecomp.record.stack_depths import stack_depths, variables_of

_FRAME_OBJECT = 16 + 8
"""Offset in a frame object of the pointer to the interpreter's frame: after its header and the previous frame."""
_WORDS = 16
"""Words of the interpreter's frame that are examined: 9 to 11 fields, then variables."""


def function_of(frame: FrameType) -> FunctionType | None:
    """The function that runs in ``frame``; None where it cannot be found."""
    if _FUNCTION_WORD is None:
        return _searched(frame)
    found = ctypes.cast(_words(frame)[_FUNCTION_WORD], ctypes.py_object).value  # alive, because the frame refers to it
    return found if isinstance(found, FunctionType) and found.__code__ is frame.f_code else _searched(frame)


def _words(frame: FrameType) -> list[int]:
    """The first words of the interpreter's frame, without the bits that newer versions mark pointers with."""
    start = ctypes.c_void_p.from_address(id(frame) + _FRAME_OBJECT).value
    return [w & ~7 for w in (ctypes.c_uint64 * _WORDS).from_address(start or id(frame))]


def _function_word() -> int | None:
    """Which word of the interpreter's frame is the function, by trial; None on a Python that is built otherwise."""

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


class Layout(NamedTuple):
    """Facts about the stack before a call that differ between versions of CPython."""

    callee_first: bool
    """Whether the callee is below the object of its method, and below the empty place without one."""
    keywords_always: bool
    """Whether a call of ``f(*args)`` has a place for keywords, too."""


class Stack:
    """The variables and the stack of a function that is traced, before one of its instructions."""

    __slots__ = ("_start", "_top", "frame")

    def __init__(self, frame: FrameType, depth: int) -> None:
        """``depth`` is the number of values on the stack there (``stack_depths``)."""
        self.frame = frame
        start = ctypes.c_void_p.from_address(id(frame) + _FRAME_OBJECT).value or 0
        self._start = start + 8 * (_VARIABLES_WORD or 0)
        self._top = self._start + 8 * (variables_of(frame.f_code) + depth)

    def peek(self, depth: int) -> Any:
        """The value ``depth`` below the end of the stack; 1 is the last. None where there is none."""
        return _value(self._top - 8 * depth)

    def words(self) -> list[int]:
        """The addresses in all slots, of variables and then of the stack; 0 where there is none."""
        count = (self._top - self._start) // 8
        return [w & ~7 for w in (ctypes.c_uint64 * count).from_address(self._start)]

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


def _layout() -> Layout | None:
    """The layout of a probe's stack; None if ``Stack`` does not show the values that must be there.

    Words are compared with addresses of objects: on a Python that is built otherwise, they may be no addresses.
    """
    if _FUNCTION_WORD is None or _VARIABLES_WORD is None:
        return None
    seen: list[list[int]] = []
    depths: dict[int, int] = {}

    def traced(frame: FrameType, event: str, arg: object) -> Any:
        watch_instructions(frame, traced)
        if event == "opcode" and opname[frame.f_code.co_code[frame.f_lasti]] in ("IS_OP", "CALL", "CALL_FUNCTION_EX"):
            seen.append(Stack(frame, depths[frame.f_lasti]).words())
        return traced

    def probe(given: Any, run: Callable[..., object], args: tuple[object, ...], more: dict[str, object]) -> bool:
        given.index(None)
        run(given)
        run(*args)
        run(*args, **more)
        return given is args

    depths.update(stack_depths(probe.__code__))
    before, given, more = sys.gettrace(), [None], dict[str, object]()
    args = (given,)
    try:
        sys._getframe().f_trace_opcodes = True  # Python 3.12 reports instructions once some frame has enabled them
        sys.settrace(traced)
        probe(given, id, args, more)
    finally:
        sys.settrace(before)
    own = [*map(id, (given, id, args, more))]
    if len(seen) != 5 or any(words[:4] != own for words in seen):
        return None
    method, call, spread, keywords, last = (words[4:] for words in seen)
    layout = Layout(call[:1] == [id(id)], len(spread) == 4)
    callee = [id(id), 0] if layout.callee_first else [0, id(id)]
    fits = (
        method == [id(list.index), id(given), id(None)]
        and call == [*callee, id(given)]
        and spread == [*callee, id(args)] + [0] * layout.keywords_always
        and keywords[:-1] == [*callee, id(args)]  # and a copy of the dictionary
        and last == [id(given), id(args)]
    )
    return layout if fits else None


_FUNCTION_WORD, _VARIABLES_WORD = (_function_word(), _variables_word()) if bytecode_is_known() else (None, None)
_FOUND = _layout()
STACK_IS_KNOWN = _FOUND is not None
"""Whether ``Stack`` shows the right values, tested on this Python when this module was loaded."""
LAYOUT = _FOUND or Layout(False, False)

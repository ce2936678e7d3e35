"""Ctrl-C at any moment: blocks that always restore their changes, and blocks that are not interrupted.

Python may raise KeyboardInterrupt at the start of any Python function. An interrupt at the start of ``__exit__`` would
prevent its restoration. A C function that ends the block has no such moment.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # without the enumerations of ``signal``, which take ten times as long
import ctypes
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any


def _deaf_call() -> Any:
    """A C function that calls its first argument and ignores the others: the arguments of ``__exit__``.

    It is a method of ``partial`` whose code is ``PyObject_CallNoArgs``. Methods are called with the object and a tuple
    of the other arguments, and C functions ignore arguments without a parameter.
    """

    class Definition(ctypes.Structure):
        _fields_ = [
            ("name", ctypes.c_char_p),
            ("code", ctypes.c_void_p),
            ("flags", ctypes.c_int),
            ("doc", ctypes.c_char_p),
        ]

    code = ctypes.cast(ctypes.pythonapi.PyObject_CallNoArgs, ctypes.c_void_p).value
    definition = Definition(b"call", code, _METH_VARARGS, None)
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.POINTER(Definition))
    _alive.append(definition)
    return make(("PyDescr_NewMethod", ctypes.pythonapi))(partial, ctypes.byref(definition))


_METH_VARARGS = 1
"""A flag of CPython's ``methodobject.h``."""
_alive: list[ctypes.Structure] = []
"""Structures to which methods point."""
_call = _deaf_call()


class Leave:
    """``__exit__`` of a block that restores entries of a dictionary, without running Python.

    ``__enter__`` stores the entries in ``before_of(block)``, and then changes them, without a call in between.
    ``where`` returns the dictionary.
    """

    def __init__(self, where: Callable[[], dict[str, Any]]) -> None:
        self._where = where

    def __get__(self, block: object, kind: type | None = None) -> Any:
        if block is None:
            return self
        before = block.__dict__.setdefault("_before", {})  # ``before_of``, inlined: programs leave blocks at each call
        return partial(_call, partial(self._where().update, before))

    def __call__(self, block: object, *error: object) -> Any:
        """Called by ``contextlib.ExitStack``, which reads it from the class."""
        return self.__get__(block)(*error)


def before_of(block: object) -> dict[str, Any]:
    """The entries that the end of ``block`` restores."""
    found: dict[str, Any] = block.__dict__.setdefault("_before", {})
    return found


_NAMES = ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGPROF")
_SIGNALS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))


class _Uninterrupted:
    """A block in which signals wait for its end, so that its changes are atomic: for short blocks.

    Handlers run in the main thread only, so other threads need no protection. If our handler replaces another outside
    of a block, it calls that one, so an interrupt between any two steps here is harmless.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._late: list[int] = []
        self._in_loops = False

    def __enter__(self) -> None:
        if threading.get_ident() != threading.main_thread().ident:
            return
        if not self._depth:
            for number in _SIGNALS:
                handler = signal.getsignal(number)
                if callable(handler) and handler != self._note:
                    self._handlers[number] = handler
                    signal.signal(number, self._note)
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        if threading.get_ident() != threading.main_thread().ident:
            return
        self._depth -= 1
        self._in_loops = False
        if self._depth:
            return
        for number, handler in self._handlers.items():
            if signal.getsignal(number) == self._note:  # otherwise the block has set another handler, which stays
                signal.signal(number, handler)
        self._handle_late()

    def allow_in_loops(self, allowed: bool) -> None:
        """Set whether loops of programs may handle signals; they change no state before their end.

        Only in the outermost block: an inner one may be in the middle of a change.
        """
        if threading.get_ident() == threading.main_thread().ident:
            self._in_loops = allowed and self._depth == 1

    def handle_in_loop(self) -> None:
        """Handle deferred signals if that is allowed: loops call this now and then."""
        if self._in_loops:
            self._handle_late()

    def _handle_late(self) -> None:
        while self._late:
            number = self._late.pop(0)
            self._handlers[number](number, None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._depth:
            self._late.append(number)
        else:
            self._handlers[number](number, frame)


uninterrupted = _Uninterrupted()

"""Compiled functions with graph breaks: Python with compiled parts."""

from __future__ import annotations

from collections.abc import Callable, Set
from types import FunctionType, MethodType
from typing import Any

from tracecomp.compiled.graph_breaks import split
from tracecomp.record.capture import target_of
from tracecomp.record.guards.lifetimes import is_awaited
from tracecomp.record.guards.ownership import is_module, is_program_code
from tracecomp.record.outside import frame_readers

_MOST = 256
"""How many functions and modules that Python statements call are compiled; more are objects of single calls."""


class Parts:
    """``fn`` cut at ``lines``, for ``reason``; ``compile`` compiles functions as its own was."""

    def __init__(self, fn: Any, lines: Set[int], reason: str, compile: Callable[[Any], Any]) -> None:
        self.reason = reason
        self.pieces: list[Any] = []
        self._compile = compile
        self._fn = fn
        self._called: dict[Any, tuple[Any, Any]] = {}
        target = self._target = target_of(fn)
        self._code = None if target is None else target[0].__code__
        found = None if target is None else split(target[0], lines, self._part, self._piece)
        self._first = () if target is None else target[1]
        self._run = found

    @property
    def found(self) -> bool:
        """Whether there is anything to compile."""
        return self._run is not None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        assert self._run is not None
        now = target_of(self._fn)  # None for a module that has got hooks; its forward may be another, too
        if now is None or self._target is None or now[0] is not self._target[0] or now[0].__code__ is not self._code:
            return self._fn(*args, **kwargs)
        return self._run(*self._first, *args, **kwargs)

    def used(self) -> list[Any]:
        """The compiled parts that were called."""
        parts = [*self.pieces, *[made for _, made in self._called.values()]]
        return [p for p in parts if p.recordings or p.eager_because or p.parts]

    def _piece(self, fn: FunctionType) -> Any:
        made = self._compile(fn)
        made.quiet = True
        self.pieces.append(made)
        return made

    def _part(self, called: Any) -> Any:
        """The replacement of ``called``: a module or a function of the program is compiled."""
        if isinstance(called, MethodType):
            key: Any = (id(called.__self__), called.__func__)
            fn: Any = called.__func__
        else:
            key, fn = id(called), called
        known = self._called.get(key)
        if known is not None:
            return known[1]
        if not self._can_compile(called, fn) or len(self._called) >= _MOST:
            return called
        made = self._compile(called)
        made.quiet = True
        self._called[key] = (called, made)
        return made

    @staticmethod
    def _can_compile(called: object, fn: object) -> bool:
        if is_module(called):
            return not hasattr(called, "_orig_mod")
        if isinstance(called, MethodType) and is_awaited(called.__self__):  # which the compiled method would hold
            return False
        if not isinstance(fn, FunctionType) or fn.__code__.co_flags & 0x2A0:  # generators and coroutines
            return False
        if fn.__code__ in frame_readers:
            return False
        made_in_call = fn.__closure__ is not None and "<locals>" in fn.__qualname__
        return not made_in_call and is_program_code(fn.__code__, fn.__globals__)

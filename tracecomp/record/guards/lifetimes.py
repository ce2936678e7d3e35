"""Lifetimes of the program's objects: guards do not extend them.

A program may wait for the end of an object, in ``__del__`` or with a weak reference, or free its memory. Guards
therefore refer weakly to objects that the program holds. A recording ends with the first of them: it fits no call after
that.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from tracecomp.record.guards.ownership import is_opened

_CONTAINERS = (list, tuple, dict, set, frozenset, deque)
_MOST_CONTAINERS = 2**12
"""Containers within one value that ``holds_awaited`` searches, for each native record of a call."""


class Lifetimes:
    """The objects that one recording refers to weakly.

    ``ended``: one of those that it compares by identity is gone. ``ends`` counts those that are gone, also objects
    whose memory native checks read.
    """

    def __init__(self) -> None:
        self.ended = False
        self.ends = 0
        self._refs: dict[tuple[int, bool], weakref.ref[Any]] = {}
        self._watchers: list[weakref.WeakMethod[Callable[[], object]]] = []

    def watch(self, told: Callable[[], object]) -> None:
        """Call ``told``, a method of an object that may be gone by then, when one of the objects is gone."""
        self._watchers.append(weakref.WeakMethod(told))

    def refer(self, value: Any, ends: bool = True) -> weakref.ref[Any]:
        """A weak reference to ``value``. If it ``ends``, so does the recording."""
        key = id(value), ends
        found = self._refs.get(key)
        if found is None:
            found = self._refs[key] = weakref.ref(value, _End(self, key))
        return found

    def borrowed(self, value: object) -> Callable[[], Any]:
        """A function that returns ``value``, and holds it only if no end of it can be seen; None once it is gone."""
        return self.refer(value, ends=False) if may_end(value) else lambda: value

    def has(self, value: object) -> bool:
        """Whether there is a weak reference to ``value``."""
        return (id(value), True) in self._refs or (id(value), False) in self._refs

    def end(self, key: tuple[int, bool]) -> None:
        """An object is gone."""
        del self._refs[key]
        self.ended |= key[1]
        self.ends += 1
        for told in self._watchers:
            method = told()
            if method is not None:
                method()


class _End:
    """Called when an object is gone. It does not hold the recording, which may be gone before."""

    __slots__ = ("_key", "_lifetimes")

    def __init__(self, lifetimes: Lifetimes, key: tuple[int, bool]) -> None:
        self._lifetimes = weakref.ref(lifetimes)
        self._key = key

    def __call__(self, ref: object, is_exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        # When Python exits, modules lose their globals, on which the watchers depend.
        lifetimes = None if is_exiting() else self._lifetimes()
        if lifetimes is not None:
            lifetimes.end(self._key)


def may_end(value: object) -> bool:
    """Whether ``value`` is an object of the program, a function or a method, which weak references can refer to."""
    return _may_end(type(value))


def _may_end(kind: type) -> bool:
    return kind in (FunctionType, MethodType) or (is_opened(kind) and kind.__weakrefoffset__ != 0)


def is_held_if_guarded(value: object) -> bool:
    """Whether the class of ``value`` handles its end, and weak references cannot refer to it."""
    kind = type(value)
    return hasattr(kind, "__del__") and is_opened(kind) and not may_end(value)


def is_awaited(value: object) -> bool:
    """Whether the program has a weak reference to ``value``, or its class handles its end."""
    if hasattr(type(value), "__del__"):
        return True
    return may_end(value) and any(type(ref.__callback__) is not _End for ref in weakref.getweakrefs(value))


def holds_awaited(value: object) -> bool:
    """Whether a container holds such an object, which would not end before the container.

    The answer is also yes if there are too many containers within it.
    """
    if not isinstance(value, _CONTAINERS):
        return False
    seen = {id(value)}
    waiting: list[Any] = [value]
    while waiting:
        container = waiting.pop()
        held = _items(container)
        # Most containers hold values of few classes, such as numbers: what needs no look is left out at once.
        kinds = {k for k in set(map(type, held)) if _may_end(k) or hasattr(k, "__del__") or issubclass(k, _CONTAINERS)}
        for x in held if kinds else ():
            if type(x) in kinds:
                if is_awaited(x):
                    return True
                if isinstance(x, _CONTAINERS) and id(x) not in seen:
                    if len(seen) == _MOST_CONTAINERS:
                        return True
                    seen.add(id(x))
                    waiting.append(x)
    return False


def _items(container: Any) -> list[object]:
    """The values of a container, without methods of the program's classes."""
    if isinstance(container, dict):
        return list(dict.values(container))
    kind: Any = next(k for k in _CONTAINERS if isinstance(container, k))
    return list(kind.__iter__(container))

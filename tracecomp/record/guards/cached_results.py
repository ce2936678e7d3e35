"""Entries of ``functools.lru_cache``, read without a call: a call counts, and makes the entry the most recent one."""

from __future__ import annotations

import ctypes
import functools
import gc
from collections.abc import Callable, Mapping
from typing import Any

from tracecomp.record.guards.snapshots import MISSING

_LINK_WORDS = 7
"""Words of an entry of a cache of limited size: the object's header, its neighbours, its hash, key and result."""


class CachedResults:
    """The entries of one cached function, in CPython's implementation in C."""

    def __init__(self, fn: Any) -> None:
        self._entries, _, self._mark = _parts(fn)
        limits = fn.cache_parameters()
        self._typed = limits["typed"]
        self._linked = limits["maxsize"] is not None

    def find(self, args: tuple[object, ...], keywords: Mapping[str, object]) -> Any:
        """The cached result of a call, or ``MISSING``."""
        found = self._entries.get(self._key(args, keywords), MISSING)
        return found if found is MISSING or not self._linked else _result(found)

    def _key(self, args: tuple[object, ...], keywords: Mapping[str, object]) -> object:
        if not self._typed and not keywords and len(args) == 1 and type(args[0]) in (int, str):
            return args[0]
        key = args
        if keywords:
            key = (*key, self._mark, *(part for item in keywords.items() for part in item))
        if self._typed:
            key = (*key, *map(type, args), *map(type, keywords.values()))
        return key


def _parts(fn: object) -> tuple[dict[object, Any], Any, object]:
    """The dictionary of a cached function, the function itself, and the mark before keywords in its keys.

    CPython lists what the wrapper refers to: first the entries, in the end six objects in a fixed order.
    """
    entries, inner, mark, *_ = gc.get_referents(fn)[-6:]
    return entries, inner, mark


def _words(link: object) -> list[int]:
    return list((ctypes.c_uint64 * _LINK_WORDS).from_address(id(link)))


def _result(link: object) -> Any:
    return ctypes.cast(_words(link)[-1], ctypes.py_object).value


@functools.cache
def caches_are_known() -> bool:
    """Whether ``CachedResults`` finds the right entries, tested on this Python."""
    made: list[object] = []

    def make(*args: object, **kwargs: object) -> object:
        made.append(object())
        return made[-1]

    try:
        for size in (None, 4):
            fn: Callable[..., object] = functools.lru_cache(size, typed=True)(make)
            made.clear()
            fn(1)
            fn(2.0, k="a")
            entries, inner, _ = _parts(fn)
            if type(entries) is not dict or inner is not make or len(entries) != 2:
                return False
            if size is not None and any(_words(x)[-1] != id(m) for x, m in zip(entries.values(), made, strict=True)):
                return False
            held = CachedResults(fn)
            if held.find((1,), {}) is not made[0] or held.find((2.0,), {"k": "a"}) is not made[1]:
                return False
            if held.find((True,), {}) is not MISSING:
                return False
    except (TypeError, ValueError, KeyError):
        return False
    return True

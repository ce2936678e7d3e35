"""Conversion of dynamic numbers to plain ones for opaque code.

Dynamic numbers and sizes are not ints and floats, which code in C, or in Python's library, may require: ``json``,
``datetime``, ``decimal``, ``math``, numpy. Such code receives the plain numbers, and the recording then depends on
them.
"""

from __future__ import annotations

import collections
import functools
import itertools
import math
import sys
from types import FunctionType, MethodType, ModuleType
from typing import Any

from tracecomp.record.guards.lookup import inherited
from tracecomp.record.guards.ownership import is_program_code
from tracecomp.record.symbolic.sym_int import SymInt
from tracecomp.record.symbolic.sym_scalar import SymScalar

_KEEP = frozenset({
    "builtins", "operator", "_operator", "functools", "_functools", "itertools", "collections", "_collections", "copy",
    "types", "typing", "contextlib", "dataclasses", "abc", "enum", "weakref", "_weakref", "inspect", "heapq", "_heapq",
    "bisect", "_bisect", "copyreg",
})  # fmt: skip
"""Modules of Python's library that leave it to the numbers themselves how they are computed with."""
_PLAIN = (collections.deque, itertools.permutations)
"""Classes and functions of these modules that require the exact type."""
_KEEPING = (math.prod, math.floor, math.ceil, math.trunc)
_NUMPY = frozenset({"numpy", "scipy"})


def wants_plain(callee: Any) -> bool:
    """Whether ``callee`` has to receive plain numbers instead of dynamic ones."""
    run = inherited(type(callee), "__call__")
    if isinstance(run, FunctionType) and is_program_code(run.__code__, run.__globals__):
        return False  # an object of the program, whose attributes are not read: a read may create them
    if isinstance(callee, functools.partial):
        return wants_plain(callee.func)
    if isinstance(callee, MethodType):
        callee = callee.__func__
    if any(callee is f for f in _PLAIN) or getattr(callee, "__objclass__", None) in (int, float):
        return True
    if is_cached(callee):
        return True  # keys of caches distinguish int from similar types
    code = getattr(callee, "__code__", None)
    if code is not None and is_program_code(code, callee.__globals__):
        return False
    root = _module(callee).partition(".")[0]
    return (root in sys.stdlib_module_names or root in _NUMPY) and root not in _KEEP and not _keeps(callee)


_CACHED = type(functools.lru_cache(len))


def is_cached(callee: object) -> bool:
    """Whether calls of ``callee`` go through ``functools.lru_cache``."""
    return isinstance(getattr(callee, "__func__", callee), _CACHED)


def _keeps(callee: object) -> bool:
    return any(callee is f for f in _KEEPING)


def _module(callee: object) -> str:
    """The name of the module that defines ``callee``, or its object; empty if unknown."""
    owner = getattr(callee, "__objclass__", None) or getattr(callee, "__self__", None)
    if owner is None or isinstance(owner, ModuleType):
        owner = callee
    elif not isinstance(owner, type):
        owner = type(owner)
    name = getattr(owner, "__module__", None)
    return name if isinstance(name, str) else ""


def plain_numbers(value: Any, depth: int = 8) -> Any:
    """``value`` with plain numbers in place of those that are followed; in lists and dictionaries in place."""
    if type(value) is SymInt:
        return value.fix()
    if type(value) is SymScalar:
        return value.seen()
    if depth and type(value) in (list, dict):
        for key, old in list(enumerate(value) if type(value) is list else value.items()):
            new = plain_numbers(old, depth - 1)
            if new is not old:
                value[key] = new
    elif depth and isinstance(value, tuple):
        parts = [plain_numbers(x, depth - 1) for x in value]
        if any(new is not old for new, old in zip(parts, value, strict=True)):
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value

"""Visibility of objects outside the program: all their contents, their attributes, or nothing."""

from __future__ import annotations

import ctypes
import datetime
import decimal
import enum
import fractions
import functools
import inspect
import json.encoder
import json.scanner
import operator
import pathlib
import re
import struct
import sys
import threading
import types
import weakref
from array import array
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from functools import cache
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GenericAlias,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    UnionType,
    WrapperDescriptorType,
)
from typing import Any, TypeGuard

import numpy as np

from tracecomp.base.code_origin import is_own, is_own_module, is_pythons_module, torch_name
from tracecomp.record.c_effects import is_c_function
from tracecomp.record.guards.ownership import is_opened, of_package

CONTAINERS = (list, tuple, dict, set, frozenset, deque, np.ndarray, ctypes.Array)
_LISTED = (bytearray, memoryview, array, Mapping, Set, Sequence)
_STATEFUL = ("torch.distributions", "torch.optim", "torch.utils.data")

_OF_JSON: tuple[type, ...] = tuple(
    kind for module in (json.scanner, json.encoder) for name, kind in vars(module).items() if name.startswith("c_make")
    and isinstance(kind, type)
)  # fmt: skip
"""Classes in C of the functions that read and write JSON."""
_UNCHANGING: tuple[type, ...] = (
    type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, MethodWrapperType, WrapperDescriptorType, CodeType,
    GenericAlias, UnionType, property, staticmethod, classmethod, functools.partial, functools.cached_property,
    MethodDescriptorType, ClassMethodDescriptorType, MemberDescriptorType, GetSetDescriptorType, BaseException,
    enum.Enum,
    type(NotImplemented), re.Pattern, re.Match, datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo,
    decimal.Decimal, struct.Struct, operator.itemgetter, operator.attrgetter, operator.methodcaller, inspect.Signature,
    weakref.ref, np.ufunc, np.dtype, type(threading.Lock()), type(threading.RLock()), Iterator,
    type(functools.lru_cache(len)), *_OF_JSON,
)  # fmt: skip
"""Classes written in C whose objects are what they were made as, or which are followed or refused elsewhere."""


_CLASS_FLAGS, _SETTABLE = 3 << 8, 2 << 8
"""CPython's flags of classes that are on the heap, or immutable; those of classes whose attributes can be set."""
_KEPT = (pathlib.PurePath, types.SimpleNamespace, fractions.Fraction, np.generic)
"""Classes in Python whose objects do not change, other than by caches."""


def held_by(value: tuple[Any, ...] | list[Any]) -> Iterator[Any]:
    """The items of a tuple or list themselves, whatever the ``__iter__`` of its class gives."""
    return tuple.__iter__(value) if isinstance(value, tuple) else list.__iter__(value)


def is_container(value: object) -> TypeGuard[Collection[object]]:
    """Whether all that ``value`` holds can be listed by code that is not the program's."""
    if isinstance(value, CONTAINERS):
        return True
    kind = type(value)
    return isinstance(value, _LISTED) and not is_opened(kind) and not of_package(kind)


def keeps_state(value: object) -> bool:
    """Whether this package's code reads its state from attributes of ``value``: schedules, distributions, data.

    Modules and optimizers have separate guards.
    """
    homes = [torch_name(k.__module__) for k in type(value).__mro__ if is_own(k)]
    return any(name.startswith(_STATEFUL) for name in homes) and not hasattr(value, "param_groups")


def is_settable_class(kind: type) -> bool:
    """Whether the attributes of a class can be set, as those of all classes that Python code makes."""
    return kind.__flags__ & _CLASS_FLAGS == _SETTABLE


def is_hidden(value: object) -> bool:
    """Whether ``value`` may change unnoticed: its class is implemented in C, and unknown."""
    kind: type = type(value)
    return kind is not object and not isinstance(value, _UNCHANGING) and _is_in_c(kind)


def has_attributes(value: object) -> bool:
    """Whether ``value`` is an object of a class in Python's library that is what its attributes are."""
    kind: type = type(value)
    if isinstance(value, type):  # in Python, too, whose attributes can be set
        settable = is_settable_class(value) and not issubclass(value, enum.Enum)
        return settable and _has_state(value.__module__)
    if isinstance(value, (*_UNCHANGING, *_KEPT)) or _is_in_c(kind) or of_package(kind):
        return False
    return _has_state(kind.__module__)


def is_foreign_function(fn: object) -> bool:
    """Whether ``fn`` is a function in C of a library, which may do anything."""
    module = getattr(fn, "__module__", None)
    return is_c_function(fn) and isinstance(module, str) and not _is_known(module)


@cache
def _is_in_c(kind: type) -> bool:
    """Whether all its bases are implemented in C, and objects have no attributes to examine."""
    functions = any(isinstance(f, FunctionType) for k in kind.__mro__ for f in vars(k).values())
    return not functions and (not kind.__dictoffset__ or not _is_known(kind.__module__))


def _has_state(module: str) -> bool:
    """Whether a module is Python's own or numpy's; classes of ``typing`` are types."""
    return is_pythons_module(module) and module.partition(".")[0] != "typing"


@cache
def _is_known(module: str) -> bool:
    """Whether a module is Python's own, this package's, the program's, or that of arrays."""
    if is_pythons_module(module) or is_own_module(module) or module.partition(".")[0] in ("scipy", "__main__"):
        return True
    return str(getattr(sys.modules.get(module), "__file__", "")).endswith(".py")

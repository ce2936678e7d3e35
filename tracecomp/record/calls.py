"""Calls of the program: each is a read or a change, the call of another object, or one of code that is not recorded."""

from __future__ import annotations

import abc
import functools
import os
from array import array
from collections.abc import Mapping, Sequence
from types import (
    BuiltinFunctionType,
    FunctionType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np

from tracecomp.base.capture_guide import Section
from tracecomp.record.builtin_calls import SPECIAL, environment
from tracecomp.record.cached_calls import StandIn
from tracecomp.record.callbacks import know_owner, read_partial
from tracecomp.record.codec_lookups import converted
from tracecomp.record.container_calls import container_method
from tracecomp.record.guards.lookup import inherited
from tracecomp.record.guards.ownership import is_program_class, is_program_function
from tracecomp.record.guards.snapshots import MISSING
from tracecomp.record.guards.visibility import is_container
from tracecomp.record.numpy_errors import try_numpy
from tracecomp.record.object_writes import change_plainly, delete_attribute, set_attribute
from tracecomp.record.opaque_calls import opaque_call
from tracecomp.record.outside import OWNERS, outside
from tracecomp.record.plain_numbers import is_cached
from tracecomp.record.watching import Watching


def called(observer: Watching, callee: object, args: list[object], kwargs: dict[str, object]) -> StandIn | None:
    """The program calls an object. Return a replacement for this call, if it needs one."""
    run = inherited(type(callee), "__call__")
    if is_program_function(run):
        return None
    if isinstance(callee, functools.partial):
        return _partial(observer, callee, args, kwargs)
    if isinstance(callee, MethodType) and not isinstance(callee.__func__, FunctionType) and not is_cached(callee):
        # As code in C does, which calls it.
        return called(observer, callee.__func__, [callee.__self__, *args], kwargs)
    if isinstance(callee, abc.ABCMeta):
        observer.attribute(callee, "__abstractmethods__")
        observer.contents(getattr(callee, "__abstractmethods__", None))
    name, owner, rest = _method(callee, args)
    if is_program_class(type(callee)) and isinstance(run, BuiltinFunctionType | functools.partial):
        observer.reach(run, observer.reads.root(run, f"the call of a {type(callee).__name__}"))
        bound = isinstance(run, functools.partial) and _PLACEHOLDER is not MISSING
        return called(observer, run, [callee, *args] if bound else args, kwargs)
    if name == "__call__" and owner is not None:
        return called(observer, owner, list(rest), kwargs)
    if _special_method(observer, name, owner, rest):
        return None
    if name is not None and (isinstance(owner, np.ndarray | array) and (found := outside(callee)) is not None):
        observer.recorder.refuse_here(f"calls {found}, whose result differs between calls", Section.IMPURE)
        return None
    converted(observer, callee, name, rest if name is not None else args, kwargs)
    if name is not None and is_container(owner) and not isinstance(owner, str | bytes):
        know_owner(observer, callee, owner)
        if isinstance(owner, np.ndarray):
            try_numpy(observer, callee, args, kwargs)
        container_method(observer, name, owner, rest, kwargs)
        return None
    if is_program_function(callee.__func__ if isinstance(callee, MethodType) else callee):
        return None
    special = SPECIAL.get(callee) if isinstance(callee, BuiltinFunctionType | type | FunctionType) else None
    if special is not None:
        special(observer, args, kwargs)
        return None
    if isinstance(callee, FunctionType) and args and args[0] is os.environ:
        environment(observer, callee.__name__, args[1:])
        return None
    if owner is os.environ or (isinstance(callee, MethodType) and callee.__self__ is os.environ):
        environment(observer, getattr(callee, "__name__", ""), rest if owner is os.environ else args)
        return None
    if owner is None and args and isinstance(args[0], OWNERS):
        owner = args[0]  # the callee is a method of a class implemented in C
    return opaque_call(observer, callee, owner, args, kwargs)


def _special_method(observer: Watching, name: str | None, owner: Any, rest: Sequence[Any]) -> bool:
    """Whether the call of a special method is an attribute's read or change, which is then recorded."""
    if (name == "__setattr__" and len(rest) == 2) or (name == "__delattr__" and len(rest) == 1):
        change_plainly(observer, owner, *rest)
    elif name == "__getattribute__" and len(rest) == 1:
        observer.attribute(owner, rest[0])
    elif isinstance(owner, MemberDescriptorType) and name in ("__get__", "__set__", "__delete__") and rest:
        _by_descriptor(observer, owner, name, rest)
    else:
        return False
    return True


def _by_descriptor(observer: Watching, descriptor: MemberDescriptorType, name: str, args: Sequence[Any]) -> None:
    """The program calls a method of a descriptor in ``__slots__``."""
    if name == "__get__":
        observer.attribute(args[0], descriptor.__name__)
    elif name == "__set__":
        set_attribute(observer, args[0], descriptor.__name__, args[1])
    else:
        delete_attribute(observer, args[0], descriptor.__name__)


def _partial(observer: Watching, callee: Any, args: Sequence[object], kwargs: Mapping[str, object]) -> StandIn | None:
    """A call of a ``functools.partial``: that of its function."""
    read_partial(observer, callee)
    rest = iter(args)
    first = [next(rest, x) if x is _PLACEHOLDER else x for x in callee.args]
    return called(observer, callee.func, [*first, *rest], {**callee.keywords, **kwargs})


_PLACEHOLDER = getattr(functools, "Placeholder", MISSING)
"""An argument that a partial leaves open. Pythons that have it also bind a partial to the object of its class."""


def _method(callee: object, args: list[object]) -> tuple[str | None, Any, list[Any]]:
    """Name, owner and arguments of a method of a builtin class."""
    if isinstance(callee, MethodDescriptorType | WrapperDescriptorType) and args:
        return callee.__name__, args[0], args[1:]
    if isinstance(callee, BuiltinFunctionType | MethodWrapperType):
        owner = callee.__self__
        return callee.__name__, owner, args
    return None, None, args

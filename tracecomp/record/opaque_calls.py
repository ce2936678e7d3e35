"""Calls of code that is not recorded: libraries, C functions, caches."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np

from tracecomp.base.capture_guide import Section
from tracecomp.base.code_origin import is_own
from tracecomp.eager.tensor import Tensor
from tracecomp.record.builtin_calls import TEXTS, text
from tracecomp.record.cached_calls import StandIn, cached_call
from tracecomp.record.callbacks import note_callbacks
from tracecomp.record.container_reads import stream
from tracecomp.record.guards.lookup import inherited
from tracecomp.record.guards.ownership import is_module, is_program_class, is_program_function
from tracecomp.record.guards.read_steps import Field, Held, Referent, SomeStep
from tracecomp.record.guards.snapshots import short
from tracecomp.record.guards.visibility import is_foreign_function
from tracecomp.record.numpy_errors import try_numpy
from tracecomp.record.outside import note_frames, outside
from tracecomp.record.plain_numbers import is_cached
from tracecomp.record.same_values import PLAIN
from tracecomp.record.watching import Watching

_BLIND = (isinstance, issubclass, type, id, callable, super, object, property, staticmethod, classmethod)
"""Functions that do not read the contents of their arguments."""


_OF_TYPES_IN_C = (BuiltinFunctionType, MethodWrapperType, MethodDescriptorType, WrapperDescriptorType)


def opaque_call(
    observer: Watching, callee: Any, owner: object, args: Sequence[object], kwargs: Mapping[str, object]
) -> StandIn | None:
    """A call of code that is not looked into. Return a replacement for this call, if it needs one."""
    if callee in _BLIND if isinstance(callee, type | BuiltinFunctionType) else False:
        return None
    name = outside(callee, owner)
    if name is not None:
        note_frames(name, observer.recorder.refusals.running)
        observer.recorder.refuse_here(f"calls {name}, whose result differs between calls", Section.IMPURE)
        return None
    if isinstance(callee, type) and is_program_class(callee):
        _constructor(observer, callee)
        return None
    if is_foreign_function(callee):
        observer.recorder.refuse_here(f"calls {callee.__module__}.{callee.__name__}, a C function", Section.EXCLUDE)
        return None
    if isinstance(callee, np.ufunc) and all("O" in kinds for kinds in callee.types):
        observer.recorder.refuse_here(f"calls {callee.__name__}, a ufunc of Python functions", Section.EXCLUDE)
        return None
    if callee in TEXTS if isinstance(callee, type | BuiltinFunctionType) else False:
        text(observer, args[0] if args else None)
    if isinstance(callee, FunctionType | MethodType) and hasattr(callee, "is_unwatched"):
        return None  # its reads do not matter, or every call repeats them
    if is_cached(callee):
        return cached_call(observer, callee, args, kwargs)
    _what_is_called(observer, callee, owner)
    if is_module(callee) and is_program_function(getattr(type(callee), "forward", None)):
        return None
    try_numpy(observer, callee, args, kwargs)
    own = is_own(callee)  # this package makes an array into a tensor, and reads it no further
    for value in (*args, *kwargs.values()):
        if not isinstance(value, (*PLAIN, Tensor)):
            note_callbacks(observer, value)
            observer.consume(value, own=own)
            if not own:
                observer.hand(value)
            stream(observer, value)
    return None


def _constructor(observer: Watching, kind: type) -> None:
    """Record the read of defaults of a constructor that Python's library has made, as of named tuples."""
    new = inherited(kind, "__new__")
    fn = new.__func__ if isinstance(new, staticmethod) else new
    if isinstance(fn, FunctionType) and not is_program_function(fn) and fn.__defaults__ is not None:
        step = Field("__defaults__")
        where = f"default argument of {kind.__name__}:"
        observer.step(observer.reads.root(fn, f"function {fn.__name__}"), step, fn.__defaults__, where)
        observer.contents(fn.__defaults__)


def _what_is_called(observer: Watching, callee: object, owner: object) -> None:
    """Record reads by opaque code of its object."""
    if isinstance(callee, weakref.ref):
        _stands_for(observer, callee, Referent(None))
    elif isinstance(callee, MethodType):
        observer.consume(callee.__self__)
    elif isinstance(callee, FunctionType):
        closure(observer, callee)
    elif owner is not None and isinstance(callee, _OF_TYPES_IN_C):
        observer.consume(owner)
        stream(observer, owner)
    else:
        observer.consume(callee)


def _stands_for(observer: Watching, callee: object, step: SomeStep) -> None:
    """Record a call of an object from before the call for its contents."""
    if id(callee) not in observer.made:
        where = f"what {getattr(callee, '__name__', short(callee))} gives"
        observer.step(observer.reads.root(callee, where), step, step.fetch(callee), where)


def closure(observer: Watching, callee: FunctionType) -> None:
    """Record the state that a function of the standard library keeps between calls, such as dispatch by class."""
    if is_own(callee) or id(callee) in observer.made:
        return
    for name, cell in zip(callee.__code__.co_freevars, callee.__closure__ or (), strict=True):
        step = Held(name)
        held = step.fetch(cell)
        observer.step(observer.reads.root(cell, f"closure variable {name}"), step, held, f"closure variable {name}")
        if isinstance(held, FunctionType) and held is not callee and not is_program_function(held):
            closure(observer, held)
        observer.contents(held)


def called_by_library(observer: Watching, callee: object, owner: object) -> None:
    """Code of a library calls an object."""
    name = outside(callee, owner, by_library=True)
    if name is not None:
        observer.recorder.refuse_here(f"calls {name}, whose result differs between calls", Section.IMPURE)

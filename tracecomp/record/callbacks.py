"""Values that the program passes to code that is not recorded, which may call them."""

from __future__ import annotations

import functools
import importlib
import warnings
from types import BuiltinFunctionType, FunctionType, MethodWrapperType
from typing import Any

from tracecomp.base.capture_guide import Section
from tracecomp.record.guards.read_steps import Slot
from tracecomp.record.guards.visibility import held_by, is_container
from tracecomp.record.object_writes import CHANGES
from tracecomp.record.outside import outside
from tracecomp.record.plain_numbers import is_cached
from tracecomp.record.watching import Watching

_EFFECTS = (print, setattr, delattr, next, warnings.warn, importlib.import_module, __import__)
"""Functions whose calls are observed by what they are given, and must not be called unseen."""


def note_callbacks(observer: Watching, value: object) -> None:
    """The program hands ``value`` to code that is not looked into, which may call it."""
    if isinstance(value, functools.partial):
        read_partial(observer, value)
        for part in (value.func, *value.args, *value.keywords.values()):
            note_callbacks(observer, part)
    elif isinstance(value, list | tuple) and id(value) not in observer.known:
        for part in held_by(value):
            note_callbacks(observer, part)
    elif isinstance(value, dict) and id(value) not in observer.known:
        for part in dict.values(value):
            note_callbacks(observer, part)
    elif isinstance(value, BuiltinFunctionType | FunctionType | type) and value in _EFFECTS:
        observer.recorder.refuse_here(f"passes {value.__name__} as a callback", Section.STATE, "Pass a Python function")
    elif isinstance(value, BuiltinFunctionType | MethodWrapperType) and is_container(value.__self__):
        know_owner(observer, value, value.__self__)
        if value.__name__ in CHANGES and id(value.__self__) in observer.known:
            observer.recorder.refuse_here(
                f"passes {value.__name__} of a {type(value.__self__).__name__} as a callback",
                Section.STATE,
                "Pass a Python function",
            )
        observer.consume(value.__self__)
    elif is_cached(value):
        what = f"passes {getattr(value, '__name__', 'a function')}, which has a cache, as a callback"
        observer.recorder.refuse_here(what, Section.STATE)
    elif not isinstance(value, type) and (name := outside(value)) is not None:
        observer.recorder.refuse_here(f"passes {name} as a callback", Section.IMPURE)


def read_partial(observer: Watching, callee: Any) -> None:
    read = observer.known.get(id(callee))
    for field in ("func", "args", "keywords"):
        value = getattr(callee, field)
        if read is not None:
            observer.step(read, Slot(field), value, f"{field} of a partial")
        if read is not None and field != "func":
            observer.contents(value)


def know_owner(observer: Watching, callee: object, owner: object) -> None:
    """Know the container whose method was there before the call: so was the container."""
    read = observer.known.get(id(callee)) if isinstance(callee, BuiltinFunctionType | MethodWrapperType) else None
    if read is not None and id(owner) not in observer.known and id(owner) not in observer.made:
        read.pin()
        observer.reach(owner, observer.reads.root(owner, f"the owner of {getattr(callee, '__name__', 'a method')}"))

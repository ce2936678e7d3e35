"""Watching which Python values a recorded program reads: globals, closures, attributes of plain objects."""

from __future__ import annotations

import argparse
import dis
import sys
import sysconfig
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, FunctionType, MethodType, SimpleNamespace
from typing import Any

from tracecomp.base.errors import is_user_file
from tracecomp.record.frames import function_of
from tracecomp.record.guards.guards import Names
from tracecomp.record.guards.slots import Contents
from tracecomp.record.recorder import Recorder

_LIBRARIES = tuple(
    str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib", "purelib", "platlib")
)

_NAMESPACES = (argparse.Namespace, SimpleNamespace)  # of the standard library, but for values of the program


@cache
def _is_programs(name: str) -> bool:
    """Whether code in the file ``name`` is neither this package's nor a library's.

    A user's own packages, those of the system, and those of other environments on the path are libraries too.
    """
    installed = {"site-packages", "dist-packages"} & set(Path(name).parts)
    return is_user_file(name) and not name.startswith(_LIBRARIES) and not installed


class Watch:
    """Around a call, every user function that is called adds what it may read to ``names``."""

    def __init__(self, recorder: Recorder, names: Names) -> None:
        self.recorder = recorder
        self.names = names
        self._codes: dict[int, CodeType] = {}
        self._objects: set[int] = set()
        self._inner: set[int] = set()
        self._others: set[int] = set()
        self._seen: dict[int, FunctionType] = {}
        self._before: Any = None

    def call(self, fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """``fn(*args, **kwargs)``, watched."""
        self._before = sys.gettrace()
        try:
            sys.settrace(self._trace)
            return fn(*args, **kwargs)
        finally:
            sys.settrace(self._before)

    def function(self, fn: Any) -> None:
        """Make a function (or method, or object with ``__call__``) known before it is called."""
        if isinstance(fn, MethodType):
            self.object(fn.__self__)
            fn = fn.__func__
        if isinstance(fn, FunctionType):
            names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
            defaults = dict(zip(names[::-1], (fn.__defaults__ or ())[::-1], strict=False)) | (fn.__kwdefaults__ or {})
            for name in defaults:
                self.names.add(defaults, name, f"default argument of {fn.__name__}:")
        else:
            self.object(fn)

    def object(self, owner: Any, existed: bool = True) -> None:
        """Watch the plain attributes of a user's object, and whether it gets more if it ``existed`` before the call."""
        if id(owner) in self._objects:
            return
        self._objects.add(id(owner))
        kind = type(owner)
        attributes = _attributes(owner)
        if _is_module(owner):
            for module in owner.modules():
                self.recorder.module_ran(module)
        elif not isinstance(owner, type) and (_is_user_class(kind) or kind in _NAMESPACES):
            if existed:
                self.names.own(attributes, f"attribute of {kind.__name__}:")
            for name, value in list(attributes.items()):
                self.names.add(attributes, name, f"attribute of {kind.__name__}:")
                self._consider(value)

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if id(code) not in self._codes:
            self._codes[id(code)] = code
            if _is_users(frame):
                self._read(code, frame.f_globals)
            else:
                self._others.add(id(code))
        if id(code) not in self._others:
            if code.co_freevars and id(code) not in self._inner:
                self._closure(frame)
            if code.co_argcount and code.co_varnames[0] == "self":
                self.object(frame.f_locals.get("self"), existed=False)
        return self._before(frame, event, arg) if self._before is not None else None

    def _read(self, code: CodeType, space: dict[str, Any]) -> None:
        for name in _globals_of(code):
            if name in space:
                self.names.add(space, name, "global")
                self._consider(space[name])
            elif name == "type":
                self.names.asks_types = True
        for inner in code.co_consts:
            if isinstance(inner, CodeType) and id(inner) not in self._codes:
                self._codes[id(inner)] = inner
                self._inner.add(id(inner))
                self._read(inner, space)

    def _closure(self, frame: FrameType) -> None:
        """Watch the closure variables of the function that runs.

        Functions made inside of the call are left out; what they hold is local to it.
        """
        fn = function_of(frame)
        if fn is None or id(fn) in self._seen:
            return
        self._seen[id(fn)] = fn
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            contents = Contents(cell)
            self.names.add(contents, name, "closure variable")
            self._consider(contents.get(name))

    def _consider(self, value: Any) -> None:
        if isinstance(value, FunctionType | MethodType):
            self.function(value)
        elif _is_user_class(type(value)) or type(value) in _NAMESPACES or _is_module(value):
            self.object(value)


def _is_users(frame: FrameType) -> bool:
    """Whether a user's code runs; what is generated at run time belongs to the module it is made for."""
    module = frame.f_globals.get("__file__")
    name = frame.f_code.co_filename
    return _is_programs(module if name.startswith("<") and isinstance(module, str) else name)


@cache
def _globals_of(code: CodeType) -> tuple[str, ...]:
    """The global names that ``code`` reads or assigns (``co_names`` has those of attributes too)."""
    kinds = ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL")
    return tuple(dict.fromkeys(i.argval for i in dis.get_instructions(code) if i.opname in kinds))


def _attributes(value: Any) -> dict[str, Any]:
    """The attributes that an object has of its own, whatever its class makes of other names.

    An exception here would leave the trace function, and CPython 3.11 may crash when one does so within ``__del__``.
    """
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found if isinstance(found, dict) else {}


def _is_module(value: Any) -> bool:
    return not isinstance(value, type) and {"_parameters", "_buffers"} <= _attributes(value).keys()


def _is_user_class(kind: type) -> bool:
    name = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return kind.__module__ == "__main__" or (name is not None and _is_programs(name))

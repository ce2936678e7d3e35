"""Reads and changes by calls: methods of containers, Python's builtins, code of libraries."""

from __future__ import annotations

import abc
import decimal
import functools
import importlib
import operator
import os
import warnings
import weakref
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    NoneType,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np

from tracecomp.base.capture_guide import Section
from tracecomp.eager.tensor import Tensor
from tracecomp.record.cached_calls import StandIn, cached
from tracecomp.record.codec_lookups import converted
from tracecomp.record.effects import written_in_c
from tracecomp.record.guards.ownership import is_module, is_program_class, is_program_code
from tracecomp.record.guards.reads import (
    Attribute,
    Entry,
    Field,
    Held,
    Member,
    Referent,
    Size,
    Slot,
    SomeStep,
    inherited,
)
from tracecomp.record.guards.snapshots import MISSING, plain_value, short
from tracecomp.record.guards.visibility import held_by, is_container, is_foreign_function
from tracecomp.record.numpy_errors import try_numpy
from tracecomp.record.outside import OWNERS, note_frames, outside
from tracecomp.record.plain_numbers import is_cached
from tracecomp.record.registries import class_test, import_module
from tracecomp.record.same_values import PLAIN
from tracecomp.record.watching import Watching

_PACKAGE = __name__.partition(".")[0]
_BLIND = (isinstance, issubclass, type, id, callable, super, object, property, staticmethod, classmethod)
"""Functions that do not read the contents of their arguments."""

_CHANGES = frozenset({
    "append", "extend", "insert", "clear", "add", "discard", "remove", "appendleft", "extendleft", "update", "sort",
    "reverse", "rotate", "fill", "__setitem__", "__delitem__", "setdefault", "pop", "popleft", "popitem",
    "difference_update", "intersection_update", "symmetric_difference_update", "subtract", "move_to_end",
    "__iadd__", "__ior__", "resize", "put", "itemset", "setfield", "partition", "setflags", "byteswap",
})  # fmt: skip
"""Methods of containers that change them."""

_STORES = frozenset({"append", "insert", "__setitem__", "appendleft"})
"""Those of them that do nothing with what they are given but keep it."""

_LOOKS = frozenset({"setdefault", "pop", "popleft", "popitem"})
"""Those of them that also return the old contents."""

_BY_KEY = frozenset({"get", "__getitem__", "__contains__", "setdefault", "pop"})
"""Methods that search a container."""


def called(observer: Watching, callee: object, args: list[object], kwargs: dict[str, object]) -> StandIn | None:
    """The program calls an object. Return a replacement for this call, if it needs one."""
    run = inherited(type(callee), "__call__")
    if is_programs(run):
        return None
    if isinstance(callee, functools.partial):
        _read_partial(observer, callee)
        return called(observer, callee.func, [*callee.args, *args], {**callee.keywords, **kwargs})
    if isinstance(callee, abc.ABCMeta):
        observer.attribute(callee, "__abstractmethods__")
        observer.contents(getattr(callee, "__abstractmethods__", None))
    name, owner, rest = _method(callee, args)
    if is_program_class(type(callee)) and isinstance(run, BuiltinFunctionType | functools.partial):
        observer.reach(run, observer.reads.root(run, f"the call of a {type(callee).__name__}"))
        return called(observer, run, args, kwargs)
    if name == "__call__" and owner is not None:
        return called(observer, owner, list(rest), kwargs)
    if _special_method(observer, name, owner, rest):
        return None
    if name is not None and (isinstance(owner, np.ndarray | array) and (found := outside(callee)) is not None):
        observer.recorder.refuse_here(f"calls {found}, whose result differs between calls", Section.IMPURE)
        return None
    converted(observer, callee, name, rest if name is not None else args, kwargs)
    if name is not None and is_container(owner) and not isinstance(owner, str | bytes):
        _know_owner(observer, callee, owner)
        if isinstance(owner, np.ndarray):
            try_numpy(observer, callee, args, kwargs)
        _container_method(observer, name, owner, rest, kwargs)
        return None
    if is_programs(callee.__func__ if isinstance(callee, MethodType) else callee):
        return None
    special = _SPECIAL.get(callee) if isinstance(callee, BuiltinFunctionType | type | FunctionType) else None
    if special is not None:
        special(observer, args, kwargs)
        return None
    if isinstance(callee, FunctionType) and args and args[0] is os.environ:
        _environment(observer, callee.__name__, args[1:])
        return None
    if owner is os.environ or (isinstance(callee, MethodType) and callee.__self__ is os.environ):
        _environment(observer, getattr(callee, "__name__", ""), rest if owner is os.environ else args)
        return None
    if owner is None and args and isinstance(args[0], OWNERS):
        owner = args[0]  # the callee is a method of a class implemented in C
    return _opaque(observer, callee, owner, args, kwargs)


def _special_method(observer: Watching, name: str | None, owner: Any, rest: Sequence[Any]) -> bool:
    """Whether the call of a special method is an attribute's read or change, which is then recorded."""
    if (name == "__setattr__" and len(rest) == 2) or (name == "__delattr__" and len(rest) == 1):
        _change_plainly(observer, owner, *rest)
    elif name == "__getattribute__" and len(rest) == 1:
        observer.attribute(owner, rest[0])
    elif isinstance(owner, MemberDescriptorType) and name in ("__get__", "__set__", "__delete__") and rest:
        _by_descriptor(observer, owner, name, rest)
    else:
        return False
    return True


_OF_TYPES_IN_C = (BuiltinFunctionType, MethodWrapperType, MethodDescriptorType, WrapperDescriptorType)


def _by_descriptor(observer: Watching, descriptor: MemberDescriptorType, name: str, args: Sequence[Any]) -> None:
    """The program calls a method of a descriptor in ``__slots__``."""
    if name == "__get__":
        observer.attribute(args[0], descriptor.__name__)
    elif name == "__set__":
        set_attribute(observer, args[0], descriptor.__name__, args[1])
    else:
        delete_attribute(observer, args[0], descriptor.__name__)


def is_programs(fn: object) -> bool:
    """Whether this is a function whose instructions are seen themselves."""
    return isinstance(fn, FunctionType) and is_program_code(fn.__code__, fn.__globals__)


def _opaque(
    observer: Watching, callee: Any, owner: object, args: Sequence[object], kwargs: Mapping[str, object]
) -> StandIn | None:
    """A call of code that is not looked into."""
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
    if callee in _TEXTS if isinstance(callee, type | BuiltinFunctionType) else False:
        text(observer, args[0] if args else None)
    if isinstance(callee, FunctionType | MethodType) and hasattr(callee, "is_unwatched"):
        return None  # its reads do not matter, or every call repeats them
    if is_cached(callee):
        return cached(observer, callee, args, kwargs, is_key)
    _what_is_called(observer, callee, owner)
    if is_module(callee) and is_programs(getattr(type(callee), "forward", None)):
        return None
    try_numpy(observer, callee, args, kwargs)
    for value in (*args, *kwargs.values()):
        if not isinstance(value, (*PLAIN, Tensor)):
            _handed_on(observer, value)
            observer.consume(value, own=_is_own(callee))
            if not _is_own(callee):
                observer.hand(value)
            stream(observer, value)
    return None


def _constructor(observer: Watching, kind: type) -> None:
    """Record the read of defaults of a constructor that Python's library has made, as of named tuples."""
    new = inherited(kind, "__new__")
    fn = new.__func__ if isinstance(new, staticmethod) else new
    if isinstance(fn, FunctionType) and not is_programs(fn) and fn.__defaults__ is not None:
        step = Field("__defaults__")
        where = f"default argument of {kind.__name__}:"
        observer.step(observer.reads.root(fn, f"function {fn.__name__}"), step, fn.__defaults__, where)
        observer.contents(fn.__defaults__)


def _is_own(callee: object) -> bool:
    """Whether a function is of this package, which makes an array into a tensor and reads it no further."""
    module = getattr(callee, "__module__", None) or ""
    return module.partition(".")[0] == _PACKAGE


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
    module = callee.__module__  # None for a function made in a namespace without __name__
    if (isinstance(module, str) and module.startswith(_PACKAGE)) or id(callee) in observer.made:
        return
    for name, cell in zip(callee.__code__.co_freevars, callee.__closure__ or (), strict=True):
        step = Held(name)
        held = step.fetch(cell)
        observer.step(observer.reads.root(cell, f"closure variable {name}"), step, held, f"closure variable {name}")
        if isinstance(held, FunctionType) and held is not callee and not is_programs(held):
            closure(observer, held)
        observer.contents(held)


def _read_partial(observer: Watching, callee: Any) -> None:
    read = observer.known.get(id(callee))
    for field in ("func", "args", "keywords"):
        value = getattr(callee, field)
        if read is not None:
            observer.step(read, Slot(field), value, f"{field} of a partial")
        if read is not None and field != "func":
            observer.contents(value)


def _know_owner(observer: Watching, callee: object, owner: object) -> None:
    """Know the container whose method was there before the call: so was the container."""
    read = observer.known.get(id(callee)) if isinstance(callee, BuiltinFunctionType | MethodWrapperType) else None
    if read is not None and id(owner) not in observer.known and id(owner) not in observer.made:
        read.pin()
        observer.reach(owner, observer.reads.root(owner, f"the owner of {getattr(callee, '__name__', 'a method')}"))


def _handed_on(observer: Watching, value: object) -> None:
    """The program hands ``value`` to code that is not looked into, which may call it."""
    if isinstance(value, functools.partial):
        _read_partial(observer, value)
        for part in (value.func, *value.args, *value.keywords.values()):
            _handed_on(observer, part)
    elif isinstance(value, list | tuple) and id(value) not in observer.known:
        for part in held_by(value):
            _handed_on(observer, part)
    elif isinstance(value, dict) and id(value) not in observer.known:
        for part in dict.values(value):
            _handed_on(observer, part)
    elif isinstance(value, BuiltinFunctionType | FunctionType | type) and value in _EFFECTS:
        observer.recorder.refuse_here(f"passes {value.__name__} as a callback", Section.STATE, "Pass a Python function")
    elif isinstance(value, BuiltinFunctionType | MethodWrapperType) and is_container(value.__self__):
        _know_owner(observer, value, value.__self__)
        if value.__name__ in _CHANGES and id(value.__self__) in observer.known:
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


def called_by_library(observer: Watching, callee: object, owner: object) -> None:
    """Code of a library calls an object."""
    name = outside(callee, owner, by_library=True)
    if name is not None:
        observer.recorder.refuse_here(f"calls {name}, whose result differs between calls", Section.IMPURE)


def _method(callee: object, args: list[object]) -> tuple[str | None, Any, list[Any]]:
    """Name, owner and arguments of a method of a builtin class."""
    if isinstance(callee, MethodDescriptorType | WrapperDescriptorType) and args:
        return callee.__name__, args[0], args[1:]
    if isinstance(callee, BuiltinFunctionType | MethodWrapperType):
        owner = callee.__self__
        return callee.__name__, owner, args
    return None, None, args


def _container_method(
    observer: Watching, name: str, owner: object, args: Sequence[object], kwargs: Mapping[str, object]
) -> None:
    for value in (*args, *kwargs.values()):
        if not isinstance(value, (*PLAIN, Tensor)) and name not in _STORES:
            _handed_on(observer, value)
            iterated(observer, value)
    if args and name in _BY_KEY:
        observer.looked_up(owner, args[0])
    if id(owner) not in observer.known:
        return
    if name == "sort" and isinstance(owner, list) and is_programs(kwargs.get("key")):
        observer.contents(owner)
        observer.changes.sorts(owner)
        return
    if is_programs(kwargs.get("key")):  # each repetition would call it twice
        observer.recorder.refuse_here(f"calls {name} of a {type(owner).__name__} with a key function", Section.STATE)
    if name in _CHANGES:
        if name in _LOOKS:
            _look(observer, name, owner, args)
        written = None
        if name == "__setitem__" and isinstance(owner, dict) and is_key(args[0]):
            written = Entry(plain_value(args[0]))
        observer.changes.change(owner, written, functools.partial(_make, written_in_c(owner, name), kwargs), *args)
    elif name in ("get", "__getitem__"):
        observer.item(owner, args[0])
    elif name == "__contains__":
        member(observer, owner, plain_value(args[0]))
    elif name == "__len__":
        size(observer, owner)
    else:
        observer.contents(owner)


def _make(method: Callable[..., object], kwargs: Mapping[str, object], owner: object, *args: Any) -> None:
    method(owner, *args, **kwargs)


def _look(observer: Watching, name: str, owner: object, args: Sequence[object]) -> None:
    """Record the reads of a method that changes a container."""
    if id(owner) in observer.changed or name == "popitem":
        observer.contents(owner)
    elif isinstance(owner, dict):
        observer.item(owner, args[0])
    elif isinstance(owner, set):
        observer.contents(owner)
    else:
        observer.item(owner, 0 if name == "popleft" else plain_value(args[0]) if args else -1)
        size(observer, owner) if not owner else None


def _environment(observer: Watching, name: str, args: Sequence[object]) -> None:
    if name in ("get", "__getitem__", "__contains__") and args:
        observer.item(os.environ, args[0])
    else:
        observer.recorder.refuse_here(f"calls os.environ.{name}", Section.IMPURE)


def member(observer: Watching, owner: object, key: object) -> None:
    """The program tests membership in a container."""
    stream(observer, owner)
    read = observer.known.get(id(owner))
    if isinstance(owner, list | tuple | deque) and isinstance(key, Tensor):
        for item in owner:  # the one that it is counts as equal
            observer.same(key, item)
    observer.looked_up(owner, key)
    if read is None:
        return
    if id(owner) in observer.changed:
        observer.contents(owner)
    elif isinstance(owner, dict | set | frozenset) and is_key(key):
        observer.step(read, Member(key), key in owner, f"{short(key)} in {read.where}")
    elif owner is os.environ:
        observer.item(owner, key)
    else:
        observer.contents(owner)


def size(observer: Watching, owner: object) -> None:
    """The program asks how long a container is."""
    read = observer.known.get(id(owner))
    if read is None or not is_container(owner):
        observer.consume_state(owner)
    elif id(owner) in observer.changed:
        observer.contents(owner)
    else:
        step = Size(None)
        observer.step(read, step, step.fetch(owner), f"the length of {read.where}")


def iterated(observer: Watching, value: object) -> None:
    """The program goes through a container."""
    if is_container(value):
        observer.contents(value)
    else:
        observer.consume(value)
        stream(observer, value)


def stream(observer: Watching, value: object) -> None:
    """Refuse to take from an iterator that was there before the call."""
    if isinstance(value, Iterator) and id(value) in observer.known:
        observer.recorder.refuse_here(f"advances a {type(value).__name__} created outside of the call", Section.IMPURE)


def set_attribute(observer: Watching, owner: object, name: str, value: object) -> None:
    """The program sets an attribute."""
    if isinstance(owner, Tensor):
        observer.changes.set_on_tensor(owner, name, value)
        return
    if id(owner) not in observer.known:
        if isinstance(owner, ModuleType) and id(owner) not in observer.made:
            observer.recorder.refuse_here(f"sets {name} of the module {owner.__name__}", Section.STATE)
        return
    kind = type(owner)
    setter = inherited(kind, "__setattr__")
    if is_programs(setter):
        return
    stored = inherited(kind, name)
    if isinstance(stored, property) or is_programs(inherited(type(stored), "__set__")):
        return  # the program's own code there is observed
    step = Slot(name) if type(stored).__name__ == "member_descriptor" else Attribute(name)
    observer.changes.change(owner, step, setattr, name, value)


def _change_plainly(observer: Watching, owner: object, name: Any, value: object = MISSING) -> None:
    """The program sets an attribute past its own ``__setattr__``, or deletes one past its ``__delattr__``."""
    if isinstance(owner, Tensor):
        observer.changes.set_on_tensor(owner, name, value)
    elif value is MISSING:
        observer.changes.change(owner, Attribute(name), object.__delattr__, name)
    elif id(owner) in observer.known and not is_programs(inherited(type(inherited(type(owner), name)), "__set__")):
        observer.changes.change(owner, Attribute(name), _plainly, name, value)


def _plainly(owner: object, name: str, value: object) -> None:
    object.__setattr__(owner, name, value)


def delete_attribute(observer: Watching, owner: object, name: str) -> None:
    """The program deletes an attribute."""
    if isinstance(owner, Tensor):
        observer.changes.set_on_tensor(owner, name, MISSING)
        return
    stored = inherited(type(owner), name)
    if is_programs(inherited(type(owner), "__delattr__")) or isinstance(stored, property):
        return  # the program's own code there is observed
    if not is_programs(inherited(type(stored), "__delete__")):
        step = Slot(name) if type(stored).__name__ == "member_descriptor" else Attribute(name)
        observer.changes.change(owner, step, delattr, name)


def set_item(observer: Watching, owner: object, key: object, value: object) -> None:
    """The program sets an element."""
    if isinstance(owner, np.void):  # a view of an array
        observer.recorder.refuse_here("changes a record of an array", Section.STATE)
    if isinstance(key, slice):
        stream(observer, value)
    if isinstance(owner, Tensor) or id(owner) not in observer.known:
        return
    setter = inherited(type(owner), "__setitem__")
    if is_programs(setter):
        return
    key = plain_value(key)
    written = Entry(key) if isinstance(owner, dict) and is_key(key) else None
    observer.changes.change(owner, written, operator.setitem, key, value)


def is_key(key: object) -> bool:
    """Whether ``key`` can be the key of a dictionary, without code of the program that says so."""
    if not isinstance(key, PLAIN) and any(is_programs(inherited(type(key), n)) for n in ("__hash__", "__eq__")):
        return False
    try:
        hash(key)
    except TypeError:
        return False
    return True


def _vars(observer: Watching, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    for value in args:
        observer.attribute(value, "__dict__")
        observer.consume(value)


def _getattr(observer: Watching, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    if len(args) > 1 and isinstance(args[1], str):
        observer.attribute(args[0], args[1])


def _setattr(observer: Watching, args: list[Any], kwargs: Mapping[str, object]) -> None:
    set_attribute(observer, args[0], args[1], args[2])


def _delattr(observer: Watching, args: list[Any], kwargs: Mapping[str, object]) -> None:
    delete_attribute(observer, args[0], args[1])


def _len(observer: Watching, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    size(observer, args[0])


def _next(observer: Watching, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    stream(observer, args[0])


def _getenv(observer: Watching, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    observer.reach(os.environ, observer.reads.root(os.environ, "os.environ"))
    observer.item(os.environ, args[0] if args else kwargs["key"])


def _which(observer: Watching, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    observer.which(args[0])


def _warn(observer: Watching, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    given: dict[str, Any] = {**dict(zip(("message", "category", "stacklevel"), args, strict=False)), **kwargs}
    observer.changes.warned(given["message"], given.get("category") or UserWarning, given.get("stacklevel", 1))


def _print(observer: Watching, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    observer.changes.printed(observer.consume, args, kwargs)


_TEXTS = (str, repr, ascii, format)


def text(observer: Watching, value: object) -> None:
    """The program asks for the text of a value."""
    if isinstance(value, np.ndarray):
        observer.recorder.refuse_here("needs the text of an array, which depends on print options", Section.NUMBERS)


def arithmetic(observer: Watching, operand: object) -> None:
    """The program computes with a value."""
    if isinstance(operand, decimal.Decimal):
        observer.recorder.refuse_here("computes with decimal numbers, whose context may change", Section.IMPURE)


def _evaluate(observer: Watching, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    """``eval`` or ``exec``: the instructions of the text are observed, as those of functions are."""
    code, *spaces = args
    if kwargs or not isinstance(code, str | bytes | CodeType) or not all(type(s) in (dict, NoneType) for s in spaces):
        observer.recorder.refuse_here("evaluates a text with other than dictionaries", Section.IMPURE)
    for space in spaces:
        observer.item(space, "__builtins__")  # which is added where it is missing


_EFFECTS = (print, setattr, delattr, next, warnings.warn, importlib.import_module, __import__)
"""Functions whose calls are observed by what they are given, and must not be called unseen."""

_SPECIAL: dict[Any, Callable[[Any, list[Any], dict[str, Any]], None]] = {
    vars: _vars, getattr: _getattr, hasattr: _getattr, setattr: _setattr, delattr: _delattr, len: _len, bool: _len,
    next: _next, os.getenv: _getenv, print: _print, id: _which, hash: _which, warnings.warn: _warn,
    isinstance: class_test, issubclass: class_test, importlib.import_module: import_module,
    __import__: import_module, eval: _evaluate, exec: _evaluate,
}  # fmt: skip

"""Calls of Python's builtins and of ``os.environ``, which read or change what they are given."""

from __future__ import annotations

import decimal
import importlib
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, NoneType
from typing import Any

import numpy as np

from tracecomp.base.capture_guide import Section
from tracecomp.record.container_reads import size, stream
from tracecomp.record.object_writes import delete_attribute, set_attribute
from tracecomp.record.registries import class_test, import_module
from tracecomp.record.watching import Watching


def environment(observer: Watching, name: str, args: Sequence[object]) -> None:
    if name in ("get", "__getitem__", "__contains__") and args:
        observer.item(os.environ, args[0])
    else:
        observer.recorder.refuse_here(f"calls os.environ.{name}", Section.IMPURE)


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


TEXTS = (str, repr, ascii, format)


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


SPECIAL: dict[Any, Callable[[Any, list[Any], dict[str, Any]], None]] = {
    vars: _vars, getattr: _getattr, hasattr: _getattr, setattr: _setattr, delattr: _delattr, len: _len, bool: _len,
    next: _next, os.getenv: _getenv, print: _print, id: _which, hash: _which, warnings.warn: _warn,
    isinstance: class_test, issubclass: class_test, importlib.import_module: import_module,
    __import__: import_module, eval: _evaluate, exec: _evaluate,
}  # fmt: skip

"""Calls of methods of containers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tracecomp.base.capture_guide import Section
from tracecomp.eager.tensor import Tensor
from tracecomp.record.callbacks import note_callbacks
from tracecomp.record.container_reads import iterated, member, size
from tracecomp.record.effects import written_in_c
from tracecomp.record.guards.lookup import inherited, is_key
from tracecomp.record.guards.ownership import is_program_function
from tracecomp.record.guards.read_steps import Entry
from tracecomp.record.guards.snapshots import MISSING, plain_value
from tracecomp.record.guards.visibility import is_container
from tracecomp.record.object_writes import CHANGES
from tracecomp.record.same_values import PLAIN
from tracecomp.record.watching import Watching

_STORES = frozenset({"append", "insert", "__setitem__", "appendleft"})
"""Those of them that do nothing with what they are given but keep it."""


_LOOKS = frozenset({"setdefault", "pop", "popleft", "popitem"})
"""Those of them that also return the old contents."""


_BY_KEY = frozenset({"get", "__getitem__", "__contains__", "setdefault", "pop"})
"""Methods that search a container."""


_OPERATORS = {
    "+=": "__iadd__", "*=": "__imul__", "-=": "__isub__", "|=": "__ior__", "&=": "__iand__", "^=": "__ixor__",
}  # fmt: skip
"""The methods by which operators change containers."""


def container_method(
    observer: Watching, name: str, owner: object, args: Sequence[object], kwargs: Mapping[str, object]
) -> None:
    """Decide what method ``name`` of a container does: an effect, a read of some contents, or of all.

    Containers that the call itself made need no record. Methods without a case here read all contents.
    """
    for value in (*args, *kwargs.values()):
        if not isinstance(value, (*PLAIN, Tensor)) and name not in _STORES:
            note_callbacks(observer, value)
            iterated(observer, value)
    if args and name in _BY_KEY:
        observer.looked_up(owner, args[0])
    if id(owner) not in observer.known:
        return
    if name == "sort" and isinstance(owner, list) and is_program_function(kwargs.get("key")):
        observer.contents(owner)
        observer.changes.sorts(owner)
        return
    if is_program_function(kwargs.get("key")):  # each repetition would call it twice
        observer.recorder.refuse_here(f"calls {name} of a {type(owner).__name__} with a key function", Section.STATE)
    if name in CHANGES:
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


def changes_in_place(observer: Watching, sign: str, owner: object, value: object) -> bool:
    """Whether an operator changes a container from outside. If so, the change is recorded."""
    name = _OPERATORS.get(sign, "")
    method = inherited(type(owner), name) if name and id(owner) in observer.known else MISSING
    if method is MISSING or is_program_function(method) or not is_container(owner) or isinstance(owner, np.ndarray):
        return False
    container_method(observer, name, owner, [value], {})
    return True


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

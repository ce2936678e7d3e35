"""Classes whose objects differ between calls although they are alike, as a new cache for each request.

An object among the arguments is guarded by identity at first. Its class is taken apart from then on if a later call
has a different object, or the program makes one that outlives the call. Every attribute is then guarded, and its
tensors are arguments.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from tracecomp.record.guards.ownership import of_package
from tracecomp.record.guards.visibility import is_settable_class
from tracecomp.record.pytree import is_record_class, keep_whole, take_apart
from tracecomp.record.same_values import PLAIN

_by_identity: set[type] = set()
"""Classes of objects whose identity programs use."""


def note_difference(before: object, now: object) -> None:
    """Take objects of their class apart, if two calls were given these, and those of attributes that differ, too."""
    stack: list[tuple[Any, Any]] = [(before, now)]
    met: set[int] = set()
    while stack:
        a, b = stack.pop()
        if a is b or type(a) is not type(b) or isinstance(a, PLAIN) or id(a) in met:
            continue
        met.add(id(a))
        if isinstance(a, list | tuple):
            stack += zip(a, b, strict=False)
        elif isinstance(a, dict):
            stack += [(x, b[key]) for key, x in a.items() if key in b]
        elif _is_plain_class(type(a)):
            if not dataclasses.is_dataclass(a):  # these are taken apart in any case
                take_apart(type(a))
            stack += [(x, vars(b)[name]) for name, x in vars(a).items() if name in vars(b)]


def rebuilds(kind: type) -> bool:
    """Whether every call can make new objects of a class of their attributes; they are taken apart from now on."""
    if is_record_class(kind):
        return True
    if not _is_plain_class(kind):
        return False
    take_apart(kind)
    return True


def note_ended(kind: type) -> None:
    """Take objects of this class apart: the object that an earlier call was given is gone."""
    if _is_plain_class(kind) and not dataclasses.is_dataclass(kind):
        take_apart(kind)


def use_identity(kind: type) -> None:
    """The program uses the identity of an object of this class: guard it by that for ever."""
    _by_identity.add(kind)
    keep_whole(kind)


def _is_plain_class(kind: type) -> bool:
    """Whether all state of objects of this class is in their attributes: code in C keeps other state in the object."""
    if kind in _by_identity or of_package(kind) or issubclass(kind, enum.Enum) or not kind.__dictoffset__:
        return False
    if not all(map(is_settable_class, kind.__mro__[:-1])):
        return False
    # Any other word belongs to a slot or to a base class in C. The offsets are negative where CPython keeps the
    # dictionary or the weak references before the object.
    words = (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    return kind.__basicsize__ == object.__basicsize__ + 8 * words

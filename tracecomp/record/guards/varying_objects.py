"""Classes whose objects differ between calls although they are alike, as a new cache for each request.

An object among the arguments is guarded by identity at first. Its class is taken apart if a later call has a different
object, or if the program makes one that outlives the call. If only running calls hold the object, its class is taken
apart at once. Every attribute is then guarded, and its tensors are arguments.
"""

from __future__ import annotations

import dataclasses
import enum
import gc
from collections.abc import Iterable, Mapping, Sequence
from types import CellType, FrameType, FunctionType
from typing import Any

from tracecomp.record.guards.ownership import of_package
from tracecomp.record.guards.visibility import is_settable_class
from tracecomp.record.pytree import CallLeaves, is_record_class, is_varying, keep_whole, take_apart
from tracecomp.record.same_values import PLAIN

_by_identity: set[type] = set()
"""Classes of objects whose identity programs use."""
_HELD = (dict, list, tuple, CallLeaves, CellType, FunctionType)
_MOST_PARTS = 256
"""Parts of an object up to which its class is taken apart before a second one is met."""


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


def note_held_by_calls(values: Iterable[object]) -> None:
    """Take classes of arguments apart whose objects only running calls hold: other calls will have others."""
    waiting = [x for x in values if not is_record_class(type(x)) and _is_plain_class(type(x))]
    while waiting:  # an iterator would hold them, too
        value = waiting.pop()
        if not is_varying(type(value)):
            _take_held_apart(value, {id(value): value})


def _take_held_apart(value: object, parts: dict[int, object]) -> None:
    """Take the class of ``value`` apart, and of objects within, as far as only calls and ``parts`` hold them."""
    if len(parts) > _MOST_PARTS or not _only_calls_hold([value], parts):
        return
    take_apart(type(value))
    waiting = list(vars(value).values())
    while waiting and len(parts) <= _MOST_PARTS:
        part = waiting.pop()
        if id(part) in parts or isinstance(part, PLAIN):
            continue
        parts[id(part)] = part
        if isinstance(part, list | tuple | dict):
            waiting += part.values() if isinstance(part, dict) else part
        elif _is_plain_class(type(part)) and not dataclasses.is_dataclass(part):
            _take_held_apart(part, parts)


def _only_calls_hold(values: Sequence[object], parts: Mapping[int, object], depth: int = 8) -> bool:
    """Whether all that refers to ``values`` are frames, ``parts``, and containers and closures of such."""
    asked = tuple(values)  # CPython 3.13 finds the tuple of arguments, too
    owners = [x for x in gc.get_referrers(*asked) if x is not values and x is not asked and id(x) not in parts]
    containers = [x for x in owners if type(x) in _HELD]
    if len(containers) + sum(isinstance(x, FrameType) for x in owners) < len(owners):
        return False
    del owners
    return not containers or (depth > 0 and _only_calls_hold(containers, parts, depth - 1))


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

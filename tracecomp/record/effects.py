"""Effects: a program's changes of Python objects, which later calls repeat."""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CellType, FrameType, MemberDescriptorType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

from tracecomp.base.code_origin import is_user_file
from tracecomp.base.user_warnings import place_of
from tracecomp.eager.size import Size
from tracecomp.record.guards.ownership import is_program_class
from tracecomp.record.guards.reads import Read
from tracecomp.record.guards.snapshots import plain_value
from tracecomp.record.pytree import is_record

Given = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass
class Effect:
    """``apply(owner, *args)`` after the graph has run, or ``apply(*args)`` without an owner."""

    apply: Callable[..., Any]
    owner: Read | None
    args: tuple[object, ...]


def warning(message: object, category: type[Warning], level: int) -> Effect:
    """A warning of the program about the line ``level`` functions above the one that runs."""
    frame: FrameType | None = sys._getframe()
    found = frame
    while frame is not None and level > 0:
        if is_user_file(frame.f_code.co_filename):
            found, level = frame, level - 1
        frame = frame.f_back
    assert found is not None
    return Effect(place_of(found).show, None, (message, category))


def put_plain(effects: list[Effect], given: Given) -> None:
    """Put plain numbers where the recorded call has left followed ones, and forget its effects."""
    within = _Within()
    for effect in effects:
        if effect.owner is not None:
            within.add(effect.owner.now(given))
        elif effect.apply is setattr:  # an attribute of a tensor
            args: tuple[Any, ...] = effect.args
            t, name, value = args
            if getattr(t, name, None) is value:
                setattr(t, name, _plain(value, within))
    within.replace()
    effects.clear()


def put_plain_for(numbers: list[Any]) -> None:
    """Put plain numbers where ``numbers`` have been left, in containers and attributes."""
    if not numbers:
        return
    holders = gc.get_referrers(*numbers)
    tuples = [x for x in holders if type(x) is tuple]
    for owner in [*holders, *(gc.get_referrers(*tuples) if tuples else ())]:
        if owner is numbers or owner is holders:
            continue
        if isinstance(owner, CellType):
            owner.cell_contents = _plain(owner.cell_contents, None)
        elif isinstance(owner, list | dict | set | deque) or is_program_class(type(owner)):
            _replace(owner, None)


def written_in_c(owner: object, name: str) -> Any:
    """A method of a builtin container, past what a class of the program puts before it."""
    found = (vars(kind).get(name) for kind in type(owner).__mro__)
    return next(f for f in found if isinstance(f, MethodDescriptorType | WrapperDescriptorType))


def _slots_of(kind: type) -> Sequence[str]:
    """The slots of a class of the program."""
    if not is_program_class(kind):
        return ()
    return [k for c in kind.__mro__ for k, v in vars(c).items() if isinstance(v, MemberDescriptorType)]


class _Within:
    """Makes the numbers in lists, dicts and records plain, in each of them once. They may be nested deeply."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._waiting: list[object] = []

    def add(self, owner: object) -> None:
        if id(owner) not in self._seen:
            self._seen.add(id(owner))
            self._waiting.append(owner)

    def replace(self) -> None:
        while self._waiting:
            _replace(self._waiting.pop(), self)


def _replace(owner: object, within: _Within | None) -> None:
    """Put plain numbers into ``owner``; lists, dicts and records there are left to ``within``."""
    if isinstance(owner, set | dict) and any(_plain(x, None) is not x for x in owner):
        kept: Any = [_plain(x, None) for x in owner]
        if isinstance(owner, dict):
            kept = list(zip(kept, owner.values(), strict=True))
        written_in_c(owner, "clear")(owner)
        written_in_c(owner, "update")(owner, kept)
    for slot in _slots_of(type(owner)):
        value = getattr(owner, slot, None)
        found = _plain(value, within)
        if found is not value:
            object.__setattr__(owner, slot, found)
    held = owner if isinstance(owner, list | dict | deque) else getattr(owner, "__dict__", {})
    for key, value in list(held.items() if isinstance(held, dict) else enumerate(held)):
        found = _plain(value, within)
        if found is not value:
            written_in_c(held, "__setitem__")(held, key, found)


def plain(result: object) -> Any:
    """``result`` with plain numbers in place of followed ones; what the program can change stays the same object."""
    within = _Within()
    found = _plain(result, within)
    within.replace()
    return found


def _is_tuple(value: object) -> bool:
    return type(value) in (tuple, Size) or (isinstance(value, tuple) and hasattr(value, "_fields"))


def _plain(value: Any, within: _Within | None) -> Any:
    """``value`` with plain numbers in place of followed ones, also within tuples; ``within`` gets the rest."""
    if not _is_tuple(value):
        if within is not None and (isinstance(value, list | dict) or is_record(value)):
            within.add(value)
            return value
        return plain_value(value)
    made: dict[int, Any] = {}  # of the innermost tuples first
    waiting = [value]
    while waiting:
        inner = [x for x in waiting[-1] if _is_tuple(x) and id(x) not in made]
        if inner:
            waiting += inner
            continue
        own = waiting.pop()
        found = [made[id(x)] if _is_tuple(x) else _plain(x, within) for x in own]
        if all(a is b for a, b in zip(found, own, strict=True)):
            made[id(own)] = own
        else:
            made[id(own)] = type(own)(*found) if hasattr(own, "_fields") else type(own)(found)
    return made[id(value)]

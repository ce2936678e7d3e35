"""Effects: a program's changes of Python objects, which later calls repeat."""

from __future__ import annotations

import gc
import sys
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import (
    CellType,
    FrameType,
    FunctionType,
    MemberDescriptorType,
    MethodDescriptorType,
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import Any

from tracecomp.base.capture_guide import BreakReason, Section
from tracecomp.base.code_origin import is_user_file
from tracecomp.base.gc_pause import collected
from tracecomp.base.user_warnings import place_of
from tracecomp.eager.size import Size
from tracecomp.record.guards.ownership import is_program_class
from tracecomp.record.guards.reads import Read
from tracecomp.record.guards.snapshots import plain_value
from tracecomp.record.pytree import is_record
from tracecomp.record.symbolic.sym_scalar import SymScalar

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


def put_plain(effects: list[Effect], given: Given, within: PlainParts) -> None:
    """Put plain numbers where the recorded call has left followed ones, and forget its effects."""
    for effect in effects:
        if effect.owner is not None:
            within.add(effect.owner.now(given))
        elif effect.apply is setattr:  # an attribute of a tensor
            args: tuple[Any, ...] = effect.args
            t, name, value = args
            if getattr(t, name, None) is value:
                setattr(t, name, _plain(value, within))
    within.replace()
    within.frozen.clear()  # it would keep the numbers alive that are looked for next
    effects.clear()


def replace_left(numbers: list[SymScalar]) -> BreakReason | None:
    """Says so when followed ``numbers`` live on; plain ones replace them where they are held."""
    refs = [weakref.ref(n) for n in numbers]
    numbers.clear()
    if collected(lambda: all(ref() is None for ref in refs)):
        return None
    left = [n for ref in refs if (n := ref()) is not None]
    lines = sorted({"a line of the library" if n.source is None else str(n.source) for n in left})
    put_plain_for(left)
    return BreakReason(
        f"stores numbers outside of the call, read at {', '.join(lines)}", Section.STATE,
        "Return them, or keep them in an attribute",
    )  # fmt: skip


def put_plain_for(numbers: list[Any]) -> None:
    """Put plain numbers where ``numbers`` have been left, in containers and attributes."""
    if not numbers:
        return
    holders = gc.get_referrers(*numbers)
    tuples = [x for x in holders if type(x) is tuple]
    for owner in [*holders, *(gc.get_referrers(*tuples) if tuples else ())]:
        if owner is numbers or owner is holders:
            continue
        if isinstance(owner, CellType | FunctionType | partial | list | dict | set | deque) or is_program_class(
            type(owner)
        ):
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


class PlainParts:
    """Makes the numbers in lists, dicts and records plain, in each of them once. They may be nested deeply."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._waiting: list[object] = []
        self.frozen: dict[int, tuple[Any, Any]] = {}  # tuples and frozen sets with their replacements, by identity

    def add(self, owner: object) -> None:
        if id(owner) not in self._seen:
            self._seen.add(id(owner))
            self._waiting.append(owner)

    def replace(self) -> None:
        while self._waiting:
            _replace(self._waiting.pop(), self)


def _replace(owner: object, within: PlainParts | None) -> None:
    """Put plain numbers into ``owner``; lists, dicts and records there are left to ``within``."""
    if isinstance(owner, CellType) and _is_full(owner):
        owner.cell_contents = _plain(owner.cell_contents, within)
    if isinstance(owner, FunctionType):
        owner.__defaults__ = _plain(owner.__defaults__, within)
    if isinstance(owner, partial):
        call: Any = owner
        keywords = {name: _plain(value, within) for name, value in call.keywords.items()}
        call.__setstate__((call.func, _plain(call.args, within), keywords, vars(call)))
    if isinstance(owner, set | dict):
        kept: Any = [_plain(x, within) for x in owner]
        if any(a is not b for a, b in zip(kept, owner, strict=True)):
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


def plain(result: object, within: PlainParts) -> Any:
    """``result`` with plain numbers in place of followed ones; what the program can change stays the same object."""
    found = _plain(result, within)
    within.replace()
    return found


def _has_attributes(value: object) -> bool:
    return is_record(value) or isinstance(value, SimpleNamespace)


def _is_full(cell: CellType) -> bool:
    return bool(gc.get_referents(cell))


def _is_frozen(value: object) -> bool:
    return type(value) in (tuple, frozenset, Size) or (isinstance(value, tuple) and hasattr(value, "_fields"))


def _plain(value: Any, within: PlainParts | None) -> Any:
    """``value`` with plain numbers in place of followed ones, also in tuples; ``within`` gets what can be changed."""
    if not _is_frozen(value):
        if within is not None and (isinstance(value, list | dict | set | deque) or _has_attributes(value)):
            within.add(value)
            return value
        return plain_value(value)
    made = {} if within is None else within.frozen  # of the innermost ones first
    waiting = [] if id(value) in made else [value]
    while waiting:
        inner = [x for x in waiting[-1] if _is_frozen(x) and id(x) not in made]
        if inner:
            waiting += inner
            continue
        own = waiting.pop()
        found = [made[id(x)][1] if _is_frozen(x) else _plain(x, within) for x in own]
        if all(a is b for a, b in zip(found, own, strict=True)):
            made[id(own)] = own, own
        else:
            made[id(own)] = own, type(own)(*found) if hasattr(own, "_fields") else type(own)(found)
    return made[id(value)][1]

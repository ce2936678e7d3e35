"""What a program changes in Python, noted so that later calls change it too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tracecomp.record.guards.reads import Read
from tracecomp.record.guards.snapshots import plain_value

Given = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass
class Effect:
    """``apply(owner, *args)`` after the graph has run, or ``apply(*args)`` without an owner."""

    apply: Callable[..., Any]
    owner: Read | None
    args: tuple[Any, ...]


def put_plain(effects: list[Effect], given: Given) -> None:
    """Put plain numbers where the recorded call has left followed ones, and forget its effects."""
    for effect in effects:
        if effect.owner is not None:
            _replace(effect.owner.now(given))
    effects.clear()


def _replace(owner: object) -> None:
    held = owner if isinstance(owner, list | dict) else getattr(owner, "__dict__", {})
    for key, value in list(held.items() if isinstance(held, dict) else enumerate(held)):
        found = _plain(value)
        if found is not value:
            held[key] = found


def _plain(value: object) -> Any:
    """``value`` with plain numbers in place of followed ones, also within tuples; lists and dicts stay objects."""
    if type(value) is tuple:
        found = tuple(map(_plain, value))
        return found if any(a is not b for a, b in zip(found, value, strict=True)) else value
    if isinstance(value, list | dict):
        _replace(value)
        return value
    return plain_value(value)

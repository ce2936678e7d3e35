"""Modules whose names are settings, with overrides for a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

_NONE = object()


@contextmanager
def patched(module: ModuleType, *settings: Any, **more: Any) -> Iterator[None]:
    """Override settings of ``module`` for a block: ``"name", value``, ``{"name": value}`` or ``name=value``.

    A name with dots (``"cpp.threads"``) is an attribute of an object in the module.
    """
    new = dict(settings[0]) if settings and isinstance(settings[0], dict) else dict([settings] if settings else [])
    new.update(more)
    places = [_place(module, name) for name in new]
    before = [getattr(owner, name, _NONE) for owner, name in places]
    try:
        for (owner, name), value in zip(places, new.values(), strict=True):
            setattr(owner, name, value)
        yield
    finally:
        for (owner, name), value in zip(places, before, strict=True):
            if value is not _NONE:
                setattr(owner, name, value)
            elif hasattr(owner, name):
                delattr(owner, name)


def _place(module: ModuleType, name: str) -> tuple[Any, str]:
    owner: Any = module
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    return owner, last

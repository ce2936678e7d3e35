"""CPython's version of a class, which changes with the class or its bases."""

from __future__ import annotations

import ctypes
from functools import cache
from types import FunctionType
from typing import Any

from tracecomp.base.interpreter import is_tested


def class_version(kind: type) -> int:
    """A number that no other state of ``kind`` has, or 0 when CPython has none at the moment."""
    offset = class_version_offset()
    if offset is None:
        return 0
    getattr(kind, "__repr__", None)  # a look-up gives the class a version again
    return ctypes.c_uint32.from_address(id(kind) + offset).value


@cache
def class_version_offset() -> int | None:
    """Offset of the version in a class object: the only word that changes with every change."""
    if not is_tested():
        return None

    class Probe:
        pass

    class Other:
        pass

    words = [(offset, _watched(Probe, offset), _watched(Other, offset)) for offset in range(16, _CLASS_BYTES - 8, 8)]
    # Newer versions also count how often a class was changed, which is equal for classes with equal changes.
    found = [offset for offset, one, other in words if _counts(one) and _counts(other) and not {*one} & {*other}]
    return found[0] if len(found) == 1 else None


def _watched(kind: type, offset: int, name: str = "probe") -> list[int]:
    """A word of a class, after changes and between them."""
    values = []
    for n in range(3):
        setattr(kind, name, n)
        for _ in range(2):
            getattr(kind, name)
            values.append(ctypes.c_uint64.from_address(id(kind) + offset).value)
    return values


def _counts(values: list[int]) -> bool:
    first, second, third = values[::2]
    return values[::2] == values[1::2] and 0 < first < second < third < 2**32


def name_offset(kind: type, name: str) -> int | None:
    """Offset of ``__name__`` or ``__qualname__`` in a class object; None if CPython makes the text at each read."""
    offset = _name_offset(name)
    held = getattr(kind, name)
    if offset is None or not kind.__flags__ & _HEAP_TYPE:
        return None
    return offset if ctypes.c_uint64.from_address(id(kind) + offset).value == id(held) else None


_CLASS_BYTES: int = getattr(type, "__basicsize__")  # noqa: B009  the instance's, which mypy does not know
_HEAP_TYPE = 1 << 9
"""CPython's flag of classes whose objects have these words."""


@cache
def _name_offset(name: str) -> int | None:
    if not is_tested() or name not in ("__name__", "__qualname__"):
        return None

    class Probe:
        pass

    setattr(Probe, name, f"a text that is nowhere else, for {name}")
    return _only_word(Probe, _CLASS_BYTES, getattr(Probe, name))


def _only_word(owner: object, size: int, held: object) -> int | None:
    """Offset of the only word of ``owner`` that is the address of ``held``."""
    words = (ctypes.c_uint64 * (size // 8)).from_address(id(owner))
    found = [8 * n for n, word in enumerate(words) if word == id(held)]
    return found[0] if len(found) == 1 else None


@cache
def field_offset(field: str) -> int | None:
    """Offset of the code, the defaults or a name in a function object."""
    if not is_tested():
        return None

    def probe(x: object = (1.5,), *, y: object = (2.5,)) -> Any:
        return x, y

    held = getattr(probe, field, None)
    if held is None:
        return None
    return _only_word(probe, FunctionType.__basicsize__, held)

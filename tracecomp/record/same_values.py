"""Equality of plain values in type and sign: Python's equality is not enough.

``1``, ``1.0`` and ``True`` are equal and have other types. ``0.0`` and ``-0.0`` are equal and differ in their sign, and
NaN is not equal to itself.
"""

from __future__ import annotations

import enum
import math
from typing import Any

import numpy as np

from tracecomp.ir.types import DType

PLAIN = (bool, int, float, complex, str, bytes, np.generic, type(None), DType, type(Ellipsis), slice, range)
"""Types of values that are compared as values, not as objects."""
_ROUNDED = (float, complex, np.floating, np.complexfloating)
"""Numbers of which equal ones may differ, and one may differ from itself."""


class Number(tuple[type, Any]):
    """A number with its type, equal to those that no operation tells from it: zeros have signs, and NaN is NaN."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and self[0] is other[0] and same_number(self[1], other[1])

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self[0], self[1] if self[1] == self[1] else "nan"))


def same_number(a: Any, b: Any) -> bool:
    """Whether two numbers of one type are the same to every operation, as equal zeros of different signs are not."""
    if isinstance(a, complex | np.complexfloating):
        return same_number(a.real, b.real) and same_number(a.imag, b.imag)
    if a != b:
        return bool(a != a and b != b)
    return bool(a) or math.copysign(1.0, a) == math.copysign(1.0, b)


class Keys(tuple[Any, ...]):
    """Keys of a dictionary, of which equal ones of other types are others, and so are objects that say to be equal."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple) and list(map(_key, self)) == list(map(_key, other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__


def _key(value: object) -> Any:
    """A plain key, or the identity of an object, which the tuple of keys keeps."""
    return plain(value) if is_plain(value) else id(value)


def is_value(value: object) -> bool:
    """Whether this is exactly a plain value: an object of a subclass, with additional attributes, is not."""
    return isinstance(value, PLAIN) and (not type(value).__dictoffset__ or isinstance(value, enum.Enum))


def is_plain(value: object) -> bool:
    """Whether this is a plain value, or a tuple of such, at any depth."""
    return all(map(is_plain, value)) if type(value) is tuple else isinstance(value, PLAIN)


def plain(value: object) -> Any:
    """A plain value, or a tuple of such, in a form that is equal only to the same values of the same types.

    Any other value is paired with its type.
    """
    if type(value) is tuple:
        return (tuple, tuple(map(plain, value)))
    if isinstance(value, _ROUNDED):
        return Number((type(value), value))
    return (type(value), value)

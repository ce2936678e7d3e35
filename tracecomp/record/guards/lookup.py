"""Lookup of attributes and keys without running code of the program."""

from __future__ import annotations

from typing import Any

from tracecomp.record.guards.ownership import is_program_function
from tracecomp.record.guards.snapshots import MISSING
from tracecomp.record.same_values import PLAIN


def inherited(kind: type, name: str) -> Any:
    """The attribute ``name`` of a class or its bases as it is stored there."""
    return next((vars(k)[name] for k in kind.__mro__ if name in vars(k)), MISSING)


def attributes_of(value: object) -> dict[str, Any]:
    """The attributes in an object's dictionary, even if its class overrides attribute access.

    An exception here would leave the trace function, and CPython 3.11 may crash when one does so within ``__del__``.
    """
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found if isinstance(found, dict) else {}


def is_key(key: object) -> bool:
    """Whether ``key`` can be the key of a dictionary, without code of the program that says so."""
    if not isinstance(key, PLAIN) and any(is_program_function(inherited(type(key), n)) for n in ("__hash__", "__eq__")):
        return False
    try:
        hash(key)
    except TypeError:
        return False
    return True

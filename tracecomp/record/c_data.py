"""Objects of ctypes: addresses of memory that other objects and code in C also use."""

from __future__ import annotations

import ctypes
from typing import Any

from tracecomp.base.capture_guide import Section
from tracecomp.record.guards.lookup import inherited
from tracecomp.record.watching import Refusing


class _Probe(ctypes.Structure):
    _fields_ = [("field", ctypes.c_int)]


_OBJECT: type = ctypes.c_int.__mro__[-2]
"""The base of all objects of ctypes."""
_FIELD: type = type(vars(_Probe)["field"])
_MEMBER: type = type(vars(ctypes._Pointer)["contents"])
_ADDRESSES = (ctypes._Pointer, ctypes._CFuncPtr, ctypes.c_char_p, ctypes.c_wchar_p)  # type: ignore[attr-defined]
"""Objects that lead to memory that is not theirs."""
_NUMBERS: type = ctypes.c_int.__mro__[1]
"""Objects that are values of C."""


def refuse_memory(recorder: Refusing, owner: Any, name: str | None = None) -> bool:
    """Refuse a read or change of an attribute of ``owner``, or without ``name`` of an element or the whole.

    Nothing tells when that memory changes, or the read gives a new object for a part of the memory of ``owner``.
    Arrays of numbers, and numbers in attributes, are compared as other state.
    """
    if not isinstance(owner, _OBJECT) or (not isinstance(owner, _ADDRESSES) and _gives_value(owner, name)):
        return False
    recorder.refuse_here(f"uses a {type(owner).__name__}, whose memory other code may change", Section.IMPURE)
    return True


def _gives_value(owner: Any, name: str | None) -> bool:
    if name is None:
        return isinstance(owner, ctypes.Array) and issubclass(owner._type_, _NUMBERS)
    if not isinstance(inherited(type(owner), name), _FIELD | _MEMBER):
        return True
    return not isinstance(getattr(owner, name), _OBJECT)

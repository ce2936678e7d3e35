"""Objects that code in C makes during the call: by a class without a constructor of the program, or by ``__new__``.

``copy`` and ``pickle`` call ``__new__`` and then methods of the program. Without these notes such an object would count
as one from before the call, whose changes are effects.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import BuiltinFunctionType, FrameType

from tracecomp.record.guards.lookup import inherited
from tracecomp.record.watching import Watching


def will_make(observer: Watching, frame: FrameType, callee: object, args: Sequence[object]) -> None:
    """``frame`` makes a call: note the class of the object that it will make for certain, if it does."""
    new, kind = callee, args[0] if args else None
    if isinstance(callee, type) and inherited(type(callee), "__call__") is _CALL_OF_CLASS:
        new, kind = inherited(callee, "__new__"), callee
    if isinstance(kind, type) and _allocates(new, kind):
        observer.making[id(frame)] = kind
    else:
        observer.making.pop(id(frame), None)


def has_made(observer: Watching, frame: FrameType, result: object) -> None:
    """The call in ``frame`` has returned ``result``."""
    if type(result) is observer.making.pop(id(frame), None):
        observer.made.add(id(result))


def _allocates(fn: object, kind: type) -> bool:
    """Whether ``fn`` is a ``__new__`` that makes an object of ``kind``, as each of Python's does for subclasses."""
    if not isinstance(fn, BuiltinFunctionType) or fn.__name__ != "__new__" or fn.__self__ is kind:
        return False
    return fn.__self__ in _BUILTIN or (isinstance(fn.__self__, type) and issubclass(fn.__self__, BaseException))


_CALL_OF_CLASS = vars(type)["__call__"]
_BUILTIN = frozenset({object, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset})

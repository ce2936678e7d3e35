"""The steps of reads: how a value is found from the one above it, in Python and in native guards."""

from __future__ import annotations

import abc
import codecs
from collections.abc import Callable, Collection, Mapping, Set
from types import CellType, CodeType
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np

from tracecomp.eager.modes import module_changes
from tracecomp.record.guards.cached_results import CachedResults
from tracecomp.record.guards.class_versions import class_version
from tracecomp.record.guards.lookup import attributes_of, inherited
from tracecomp.record.guards.ownership import is_program_class
from tracecomp.record.guards.slots import Contents, StateSlot
from tracecomp.record.guards.snapshots import MISSING, ById, Snapshot, plain_value
from tracecomp.record.same_values import PLAIN, plain

Owner = TypeVar("Owner")


Key = TypeVar("Key")


class Rows(Protocol):
    """Collects the words that native code compares."""

    def entry(self, mapping: Mapping[str, object], key: object, value: object) -> bool:
        """``mapping[key]`` is ``value``, or not there when it is ``MISSING``."""

    def word(self, owner: object, what: str, value: object) -> bool:
        """A field of ``owner`` that ``what`` names is, or holds, ``value``; False where its place is not known."""

    def borrow(self, value: object) -> None:
        """Do not keep ``value`` alive; without it, the record is not used."""

    def contents(self, value: object) -> bool:
        """All that a container holds is as it is now; False when that is more than identities."""


class Step(Generic[Owner, Key]):
    """How a value is found from the one above it: ``key`` says where in an ``Owner``."""

    __slots__ = ("key",)

    def __init__(self, key: Key) -> None:
        self.key = key

    def fetch(self, owner: Owner) -> Any:
        """The value now, or ``MISSING``."""
        raise NotImplementedError

    def row(self, rows: Rows, owner: Owner, value: object) -> bool:
        """Have native code compare it; False where only Python can."""
        return False

    def place(self, owner: Owner, where: str) -> StateSlot | None:
        """The place that holds the value, if programs can keep tensors there."""
        return None

    def same(self) -> tuple[type, Any]:
        """Equal for two steps that are the same; equal keys of other types are other keys."""
        return (type(self), (type(self.key), self.key))


SomeStep: TypeAlias = Step[Any, Any]
"""A step whichever it is: a read takes it from the value above, which was found to be of its kind."""


class Entry(Step[dict[Any, object], Any]):
    """An entry of a dictionary, a namespace too."""

    def fetch(self, owner: dict[object, object]) -> Any:
        return dict.get(owner, self.key, MISSING)

    def row(self, rows: Rows, owner: dict[Any, object], value: object) -> bool:
        return rows.entry(owner, self.key, value)

    def place(self, owner: dict[Any, object], where: str) -> StateSlot | None:
        return StateSlot(owner, self.key, where)


class Attribute(Step[object, str]):
    """An attribute in an object's dictionary."""

    def fetch(self, owner: object) -> Any:
        return attributes_of(owner).get(self.key, MISSING)

    def row(self, rows: Rows, owner: object, value: object) -> bool:
        return rows.entry(attributes_of(owner), self.key, value)

    def place(self, owner: object, where: str) -> StateSlot | None:
        own = attributes_of(owner)
        compared = "_parameters" in own and module_changes.compared(type(owner), self.key)
        return StateSlot(own, self.key, where, id(owner) if compared else 0)


class Names(Step[object, None]):
    """The names of an object's attributes."""

    def fetch(self, owner: object) -> Any:
        return tuple(attributes_of(owner))

    def row(self, rows: Rows, owner: object, value: object) -> bool:
        # Each attribute is read separately, so there are others only if there are more.
        return type(value) is tuple and rows.word(attributes_of(owner), "length", len(value))


class Slot(Step[object, str]):
    """An attribute in ``__slots__``."""

    def fetch(self, owner: object) -> Any:
        return getattr(owner, self.key, MISSING)

    def row(self, rows: Rows, owner: object, value: object) -> bool:
        if self.key == "__class__":
            return type(owner) is value and rows.word(owner, "class", value)
        if isinstance(owner, CodeType):
            return True  # no attribute of a code object can change
        return rows.word(owner, self.key, value)


class Presence(Step[object, SomeStep]):
    """Whether the value of another step is there."""

    def fetch(self, owner: object) -> Any:
        return self.key.fetch(owner) is not MISSING

    def same(self) -> tuple[type, Any]:
        return type(self), self.key.same()


class Held(Step[CellType, str]):
    """The contents of a closure cell."""

    def fetch(self, owner: CellType) -> Any:
        try:
            return owner.cell_contents
        except ValueError:
            return MISSING

    def row(self, rows: Rows, owner: CellType, value: object) -> bool:
        return value is not MISSING and rows.word(owner, "cell_contents", value)

    def place(self, owner: CellType, where: str) -> StateSlot | None:
        return StateSlot(Contents(owner), self.key, where)


class Field(Step[object, str]):
    """A field of a function: its code and its defaults."""

    def fetch(self, owner: object) -> Any:
        return getattr(owner, self.key, MISSING)

    def row(self, rows: Rows, owner: object, value: object) -> bool:
        return rows.word(owner, self.key, value)


class Referent(Step[Callable[[], object], None]):
    """The referent of a weak reference."""

    def fetch(self, owner: Callable[[], object]) -> Any:
        return owner()


class Cached(Step[Callable[..., object], "tuple[tuple[object, ...], tuple[tuple[str, object], ...]]"]):
    """The entry of a function's cache for ``key``, its arguments: with it the function runs no code."""

    __slots__ = ("results",)

    def __init__(self, key: tuple[tuple[object, ...], tuple[tuple[str, object], ...]], results: CachedResults) -> None:
        super().__init__(key)
        self.results = results

    def fetch(self, owner: Callable[..., object]) -> Any:
        args, keywords = self.key
        return self.results.find(args, dict(keywords))


class Codec(Step[object, str]):
    """The functions of a codec, in the registry of the process."""

    def fetch(self, owner: object) -> Any:
        try:
            return Snapshot(list(map(ById, codecs.lookup(self.key))))
        except LookupError:
            return MISSING


class ErrorHandler(Step[object, str]):
    """The error handler of codecs that has a name, in the registry of the process."""

    def fetch(self, owner: object) -> Any:
        try:
            return codecs.lookup_error(self.key)
        except LookupError:
            return MISSING


class Registrations(Step[object, None]):
    """The count of registrations of subclasses with abstract classes, of the whole process."""

    def fetch(self, owner: object) -> Any:
        return abc.get_cache_token()


class Element(Step[Any, object]):
    """An element of a list, tuple, deque or array."""

    def fetch(self, owner: Any) -> Any:
        try:
            return owner[self.key]
        except (IndexError, KeyError, TypeError):
            return MISSING

    def row(self, rows: Rows, owner: object, value: object) -> bool:
        return type(owner) is tuple or (type(owner) is list and rows.contents(owner))


class Size(Step[Collection[object], None]):
    """How many elements a container has."""

    def fetch(self, owner: Collection[object]) -> Any:
        return owner.size if isinstance(owner, np.ndarray) else len(owner)

    def row(self, rows: Rows, owner: Collection[object], value: object) -> bool:
        return type(owner) is tuple or (type(owner) in (list, dict) and rows.word(owner, "length", value))


class Member(Step[Collection[object], object]):
    """Whether a container has an element."""

    def fetch(self, owner: Collection[object]) -> Any:
        return self.key in owner

    def row(self, rows: Rows, owner: Collection[object], value: object) -> bool:
        return type(owner) is dict and rows.word(owner, "version", None)


class All(Step[object, None]):
    """Everything that a container holds, as a snapshot."""

    def fetch(self, owner: object) -> Any:
        return everything(owner)

    def row(self, rows: Rows, owner: object, value: object) -> bool:
        return rows.contents(owner)


class Methods(Step[type, None]):
    """The functions that a class and its bases define, and the attributes that were read of it."""

    def fetch(self, owner: type) -> Any:
        return methods_of(owner)

    def row(self, rows: Rows, owner: type, value: object) -> bool:
        return rows.word(owner, "class_version", class_version(owner))


class Inherited(Step[type, str]):
    """An attribute of a class, its own or a base's."""

    def fetch(self, owner: type) -> Any:
        return inherited(owner, self.key)

    def row(self, rows: Rows, owner: type, value: object) -> bool:
        return rows.word(owner, "class_version", class_version(owner))


def methods_of(kind: type) -> Any:
    """The functions that a user's class and its bases define."""
    classes = [k for k in kind.__mro__ if is_program_class(k)]
    found = [(k, n, ById(f)) for k in classes for n, f in vars(k).items() if callable(f) or hasattr(type(f), "__get__")]
    return Snapshot((kind.__mro__, found))


def everything(value: Any) -> Any:
    """The contents of a container."""
    if isinstance(value, np.ndarray):
        return Snapshot((value.dtype, value.shape, value.tobytes()))
    if isinstance(value, memoryview):  # has formats and dimensions whose elements Python does not list
        return Snapshot((value.format, value.shape, value.tobytes()))
    if isinstance(value, Mapping):
        return Snapshot([(_one(k), _one(v)) for k, v in value.items()])
    if isinstance(value, Set):
        return Snapshot({_one(x) for x in value})
    return Snapshot([_one(x) for x in value])


def _one(value: object) -> Any:
    """An element: a plain value with its type, or which object it is."""
    value = plain_value(value)
    return plain(value) if isinstance(value, PLAIN) else ById(value)

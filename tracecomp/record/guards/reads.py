"""A program's reads of the surrounding Python, as a tree: the path of each value and its expected state.

A root is an object that is constant for a recording's life (a namespace, a function, a cell, a class, an object whose
method runs). A read is one step from the value above it: an attribute, an item, a length. A check repeats the steps, so
a list that was replaced by an equal one is still valid.
"""

from __future__ import annotations

import abc
import codecs
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from types import CellType, MethodType
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np

from tracecomp.eager.tensor import Tensor
from tracecomp.record.guards.cached_results import CachedResults
from tracecomp.record.guards.class_versions import class_version
from tracecomp.record.guards.lifetimes import Lifetimes, may_end
from tracecomp.record.guards.ownership import is_opened, is_program_class
from tracecomp.record.guards.slots import Contents, StateSlot
from tracecomp.record.guards.snapshots import MISSING, ById, Snapshot, alike, freeze, loosen, plain_value, short
from tracecomp.record.guards.visibility import CONTAINERS
from tracecomp.record.pytree import Leaves
from tracecomp.record.same_values import PLAIN, is_plain, plain

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
        return StateSlot(attributes_of(owner), self.key, where, "_parameters" in attributes_of(owner))


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


class Read:
    """A value that a program read. ``seen`` is its expected state; without ``step`` it is a root.

    ``is_given`` marks arguments, which other guards compare. ``frozen`` is a container's contents: a container of
    tensors and numbers may become a place, which needs them.
    """

    __slots__ = (
        "__weakref__", "_owner", "children", "frozen", "is_given", "kind", "line", "seen", "step", "value", "where",
    )  # fmt: skip

    def __init__(self, owner: Read | None, step: SomeStep | None, value: object, where: str, line: int = 0) -> None:
        self._owner = None if owner is None else weakref.ref(owner)  # which has this among its children
        self.step = step
        self.value = value
        self.where = where
        self.is_given = False
        self.line = line
        self.children: dict[tuple[type, Any], Read] = {}
        self.kind, self.seen = expected(value)
        self.frozen = freeze(value) if self.kind is type and isinstance(value, list | dict | tuple) else MISSING

    @property
    def owner(self) -> Read | None:
        """The read above."""
        return None if self._owner is None else self._owner()

    def child(self, step: SomeStep, value: object, where: str, line: int = 0) -> Read:
        """The read one ``step`` from here, made when it is new; ``line`` is the compiled function's."""
        key = step.same()
        found = self.children.get(key)
        if found is None:
            found = self.children[key] = Read(self, step, value, where, line)
        return found

    def pin(self) -> None:
        """From now on the object's identity matters, not only the reads from it."""
        if self.kind is type and self.step is not None and not self.is_given:
            self.kind, self.seen = ById, ById(self.value)

    def fetch(self, owner: object) -> Any:
        """The value at present, where ``owner`` is what the read above gives."""
        return self.value if self.step is None else self.step.fetch(owner)

    def miss(self, owner: object) -> str | None:
        """Why the value found at ``owner`` does not fit, or None."""
        now = self.fetch(owner)
        if not self.fits(now):
            return self.difference(now)
        for child in self.children.values():
            found = child.miss(now)
            if found is not None:
                return found
        return None

    def missed(self, owner: object) -> Iterator[int]:
        """The lines that read values that no longer fit."""
        now = self.fetch(owner)
        if self.step is not None and not self.fits(now):
            yield self.line
        else:
            for child in self.children.values():
                yield from child.missed(now)

    def difference(self, now: object) -> str:
        """Describe the difference between ``now`` and the recorded state."""
        seen = self.frozen if self.frozen is not MISSING else self.seen
        return f"{self.where} changed from {short(seen)} to {short(now)}"

    def fits(self, now: object) -> bool:
        """Whether ``now`` matches the recorded state, apart from reads below it."""
        if self.kind is ById:
            return bool(id(now) == self.seen.key)
        if self.kind is type:
            return type(now) is self.seen[0]
        now = plain_value(now)
        return type(now) is self.kind and (now is self.value or bool(self.seen == plain(now)))

    def now(self, given: tuple[tuple[object, ...], dict[str, object]]) -> Any:
        """The value at present, in a call with these arguments."""
        owner = self.owner
        if owner is None:
            return given if self.is_given else self.value
        return self.fetch(owner.now(given))

    def path(self) -> tuple[object, ...]:
        """The root and the steps from there: equal for reads of the same place in two recordings."""
        owner = self.owner
        if owner is None or self.step is None:
            return ("given",) if self.is_given else (id(self.value),)
        return (*owner.path(), self.step.same())

    def moved(self, owner: object) -> Iterator[StateSlot]:
        """The places here and below that now hold other tensors and numbers, and are otherwise as they were."""
        now = self.fetch(owner)
        place = self.moved_place(owner, now)
        if place is not None:
            yield place
        elif self.step is None or self.fits(now):
            for child in self.children.values():
                yield from child.moved(now)

    def moved_place(self, owner: object, now: object) -> StateSlot | None:
        """The place of ``now`` if it differs only in its tensors or numbers from the recorded state."""
        place = None if self.step is None or now is MISSING else self.step.place(owner, self.where)
        before = self.frozen if self.kind is type else MISSING if self.kind is tuple else self.seen
        if place is None or before is MISSING:
            return None
        after = freeze(now)
        moved = bool(after != before) and alike(before, after)
        return place if moved and self.miss(owner) is not None else None

    def native(self, rows: Rows, owner: object) -> bool:
        """Have native code compare this and all below; False where only Python can."""
        now = self.fetch(owner)
        if self.step is not None and not self.step.row(rows, owner, now):
            return False
        if self.kind is type and is_opened(type(now)):
            rows.borrow(now)
            if not rows.word(now, "class", type(now)):
                return False
        return all(child.native(rows, now) for child in self.children.values())

    def walk(self) -> Iterator[Read]:
        """This read and all below."""
        yield self
        for child in list(self.children.values()):
            yield from child.walk()


class _Borrowed(Read):
    """A root that is referred to weakly."""

    __slots__ = ()

    @property
    def value(self) -> Any:  # type: ignore[override]
        """The object; None once it is gone."""
        return _stored(self)()


_stored: Callable[[Read], Any] = vars(Read)["value"].__get__


class Reads:
    """The guard on everything that the program was seen to read of the Python around it."""

    def __init__(self, places: Set[tuple[int, str]] = frozenset()) -> None:
        self.places = places
        self.asks_types = False  # whether the program gives type away to be called
        self.given = Read(None, None, ((), {}), "arguments")
        self.classes: dict[int, Read] = {}
        self.tensors: dict[int, Tensor] = {}
        self.seen_arrays: set[int] = set()  # arrays among the arguments, by identity, that numpy reads or writes
        self.array_lines: set[int] = set()  # lines that read the contents of arrays among the arguments
        self.lifetimes = Lifetimes()
        self.borrowed: set[int] = set()  # roots that the caller holds, by identity
        self._roots: dict[int, Read] = {}

    def root(self, value: object, where: str) -> Read:
        """The read of ``value``, a constant object."""
        found = self._roots.get(id(value))
        if found is None:
            found = self._roots[id(value)] = Read(None, None, value, where)
        return found

    def check(self, leaves: Leaves) -> str | None:
        if self.lifetimes.ended:
            return "an object that it reads was deleted"
        for root in self._roots.values():
            for child in root.children.values():
                found = child.miss(root.value)
                if found is not None:
                    return found
        return None

    @property
    def missed(self) -> Set[int]:
        """The lines of the compiled function that read values that no longer fit."""
        return set() if self.lifetimes.ended else {line for root in self._roots.values() for line in root.missed(None)}

    def explain(self) -> str:
        names = [r.where for root in self._roots.values() for r in root.walk() if r.step is not None]
        return f"{len(names)} values that Python reads: {', '.join(dict.fromkeys(names))}"

    def native_row(self, rows: Rows) -> bool:
        return all(root.native(rows, None) for root in self._roots.values())

    def moved(self) -> list[StateSlot]:
        """The places that now hold other tensors and numbers, and are otherwise as they were."""
        return [] if self.lifetimes.ended else [place for root in self._roots.values() for place in root.moved(None)]

    def forget_arguments(self) -> None:
        """Let go of the recorded call's arguments: others compare them, and later calls have their own."""
        for read in self.given.walk():
            read.value = read.seen = None
            read.frozen = MISSING

    def loosen(self) -> None:
        """Refer weakly to objects that the program holds: those that it read from others, and those of its caller."""
        for key, root in self._roots.items():
            root.seen = None  # roots are not compared
            for read in root.walk():
                if read.step is not None and read.kind in (ById, type, Snapshot):
                    read.value = None
                loosen(read.seen, self.lifetimes)
                loosen(read.frozen, self.lifetimes)
            if type(root.value) is MethodType and not root.children:
                root.value = None
            elif key in self.borrowed and may_end(root.value):
                root.value = self.lifetimes.refer(root.value)
                root.__class__ = _Borrowed

    def release(self) -> None:
        """Release all objects: there is no recording."""
        for read in [r for root in (*self._roots.values(), self.given) for r in root.walk()]:
            read.children.clear()  # which refer to this one
            read.value = read.seen = None
            read.frozen = MISSING
        self._roots.clear()
        self.classes.clear()
        self.tensors.clear()

    def roots(self) -> list[Read]:
        """The roots of all reads."""
        return list(self._roots.values())


def expected(value: object) -> tuple[Any, Any]:
    """The expected state of a value: its identity, its type, or its type and value."""
    value = plain_value(value)
    if is_plain(value):
        return type(value), plain(value)
    if isinstance(value, Snapshot):
        return Snapshot, plain(value)
    if isinstance(value, CONTAINERS) or is_opened(type(value)):
        return type, (type(value), None)
    return ById, ById(value)


def everything(value: Any) -> Any:
    """The contents of a container."""
    if isinstance(value, np.ndarray):
        return Snapshot((value.dtype, value.shape, value.tobytes()))
    if isinstance(value, Mapping):
        return Snapshot([(_one(k), _one(v)) for k, v in value.items()])
    if isinstance(value, Set):
        return Snapshot({_one(x) for x in value})
    return Snapshot([_one(x) for x in value])


def _one(value: object) -> Any:
    """An element: a plain value with its type, or which object it is."""
    value = plain_value(value)
    return plain(value) if isinstance(value, PLAIN) else ById(value)


def inherited(kind: type, name: str) -> Any:
    """The attribute ``name`` of a class or its bases as it is stored there."""
    return next((vars(k)[name] for k in kind.__mro__ if name in vars(k)), MISSING)


def methods_of(kind: type) -> Any:
    """The functions that a user's class and its bases define."""
    classes = [k for k in kind.__mro__ if is_program_class(k)]
    found = [(k, n, ById(f)) for k in classes for n, f in vars(k).items() if callable(f) or hasattr(type(f), "__get__")]
    return Snapshot((kind.__mro__, found))


def attributes_of(value: object) -> dict[str, Any]:
    """The attributes in an object's dictionary, even if its class overrides attribute access.

    An exception here would leave the trace function, and CPython 3.11 may crash when one does so within ``__del__``.
    """
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found if isinstance(found, dict) else {}

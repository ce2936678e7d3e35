"""A program's reads of the surrounding Python, as a tree: the path of each value and its expected state.

A root is an object that is constant for a recording's life (a namespace, a function, a cell, a class, an object whose
method runs). A read is one step from the value above it: an attribute, an item, a length. A check repeats the steps, so
a list that was replaced by an equal one is still valid.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence, Set
from types import MethodType
from typing import Any, NamedTuple, Protocol

from tracecomp.eager.tensor import Tensor
from tracecomp.record.guards.lifetimes import Lifetimes, may_end
from tracecomp.record.guards.ownership import is_opened
from tracecomp.record.guards.read_steps import Rows, SomeStep
from tracecomp.record.guards.slots import StateSlot
from tracecomp.record.guards.snapshots import MISSING, ById, Snapshot, alike, freeze, loosen, plain_value, short
from tracecomp.record.guards.visibility import CONTAINERS
from tracecomp.record.pytree import Leaves
from tracecomp.record.same_values import is_plain, plain

_NOTHING: tuple[tuple[object, ...], dict[str, object]] = ((), {})
"""The arguments for reads that do not begin at any."""


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
        is_part = step is not None and self.kind is type  # roots are not compared
        self.frozen = freeze(value) if is_part and isinstance(value, list | dict | tuple) else MISSING

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

    def is_below(self, reads: Set[int]) -> bool:
        """Whether this read or one above is one of ``reads``, by identity."""
        read: Read | None = self
        while read is not None and id(read) not in reads:
            read = read.owner
        return read is not None

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

    def row(self, rows: Rows, owner: object, now: object) -> bool:
        """Have native code compare the present value, without the reads below; False where only Python can."""
        if self.step is not None and not self.step.row(rows, owner, now):
            return False
        if self.kind is not type or not is_opened(type(now)):
            return True
        rows.borrow(now)
        return rows.word(now, "class", type(now))

    def native(self, rows: Rows, owner: object) -> bool:
        """Have native code compare this and all below; False where only Python can."""
        now = self.fetch(owner)
        return self.row(rows, owner, now) and all(child.native(rows, now) for child in self.children.values())

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


class NativeComparison(Protocol):
    """Compares most reads in native code with a state that fitted."""

    @property
    def state(self) -> int:
        """The number of the last ``update``; 0 if the state differed since."""

    def update(self, roots: Sequence[Read]) -> None:
        """Compare with the present state from now on, as far as it fits the reads from ``roots``."""

    def __call__(self) -> Sequence[tuple[Read, object]] | None:
        """The reads that Python has to compare, with their owners; None for all of them."""


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
        self.natively: NativeComparison | None = None

    def root(self, value: object, where: str) -> Read:
        """The read of ``value``, a constant object."""
        found = self._roots.get(id(value))
        if found is None:
            found = self._roots[id(value)] = Read(None, None, value, where)
        return found

    def check(self, leaves: Leaves) -> str | None:
        if self.lifetimes.ended:
            return "an object that it reads was deleted"
        left = None if self.natively is None else self.natively()
        for read, owner in self._first() if left is None else left:
            found = read.miss(owner)
            if found is not None:
                return found
        return None

    def _first(self) -> Iterator[tuple[Read, object]]:
        """The reads from the roots, with their owners."""
        return ((c, root.value) for root in self._roots.values() for c in root.children.values())

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


class _Noted(NamedTuple):
    """Identities in a ``state``; those at ``others`` may change within it."""

    state: int
    ids: list[int]
    others: Sequence[int]


class FoundObjects:
    """The identities of the objects that ``wanted`` reads find in a call, once the guard on ``reads`` has held.

    Native code compares most of them, so these are the same ones until its next ``update``.
    """

    def __init__(self, reads: Reads, wanted: Sequence[Read]) -> None:
        self._reads = reads
        self._wanted = wanted
        self._noted = _Noted(0, [], [])

    def __call__(self) -> list[int]:
        natively, noted = self._reads.natively, self._noted
        if natively is None or natively.state == 0:
            return self._fetched()
        if noted.state != natively.state:
            return self._note(natively)
        ids = noted.ids.copy()
        for n in noted.others:
            ids[n] = id(self._wanted[n].now(_NOTHING))
        return ids

    def _fetched(self) -> list[int]:
        return [id(read.now(_NOTHING)) for read in self._wanted]

    def _note(self, natively: NativeComparison) -> list[int]:
        state, ids, left = natively.state, self._fetched(), natively()
        if left is not None and natively.state == state:  # no thread has replaced an object meanwhile
            apart = {id(read) for read, _ in left}
            others = [n for n, read in enumerate(self._wanted) if read.is_below(apart)]
            self._noted = _Noted(state, ids, others)
        return ids


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

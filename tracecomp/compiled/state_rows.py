"""State outside of compiled calls as words that native code compares."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import count
from types import FunctionType, MemberDescriptorType
from typing import Any, NamedTuple, TypeAlias

from tracecomp.codegen.calls.call_tables import CELL_CONTENTS, DICT_SIZE, DICT_VERSION, LIST_SIZE, TYPE
from tracecomp.record.guards.class_versions import class_version_offset, field_offset, name_offset
from tracecomp.record.guards.lifetimes import Lifetimes, holds_awaited, may_end
from tracecomp.record.guards.lookup import inherited
from tracecomp.record.guards.reads import Read
from tracecomp.record.guards.snapshots import MISSING
from tracecomp.runtime.call import Code, Held, Record
from tracecomp.runtime.call import Word as RecordWord
from tracecomp.runtime.object_layout import Word, dictionaries_have_versions, dictionary_words, slot_offset, word_at


class StateRows:
    """Collects words of objects as they are now. ``lifetimes`` are those of the recording."""

    def __init__(self, record: Record, lifetimes: Lifetimes) -> None:
        self.r = record
        self._lifetimes = lifetimes
        self._seen: set[tuple[int, str]] = set()
        self._listed: set[int] = set()

    def add(self, table: str, *words: RecordWord) -> None:
        """Append a row to the record."""
        self.r.add(table, *words)

    def borrow(self, value: object) -> None:
        if may_end(value):
            self._lifetimes.refer(value, ends=False)

    def entry(self, mapping: Any, key: Any, value: Any) -> bool:
        if not isinstance(mapping, dict) or dict.get(mapping, key, MISSING) is not value or holds_awaited(value):
            return False
        place = (id(mapping), key)
        if place not in self._seen:
            self._seen.add(place)
            self.add("names", Held(mapping), Held(key), 0 if value is MISSING else Held(value))
        return True

    def word(self, owner: object, what: str, value: object) -> bool:
        if what == "cell_contents":
            if holds_awaited(value):
                return False
            row: tuple[Any, ...] = (Held(owner), CELL_CONTENTS, Held(value))
        elif what == "class":
            row = (Held(owner), TYPE, Held(value))
        elif what == "length":
            size = LIST_SIZE if isinstance(owner, list) else DICT_SIZE
            row = (Held(owner), size, value)
        elif what == "version":
            return self._unchanged(owner)
        elif what == "class_version":
            offset = class_version_offset()
            if not value or offset is None:
                return False
            row = (Held(owner), offset, word_at(owner, offset))
        else:
            offset = _offset(owner, what)
            if offset is None or value is MISSING or holds_awaited(value):
                return False
            row = (Held(owner), offset, 0 if value is None and word_at(owner, offset) == 0 else Held(value))
        place = (id(owner), what)
        if place not in self._seen:
            self._seen.add(place)
            self.add("fields", *row)
        return True

    def _unchanged(self, dictionary: Any) -> bool:
        """Guard all that a dictionary holds, and in which order."""
        if (id(dictionary), "version") in self._seen:
            return True
        if dictionaries_have_versions():
            words: list[Word] | None = [Word(dictionary, DICT_VERSION, word_at(dictionary, DICT_VERSION))]
        else:
            words = dictionary_words(dictionary)
        if words is None:
            return False
        self._seen.add((id(dictionary), "version"))
        for w in words:
            self.add("fields", *word_row(w))
        return True

    def contents(self, value: object) -> bool:
        if type(value) is tuple or id(value) in self._listed:
            return True
        self._listed.add(id(value))
        if type(value) is list:
            self.word(value, "length", len(value))
            for n, item in enumerate(value):
                self.add("elements", Held(value), 8 * n, Held(item))
            return True
        return type(value) in (dict, defaultdict, Counter) and self.word(value, "version", None)


def _offset(owner: object, name: str) -> int | None:
    """Offset of an attribute that is a word of its owner."""
    if isinstance(owner, FunctionType):
        return field_offset(name)
    return name_offset(owner, name) if isinstance(owner, type) else _slot(type(owner), name)


def _slot(kind: type, name: str) -> int | None:
    """Offset of a slot in objects of a class."""
    found = inherited(kind, name)
    return slot_offset(found) if isinstance(found, MemberDescriptorType) else None


def word_row(w: Word) -> tuple[Held | int, int, Held | int]:
    """The row for a word that must be unchanged."""
    return w.owner if isinstance(w.owner, int) else Held(w.owner), w.offset, Held(*w.kept) if w.kept else w.number


class _NotedRows(StateRows):
    """Notes the rows that are added."""

    def __init__(self, record: Record, lifetimes: Lifetimes) -> None:
        super().__init__(record, lifetimes)
        self.added: list[tuple[object, ...]] = []

    def add(self, table: str, *words: RecordWord) -> None:
        super().add(table, *words)
        self.added.append((table, *[id(w.value) if isinstance(w, Held) else w for w in words]))


_Left: TypeAlias = list[tuple[Read, Callable[[], object]]]
"""Reads that Python compares, with functions that return their owners."""


class _Collected(NamedTuple):
    """The words of an ``update``, by read in ``words``."""

    rows: _NotedRows
    words: dict[Read, Sequence[object]]
    left: _Left


class _Held(NamedTuple):
    """The result of an ``update``, in one piece: threads may release it."""

    is_same: Callable[[], bool]
    left: _Left
    number: int


class StateCheck:
    """Compares what a program reads of the surrounding Python with the state of the last ``update``.

    Native code compares words: that a name has the very same value, a list the same elements, a class the same version.
    This is stricter than the reads need to be: a number may be equal and another object. ``Read`` itself compares those
    that have changed so, those that native code does not know, and all after a word that differs.

    It holds no object whose end a program may see. Without one whose words it compares, it has to be made again.
    """

    def __init__(self, lifetimes: Lifetimes, code: Code) -> None:
        self._lifetimes = lifetimes
        self._code = code
        self._rows: dict[Read, Sequence[object]] = {}
        self._inconstant: set[Read] = set()
        self._held: _Held | None = None
        self._numbers = count(1)
        lifetimes.watch(self.release)

    @property
    def state(self) -> int:
        """The number of the last ``update``; 0 if the state differed since."""
        held = self._held
        return 0 if held is None else held.number

    def __call__(self) -> list[tuple[Read, object]] | None:
        """The reads to compare in Python, with their owners; None for all of them."""
        held = self._held
        if held is None or not held.is_same():
            self.release()
            return None
        left = [(read, owner()) for read, owner in held.left]
        return left if self._held is held else None  # unless an owner is gone

    def release(self) -> None:
        """Compare in Python until the next ``update``; hold nothing."""
        self._held = None

    def update(self, roots: Sequence[Read]) -> None:
        """Note the present state as far as it fits the reads from ``roots``."""
        before, ends = self._rows, self._lifetimes.ends
        found = self._collected(roots)
        inconstant = {read for read, words in found.words.items() if before.get(read, words) != words}
        if inconstant:
            self._inconstant |= inconstant
            found = self._collected(roots)
        self._rows = found.words
        self._held = _Held(self._code.comparison(found.rows.r.finish()), found.left, next(self._numbers))
        del found  # which holds all objects
        if ends != self._lifetimes.ends:
            self.release()

    def _collected(self, roots: Sequence[Read]) -> _Collected:
        """The rows by read, in a new record."""
        found = _Collected(_NotedRows(Record(self._code, 0, 0, self._lifetimes.has), self._lifetimes), {}, [])
        for root in roots:
            self._collect(root, None, found)
        return found

    def _collect(self, read: Read, owner: object, found: _Collected) -> None:
        """Add the rows of ``read`` and of all below."""
        rows = found.rows
        now = read.fetch(owner)
        start = len(rows.added)
        # The call that fitted may have changed values that it read.
        fits = read.step is None or read.fits(now)
        if not fits or read in self._inconstant or not read.row(rows, owner, now):
            found.left.append((read, self._lifetimes.borrowed(owner)))
            return
        found.words[read] = rows.added[start:]
        for child in read.children.values():
            self._collect(child, now, found)

"""Guards as rows of a native call's record: the words that native code compares."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cache
from types import NoneType
from typing import Any, Protocol

import numpy as np

from tracecomp.codegen.calls.call_tables import ARGUMENT, CELL_CONTENTS, DICT_SIZE, DICT_VERSION, LIST_SIZE, TYPE
from tracecomp.eager.modes import Modes
from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import FIELDS, blank
from tracecomp.ir.types import DType
from tracecomp.record.guards.class_versions import class_version_offset, field_offset
from tracecomp.record.guards.snapshots import MISSING, ById, freeze
from tracecomp.record.pytree import Leaves
from tracecomp.runtime.call import Held, Place, Record
from tracecomp.runtime.object_layout import Word, dictionaries_have_versions, dictionary_words, field_offsets, word_at

_UNCHANGING = (bool, int, float, complex, str, bytes, NoneType, DType, type(Ellipsis), slice, range, np.generic)


class Sources(Protocol):
    """The record that is written, for guards on tensors."""

    r: Record
    leaves: Leaves
    used: dict[tuple[int, int], int | None]

    def source(
        self,
        kind: int,
        ref: Any,
        requires_grad: int,
        dtype: np.dtype[np.generic],
        shape: tuple[int, ...],
        slot: int | None,
    ) -> int: ...

    def known_source(self, kind: int, ref: Any) -> int: ...


class NativeRows:
    """Collects the words that native code compares, from the state of the fitting call."""

    def __init__(self, writer: Sources) -> None:
        self.writer = writer
        self.r = writer.r
        self.leaves = writer.leaves
        self._seen: set[tuple[int, str]] = set()
        self._listed: set[int] = set()

    def entry(self, mapping: Any, key: Any, value: Any) -> bool:
        if not isinstance(mapping, dict) or mapping.get(key, MISSING) is not value:
            return False
        place = (id(mapping), key)
        if place not in self._seen:
            self._seen.add(place)
            self.r.add("names", Held(mapping), Held(key), 0 if value is MISSING else Held(value))
        return True

    def item(self, mapping: Mapping[str, object], key: str, snapshot: object) -> bool:
        value = mapping.get(key, MISSING)
        if freeze(value) != snapshot or not (type(snapshot) is ById or self._holds(value)):
            return False
        if type(mapping) is dict:
            return self.entry(mapping, key, value)
        self.r.add("items", Held(mapping), Held(key), Held(value))
        return True

    def word(self, owner: object, what: str, value: object) -> bool:
        if what == "cell_contents":
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
            offset = field_offset(what)
            if offset is None:
                return False
            row = (Held(owner), offset, 0 if value is None and word_at(owner, offset) == 0 else Held(value))
        place = (id(owner), what)
        if place not in self._seen:
            self._seen.add(place)
            self.r.add("fields", *row)
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
            self.r.add("fields", *word_row(w))
        return True

    def contents(self, value: object) -> bool:
        if type(value) is tuple or id(value) in self._listed:
            return True
        self._listed.add(id(value))
        if type(value) is list:
            self.word(value, "length", len(value))
            for n, item in enumerate(value):
                self.r.add("elements", Held(value), 8 * n, Held(item))
            return True
        return type(value) in (dict, defaultdict, Counter) and self.word(value, "version", None)

    def _holds(self, value: Any) -> bool:
        """Guard what a container holds by identity; False when that is not enough."""
        if _unchanging(value):
            return True
        parts = value.values() if type(value) is dict else value
        return type(value) in (list, dict, tuple) and self.contents(value) and all(map(self._holds, parts))

    def pair(self, one: int, other: int, same: bool) -> None:
        self.r.add("pairs", 8 * one, 8 * other, int(same))

    def tensor(
        self, kind: int, ref: Any, requires_grad: int, dtype: np.dtype[np.generic], shape: tuple[int, ...]
    ) -> None:
        slot = self.writer.used.get((kind, ref if kind == ARGUMENT else id(ref)))
        self.writer.source(kind, ref, requires_grad, dtype, shape, slot)

    def flag(self, tensor: Tensor) -> None:
        self.r.add("fields", Held(tensor), tensor_fields()["_requires_grad"], Held(tensor._requires_grad))

    def apart(self, argument: int, kind: int, ref: object) -> None:
        sides = [self.writer.known_source(*key) for key in ((ARGUMENT, argument), (kind, ref))]
        self.r.add("apart", *[Place("sources", n) for n in sides])

    def mode(self, name: str, value: object) -> None:
        self.r.add("modes", Held(name), Held(value), Held(getattr(Modes, name)))

    def grad(self, tensor: Tensor, present: bool) -> None:
        self.r.add("absent_grads", Held(tensor), int(not present))


def word_row(w: Word) -> tuple[Held | int, int, Held | int]:
    """The row for a word that must be unchanged."""
    return w.owner if isinstance(w.owner, int) else Held(w.owner), w.offset, Held(*w.kept) if w.kept else w.number


def _unchanging(value: object) -> bool:
    """Whether ``value`` means the same for as long as it is the same object."""
    if type(value) is tuple:
        return all(map(_unchanging, value))
    return isinstance(value, _UNCHANGING) or callable(value) or isinstance(value, Tensor)


@cache
def tensor_fields() -> dict[str, int]:
    """Offsets of a tensor's slots."""
    return field_offsets(blank(Tensor), FIELDS)

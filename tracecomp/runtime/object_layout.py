"""Layouts of CPython's and numpy's objects: verified on probes before native code relies on them."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Container, Sequence
from functools import cache
from sys import getrefcount
from types import MemberDescriptorType
from typing import NamedTuple, TypeVar

import numpy as np

from tracecomp.base.interpreter import is_tested
from tracecomp.codegen.calls import call_tables


def field_offsets(made: object, fields: Sequence[str]) -> dict[str, int]:
    """Offsets of the slots of an object. ``made`` is an instance to test."""
    offsets = {}
    for name in fields:
        probe = object()
        setattr(made, name, probe)
        found = [n for n in range(2, 3 + len(fields)) if word_at(made, 8 * n) == id(probe)]
        if len(found) != 1:
            return {}
        offsets[name] = 8 * found[0]
    return offsets


class _Slots:
    __slots__ = ("one", "other")


def slot_offset(descriptor: MemberDescriptorType) -> int | None:
    """Offset of a slot in objects of its class, as its descriptor has it; None where that is not known."""
    kind, offset = _member(descriptor)
    return offset if _members_are_known() and kind == _member(vars(_Slots)["one"])[0] else None


@cache
def _members_are_known() -> bool:
    return field_offsets(_Slots(), _Slots.__slots__) == {n: _member(vars(_Slots)[n])[1] for n in _Slots.__slots__}


def _member(descriptor: MemberDescriptorType) -> tuple[int, int]:
    """The kind of a slot, a number of CPython's, and its offset."""
    member = word_at(descriptor, call_tables.DESCRIPTOR_MEMBER)
    return word_at(member, call_tables.MEMBER_KIND) % (1 << 32), word_at(member, call_tables.MEMBER_OFFSET)


@cache
def arrays_are_known() -> bool:
    """Whether arrays have type, data, dimensions and flags at the offsets that native code reads."""
    ours = call_tables
    return all(
        word_at(array, ours.TYPE) == id(np.ndarray)
        and word_at(array, ours.ARRAY_DATA) == array.ctypes.data
        and word_at(array, ours.ARRAY_ND) % (1 << 32) == array.ndim
        and [word_at(word_at(array, ours.ARRAY_DIMS), 8 * k) for k in range(array.ndim)] == [*array.shape]
        and word_at(array, ours.ARRAY_DESCR) == id(array.dtype)
        and word_at(array, ours.ARRAY_FLAGS) % (1 << 32) == array.flags.num
        for array in (np.zeros(3), np.zeros(()), np.zeros((2, 5)), np.zeros((4, 4))[:, ::2])
    )


@cache
def objects_are_known() -> bool:
    """Whether arrays, lists, tuples and cells have the layout that ``tc_fast`` assumes, on a Python that is tested."""
    item = object()
    several, cell = [item], (lambda: item).__closure__
    assert cell is not None
    ours = call_tables
    return (
        is_tested()
        and arrays_are_known()
        and word_at(several, ours.LIST_SIZE) == 1
        and word_at(word_at(several, ours.LIST_ITEMS), 0) == id(item)
        and word_at((item,), _tuple_items()) == id(item)
        and word_at(cell[0], ours.CELL_CONTENTS) == id(item)
        and word_at(id(item), ours.REFERENCES) == getrefcount(item) - 1
        and _weak_reference_is_seen()
    )


def this_interpreter() -> call_tables.Interpreter:
    """The facts about this Python that native code depends on."""
    return call_tables.Interpreter(_tuple_items(), dictionaries_have_versions())


@cache
def _tuple_items() -> int:
    """Offset of a tuple's items: after its size, or from CPython 3.14 on after its hash."""
    pair = (object(), object())
    return next((n for n in (24, 32) if [word_at(pair, n), word_at(pair, n + 8)] == [*map(id, pair)]), 24)


def _weak_reference_is_seen() -> bool:
    probe = np.zeros(1)
    before = word_at(probe, call_tables.ARRAY_WEAK)
    watcher = weakref.ref(probe)
    return before == 0 and word_at(probe, call_tables.ARRAY_WEAK) == id(watcher)


class _Owner:
    """An object with a dictionary."""

    def __init__(self) -> None:
        self.key = 0


@cache
def dictionaries_have_versions() -> bool:
    """Whether a dictionary's version changes with each write, and is unique among dictionaries.

    Attributes are changed too: CPython 3.13 keeps them in the object, next to a dictionary whose version does not
    change. A guard that trusts the version would miss the change. CPython 3.14 has no versions.
    """
    owner = _Owner()
    for dictionary in ({"key": 0}, vars(owner)):
        versions = []
        for value in (1, 2, 3):
            if dictionary is vars(owner):
                owner.key = value
            else:
                dictionary["key"] = value
            copy = dict(dictionary)
            versions += [word_at(d, call_tables.DICT_VERSION) for d in (dictionary, copy)]
        if len(set(versions)) != 6 or word_at(dictionary, call_tables.DICT_VERSION) != versions[4]:
            return False
    return True


Key = TypeVar("Key")


class Word(NamedTuple):
    """A word of an object or of its memory: a number, or the address of the object ``kept``."""

    owner: object
    offset: int
    number: int
    kept: tuple[object, ...] = ()


class EntryPlace(NamedTuple):
    """Words that tell where a dictionary has the value of a key; native code compares them in this order.

    ``value_word`` is the address of the value, or tells that it is missing.
    """

    keys: int
    kind: int
    key_at: int
    key_word: int
    values: int
    value_at: int
    value_word: int


def entry_place(dictionary: dict[Key, object], key: Key) -> EntryPlace | None:
    """The place of the value of ``key``, or for attributes of its absence; None if there is none.

    While the words are equal, so is the value. An equal key that is another object has no place. A missing key has one
    only among the keys that attributes of several objects share, because these are never removed.
    """
    keys, values = word_at(dictionary, call_tables.DICT_KEYS), word_at(dictionary, call_tables.DICT_VALUES)
    kind, first, size, count = _entries(keys)
    if not 0 < count <= 2 * len(dictionary) + 30:
        return None  # empty, or many were deleted, or the count is invalid
    memory = (ctypes.c_char * (count * size)).from_address(keys + first)
    words = np.frombuffer(memoryview(memory), np.uint64)
    numbers = np.flatnonzero(words[:: size // 8] == id(key)).tolist()
    if not numbers:
        # Another key changes the number of keys. The first word of the values has the number of attributes.
        absent = (
            EntryPlace(keys, kind, call_tables.KEYS_COUNT, count, values, 0, word_at(values, 0)) if values else None
        )
        return None if dict.__contains__(dictionary, key) else absent
    at = first + size * numbers[0]
    value_at = 8 + 8 * numbers[0] if values else at + 8
    place = EntryPlace(keys, kind, at, id(key), values, value_at, word_at(values or keys, value_at))
    expected = id(dict.__getitem__(dictionary, key)) if dict.__contains__(dictionary, key) else 0
    return place if place.value_word == expected else None


def _entries(keys: int) -> tuple[int, int, int, int]:
    """The kind of a dictionary's keys, the offset of the first one, the bytes of an entry, and the entries' number."""
    kind = word_at(keys, call_tables.KEYS_KIND) % (1 << 32)
    _, index_bits, has_strings, _ = kind.to_bytes(4, "little")
    first, size = (0, 16) if has_strings else (8, 24)  # general keys begin with their hash
    return kind, call_tables.KEYS_ENTRIES + (1 << index_bits) + first, size, word_at(keys, call_tables.KEYS_COUNT)


def dictionary_words(dictionary: dict[Key, object], only: Container[Key] | None = None) -> list[Word] | None:
    """Words that are unchanged while a dictionary has the same items, in its order.

    With ``only``, values of other keys may change, if the dictionary is not that of an object. Compare the words in
    order: each exists if the previous ones are unchanged. None if the dictionary has an unknown layout.
    """
    keys, values = word_at(dictionary, call_tables.DICT_KEYS), word_at(dictionary, call_tables.DICT_VALUES)
    if values:
        return _attribute_words(dictionary, keys, values)
    _, first, size, count = _entries(keys)
    if count > 2 * len(dictionary) + 8:
        return None  # many were deleted, or the count is invalid
    words = [
        Word(dictionary, call_tables.DICT_SIZE, len(dictionary)), Word(dictionary, call_tables.DICT_KEYS, keys),
        Word(keys, call_tables.KEYS_KIND, word_at(keys, call_tables.KEYS_KIND)),
        Word(keys, call_tables.KEYS_COUNT, count),
    ]  # fmt: skip
    left = list(dictionary.items())[::-1]
    for n in range(count):
        at = first + n * size
        found = word_at(keys, at), word_at(keys, at + 8)
        if found[1] == 0:
            words.append(Word(keys, at + 8, 0))  # deleted
        elif left and found == (id(left[-1][0]), id(left[-1][1])):
            item = left.pop()
            if only is None or item[0] in only:
                words += [Word(keys, at + 8 * k, id(x), (x,)) for k, x in enumerate(item)]
        else:
            return None
    return None if left else words


def _attribute_words(dictionary: dict[Key, object], keys: int, values: int) -> list[Word] | None:
    """The same for attributes of an object, whose class has the ``keys``, and whose ``values`` are by their numbers.

    Before the values is a word with their capacity and number, behind them their order, one byte each.
    """
    ours = call_tables
    _, first, _, count = _entries(keys)
    capacity, size, *_ = word_at(values, 0).to_bytes(8, "little")
    if size != len(dictionary) or not size <= count <= capacity:
        return None
    numbers = {word_at(keys, first + 16 * n): n for n in range(count)}
    order = 8 + 8 * capacity
    words = [
        Word(dictionary, ours.DICT_SIZE, size), Word(dictionary, ours.DICT_KEYS, keys),
        Word(dictionary, ours.DICT_VALUES, values), Word(values, 0, word_at(values, 0)),
        *[Word(values, at, word_at(values, at)) for at in range(order, order + capacity, 8)],
    ]  # fmt: skip
    for n, (key, value) in enumerate(dictionary.items()):
        number = numbers.get(id(key))
        if number is None or (word_at(values, order + n // 8 * 8) >> n % 8 * 8) & 255 != number:
            return None
        if word_at(values, 8 + 8 * number) != id(value):
            return None
        words.append(Word(values, 8 + 8 * number, id(value), (value,)))
    return words


def word_at(owner: object, offset: int) -> int:
    """The word of an object, or of memory, at an offset."""
    start = owner if isinstance(owner, int) else id(owner)
    return ctypes.c_uint64.from_address(start + offset).value

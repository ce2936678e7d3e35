"""Native code compares words of a dictionary if CPython keeps no version: equal words mean equal contents."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracecomp
from tracecomp.codegen.calls.call_tables import DICT_KEYS, DICT_VALUES, KEYS_KIND
from tracecomp.eager.modes import modes
from tracecomp.runtime.object_layout import (
    EntryPlace,
    Word,
    dictionaries_have_versions,
    dictionary_words,
    entry_place,
    word_at,
)

KEYS = ["a", "b", "c", "d", 1, (2,), None]
VALUES = [object() for _ in range(4)]


def holds(words: list[Word]) -> bool:
    """As native code does it: one after the other, up to the first that differs."""
    for w in words:
        start = w.owner if isinstance(w.owner, int) else id(w.owner)
        if ctypes.c_uint64.from_address(start + w.offset).value != w.number:
            return False
    return True


def contents(dictionary: dict[Any, Any]) -> list[tuple[int, int]]:
    return [(id(k), id(v)) for k, v in dictionary.items()]


ways = st.sampled_from(["set", "delete", "again", "clear", "update"])
changes = st.lists(st.tuples(ways, st.sampled_from(KEYS), st.sampled_from(VALUES)))


def change(dictionary: dict[Any, Any], how: str, key: Any, value: Any) -> None:
    if how == "set":
        dictionary[key] = value
    elif how == "delete":
        dictionary.pop(key, None)
    elif how == "again" and key in dictionary:
        dictionary[key] = dictionary.pop(key)  # the same contents in another order
    elif how == "clear":
        dictionary.clear()
    elif how == "update":
        dictionary.update(dict.fromkeys(KEYS[:3], value))


@settings(max_examples=300)
@given(changes, changes)
def test_words_are_as_they_were_only_while_the_dictionary_is(before: Any, after: Any) -> None:
    dictionary: dict[Any, Any] = {}
    for step in before:
        change(dictionary, *step)
    words = dictionary_words(dictionary)
    if words is None:  # much was deleted
        return
    was = contents(dictionary)
    assert holds(words)
    for step in after:
        change(dictionary, *step)
        if holds(words):
            assert contents(dictionary) == was


@pytest.mark.parametrize("dictionary", [{}, {"a": 1}, {k: k for k in range(100)}, dict.fromkeys("abc"), vars(pytest)])
def test_dictionaries_as_programs_have_them_can_be_compared(dictionary: dict[object, object]) -> None:
    words = dictionary_words(dictionary)
    assert words is not None and holds(words)


class Owner:
    """An object with attributes, whose dictionary shares its keys with that of others."""

    def __init__(self) -> None:
        self.a, self.b = 1, 2


NAMES = ["a", "b", "c", "d", "e"]
names = st.lists(st.tuples(st.sampled_from(["set", "delete", "again", "other"]), st.sampled_from(NAMES),
                           st.sampled_from(VALUES)))  # fmt: skip


def change_attribute(owner: Owner, other: Owner, how: str, name: str, value: object) -> None:
    """Through the object, as programs do it."""
    if how == "set":
        setattr(owner, name, value)
    elif how == "other":
        setattr(other, name, value)
    elif hasattr(owner, name):
        value = getattr(owner, name)
        delattr(owner, name)
        if how == "again":
            setattr(owner, name, value)


@settings(max_examples=300)
@given(names, names, st.booleans())
def test_words_of_attributes_are_as_they_were_only_while_the_attributes_are(
    before: Any, after: Any, as_object: bool
) -> None:
    one, other = Owner(), Owner()
    for step in before:
        change_attribute(one, other, *step)
    own: Any = vars(one)
    words = dictionary_words(own)
    if words is None:  # before Python 3.13, where versions tell
        return
    was = contents(own)
    assert holds(words)
    for how, name, value in after:
        if as_object:
            change_attribute(one, other, how, name, value)
        else:
            change(own, how, name, value)
        if holds(words):
            assert contents(own) == was


def test_attributes_can_be_compared_where_there_are_no_versions() -> None:
    own: Any = vars(Owner())
    words = dictionary_words(own)
    assert dictionaries_have_versions() or (words is not None and holds(words))


def test_words_for_some_keys_do_not_depend_on_other_values() -> None:
    own: dict[str, object] = {"a": [1], "b": [2], "c": [3]}
    words = dictionary_words(own, {"a", "c"})
    assert words is not None and holds(words)
    own["b"] = [4]
    assert holds(words)
    for change in (lambda: own.update(c=[5]), lambda: own.pop("b"), lambda: own.update(d=[6])):
        words = dictionary_words(own, {"a", "c"})
        assert words is not None and holds(words)
        change()
        assert not holds(words)


def test_a_thread_has_entries_for_all_modes() -> None:
    """A later entry would change words that native calls compare."""
    found: list[set[str]] = []

    def work() -> None:
        before = set(vars(modes))
        with tracecomp.no_grad(), tracecomp.inference_mode():
            tracecomp.ones(2).sum()
        tracecomp.ones(2, requires_grad=True).sum().backward()
        found.append(set(vars(modes)) - before)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [set()]


def is_in_place(dictionary: dict[Any, Any], place: EntryPlace) -> bool:
    """As native code compares it."""
    keys, values = word_at(dictionary, DICT_KEYS), word_at(dictionary, DICT_VALUES)
    return (
        keys == place.keys
        and word_at(keys, KEYS_KIND) % (1 << 32) == place.kind
        and word_at(keys, place.key_at) == place.key_word
        and values == place.values
        and word_at(values or keys, place.value_at) == place.value_word
    )


MISSING = object()


@settings(max_examples=300)
@given(changes, changes, st.sampled_from(KEYS))
def test_a_value_in_the_same_place_is_the_same(before: Any, after: Any, key: Any) -> None:
    if dictionaries_have_versions():  # native code compares these, and dictionaries have other words
        return
    dictionary: dict[Any, Any] = {}
    for step in before:
        change(dictionary, *step)
    place = entry_place(dictionary, key)
    if place is None:  # a missing key, or much was deleted
        return
    was = dictionary[key]
    assert is_in_place(dictionary, place)
    for step in after:
        change(dictionary, *step)
        if is_in_place(dictionary, place):
            assert dictionary.get(key, MISSING) is was


@settings(max_examples=300)
@given(names, names, st.booleans(), st.sampled_from(NAMES))
def test_an_attribute_in_the_same_place_is_the_same(before: Any, after: Any, as_object: bool, name: str) -> None:
    if dictionaries_have_versions():
        return
    one, other = Owner(), Owner()
    for step in before:
        change_attribute(one, other, *step)
    own: Any = vars(one)
    place = entry_place(own, name)
    if place is None:
        return
    was = own.get(name, MISSING)
    assert is_in_place(own, place)
    for how, key, value in after:
        if as_object:
            change_attribute(one, other, how, key, value)
        else:
            change(own, how, key, value)
        if is_in_place(own, place):
            assert own.get(name, MISSING) is was


def test_names_and_attributes_of_programs_have_places() -> None:
    owner = Owner()
    known = not dictionaries_have_versions()
    for dictionary, name in ((globals(), "MISSING"), (vars(tracecomp), "relu"), (vars(owner), "a"), (vars(owner), "z")):
        place = entry_place(dictionary, name)
        assert not known or (place is not None and is_in_place(dictionary, place)), name
    assert entry_place({}, "a") is entry_place({"a": 1}, "b") is None

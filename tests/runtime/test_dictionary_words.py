"""Native code compares words of a dictionary if CPython keeps no version: equal words mean equal contents."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracecomp.runtime.object_layout import Word, dictionary_words

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


def test_attributes_that_share_their_keys_are_left_to_python() -> None:
    class Owner:
        def __init__(self) -> None:
            self.a, self.b = 1, 2

    one, _ = Owner(), Owner()
    own: Any = vars(one)
    words = dictionary_words(own)
    one.b = 3
    assert words is None or not holds(words)

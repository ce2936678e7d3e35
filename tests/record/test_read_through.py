"""Indirect reads of an object: its bound methods, all its attributes, its text."""

from __future__ import annotations

import functools
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as torch


class Owner:
    def __init__(self) -> None:
        self.k = 1

    def method(this, more: int = 0) -> int:  # whatever its first argument is called
        return this.k + more


found: Any = None


def _put(value: Any) -> None:
    global found
    found = value


def _attribute(owner: Any, name: str = "k") -> None:
    setattr(owner, name, 7)


Case = tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any], Callable[[Any], Any]]
METHODS: dict[str, Case] = {
    "get": (lambda: {"a": 1}, lambda o: o.get, lambda m: m("a"), lambda o: o.update(a=7)),
    "values": (lambda: {"a": 1}, lambda o: o.values, lambda m: sum(m()), lambda o: o.update(a=7)),
    "item": (lambda: [1, 2], lambda o: o.__getitem__, lambda m: m(0), lambda o: o.__setitem__(0, 7)),
    "count": (lambda: [1, 2], lambda o: o.count, lambda m: m(2), lambda o: o.append(2)),
    "length": (lambda: [1, 2], lambda o: o.__len__, lambda m: m(), lambda o: o.append(2)),
    "contains": (lambda: {1}, lambda o: o.__contains__, lambda m: 2 if m(1) else 3, lambda o: o.clear()),
    "index": (lambda: deque([1, 2]), lambda o: o.index, lambda m: m(2), lambda o: o.appendleft(5)),
    "sum": (lambda: np.ones(2), lambda o: o.sum, lambda m: float(m()), lambda o: o.fill(3.0)),
    "most common": (lambda: Counter("ab"), lambda o: o.most_common, lambda m: m(1)[0][1], lambda o: o.update("aa")),
    "own": (Owner, lambda o: o.method, lambda m: m(), _attribute),
    "mapped": (Owner, lambda o: o.method, lambda m: sum(map(m, [1, 2])), _attribute),
    "key": (Owner, lambda o: o.method, lambda m: sorted([2, 1], key=m)[0] * m(), _attribute),
    "partial": (Owner, lambda o: functools.partial(o.method, 2), lambda m: m(), _attribute),
}
"""The object's constructor, its method, the program's use of it, and the change of the object."""


def changed(make: Callable[[], Any], way: Callable[[Any], Any], use: Callable[[Any], Any], change: Any) -> None:
    """The object behind a global is changed between calls."""
    owner = make()
    _put(way(owner))
    compiled = torch.compile(lambda x: x * use(found))
    x = torch.ones(2)
    before = use(found)
    assert [float(compiled(x)[0]) for _ in range(3)] == [before] * 3
    change(owner)
    assert use(found) != before
    assert [float(compiled(x)[0]) for _ in range(2)] == [use(found)] * 2


@pytest.mark.parametrize("name", METHODS)
def test_the_object_of_a_bound_method(name: str) -> None:
    changed(*METHODS[name])


WHOLE: dict[str, Callable[[Any], Any]] = {
    "dir": lambda o: len(dir(o)),
    "vars": lambda o: len(vars(o)),
    "values of vars": lambda o: sum(vars(o).values()),
    "__dict__": lambda o: len(o.__dict__),
}


@pytest.mark.parametrize("name", WHOLE)
def test_an_attribute_that_is_new(name: str) -> None:
    changed(Owner, lambda o: o, WHOLE[name], lambda o: _attribute(o, "other"))


@pytest.mark.parametrize("text", [str, repr, "{}".format, "%s".__mod__, lambda o: f"{o}", lambda o: f"{o}"])
def test_texts_of_what_is_inside_of_something(text: Callable[[Any], str]) -> None:
    changed(lambda: {"a": [1]}, lambda o: o, lambda o: len(text(o)), lambda o: o["a"].append(77))

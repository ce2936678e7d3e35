"""Objects that a compiled call makes: each call has new ones, and one object stays one wherever it is left."""

from __future__ import annotations

import argparse
import io
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

import tracecomp as torch
from tracecomp.base.errors import CaptureError
from tracecomp.record.guards.varying_objects import rebuilds


class Cache:
    def __init__(self, first: Any) -> None:
        self.first = first
        self.items = [first]
        self.count = 0

    def add(self, x: Any) -> Cache:
        self.items.append(x)
        self.count += 1
        return self


@dataclass
class Record:
    value: Any
    number: int = 0


class Owner:
    def __init__(self) -> None:
        self.cache: Any = None
        self.log: list[Any] = []


def returned(owner: Any, x: Any) -> Any:
    return Cache(x * 2).add(x)


def returned_twice(owner: Any, x: Any) -> Any:
    cache = Cache(x * 2)
    return cache, {"again": [cache]}, cache.items


def record_returned_twice(owner: Any, x: Any) -> Any:
    record = Record(x * 2)
    return record, {"again": [record]}


def record_kept_and_returned(owner: Any, x: Any) -> Any:
    record = Record(x * 2)
    owner.log.append(record)
    return record


def within_each_other(owner: Any, x: Any) -> Any:
    inner = Cache(x)
    return Cache(Record(inner)).add(inner)


def holds_itself(owner: Any, x: Any) -> Any:
    cache = Cache(x * 2)
    cache.items.append(cache)
    return cache


def a_list_that_holds_itself(owner: Any, x: Any) -> Any:
    items = [x * 2]
    items.append(items)
    return items


def a_dictionary_that_holds_itself(owner: Any, x: Any) -> Any:
    items: dict[str, Any] = {"x": x * 2}
    items["again"] = [items, {"in": items}]
    return items["again"], x + 1


def a_record_that_holds_itself(owner: Any, x: Any) -> Any:
    record = Record(x * 2)
    record.value = [record, x + 1]
    owner.log.append((record, x))
    return record


def a_tuple_that_holds_itself(owner: Any, x: Any) -> Any:
    items = [x * 2]
    pair = (items, x)
    items.append(pair)
    return pair


def a_list_in_a_tuple_that_it_holds(owner: Any, x: Any) -> Any:
    items = [x * 2]
    items.append((items, x))
    owner.log.append(items)
    return x


def two_that_hold_each_other(owner: Any, x: Any) -> Any:
    one, other = Cache(x), Cache(x + 1)
    one.first, other.first = other, one
    return one, other


def made_once(owner: Any, x: Any) -> Any:
    if owner.cache is None:
        owner.cache = Cache(x)
    owner.cache.add(x * 2)
    return owner.cache


def made_changed_and_kept(owner: Any, x: Any) -> Any:
    owner.cache = Cache(x)
    owner.cache.add(x + 1)
    owner.log.append(owner.cache)
    owner.cache.add(x + 2)
    return owner.cache.items[-1]


def kept_twice(owner: Any, x: Any) -> Any:
    cache = Cache(x)
    owner.log.append(cache)
    cache.add(x)
    owner.log.append(cache.add(x * 3))
    return cache


def with_a_parent(owner: Any, x: Any) -> Any:
    cache = Cache(x)
    parent = Cache(cache)
    cache.parent = parent  # type: ignore[attr-defined]
    owner.cache = parent
    return cache.first


def in_a_dictionary(owner: Any, x: Any) -> Any:
    cache = Cache(x)
    owner.cache = {"one": cache, "all": [cache, cache]}
    del cache.count
    return x


def grows(owner: Any, x: Any) -> Any:
    if not owner.log:
        owner.log.append(Cache(x))
    else:
        owner.log[-1].add(x)
        owner.log = [*owner.log, owner.log[-1]]
    return owner.log[-1].first * 2


def as_an_attribute_of_a_tensor(owner: Any, x: Any) -> Any:
    y = x * 2
    y.cache = Cache(x)
    return y, y.cache


PROGRAMS: list[Callable[[Any, Any], Any]] = [
    returned, returned_twice, record_returned_twice, record_kept_and_returned, within_each_other, holds_itself,
    a_list_that_holds_itself, a_dictionary_that_holds_itself, a_record_that_holds_itself, a_tuple_that_holds_itself,
    a_list_in_a_tuple_that_it_holds,
    two_that_hold_each_other, made_once, made_changed_and_kept, kept_twice, with_a_parent, in_a_dictionary, grows,
    as_an_attribute_of_a_tensor,
]  # fmt: skip


def pictured(value: Any, met: dict[int, int]) -> Any:
    """The parts of a value, with the places where an object is met again."""
    if isinstance(value, int | float | str | type(None)):
        return value
    if id(value) in met:
        return f"object {met[id(value)]}"
    met[id(value)] = len(met)
    if isinstance(value, torch.Tensor):
        return value.tolist(), {k: pictured(v, met) for k, v in value.__dict__.items()}
    if isinstance(value, list | tuple):
        return [type(value).__name__, *[pictured(v, met) for v in value]]
    if isinstance(value, dict):
        return {k: pictured(v, met) for k, v in value.items()}
    return type(value).__name__, {k: pictured(v, met) for k, v in vars(value).items()}


@pytest.mark.filterwarnings("ignore:graph break")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_made_objects_are_those_of_eager_mode(program: Callable[[Any, Any], Any]) -> None:
    compiled = torch.compile(program)
    earlier: list[Any] = []
    for _ in range(3):
        owner, other = Owner(), Owner()
        for n in range(5):
            x = torch.ones(2) * n
            result, wanted = compiled(owner, x), program(other, x)
            assert pictured([owner, result], {}) == pictured([other, wanted], {}), n
            made = [r for r in (result if isinstance(result, tuple) else (result,)) if isinstance(r, Cache | Record)]
            assert program in (made_once, grows) or not any(m is e for m in made for e in earlier)
            earlier += made


def test_arguments_that_hold_themselves_are_taken_by_eager_calls() -> None:
    compiled = torch.compile(lambda items: items[0] * 2)
    whole = torch.compile(lambda items: items[0] * 2, fullgraph=True)
    for n in range(3):
        items: list[Any] = [torch.ones(2) * n]
        items.append(items)
        assert compiled(items).tolist() == [2.0 * n, 2.0 * n]
        with pytest.raises(CaptureError, match="holds itself"):
            whole(items)


def test_calls_that_make_objects_are_served_by_one_recording() -> None:
    for program in (
        returned, returned_twice, record_returned_twice, within_each_other, holds_itself, a_list_that_holds_itself,
        a_dictionary_that_holds_itself, two_that_hold_each_other,
    ):  # fmt: skip
        compiled = torch.compile(program, fullgraph=True)
        owner = Owner()
        for n in range(4):
            compiled(owner, torch.ones(2) * n)
        assert compiled.recordings == 1, program.__name__


class Plain:
    def __init__(self) -> None:
        self.x = 1


class Slotted(Plain):
    __slots__ = ("y",)


class Options(argparse.Namespace):
    """Only its attributes matter."""


class Reader(io.RawIOBase):
    """Its base class in C has a dictionary and weak references, and closes files."""


@pytest.mark.parametrize(
    ("kind", "rebuilt"),
    [(Plain, True), (Options, True), (Slotted, False), (Reader, False), (io.StringIO, False),
     (random.Random, False), (threading.local, False), (SimpleNamespace, False)],
)  # fmt: skip
def test_objects_with_state_beside_their_attributes_are_not_rebuilt(kind: type, rebuilt: bool) -> None:
    """Classes in C are on the heap in newer Pythons too, as those that Python code makes."""
    assert rebuilds(kind) == rebuilt

"""Values that are equal and not identical: a program that uses one must not run for the other."""

from __future__ import annotations

import dataclasses
import types
from collections import Counter, UserDict, deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import tracecomp as torch
from tracecomp.record.guards.snapshots import freeze, whole
from tracecomp.record.same_values import Keys, plain, same_number

PAIRS: tuple[tuple[Any, Any], ...] = (
    (0.0, -0.0), (1, True), (1, 1.0), (True, 1.0), (0j, -0j), (complex(0.0, 1.0), complex(-0.0, 1.0)),
    (np.float32(0.0), np.float32(-0.0)), (np.float32(1.0), 1.0), (np.int64(1), 1), ((1, 2), (1.0, 2)),
    ((0.0, (0.0,)), (0.0, (-0.0,))), ("1", b"1"),
)  # fmt: skip
"""Python finds most pairs equal."""


@dataclasses.dataclass
class Data:
    value: Any


class Named(NamedTuple):
    value: Any


class Holder:
    pass


place: Any = None
holder: Any = Holder()
names: dict[str, Any] = {}
module = torch.nn.Identity()


def _global() -> Any:
    return place


def _put_global(value: Any) -> None:
    global place
    place = value


FOUND: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "argument": (lambda v: v, lambda a: a),
    "in a tuple": (lambda v: (v, 1), lambda a: a[0]),
    "in a list": (lambda v: [v], lambda a: a[0]),
    "in a dictionary": (lambda v: {"a": v}, lambda a: a["a"]),
    "key": (lambda v: {v: 1}, lambda a: next(iter(a))),
    "in a frozen set": (lambda v: frozenset([v]), lambda a: next(iter(a))),
    "in a data class": (Data, lambda a: a.value),
    "in a named tuple": (Named, lambda a: a.value),
    "in a namespace": (lambda v: types.SimpleNamespace(a=v), lambda a: a.a),
    "in a deque": (lambda v: deque([v]), lambda a: a[0]),
    "in a user's dictionary": (lambda v: UserDict({"a": v}), lambda a: a["a"]),
    "counted": (lambda v: Counter([v]), lambda a: next(iter(a))),
    "global": (_put_global, lambda a: _global()),
    "attribute": (lambda v: setattr(holder, "value", v), lambda a: holder.value),
    "of the class": (lambda v: setattr(Holder, "kept", v), lambda a: Holder.kept),  # type: ignore[attr-defined]
    "entry": (lambda v: names.__setitem__("a", v), lambda a: names["a"]),
    "keys of a global": (lambda v: (names.clear(), names.__setitem__(v, 1)), lambda a: next(iter(names))),
    "attribute of a module": (lambda v: setattr(module, "value", v), lambda a: module.value),
}
"""Places of values in a program: the setup and an argument, and the expression that reads it."""

TOLD = {
    text: float(number)
    for number, text in enumerate(dict.fromkeys(f"{type(v).__name__} {v!r}" for pair in PAIRS for v in pair))
}  # fmt: skip


@pytest.mark.sampled(7)
@pytest.mark.parametrize("where", FOUND)
def test_equal_values_are_told_apart(where: str) -> None:
    put, find = FOUND[where]
    x = torch.ones(3)

    def fn(x: Any, a: Any) -> Any:
        value = find(a)
        return x * TOLD[f"{type(value).__name__} {value!r}"]

    for number, (one, two) in enumerate(PAIRS):
        compiled = torch.compile(fn, backend="interpret" if number else "native")
        for value in (one, one, two, one, two):
            given = put(value)
            assert float(compiled(x, given)[0]) == TOLD[f"{type(value).__name__} {value!r}"], (one, two)


@pytest.mark.parametrize(("one", "two"), PAIRS)
def test_results_have_the_types_and_signs_of_eager_ones(one: Any, two: Any) -> None:
    if not isinstance(one, bool | int | float | complex | np.generic):
        return
    x: Any = torch.tensor([1, 2])
    compiled = torch.compile(lambda x, v: x * v)
    for value in (one, one, two, one, two, two):
        found, wanted = compiled(x, value), x * value
        assert found.dtype is wanted.dtype
        assert found.numpy().tobytes() == wanted.numpy().tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", object])
def test_arrays_are_told_apart_by_their_bits(dtype: Any) -> None:
    compiled = torch.compile(lambda x, a: torch.copysign(x, complex(a[0]).real))
    for value in (0.0, 0.0, -0.0, 0.0, -0.0):
        array = np.array([value], dtype)
        assert float(compiled(torch.ones(1), array)) == np.copysign(1.0, value)


def _like(kind: type, attribute: int) -> Any:
    made = type(f"Own{kind.__name__}", (kind,), {})("a" if kind is str else 1.0 if kind is float else (1,))
    made.k = attribute
    return made


OBJECTS = [str, float, tuple, list, set, frozenset]


@pytest.mark.parametrize("kind", OBJECTS)
def test_attributes_on_what_is_a_value_by_its_class(kind: type) -> None:
    """Another object, and the same one with another attribute."""
    compiled = torch.compile(lambda x, o: x * o.k)
    x, objects = torch.ones(2), [_like(kind, k) for k in (1, 1, 2, 1)]
    for value in (*objects, objects[0]):
        assert float(compiled(x, value)[0]) == value.k
    for k in (1, 1, 3, 1, 3):
        objects[0].k = k
        assert float(compiled(x, objects[0])[0]) == k


class Equal:
    """All are equal."""

    def __init__(self, k: int) -> None:
        self.k = k

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)

    def __hash__(self) -> int:
        return 1


def containers(x: Equal) -> Iterator[Any]:
    """Objects where they are found by going through."""
    yield {x}
    yield frozenset([x])
    yield {x: 1}
    yield Counter([x])


@pytest.mark.parametrize("number", range(4))
def test_objects_among_keys_and_in_sets_are_seen(number: int) -> None:
    compiled = torch.compile(lambda x, o: x * next(iter(o)).k)
    x, given = torch.ones(2), [list(containers(Equal(k)))[number] for k in (1, 1, 2, 1)]
    for one in given:
        assert float(compiled(x, one)[0]) == next(iter(one)).k
    for k in (1, 1, 3, 1, 3):
        next(iter(given[0])).k = k
        assert float(compiled(x, given[0])[0]) == k


@pytest.mark.parametrize("kind", [set, frozenset])
def test_large_sets_are_compared_whole(kind: Any) -> None:
    compiled = torch.compile(lambda x, s: x * (2 if 5 in s else 3))
    for first in (0, 0, 100, 0, 100):
        assert float(compiled(torch.ones(1), kind(range(first, first + 3000)))) == (3 if first else 2)


def test_snapshots() -> None:
    for one, two in PAIRS:
        for way in (freeze, whole, plain, lambda v: Keys((v,))):
            assert way(one) == way(one)
            assert way(one) != way(two)
    nan = float("nan")
    assert plain(nan) == plain(float("nan")) and hash(plain(nan)) == hash(plain(float("nan")))
    assert same_number(complex(nan, 1), complex(nan, 1)) and not same_number(complex(nan, 0.0), complex(nan, -0.0))
    assert Keys((1, "a")) == (1, "a") and Keys((1, "a")) != (1.0, "a")


NUMBERS: dict[str, Callable[[Any, Any], Any]] = {
    "argument": lambda x, v: v * (2 if type(v) is float else 3),
    "attribute": lambda x, v: holder.value * (2 if type(holder.value) is float else 3),
    "element": lambda x, v: float(x[0]) * (2 if type(x.tolist()[0]) is float else 3),
    "value of a tensor": lambda x, v: x[0].item() * (2 if type(x[0].item()) is float else 3),
    "types of several": lambda x, v: v * (2 if list(map(type, [v, x[0].item()])) == [float] * 2 else 3),
}


@pytest.mark.filterwarnings("ignore")  # that it is recorded for every number
@pytest.mark.parametrize("where", NUMBERS)
def test_the_type_of_a_number_that_varies(where: str) -> None:
    """The number that replaces a varying one has a separate type."""
    compiled = torch.compile(lambda x, v: x * NUMBERS[where](x, v))
    for number in (1.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0):
        holder.value = number
        x = torch.full((2,), number)
        assert float(compiled(x, number)[0]) == number * number * 2

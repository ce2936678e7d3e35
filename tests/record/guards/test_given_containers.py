"""Lists, dicts and dataclasses among the arguments: which are one object, and which are also found elsewhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

import tracecomp as torch

pytestmark = pytest.mark.filterwarnings("ignore:graph break in")


@dataclasses.dataclass
class Box:
    """A mutable argument with one field."""

    value: Any


OUTSIDE: dict[str, Any] = {}
"""Globals of the programs below, by kind; reset for each test."""


def _grow(value: Any) -> None:
    if isinstance(value, Box):
        value.value += 1
    elif isinstance(value, list):
        value.append(1)
    else:
        value[len(value)] = 1


def _size(value: Any) -> int:
    return value.value if isinstance(value, Box) else len(value)


def compares(x: Any, a: Any, b: Any) -> Any:
    return x * 2 if a is b else x * 3


def compares_with_a_global(x: Any, a: Any, b: Any) -> Any:
    return x * 2 if a is OUTSIDE["one"] else x * 3


def changes_one(x: Any, a: Any, b: Any) -> Any:
    _grow(a)
    return x * _size(b)


def changes_a_global(x: Any, a: Any, b: Any) -> Any:
    _grow(OUTSIDE["one"])
    return x * _size(a) + _size(b)


def changes_one_and_reads_a_global(x: Any, a: Any, b: Any) -> Any:
    _grow(b)
    return x * _size(OUTSIDE["one"])


def returns_one(x: Any, a: Any, b: Any) -> Any:
    _grow(b)
    return x * _size(a), b


PROGRAMS = [
    compares, compares_with_a_global, changes_one, changes_a_global, changes_one_and_reads_a_global, returns_one,
]  # fmt: skip
KINDS: dict[str, Callable[[], Any]] = {"list": lambda: [1], "dict": lambda: {0: 1}, "dataclass": lambda: Box(1)}
WHICH = ("one", "other", "new")


def _run(fn: Callable[..., Any], kind: str, order: list[tuple[str, str]], nested: bool) -> list[Any]:
    found = []
    make = KINDS[kind]
    for first, second in order:
        OUTSIDE.clear()
        OUTSIDE.update(KEPT[kind])
        for name in ("one", "other"):
            made = make()
            if isinstance(made, Box):
                OUTSIDE[name].value = made.value
            else:
                OUTSIDE[name].clear()
                (OUTSIDE[name].extend if isinstance(made, list) else OUTSIDE[name].update)(made)
        a, b = (OUTSIDE[name] if name in OUTSIDE else make() for name in (first, second))
        if first == second == "new":
            b = a
        result = fn(torch.ones(2), [a, b]) if nested else fn(torch.ones(2), a, b)
        is_b = None
        if isinstance(result, tuple):
            result, other = result
            is_b = other is b
        found.append((first, second, result.tolist(), is_b, _size(a), _size(b), _size(OUTSIDE["one"])))
    return found


KEPT = {kind: {"one": make(), "other": make()} for kind, make in KINDS.items()}


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_sharing_is_that_of_each_call(program: Callable[..., Any], kind: str, nested: bool) -> None:
    def of_list(x: Any, pair: Any) -> Any:
        return program(x, pair[0], pair[1])

    fn = of_list if nested else program
    pairs = list(product(WHICH, WHICH))
    order = [pair for first in pairs for pair in (first, first, *pairs)]
    assert _run(torch.compile(fn), kind, order, nested) == _run(fn, kind, order, nested)


def test_containers_that_are_only_read_take_one_recording() -> None:
    compiled = torch.compile(lambda x, a, b: x * len(a) + b[0])
    one, other = [2], [2]
    for a, b in ((one, one), (one, other), (other, one), ([2], [2])):
        assert compiled(torch.ones(2), a, b).tolist() == [3.0, 3.0]
    assert compiled.recordings == 1

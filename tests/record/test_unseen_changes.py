"""Containers and objects that code in C or of the standard library changes: later calls change them, too."""

from __future__ import annotations

import bisect
import copy
import dataclasses
import functools
import heapq
import operator
import random
from collections.abc import Callable
from typing import Any

import pytest

import tracecomp as torch

pytestmark = pytest.mark.filterwarnings("ignore:graph break in")


@dataclasses.dataclass
class Box:
    """An object with one field."""

    a: Any


def _set_unseen(box: Any) -> None:
    copy._reconstruct(Box(0), None, lambda: box, (), {"b": 7})  # type: ignore[attr-defined]


CHANGES: dict[str, Callable[[Any], Any]] = {
    "push": lambda v: heapq.heappush(v, 1),
    "insert": lambda v: bisect.insort(v, 1),
    "insert by key": lambda v: bisect.insort(v, 1, key=lambda x: -x),
    "extend": lambda v: operator.iadd(v, [4]),
    "assign": lambda v: operator.setitem(v, 0, 9),
    "order": lambda v: heapq.heapify(v),
    "reduce": lambda v: functools.reduce(operator.iadd, [[5], [6]], v),
    "callback": lambda v: list(map(v.append, [7, 8])),
    "shuffle": lambda v: random.Random(1).shuffle(v),
}
AROUND: dict[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    "alone": lambda v, change: change(v),
    "after an effect": lambda v, change: (v.append(3), change(v)),
    "before an effect": lambda v, change: (change(v), v.append(3)),
    "between effects": lambda v, change: (v.append(3), change(v), v.append(2)),
    "nested": lambda v, change: ([v][0].append(3), change([v][0])),
}
KEPT: list[int] = []


@pytest.mark.parametrize("outside", [False, True], ids=["argument", "global"])
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("change", CHANGES)
def test_lists(change: str, around: str, outside: bool) -> None:
    def program(x: Any, values: list[int]) -> Any:
        values = KEPT if outside else values
        AROUND[around](values, CHANGES[change])
        return x * len(values)

    def calls(fn: Callable[..., Any]) -> list[Any]:
        found = []
        for _ in range(5):
            values = [5, 3, 4]
            KEPT[:] = values
            found.append((fn(torch.ones(2), values).tolist(), values, [*KEPT]))
        return found

    assert calls(torch.compile(program)) == calls(program)


def test_dicts() -> None:
    def program(x: Any, values: dict[str, int]) -> Any:
        values["a"] = 2
        operator.setitem(values, "b", 3)
        values["c"] = operator.ior(values, {"d": 5})["d"]
        return x * len(values)

    def calls(fn: Callable[..., Any]) -> list[Any]:
        found = []
        for n in range(5):
            values = {"z": n}
            found.append((fn(torch.ones(2), values).tolist(), [*values.items()]))
        return found

    assert calls(torch.compile(program)) == calls(program)


def test_objects() -> None:
    def program(x: Any, box: Any) -> Any:
        box.a = x + 1
        _set_unseen(box)
        box.c = 3
        return x * 2

    def calls(fn: Callable[..., Any]) -> list[Any]:
        found = []
        for n in range(5):
            box: Any = Box(n)
            result = fn(torch.full((2,), float(n)), box)
            found.append((result.tolist(), box.a.tolist(), box.b, box.c))
        return found

    assert calls(torch.compile(program)) == calls(program)

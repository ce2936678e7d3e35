"""Effects reach the objects that were there before the call, wherever the call has put them meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracecomp as torch

pytestmark = pytest.mark.filterwarnings("ignore:graph break in", "ignore:.* spent ")


class Part:
    """A value in an attribute that programs change."""

    def __init__(self, value: Any = 0) -> None:
        self.value = value


KEPT: dict[str, Any] = {"part": Part(), "items": []}
"""Objects that programs find outside of their arguments."""


def replaces_an_attribute(d: Any, x: Any) -> Any:
    old = d["part"].value
    d["part"].value = Part()
    old.append(x + 1)
    return x


def replaces_an_entry(d: Any, x: Any) -> Any:
    old = d["part"]
    d["part"] = Part()
    old.value = x + 1
    return x


def swaps_entries(d: Any, x: Any) -> Any:
    d["part"], d["other"] = d["other"], d["part"]
    d["part"].value = x + 1
    d["other"].value = x + 2
    return x


def removes_an_entry(d: Any, x: Any) -> Any:
    old = d.pop("part")
    old.value = x + 1
    return x


def moves_an_element(d: Any, x: Any) -> Any:
    d["items"].insert(0, d["items"].pop())
    d["items"][0].value = x + 1
    return x


def moves_what_it_has_not_read(d: Any, x: Any) -> Any:
    d["moved"].update(d["more"])
    d["moved"]["part"].value = x + 1
    return x


def joins_lists(d: Any, x: Any) -> Any:
    d["items"] += d["further"]
    d["items"][-1].value = x + 1
    d["items"].reverse()
    d["items"][0].value = x + 2
    return x


def adds_in_place(d: Any, x: Any) -> Any:
    d["items"] += [x + 1]
    items = d["further"]
    items += d["items"]
    items *= 2
    d["set"] |= {1, 2}
    d["set"] -= {2, 3}
    d["moved"] |= d["more"]
    return x


def adds_to_what_it_has_not_read(d: Any, x: Any) -> Any:
    exec("d['items'] += d['further']", {"d": d})
    d["items"].reverse()
    return x


def returns_what_it_replaces(d: Any, x: Any) -> Any:
    old = d["part"]
    d["part"] = Part(x)
    return old, d["part"].value


def replaces_a_global(d: Any, x: Any) -> Any:
    old = KEPT["part"]
    KEPT["part"] = d["part"]
    old.value = x + 1
    KEPT["part"].value = x + 2
    return x


PROGRAMS = [value for value in list(globals().values()) if getattr(value, "__module__", "") == __name__]
PROGRAMS = [value for value in PROGRAMS if not isinstance(value, type)]


def given() -> dict[str, Any]:
    """Arguments of a call: the same objects in several places."""
    parts = [Part([]), Part(), Part(), Part(), Part(), Part()]
    return {
        "part": parts[0], "other": parts[1], "items": [parts[2], parts[3]], "further": [parts[4]],
        "moved": {"part": parts[1]}, "more": {"part": parts[5]}, "all": parts, "list": parts[0].value, "set": {3, 4},
    }  # fmt: skip


def seen(value: Any, numbers: dict[int, int]) -> Any:
    """The value as data, with the identities of its objects."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, set):
        return "set", sorted(value)
    if not isinstance(value, Part | list | dict | tuple):
        return value
    if id(value) in numbers:
        return numbers[id(value)]
    numbers[id(value)] = len(numbers)
    if isinstance(value, Part):
        return "part", seen(value.value, numbers)
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    return type(value).__name__, [(key, seen(part, numbers)) for key, part in parts]


@pytest.mark.parametrize("program", PROGRAMS)
def test_effects_reach_the_objects_of_eager_mode(program: Callable[..., Any]) -> None:
    compiled = torch.compile(program)
    for n in range(5):
        found = []
        for run in (program, compiled):
            before = KEPT["part"] = Part()
            d, x = given(), torch.full((2,), float(n))
            everything = d["all"], d["list"], before, run(d, x), d, KEPT
            found.append(seen(everything, {}))
        assert found[0] == found[1]

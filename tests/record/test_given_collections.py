"""Arguments that are containers of other classes than lists and dicts: calls change and return the ones they get."""

from __future__ import annotations

from array import array
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import tracecomp as torch


class OwnList(list[Any]):
    pass


class OwnDict(dict[Any, Any]):
    pass


class OwnSet(set[Any]):
    pass


class Empty:
    """An object without attributes."""


MAKE: dict[str, Callable[[], Any]] = {
    "set": lambda: {1},
    "frozenset": lambda: frozenset([1]),
    "deque": lambda: deque([1]),
    "Counter": lambda: Counter("a"),
    "namespace": lambda: SimpleNamespace(a=1),
    "subclass of list": lambda: OwnList([1]),
    "subclass of dict": lambda: OwnDict(a=1),
    "subclass of set": lambda: OwnSet([1]),
    "OrderedDict": lambda: OrderedDict(a=1),
    "defaultdict": lambda: defaultdict(int, a=1),
    "UserList": lambda: UserList([1]),
    "UserDict": lambda: UserDict(a=1),
    "ChainMap": lambda: ChainMap({"a": 1}),
    "bytearray": lambda: bytearray(b"a"),
    "array": lambda: array("i", [1]),
    "list": lambda: [1],
    "dict": lambda: {"a": 1},
    "namespaces": lambda: SimpleNamespace(a=SimpleNamespace(b=1)),
    "object": Empty,
}
FOUND: Any = None


class Owner:
    def __init__(self) -> None:
        self.kept: Any = None
        self.found: Any = None


def change(c: Any) -> Any:
    if isinstance(c, set):
        c.add(7)
    elif isinstance(c, list | deque | bytearray | array | UserList):
        c.append(7)
    elif isinstance(c, SimpleNamespace | Empty):
        c.k = 7
    elif not isinstance(c, frozenset):
        c["k"] = 7
    return c


def length(c: Any) -> int:
    return len(c) if hasattr(c, "__len__") else len(vars(c))


def changed(a: Any, b: Any, owner: Any, x: Any) -> Any:
    change(a)
    return x + length(b)


def changed_within(a: Any, b: Any, owner: Any, x: Any) -> Any:
    change([a][0])
    return x + 1, [a, {"b": b}]


def returned(a: Any, b: Any, owner: Any, x: Any) -> Any:
    return x + 1, a, (b, [b])


def kept(a: Any, b: Any, owner: Any, x: Any) -> Any:
    owner.kept = [a, b]
    return x + 1


def compared(a: Any, b: Any, owner: Any, x: Any) -> Any:
    return x + (1 if a is b else 2) + (4 if a is FOUND else 8)


def found_and_kept(a: Any, b: Any, owner: Any, x: Any) -> Any:
    owner.kept = owner.found
    return x + 1, FOUND, [owner.found]


def found_and_changed(a: Any, b: Any, owner: Any, x: Any) -> Any:
    change(FOUND)
    return x + length(owner.found), FOUND


def changed_elsewhere(a: Any, b: Any, owner: Any, x: Any) -> Any:
    """The container that is changed is another object in every call, and may be the argument."""
    change(FOUND)
    return x + length(a)


def changed_here(a: Any, b: Any, owner: Any, x: Any) -> Any:
    change(a)
    return x + length(FOUND) + length(b)


USES: list[Callable[..., Any]] = [
    changed, changed_within, returned, kept, compared, found_and_kept, found_and_changed, changed_elsewhere,
    changed_here,
]  # fmt: skip


def pictured(v: Any, names: dict[int, str]) -> Any:
    """A value, in which containers that it was given have their names."""
    if id(v) in names:
        return names[id(v)], repr(v) if not isinstance(v, Empty) else vars(v)
    if isinstance(v, torch.Tensor):
        return v.tolist()
    if isinstance(v, dict):
        return {k: pictured(x, names) for k, x in v.items()}
    return [pictured(x, names) for x in v] if isinstance(v, list | tuple) else v


@pytest.mark.filterwarnings("ignore:graph break", "ignore:.*runs as Python")
@pytest.mark.parametrize("lasting", [1, 4], ids=["", "lasting"])  # calls that find one container
@pytest.mark.parametrize("use", USES, ids=lambda u: u.__name__)
@pytest.mark.parametrize("name", MAKE)
def test_calls_use_the_containers_that_they_are_given(name: str, use: Callable[..., Any], lasting: int) -> None:
    global FOUND
    make, compiled, alive = MAKE[name], torch.compile(use), []
    lasts: dict[Any, Any] = {}
    patterns = ["ab", "ab", "aa", "ab", "aa", "fb", "ff", "ab", "fb", "aa", "ab", "ab", "fb", "ab"]
    for n, pattern in enumerate(patterns):
        told = []
        for f in (compiled, use):
            if n % lasting == 0:
                lasts[f] = make()
            a, b, found, owner = make(), make(), lasts[f], Owner()
            FOUND = owner.found = found
            named = {"a": a, "b": b, "f": found}
            alive.append(named)
            given = [named[letter] for letter in pattern]
            result = f(*given, owner, torch.ones(1))
            names = {id(v): k for k, v in named.items()}
            told.append(pictured([result, owner.kept, a, b, found], names))
        assert told[0] == told[1], str((pattern, told))

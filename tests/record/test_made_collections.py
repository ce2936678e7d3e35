"""Containers of Python's library that a compiled call makes: every call has new ones, as in eager mode."""

from __future__ import annotations

import functools
import itertools
from array import array
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque, namedtuple
from collections.abc import Callable
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

import tracecomp as torch

Pair = namedtuple("Pair", ["x", "y"])


class Owner:
    def __init__(self) -> None:
        self.kept: Any = None
        self.log: list[Any] = []


class Plain:
    def __init__(self, item: Any) -> None:
        self.item = item


class Mine:
    """An object with the hash of its identity."""


class Hashed:
    """An object whose class defines its hash."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hashed) and self.number == other.number


class Numbered(list[Any]):
    """A list that may be a key."""

    __hash__ = object.__hash__  # type: ignore[assignment]


MAKE: dict[str, Callable[[Any, int], Any]] = {
    "set": lambda x, n: {15, 7, n},
    "set of strings": lambda x, n: set("some letters"),
    "set of tensors": lambda x, n: {x * 2, x},
    "set of numbers": lambda x, n: {float(x.sum()), "a"},
    "frozenset of numbers": lambda x, n: frozenset([float(x.sum()), n]),
    "set of tuples": lambda x, n: {(1, x * 2), (n, x)},
    "set of objects": lambda x, n: {Mine(), Plain(x * 2)},
    "many": lambda x, n: set(range(0, 400, 7)) - {14, 21},
    "frozenset": lambda x, n: frozenset([15, 7, n]),
    "frozenset of tensors": lambda x, n: frozenset([x * 2]),
    "frozenset of objects": lambda x, n: frozenset([Plain(x * 2)]),
    "frozenset of frozensets": lambda x, n: {frozenset([1, n]), frozenset([frozenset([n])])},
    "deque": lambda x, n: deque([x * 2, n, [n]]),
    "bounded deque": lambda x, n: deque([x * 2, n, 3, 4], maxlen=3),
    "deque of a number": lambda x, n: _appended(deque(), float(x.sum())),
    "Counter": lambda x, n: Counter("letters"),
    "Counter of tensors": lambda x, n: Counter({"a": x * 2, "b": n, "c": float(x.sum())}),
    "defaultdict": lambda x, n: defaultdict(list, {"a": [x * 2], n: n}),
    "OrderedDict": lambda x, n: OrderedDict([("b", x * 2), ("a", n)]),
    "keys of objects": lambda x, n: {Plain(x): x * 2},
    "keys of tensors": lambda x, n: {x * 2: n},
    "keys of frozensets": lambda x, n: {frozenset([n]): x, (1, frozenset("ab")): n},
    "namespace": lambda x, n: SimpleNamespace(a=x * 2, b=[n], c=float(x.sum())),
    "ChainMap": lambda x, n: ChainMap({"a": x * 2}, {"b": n}),
    "UserDict": lambda x, n: UserDict(a=x * 2, b=n),
    "UserList": lambda x, n: UserList([x * 2, n]),
    "named tuple": lambda x, n: Pair({n}, deque([x])),
    "proxy": lambda x, n: MappingProxyType({"a": x * 2}),
    "keys": lambda x, n: {"a": x * 2}.keys(),
    "values": lambda x, n: {"a": [x * 2]}.values(),
    "partial": lambda x, n: functools.partial(max, [n]),
    "partial of a tensor": lambda x, n: functools.partial(max, x * 2),
    "partial of a number": lambda x, n: functools.partial(max, float(x.sum()), n),
    "function of a number": lambda x, n: (lambda item: lambda: [item, n])(float(x.sum())),
    "nested numbers": lambda x, n: ({n}, deque([(n,)]), frozenset([(n,)]), SimpleNamespace(a=(n,)), Plain({(n,): n})),
    "bound method": lambda x, n: [n].append,
    "function": lambda x, n: (lambda items: lambda: items)([n]),
    "function with a default": lambda x, n: _function([n]),
    "bytearray": lambda x, n: bytearray([n, 2]),
    "array": lambda x, n: array("i", [n, 2]),
    "memoryview": lambda x, n: memoryview(bytearray([n, 2])),
    "error": lambda x, n: ValueError([n]),
    "iterator": lambda x, n: itertools.count(n),
    "object": lambda x, n: object(),
    "objects with a hash": lambda x, n: {Hashed(n)},
    "subclass of list": lambda x, n: Numbered([n]),
    "list iterator": lambda x, n: iter([n, 2]),
}  # fmt: skip


def _appended(items: Any, value: Any) -> Any:
    items.append(value)
    return items


def _function(items: Any) -> Any:
    def fn(items: Any = items) -> Any:
        return items

    return fn


def change(c: Any, n: int) -> None:
    """Change a container, in the call or outside of calls."""
    if isinstance(c, set):
        c.add(n + 100)
        c.discard(15)
    elif isinstance(c, deque | list | UserList):
        c.append(n)
    elif isinstance(c, dict | ChainMap | UserDict):
        c["new"] = n
    elif isinstance(c, SimpleNamespace):
        c.new = n
    elif isinstance(c, bytearray | array):
        c.append(n)
    elif isinstance(c, functools.partial) and isinstance(c.args[0], list):
        c.args[0].append(n)
    elif isinstance(c, Pair):
        c.x.add(n)
    elif isinstance(c, ValueError):
        c.args[0].append(n)
    elif callable(c) and hasattr(c, "__closure__"):
        c().append(n)
    elif callable(c) and isinstance(getattr(c, "__self__", None), list):
        c(n)


KEPT: Any = None


def returned(make: Any, owner: Any, cell: Any, x: Any, n: int) -> Any:
    return make(x, n)


def returned_twice(make: Any, owner: Any, cell: Any, x: Any, n: int) -> Any:
    c = make(x, n)
    return c, [c], {"c": c}


def changed_and_returned(make: Any, owner: Any, cell: Any, x: Any, n: int) -> Any:
    c = make(x, n)
    change(c, n)
    return x + 1, c


def kept(make: Any, owner: Any, cell: Any, x: Any, n: int) -> Any:
    owner.kept = make(x, n)
    return x + 1


def kept_changed_and_returned(make: Any, owner: Any, cell: Any, x: Any, n: int) -> Any:
    owner.kept = make(x, n)
    owner.log.append(owner.kept)
    change(owner.kept, n)
    return owner.kept


def kept_in_a_global(make: Any, owner: Any, cell: Any, x: Any, n: int) -> Any:
    global KEPT
    KEPT = make(x, n)
    return x + 1, KEPT


def kept_in_a_closure(make: Any, owner: Any, cell: Any, x: Any, n: int) -> Any:
    cell(make(x, n))
    return x + 1


def changed_by_the_next(make: Any, owner: Any, cell: Any, x: Any, n: int) -> Any:
    if owner.kept is None:
        owner.kept = make(x, n)
    else:
        change(owner.kept, n)
    return x + 1


def all_kept(make: Any, owner: Any, cell: Any, x: Any, n: int) -> Any:
    owner.log.append(make(x, n))
    owner.log.append([make(x, n)])
    return x + 1


def in_an_object(make: Any, owner: Any, cell: Any, x: Any, n: int) -> Any:
    owner.kept = Plain(make(x, n))
    return owner.kept, Plain({"a": owner.kept.item})


USES: list[Callable[..., Any]] = [
    returned, returned_twice, changed_and_returned, kept, kept_changed_and_returned, kept_in_a_global,
    kept_in_a_closure, changed_by_the_next, all_kept, in_an_object,
]  # fmt: skip


def pictured(v: Any, met: dict[int, int]) -> Any:
    """The contents of a value in their order, with the places where a changeable object is met again."""
    kind = type(v).__name__
    if isinstance(v, int | float | str | type(None) | range | bytes):
        return f"{kind} {v!r}"
    if isinstance(v, set | frozenset):
        parts: Any = sorted([pictured(k, dict(met)) for k in v], key=str)
    elif isinstance(v, tuple):
        parts = [pictured(k, met) for k in v]
    if isinstance(v, frozenset | tuple):  # which equal one is never of interest
        return kind, parts
    if id(v) in met:
        return f"object {met[id(v)]}"
    met[id(v)] = len(met)
    if isinstance(v, set):
        return kind, parts
    if isinstance(v, torch.Tensor):
        return kind, v.tolist()
    if isinstance(v, dict | MappingProxyType | ChainMap | UserDict):
        factory = getattr(v, "default_factory", None)
        return kind, factory, [(pictured(k, met), pictured(x, met)) for k, x in v.items()]
    if isinstance(v, functools.partial | ValueError):
        return kind, pictured(v.args, met)
    if isinstance(getattr(v, "__self__", None), list):
        return kind, pictured(v.__self__, met)
    if isinstance(v, itertools.count):
        return repr(v)
    if callable(v) and hasattr(v, "__closure__"):
        return kind, pictured(v(), met)
    if hasattr(v, "__dict__") and not isinstance(v, UserList):
        return kind, {k: pictured(x, met) for k, x in v.__dict__.items()}
    return kind, getattr(v, "maxlen", None), [pictured(k, met) for k in v] if hasattr(v, "__iter__") else []


def shared(name: str) -> tuple[Callable[[Any], None], Callable[[], Any]]:
    held: Any = None

    def put(value: Any) -> None:
        nonlocal held
        held = value

    return put, lambda: held


@pytest.mark.filterwarnings("ignore:graph break", "ignore:.*runs as Python")
@pytest.mark.parametrize("use", USES, ids=lambda u: u.__name__)
@pytest.mark.parametrize("name", MAKE)
def test_made_containers_are_those_of_eager_mode(name: str, use: Callable[..., Any]) -> None:
    global KEPT
    KEPT, make = None, MAKE[name]
    compiled = torch.compile(use)
    states: list[list[Any]] = [[], []]
    for _ in range(2):
        runs = [(f, Owner(), *shared(name), states[k]) for k, f in enumerate((compiled, use))]
        for n in (1, 1, 1, 15, 1):
            told = []
            for f, owner, put, get, earlier in runs:
                x = torch.ones(2) * len(earlier)
                result = f(make, owner, put, x, n)
                state = [result, owner, get(), KEPT]
                told.append(pictured([earlier, state], {}))
                for c in (result, owner.kept, get(), *(result if isinstance(result, tuple) else ())):
                    change(c, n + 1)
                earlier.append(result)
            assert told[0] == told[1], f"{n}\n{told[0]}\n{told[1]}"


def test_calls_that_make_collections_are_served_by_recordings() -> None:
    kinds = ("set", "set of strings", "set of tensors", "many", "frozenset", "deque", "bounded deque", "Counter",
             "Counter of tensors", "namespace", "frozenset of frozensets")  # fmt: skip
    for name in kinds:
        for use in (returned, returned_twice, kept):
            compiled = torch.compile(use, fullgraph=True)
            for _ in range(4):
                compiled(MAKE[name], Owner(), None, torch.ones(2), 1)
            assert compiled.recordings <= 2, (name, use)  # numbers and classes of arguments may make the second

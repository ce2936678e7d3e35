"""Attributes of argument objects other than their fields: guarded if they are read, set at every call."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from typing import Any

import pytest

import tracecomp as torch

pytestmark = pytest.mark.filterwarnings("ignore:graph break in")


class _Pair(typing.NamedTuple):
    a: Any


class Pair(_Pair):
    """A subclass of a named tuple has a ``__dict__``."""

    k = 1


@dataclasses.dataclass
class Record:
    """A dataclass accepts attributes that are not fields."""

    a: Any
    k: typing.ClassVar[Any] = 1

    def doubled(self) -> Any:
        """A method, which is not an attribute of the object."""
        return self.a * 2


@dataclasses.dataclass(frozen=True)
class Frozen:
    """A dataclass that forbids assignments."""

    a: Any
    k: typing.ClassVar[Any] = 1


class Marked(torch.Tensor):
    """A tensor, of a class of the program."""

    k: Any = 1


def _tensor(a: Any) -> Any:
    return a.as_subclass(Marked)


def _a(t: Any) -> Any:
    return t if isinstance(t, torch.Tensor) else t.a


KINDS: dict[str, Callable[[Any], Any]] = {"named tuple": Pair, "dataclass": Record, "frozen": Frozen, "tensor": _tensor}


def _reads(t: Any) -> Any:
    return _a(t) * t.k


def _asks(t: Any) -> Any:
    return _a(t) * 2 if hasattr(t, "extra") else _a(t) * 3


def _gets(t: Any) -> Any:
    return _a(t) * getattr(t, "extra", 5)


def _sets(t: Any) -> Any:
    object.__setattr__(t, "extra", _a(t) + 4)
    return _a(t) * 2


def _sets_and_reads(t: Any) -> Any:
    object.__setattr__(t, "extra", _a(t) + 4)
    return t.extra * 2


def _deletes(t: Any) -> Any:
    if hasattr(t, "extra"):
        object.__delattr__(t, "extra")
    return _a(t) * 2


def _counts(t: Any) -> Any:
    object.__setattr__(t, "k", t.k + 1)
    return _a(t) * t.k


def _returns(t: Any) -> Any:
    object.__setattr__(t, "extra", 3)
    return t


def _through_the_dictionary(t: Any) -> Any:
    t.__dict__["extra"] = 7
    return _a(t) * 2


def _by_vars(t: Any) -> Any:
    return _a(t) * (2 if "extra" in vars(t) else 3)


PROGRAMS = [
    _reads, _asks, _gets, _sets, _sets_and_reads, _deletes, _counts, _returns, _through_the_dictionary, _by_vars,
]  # fmt: skip
ATTRIBUTES: list[dict[str, Any]] = [
    {}, {}, {"k": 2}, {"k": 3}, {"extra": 2}, {"k": 2, "extra": 6}, {}, {"extra": 1.5}, {"other": "name"}, {"k": 2},
]  # fmt: skip


def _seen(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_attributes_are_those_of_each_calls_argument(kind: str, program: Callable[[Any], Any], nested: bool) -> None:
    def calls(fn: Callable[[Any], Any]) -> list[Any]:
        found = []
        for n, attributes in enumerate(ATTRIBUTES):
            t = KINDS[kind](torch.full((2,), float(n)))
            for name, value in attributes.items():
                object.__setattr__(t, name, value)
            result = fn([t]) if nested else fn(t)
            own = {k: _seen(v) for k, v in vars(t).items() if not k.startswith("_")}
            found.append((result is t, _seen(_a(result)), own))
        return found

    def of_list(ts: Any) -> Any:
        return program(ts[0])

    fn = of_list if nested else program
    assert calls(torch.compile(fn)) == calls(fn)


@pytest.mark.parametrize("kind", ["named tuple", "dataclass"])
def test_tensors_in_attributes_are_arguments(kind: str) -> None:
    compiled = torch.compile(lambda t: t.a * t.scale)
    for n in range(6):
        t = KINDS[kind](torch.full((2,), float(n)))
        t.scale = torch.tensor([1.0, n + 1.0])
        assert compiled(t).tolist() == (t.a * t.scale).tolist()
    assert compiled.explain().made <= 2


@pytest.mark.parametrize("kind", ["named tuple", "dataclass"])
def test_attributes_of_results_are_made_again(kind: str) -> None:
    def fn(x: Any) -> Any:
        made = KINDS[kind](x * 2)
        made.k = x + 1
        made.label = "made"
        return made

    compiled = torch.compile(fn)
    for n in range(4):
        made = compiled(torch.full((2,), float(n)))
        assert (made.a.tolist(), made.k.tolist(), made.label) == ([2.0 * n] * 2, [n + 1.0] * 2, "made")


def test_an_attribute_may_lead_back() -> None:
    compiled = torch.compile(lambda t: t.a * t.me.k)
    for n in range(4):
        t = Record(torch.full((2,), float(n)))
        t.me, t.k = t, n  # type: ignore[attr-defined,misc]
        assert compiled(t).tolist() == [n * n] * 2


def test_methods_take_no_further_recording() -> None:
    compiled = torch.compile(lambda t: t.doubled())
    for n in range(4):
        assert compiled(Record(torch.full((2,), float(n)))).tolist() == [2.0 * n] * 2
    assert compiled.explain().made == 1

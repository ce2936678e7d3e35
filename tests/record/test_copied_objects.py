"""Objects that a call copies, restores or makes without a constructor of the program are the call's own to change."""

from __future__ import annotations

import copy
import pickle
from collections import namedtuple
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

import tracecomp as torch


class Plain:
    def put(self, value: Any) -> Any:
        self.value = value
        return self

    def held(self) -> Any:
        return self.value


class Mapped(Plain):
    """Maps names of attributes to others, as configurations of transformers do."""

    names: ClassVar = {"size": "width"}

    def __getattribute__(self, name: str) -> Any:
        return super().__getattribute__(object.__getattribute__(self, "names").get(name, name))

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(self.names.get(name, name), value)


class Slotted:
    __slots__ = ("inner", "value", "width")
    put, held = Plain.put, Plain.held


class Entries(dict[str, Any]):
    put, held = Plain.put, Plain.held


class Single(Plain):
    """Has one object, which its ``__new__`` gives out again."""

    only: Any = None

    def __new__(cls) -> Any:
        if cls.only is None:
            cls.only = super().__new__(cls)
        return cls.only


class Pair(namedtuple("Pair", ["first", "second"])):
    def both(self) -> Any:
        return self.first + self.second


KINDS = (Plain, Mapped, Slotted, Entries)


def source(kind: Any) -> Any:
    made = kind()
    made.value, made.width, made.inner = 2, 3, {"k": [4]}
    return made


def deleted(kept: Any, x: Any) -> Any:
    own = copy.deepcopy(kept)
    del own.width
    return x * own.held() + hasattr(own, "width")


def deleted_by_name(kept: Any, x: Any) -> Any:
    own = copy.copy(kept)
    value = getattr(own, "width")  # noqa: B009  libraries read attributes by names in variables
    delattr(own, "width")
    setattr(own, "value", value)  # noqa: B010  the same
    return x * own.held()


def changed_inside(kept: Any, x: Any) -> Any:
    own = copy.deepcopy(kept)
    own.inner["k"].append(own.value)
    own.inner["new"] = 7
    return x + sum(own.inner["k"]) + len(kept.inner)


def restored(kept: Any, x: Any) -> Any:
    own = pickle.loads(pickle.dumps(kept)).put(5)
    return x * own.held() + kept.held()


def copied_of_copy(kept: Any, x: Any) -> Any:
    own = copy.copy(copy.copy(kept)).put(x)
    other = copy.copy(own).put(6)
    return own.held() * other.held() + own.width


def without_a_constructor(kept: Any, x: Any) -> Any:
    kind: Any = type(kept)
    own = kind().put(x + kept.value)
    other = kind.__new__(kind).put(3)
    other.width = own.held()
    del other.value
    return other.width


PROGRAMS = (deleted, deleted_by_name, changed_inside, restored, copied_of_copy, without_a_constructor)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_copy_is_changed_and_its_source_is_not(program: Callable[..., Any], kind: Any) -> None:
    kept, x = source(kind), torch.arange(3.0)
    compiled = torch.compile(program, fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(kept, x), program(kept, x))
    assert compiled.recordings == 1
    assert (kept.value, kept.width, kept.inner) == (2, 3, {"k": [4]})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_source_is_still_guarded(program: Callable[..., Any], kind: Any) -> None:
    kept, x = source(kind), torch.arange(3.0)
    compiled = torch.compile(lambda x: program(kept, x))
    for value in (2, 2, 9, 9, 2):
        kept.value, kept.width = value, value + 1
        assert torch.equal(compiled(x), program(kept, x))


def test_an_object_that_new_gives_out_again_is_from_before_the_call() -> None:
    Single.only = None
    Single().put(2)
    compiled = torch.compile(lambda x: x * Single().held())
    for value in (2, 2, 5, 5, 2):
        Single().put(value)
        assert compiled(torch.ones(1)).item() == value


def test_an_object_in_place_of_one_that_was_not_made() -> None:
    old = SimpleNamespace(kept=Plain().put(2))

    def program(x: Any, fails: bool) -> Any:
        for attempt in (True, False):
            try:
                own = Plain(1) if attempt and fails else old.kept  # type: ignore[call-arg]
            except TypeError:
                continue
            own.put(own.held() + 1)
        return x * own.held()

    expected = SimpleNamespace(kept=Plain().put(2))
    compiled = torch.compile(program)
    for fails in (True, True, True, False, False):
        expected.kept.value += 1 if fails else 2
        assert compiled(torch.ones(1), fails).item() == expected.kept.value == old.kept.value


def test_a_tuple_with_methods_is_made_in_the_call() -> None:
    compiled = torch.compile(lambda x: x * Pair(1, 2)._replace(first=x).both(), fullgraph=True)
    for _ in range(3):
        assert compiled(torch.ones(2)).tolist() == [3, 3]
    assert compiled.recordings == 1


def test_the_recording_holds_no_object_that_the_call_drops() -> None:
    ends: list[int] = []

    class Ending(Plain):
        def __del__(self) -> None:
            ends.append(len(ends))

    def program(x: Any) -> Any:
        Ending().put(1)
        return x + len(ends)

    compiled = torch.compile(program)
    assert [compiled(torch.zeros(1)).item() for _ in range(4)] == [1, 2, 3, 4]

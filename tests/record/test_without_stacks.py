"""Pythons whose stacks cannot be read: what a program can reach counts as read, and no call goes on with old values."""

from __future__ import annotations

import random
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, cast

import pytest

import tracecomp as torch
from tests.compiled import test_changes
from tests.compiled import test_graph_breaks as graph_breaks
from tests.compiled.changes import CHANGES
from tracecomp import nn
from tracecomp.record import frames, instructions, observer


class SettingsModule(types.ModuleType):
    scale: float


settings = SettingsModule("settings_of_the_program")
settings.__file__ = __file__
settings.scale = 1.0
generator = random.Random(0)
log: list[float] = []


class Options:
    shift = 1.0


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = 1.0
        self.options = {"scale": 1.0}
        self.inner = [[1.0]]
        self.count = 0

    def forward(self, x: Any) -> Any:
        return x * self.factor * self.options["scale"] + self.inner[0][0]


class Counting(Scaled):
    def forward(self, x: Any) -> Any:
        self.count += 1
        return x + self.count


@pytest.fixture(autouse=True)
def _no_stacks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for place in (frames, instructions, observer):
        monkeypatch.setattr(place, "stack_is_known", lambda: False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # which say that a program runs as Python
        # What is known of a function's code was found out with stacks before, and without them here.
        instructions.Handlers._known.cache_clear()
        yield
        instructions.Handlers._known.cache_clear()


model, counting, dispatch = Scaled(), Counting(), {"model": Scaled()}


class WithStep(Protocol):
    """A function that carries an attribute."""

    step: float

    def __call__(self, x: Any) -> Any: ...


def _helped(x: Any) -> Any:
    return x + helped.step


helped = cast(WithStep, _helped)
helped.step = 1.0


def changing(name: str, n: float) -> None:
    """Change what the program of that name reads."""
    if name == "attribute":
        model.factor = n
    elif name == "dictionary":
        model.options["scale"] = n
    elif name == "nested":
        model.inner[0][0] = n
    elif name == "class":
        Options.shift = n
    elif name == "module":
        settings.scale = n
    elif name == "function":
        helped.step = n
    elif name == "container":
        dispatch["model"].factor = n


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "attribute": lambda x: model(x),
    "dictionary": lambda x: model(x),
    "nested": lambda x: model(x),
    "class": lambda x: x + Options.shift,
    "module": lambda x: x * settings.scale,
    "function": lambda x: helped(x),
    "container": lambda x: dispatch["model"](x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_changed_between_calls_is_seen(name: str) -> None:
    program = PROGRAMS[name]
    compiled, x = torch.compile(program), torch.ones(3)
    for n in (1.0, 1.0, 1.0, 2.0, 2.0, 3.0, 1.0):
        changing(name, n)
        assert compiled(x).tolist() == program(x).tolist(), n


def test_what_a_call_changes_is_changed_by_every_call(capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: Any) -> Any:
        log.append(1.0)
        print("called")
        return counting(x)

    compiled = torch.compile(program)
    assert [compiled(torch.zeros(1)).item() for _ in range(5)] == [1, 2, 3, 4, 5]
    assert len(log) == 5 and capsys.readouterr().out == "called\n" * 5


def test_what_varies_is_told_by_name() -> None:
    counts: list[int] = []

    def program(x: Any) -> Any:
        counts.append(3)
        return x + len(counts)

    compiled = torch.compile(program)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert [compiled(torch.zeros(1)).item() for _ in range(5)] == [1, 2, 3, 4, 5]
    assert any("closure variable counts changed" in str(w.message) for w in told)


@pytest.mark.parametrize("name", graph_breaks.PROGRAMS)
def test_programs_with_graph_breaks_give_what_they_give_as_python(name: str) -> None:
    graph_breaks.test_a_program_in_parts_gives_what_it_gives_without(name)


def test_what_is_taken_from_an_iterator_is_taken_by_every_call() -> None:
    own, held, passed = (iter([torch.full((2,), float(k)) for k in range(8)]) for _ in range(3))
    holder = types.SimpleNamespace(batches=held)
    of_closure = torch.compile(lambda x: x + next(own))
    of_object = torch.compile(lambda x: x + next(holder.batches))
    of_argument = torch.compile(lambda x, batches: x + next(batches))
    for k in range(6):
        x = torch.zeros(2)
        assert of_closure(x).tolist() == of_object(x).tolist() == of_argument(x, passed).tolist() == [k, k]


def test_an_object_that_cannot_be_looked_at_is_left_to_the_program() -> None:
    class Odd(list[float]):
        def __len__(self) -> int:
            raise TypeError("no length")

    odd = Odd([2.0])

    def program(x: Any) -> Any:
        try:
            return x * len(odd)
        except TypeError:
            return x * odd[0]

    compiled = torch.compile(program)
    for value in (2.0, 2.0, 3.0):
        odd[0] = value
        assert compiled(torch.ones(2)).tolist() == [value, value]


def test_what_asks_for_the_type_of_a_number_sees_a_plain_one() -> None:
    compiled = torch.compile(lambda x, n: x * (2 if type(n) is int else 0))
    for n in (1, 2, 3, 4, 2, 3):
        assert compiled(torch.ones(2), n).tolist() == [2, 2]


def test_the_world_outside_is_asked_by_every_call() -> None:
    clock = torch.compile(lambda x: x + time.perf_counter())
    drawn = torch.compile(lambda x: x + generator.random())
    drawn_by_module = torch.compile(lambda x: x + random.random())
    for compiled in (clock, drawn, drawn_by_module):
        assert len({compiled(torch.zeros(1, dtype=torch.float64)).item() for _ in range(5)}) == 5
    assert sys.gettrace() is None


NOTICED = ("attribute added", "attribute asked for", "class of the object", "attribute of a tensor", "getenv")


@pytest.mark.parametrize("entry", [e for e in CHANGES if e[0] in NOTICED], ids=lambda e: e[0])
def test_changes_are_noticed(entry: tuple[str, str, str, str], tmp_path: Path) -> None:
    test_changes.test_after_a_change_a_call_gives_what_it_gives_without_compilation(entry, tmp_path)

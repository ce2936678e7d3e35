"""Recordings do not extend the lifetimes of objects that the program holds, and end with them."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import tracecomp as torch
from tracecomp.record.guards import lifetimes
from tracecomp.record.guards.cached_results import caches_are_known


class Box:
    """An object that a program reads."""

    def __init__(self, k: float) -> None:
        self.k = k

    def scaled(self, x: Any) -> Any:
        return x * self.k


class Holder:
    """Places where a program keeps an object."""

    def __init__(self) -> None:
        self.box: Any = Box(2.0)
        self.boxes: Any = [self.box]
        self.named: Any = {"k": self.box}
        self.scale: Any = self.box.scaled
        self.function: Any = _function(self.box)

    def replace(self) -> None:
        self.box = self.scale = self.function = None
        self.boxes, self.named = [], {}

    def drop(self) -> None:
        self.box = self.scale = self.function = None
        self.boxes.clear()
        self.named.clear()


def _function(box: Box) -> Callable[[Any], Any]:
    def scaled(x: Any) -> Any:
        return x * box.k

    return scaled


def _identity(h: Holder, x: Any) -> Any:
    return x * 2 if h.box is h.boxes[0] else x


PROGRAMS: dict[str, Callable[[Holder, Any], Any]] = {
    "attribute": lambda h, x: x * h.box.k,
    "method": lambda h, x: h.box.scaled(x),
    "bound method": lambda h, x: h.scale(x),
    "function": lambda h, x: h.function(x),
    "item": lambda h, x: x * h.boxes[0].k,
    "contents": lambda h, x: x * sum(b.k for b in h.boxes),
    "dictionary": lambda h, x: x * h.named["k"].k,
    "membership": lambda h, x: x * 2 if h.box in h.boxes else x,
    "identity": _identity,
}


calls: list[int] = []


def _with_an_effect(program: Callable[[Holder, Any], Any], holder: Holder, x: Any) -> Any:
    calls.append(1)  # such calls are served by Python
    return program(holder, x)


def _is_compared_natively(run: Any, general: bool) -> bool:
    (entry,) = run.entries
    natively = entry.recording.guards.reads.natively
    return natively is not None and natively.state > 0 if general else entry.fast is not None


@pytest.mark.parametrize("general", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_object_that_the_program_drops_is_gone_at_once(name: str, general: bool) -> None:
    program, holder = PROGRAMS[name], Holder()
    run = torch.compile(lambda x: _with_an_effect(program, holder, x) if general else program(holder, x))
    run.quiet = True
    for _ in range(4):
        assert run(torch.ones(1)).item() == 2.0
    assert _is_compared_natively(run, general)
    box = weakref.ref(holder.box)
    gc.disable()
    try:
        holder.drop()
        assert box() is None
    finally:
        gc.enable()
    again = Box(3.0)
    holder.box, holder.scale, holder.function = again, again.scaled, _function(again)
    holder.boxes.append(again)
    holder.named["k"] = again
    for _ in range(4):
        assert run(torch.ones(1)).item() == (2.0 if name in ("membership", "identity") else 3.0)


class Ending(Box):
    """An object whose end the program handles."""

    ended = 0

    def __del__(self) -> None:
        Ending.ended += 1


class Slotted:
    """The same, without weak references."""

    __slots__ = ("k",)

    def __init__(self, k: float) -> None:
        self.k = k

    def __del__(self) -> None:
        Ending.ended += 1


@pytest.mark.parametrize("general", [False, True])
@pytest.mark.parametrize("name", ["attribute", "item", "contents"])
def test_an_object_whose_container_is_replaced_is_gone_at_once(name: str, general: bool) -> None:
    program, holder = PROGRAMS[name], Holder()
    holder.box = Ending(2.0)
    holder.boxes, holder.named, holder.scale, holder.function = [holder.box], {}, None, None
    run = torch.compile(lambda x: _with_an_effect(program, holder, x) if general else program(holder, x))
    for _ in range(4):
        assert run(torch.ones(1)).item() == 2.0
    before = Ending.ended
    holder.replace()
    assert Ending.ended == before + 1


def _nested(value: object) -> list[Any]:
    for _ in range(6):
        value = [value]
    assert isinstance(value, list)
    return value


@pytest.mark.parametrize("general", [False, True])
@pytest.mark.parametrize("container", [lambda box: [0.0] * 1000 + [box], _nested], ids=["many", "nested"])
def test_an_object_deep_in_a_container_is_gone_at_once(container: Callable[[Box], list[Any]], general: bool) -> None:
    holder = Holder()
    holder.replace()
    holder.boxes = container(Ending(2.0))

    def program(holder: Holder, x: Any) -> Any:
        return x * 2 if len(holder.boxes) else x

    run = torch.compile(lambda x: _with_an_effect(program, holder, x) if general else program(holder, x))
    for _ in range(4):
        assert run(torch.ones(1)).item() == 2.0
    before = Ending.ended
    holder.boxes = []
    assert Ending.ended == before + 1


def test_an_object_without_weak_references_is_gone_at_once() -> None:
    holder = Holder()
    holder.box = Slotted(2.0)
    run = torch.compile(lambda x: x * holder.box.k)
    run.quiet = True
    for _ in range(4):
        assert run(torch.ones(1)).item() == 2.0
    before = Ending.ended
    holder.box = None
    assert Ending.ended == before + 1


def test_a_call_that_python_serves_notices_the_end_of_an_object() -> None:
    class Part(Box):
        pass

    holder = Holder()
    holder.box = Part(2.0)

    def fn(x: Any) -> Any:
        calls.append(1)
        return x * holder.box.k

    run = torch.compile(fn)
    for n in range(12):
        if n > 3:  # an equal object, often where the last one was in memory
            ended = weakref.ref(holder.box)
            holder.box = Part(2.0 if n < 8 else 3.0)
            assert ended() is None
        assert run(torch.ones(1)).item() == holder.box.k
    assert run.recordings <= 3


def test_equal_objects_in_one_place_are_served_by_one_recording() -> None:
    holder = Holder()
    run = torch.compile(lambda x: x * holder.box.k)
    for n in range(40):
        holder.box = Box(2.0 if n < 20 else 3.0)  # often where the last one was in memory
        assert run(torch.ones(1)).item() == holder.box.k
    assert run.recordings <= 3


@pytest.mark.parametrize("make", [Box, lambda k: Box(k).scaled, lambda k: _function(Box(k))])
def test_an_argument_is_gone_after_the_call(make: Callable[[float], Any]) -> None:
    run = torch.compile(lambda b, x: x * b.k if isinstance(b, Box) else b(x))
    run.quiet = True
    for n in range(4):
        given = make(n + 1.0)
        for _ in range(3):
            assert run(given, torch.ones(1)).item() == n + 1.0
        ended = weakref.ref(given)
        del given
        assert ended() is None


def test_an_object_of_the_call_does_not_end_its_recording() -> None:
    class Pair:
        pass

    def fn(x: Any) -> Any:
        pair: Any = Pair.__new__(Pair)
        pair.k = x * 2
        return pair.k

    run = torch.compile(fn, fullgraph=True)
    for _ in range(4):
        run(torch.ones(1))
    assert run.recordings == 1


def test_names_that_are_not_read_are_not_held() -> None:
    names: dict[str, Any] = {"k": 2.0, "w": torch.ones(2), "__name__": "__main__"}
    exec("def f(x):\n    return x * k", names)
    run = torch.compile(names["f"])
    for _ in range(3):
        run(torch.ones(2))
    tensor = weakref.ref(names["w"])
    del names["w"]
    assert tensor() is None and run.recordings == 1


def test_caches_can_be_inspected() -> None:
    assert caches_are_known()


def test_few_containers_are_searched_for_objects_whose_end_is_seen() -> None:
    assert not lifetimes.holds_awaited([[n] for n in range(10)])
    assert lifetimes.holds_awaited([[n] for n in range(lifetimes._MOST_CONTAINERS)])
    state = [[float(n)] for n in range(lifetimes._MOST_CONTAINERS)]
    compiled = torch.compile(lambda x: x * state[3][0])
    for number in (3.0, 3.0, 3.0, 5.0):
        state[3][0] = number
        assert compiled(torch.ones(2)).tolist() == [number, number]


def test_objects_that_end_when_python_exits_are_no_news() -> None:
    program = textwrap.dedent("""
        import re  # it is cleared after the modules of the library
        import tracecomp as torch

        class Box:
            k = 2.0

        re.box = Box()
        compiled = re.compiled = torch.compile(lambda x: x * re.box.k)
        for _ in range(3):
            compiled(torch.ones(2))
        print(compiled.recordings)
    """)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("1\n", "")

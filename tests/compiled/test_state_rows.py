"""State that native code compares for calls which Python serves: changes are noticed, and equal state fits."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import tracecomp as torch


class Slotted:
    __slots__ = ("scale",)

    def __init__(self, scale: float) -> None:
        self.scale = scale


class Plain:
    factor = 2.0

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def twice(self) -> float:
        return 2.0


class Other(Plain):
    factor = 5.0


class Registry(dict):  # type: ignore[type-arg]
    def get(self, key: object) -> Any:  # type: ignore[override]
        return "not the entry"


def _scaled(x: Any) -> Any:
    return x * 2


def _tripled(x: Any, by: float = 3.0) -> Any:
    return x * by


class World:
    """The state that the program reads."""

    def __init__(self) -> None:
        self.slotted = Slotted(2.0)
        self.plain = Plain(2.0)
        self.names = ["a", "b"]
        self.options = {"scale": 2.0, "names": ("a", "b")}
        self.registry = Registry(scale=2.0)
        self.kinds = {"one", "two"}
        self.function: Callable[..., Any] = _scaled
        self.made = lambda x, by=4.0: x * by
        self.space = SimpleNamespace(scale=2.0)
        self.calls: list[int] = []


world = World()


def step(x: Any) -> Any:
    world.calls.append(1)  # an effect: such calls are served by Python
    x = world.function(x) * world.slotted.scale * world.plain.scale * world.plain.factor * world.plain.twice()
    x = x + len(world.names) + world.options["scale"] + world.space.scale + world.registry["scale"] + world.made(x)
    if "one" in world.kinds and type(world.plain) is Plain:
        x = x + 1
    return x + (len(world.made.__name__) + ord(world.names[0]))


CHANGES: dict[str, Callable[[World], object]] = {
    "a slot": lambda w: setattr(w.slotted, "scale", 3.0),
    "an object with slots": lambda w: setattr(w, "slotted", Slotted(3.0)),
    "an attribute": lambda w: setattr(w.plain, "scale", 3.0),
    "an attribute that hides the class's": lambda w: setattr(w.plain, "factor", 7.0),
    "an object's class": lambda w: setattr(w.plain, "__class__", Other),
    "a class attribute": lambda w: setattr(Plain, "factor", 3.0),
    "a method": lambda w: setattr(Plain, "twice", lambda self: 9.0),
    "a list's length": lambda w: w.names.append("c"),
    "a list's element": lambda w: w.names.__setitem__(0, "z"),
    "an entry": lambda w: w.options.update(scale=3.0),
    "an entry of a dict of one's own": lambda w: w.registry.update(scale=3.0),
    "a set": lambda w: w.kinds.remove("one"),
    "a function": lambda w: setattr(w, "function", _tripled),
    "a default": lambda w: setattr(w.made, "__defaults__", (5.0,)),
    "a code object": lambda w: setattr(w.made, "__code__", (lambda x, by=1.0: x - by).__code__),
    "a function's name": lambda w: setattr(w.made, "__name__", "other"),
    "a namespace": lambda w: setattr(w.space, "scale", 3.0),
}


def compares_natively(entry: Any) -> bool:
    """Whether native code compares state, which was the same in the last call."""
    natively = entry.recording.guards.reads.natively
    return natively is not None and natively.state > 0


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_state_is_noticed(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "world", World())
    for name in ("factor", "twice"):
        monkeypatch.setattr(Plain, name, vars(Plain)[name])
    x = torch.ones(3)
    compiled = torch.compile(step)
    for _ in range(5):
        assert compiled(x).tolist() == step(x).tolist()
    (entry,) = compiled.entries
    assert compares_natively(entry) and entry.fast is None
    CHANGES[change](world)
    for _ in range(3):
        assert compiled(x).tolist() == step(x).tolist()
    assert compiled.recordings == 2 and len(world.calls) == 16


def test_equal_state_fits_and_is_then_compared_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "world", World())
    x = torch.ones(3)
    compiled = torch.compile(step)
    for n in range(40):
        world.options["scale"] = float("2.0")  # another object at every call
        world.names = ["ab"[0], "b"]
        assert compiled(x).tolist() == step(x).tolist(), n
    (entry,) = compiled.entries
    assert compiled.recordings == 1 and compares_natively(entry)
    world.options["scale"] = 2.5
    assert compiled(x).tolist() == step(x).tolist() and compiled.recordings == 2

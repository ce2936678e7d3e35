"""What a pipeline is made of: named steps from state to state, and the record that each leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tracecomp.ir.graph import Origin

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice a step made, and why, in words. ``origin`` leads to the user's line."""

    subject: str
    chosen: str
    reason: str
    origin: Origin = field(default_factory=Origin)


@dataclass(slots=True)
class Log:
    """What happened in one step: how often each rule fired, and choices with their reasons."""

    hits: Counter[str] = field(default_factory=Counter)
    choices: list[Choice] = field(default_factory=list)

    def choose(self, subject: str, chosen: str, reason: str, origin: Origin | None = None) -> None:
        self.choices.append(Choice(subject, chosen, reason, origin or Origin()))


Run = Callable[[State, Log], State]


@dataclass(frozen=True, slots=True)
class Step(Generic[State]):
    """A named function from state to state, with one line on what it is for.

    Where the settings skip it, ``without`` is run in its place, if anything; results keep their bits. ``needed`` steps
    cannot be skipped.
    """

    name: str
    run: Run[State]
    doc: str
    without: Run[State] | None = None
    needed: bool = False


@dataclass(frozen=True, slots=True)
class Stage(Generic[State]):
    """The state after one step, what the step did, and how long it took."""

    name: str
    state: State
    log: Log = field(default_factory=Log)
    seconds: float = 0.0

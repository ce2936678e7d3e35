"""Building blocks of a pipeline: named steps from state to state, and the log of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tracecomp.ir.graph import Origin

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice of a step, with its reason as text. ``origin`` refers to the user's line."""

    subject: str
    chosen: str
    reason: str
    origin: Origin = field(default_factory=Origin)


@dataclass(slots=True)
class Log:
    """Log of one step: how often each rule fired, choices with their reasons, and the seconds of some of its work."""

    hits: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    choices: list[Choice] = field(default_factory=list)

    def choose(self, subject: str, chosen: str, reason: str, origin: Origin | None = None) -> None:
        self.choices.append(Choice(subject, chosen, reason, origin or Origin()))


Run = Callable[[State, Log], State]


@dataclass(frozen=True, slots=True)
class Step(Generic[State]):
    """A named function from state to state, with one line on its purpose.

    If the settings skip the step, its replacement ``without`` runs, if it has one; results keep their bits. ``needed``
    steps cannot be skipped.
    """

    name: str
    run: Run[State]
    doc: str
    without: Run[State] | None = None
    needed: bool = False


@dataclass(frozen=True, slots=True)
class Stage(Generic[State]):
    """The state after one step, with the step's log and duration."""

    name: str
    state: State
    log: Log = field(default_factory=Log)
    seconds: float = 0.0

"""Several calls of a program, eagerly and compiled: repeated, and with one change each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from tracecomp.compiled.differences import Difference
from tracecomp.compiled.eager_vs_compiled import Call, Lockstep, Mismatch
from tracecomp.inspect.changes import Change, changes
from tracecomp.inspect.paths import Limits

SAME = 4
"""Calls with the same arguments: one is recorded, one planned, and native calls happen twice."""


@dataclass(frozen=True)
class Step:
    """One call: its difference from the original one, and whether the state continues from it."""

    what: str
    change: Change | None = None


@dataclass
class CallFault:
    """A call whose compiled result differs; ``made_in`` is the last call that was recorded again.

    ``recorded``: it is this one, so no guard is at fault.
    """

    number: int
    step: Step
    mismatches: list[Mismatch]
    made_in: int

    @property
    def recorded(self) -> bool:
        return self.made_in == self.number

    def __str__(self) -> str:
        first = f"call {self.number} ({self.step.what})"
        return "\n".join([f"{first} differs:", *(f"  {m}" for m in self.mismatches[:5])])


@dataclass
class Calls:
    """The calls that were made: their number, their changes, and the first that differs; ``error``: the original call's
    exception."""

    same: int = 0
    changed: int = 0
    fault: CallFault | None = None
    steps: list[Step] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    error: Exception | None = None


def steps_of(call: Call, lockstep: Lockstep, limits: Limits | None) -> Iterator[Step]:
    """The calls to make, in order; the original call is repeated between two changed ones."""
    for n in range(SAME):
        yield Step("the same call again" if n else "the first call")
    if limits is not None:
        for change in changes(call, lockstep.state(call), limits):
            yield Step(change.what, change)
            yield Step(f"the given call after: {change.what}")


class Counted(Protocol):
    """A way to call a program, and how many recordings it has made."""

    @property
    def recordings(self) -> int: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


def run_calls(
    fn: Callable[..., object], compiled: Counted, call: Call, tolerance: float | None = None,
    limits: Limits | None = None, most: int | None = None,
) -> Calls:  # fmt: skip
    """Make the calls, or the first ``most``, in lockstep until one differs; the state is then restored.

    With ``limits``, also changed calls, some of them beyond these.
    """
    lockstep = Lockstep(fn, compiled, tolerance)
    before = lockstep.state(call)
    result = Calls()
    made_in = 0
    try:
        # Built again each time: guards might know the arguments of earlier calls.
        for step in islice(steps_of(call, lockstep, limits), most):
            result.steps.append(step)
            recordings = compiled.recordings
            found = make(lockstep, call, step)
            if step.change is not None and step.change.again and compiled.recordings > recordings and not found:
                found = make(lockstep, call, step)  # the recording just made now runs
            if len(result.steps) == 1:
                result.error = lockstep.error
            result.differences = result.differences if step.change else lockstep.differences
            if step.change is None:
                result.same += 1
            else:
                result.changed += 1
            made_in = len(result.steps) if compiled.recordings > recordings else made_in
            if found:
                result.fault = CallFault(len(result.steps), step, found, made_in)
                break
    finally:
        before.restore()
    return result


def make(lockstep: Lockstep, call: Call, step: Step) -> list[Mismatch]:
    """Make one call; a changed one restores the state."""
    change = step.change
    if change is None:
        return lockstep.step(call)
    before = lockstep.state(call)
    try:
        with contextlib.nullcontext() if change.around is None else change.around():
            return lockstep.step(change.make(call))
    finally:
        change.undo()
        before.restore()

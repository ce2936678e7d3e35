"""A recording in use: its plan, the record that native code reads, and how many calls it has served."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tracecomp.compiled.replay import Plan
from tracecomp.record.recording import Recording
from tracecomp.runtime.call import take_calls


@dataclass
class Entry:
    """A recording in use. ``follows``: numbers that Python read were followed where possible.
    ``told``: the count of served calls at the last ``newly_served``."""

    recording: Recording
    follows: bool
    plan: Plan | None = None
    fast: tuple[Any, ...] | None = None
    slow_calls: int = 0
    told: int = 0

    def calls(self) -> int:
        """How many calls the recording has served."""
        if self.fast is not None:
            self.recording.calls += take_calls(self.fast[0])
        return self.recording.calls

    def newly_served(self) -> int:
        """Return the number of calls served since the previous ``newly_served``."""
        calls = self.calls()
        new, self.told = calls - self.told, calls
        return new

    def has_ended(self) -> bool:
        """Whether an object that the recording refers to is gone."""
        return self.recording.guards.reads.lifetimes.ended

    def drop_moved(self) -> None:
        """Drop the record if an object whose memory it reads is gone."""
        lifetimes = self.recording.guards.reads.lifetimes
        if lifetimes.moved:
            self.calls()
            lifetimes.moved = False
            self.fast = None
            self.slow_calls = 0

    def is_sized(self) -> bool:
        """Whether it serves more sizes than those it was recorded with."""
        return self.plan is not None and self.plan.sized is not None

    def covered_by(self, new: Recording) -> bool:
        """Whether both serve every size of the same path, the ``new`` one the sizes of this one too."""
        paths = [[p.seen for p in r.predicates] for r in (new, self.recording)]
        same_call = new.guards.structure == self.recording.guards.structure
        if not (self.is_sized() and same_call and paths[0] == paths[1]):
            return False
        asked, own = new.guards.sizes(), self.recording.guards.sizes()
        met = {
            source: held.value for same, held in zip(own.sources, own.conditions.ranges, strict=True) for source in same
        }
        fixed = self.recording.guards.shapes()
        sizes = []
        for same in asked.sources:
            found = {met[s] if s in met else fixed[s.holder][s.axis] if s.holder in fixed else -1 for s in same}
            sizes.append(min(found) if len(found) == 1 else -1)
        return -1 not in sizes and asked.conditions.holds(sizes)

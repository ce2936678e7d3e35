"""A recording in use: its plan, the record that native code reads, and how many calls it has served."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tracecomp.compiled.budget import Rent
from tracecomp.compiled.native_call import fast_record
from tracecomp.compiled.replay import Plan
from tracecomp.compiled.state_rows import StateCheck
from tracecomp.record.pytree import Leaves
from tracecomp.record.recording import Recording
from tracecomp.runtime.call import Code, take_calls


@dataclass
class Entry:
    """A recording in use. ``follows``: numbers that Python read were followed where possible.
    ``told``: the count of served calls at the last ``newly_served``. ``ends``: objects that were gone when ``fast`` was
    written."""

    recording: Recording
    follows: bool
    plan: Plan | None = None
    fast: tuple[Any, ...] | None = None
    rent: Rent = field(default_factory=Rent)
    slow_calls: int = 0
    told: int = 0
    ends: int = 0

    def write_record(self, leaves: Leaves, code: Code) -> None:
        """Have native code serve calls like this one, which has just fitted the plan, if that is possible."""
        assert self.plan is not None
        self.calls()
        self.ends = self.recording.guards.reads.lifetimes.ends
        self.fast = fast_record(self.plan, leaves, code)
        self.drop_moved()  # an object may be gone meanwhile

    def watch_state(self, code: Code) -> None:
        """Compare the state outside in native code from now on, as far as possible."""
        reads = self.recording.guards.reads
        if reads.natively is None:
            reads.natively = StateCheck(reads.lifetimes, code)
        if reads.natively.differs:
            reads.natively.update(reads.roots())

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
        ends = self.recording.guards.reads.lifetimes.ends
        if ends != self.ends:
            self.calls()
            self.ends = ends
            self.fast = None

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
        fixed, shapes = self.recording.guards.shapes(), new.guards.shapes()
        if any(len(shapes.get(holder, shape)) != len(shape) for holder, shape in fixed.items()):
            return False
        sizes = []
        for same in asked.sources:
            found = {met[s] if s in met else fixed[s.holder][s.axis] if s.holder in fixed else -1 for s in same}
            sizes.append(min(found) if len(found) == 1 else -1)
        return -1 not in sizes and asked.conditions.holds(sizes)

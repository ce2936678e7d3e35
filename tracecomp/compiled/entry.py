"""A recording in use: its plan, the record that native code reads, and how many calls it has served."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tracecomp.compiled import background
from tracecomp.compiled.background import Job
from tracecomp.compiled.budget import Rent
from tracecomp.compiled.call_checks import CallCheck
from tracecomp.compiled.native_call import fast_record
from tracecomp.compiled.replay import CallSizes, Plan, forward_of
from tracecomp.compiled.state_rows import StateCheck
from tracecomp.record.pytree import Leaves
from tracecomp.record.recording import Recording
from tracecomp.runtime.call import Code, take_calls

MANY = 32
"""Native calls that save at least the time that making a record takes. For a training step, 15 calls save it."""


@dataclass
class Entry:
    """A recording in use.

    ``follows``: numbers that Python read were followed where possible. ``job`` compiles a program of it in the
    background; ``made`` says how it did. ``told``: the count of served calls at the last ``newly_served``. ``ends``:
    objects that were gone when ``fast`` was written. ``native_calls``: calls that ``fast`` has served since Python
    served one. ``slow_calls``: calls that Python has served since ``fast`` last served many.
    """

    recording: Recording
    follows: bool
    plan: Plan | None = None
    job: Job | None = None
    fast: tuple[Any, ...] | None = None
    check: CallCheck | None = None
    rent: Rent = field(default_factory=Rent)
    native_calls: int = 0
    slow_calls: int = 0
    told: int = 0
    ends: int = 0
    made: str = ""

    @property
    def says(self) -> str:
        """Say whether its program is, or was, compiled in the background, and what calls did meanwhile."""
        return self.made if self.job is None else self.job.says

    def miss(self, structure: object, leaves: Leaves) -> tuple[str | None, CallSizes]:
        """Why a call does not fit, or None when it does; and then the dynamic sizes of a program that has some."""
        sizes = None if self.check is None else self.check(structure, leaves)
        if sizes is not None:
            return None, sizes if self.is_sized() else None
        miss = self.recording.guards.miss(structure, leaves)
        sized = None if self.plan is None else self.plan.sized
        return miss, None if miss is not None or sized is None else sized.guard.sizes(leaves)

    def is_ready(self, sizes: CallSizes) -> bool:
        """Whether a call that fits needs nothing compiled."""
        return self.plan is not None and self.plan.is_ready(sizes)

    def begin(self, sizes: CallSizes) -> Job | None:
        """Start to compile the program of a call in the background; None for one that is better compiled in place."""
        if self.plan is None:
            return background.begin(self.recording.graph.name, *forward_of(self.recording))
        return self.plan.begin(sizes)

    def write_record(self, leaves: Leaves, code: Code) -> None:
        """Have native code serve calls like this one, which has just fitted the plan, if that is possible."""
        assert self.plan is not None
        self.calls()
        self.ends = self.recording.guards.reads.lifetimes.ends
        self.fast = fast_record(self.plan, leaves, code)
        self.drop_moved()  # an object may be gone meanwhile

    def watch(self, leaves: Leaves, code: Code) -> None:
        """Compare calls and the state outside in native code from now on, as far as possible."""
        reads = self.recording.guards.reads
        if reads.natively is None:
            reads.natively = StateCheck(reads.lifetimes, code)
        if reads.natively.state == 0:
            reads.natively.update(reads.roots())
        if self.check is None or self.check.is_due:
            self.check = self.check or CallCheck(self.recording.guards, code)
            self.check.update(leaves)

    def calls(self) -> int:
        """How many calls the recording has served."""
        if self.fast is not None:
            served = take_calls(self.fast[0])
            self.native_calls += served
            self.recording.calls += served
        return self.recording.calls

    def wants_check(self) -> bool:
        """Whether to compare calls in native code again, now that a call has fitted that native code did not take."""
        return self.check is not None and self.check.is_due

    def wants_record(self) -> bool:
        """Whether to make the native record again, now that Python has served a call.

        The answer is yes after 1, 2, 4, ... such calls, as the record may not last. A record that has served ``MANY``
        calls has lasted: the facts that it did not fit change rarely, such as the mode of a module between epochs. It
        may fit the next call again, as after a call that is compared with eager. If not, it is made again.
        """
        self.calls()
        self.slow_calls = 0 if self.native_calls >= MANY else self.slow_calls + 1
        self.native_calls = 0
        return self.slow_calls > 0 and self.slow_calls & (self.slow_calls - 1) == 0

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

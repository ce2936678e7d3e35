"""Recompile policy: which calls of a function are recorded, with what dynamic, and which recordings are kept."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tracecomp.base import logs
from tracecomp.base.capture_guide import BreakReason, Section
from tracecomp.base.errors import CaptureError
from tracecomp.base.user_warnings import warn_user
from tracecomp.compiled import stance
from tracecomp.compiled.budget import Budget, Rent
from tracecomp.compiled.entry import Entry
from tracecomp.compiled.replay import Plan
from tracecomp.compiled.varying_values import MAX_NEEDED, Learned, needed
from tracecomp.record.capture import Refusal, record
from tracecomp.record.dynamic_shapes.generalize import Sized, sized
from tracecomp.record.dynamic_shapes.padding import NotSized
from tracecomp.record.recording import Recording, SeenValue

MAX_RECORDINGS = 64
"""Recordings of one function: a program that needs more changes at every call."""
MAX_MISSES = 256
"""Reasons for new recordings that are kept for ``explain``."""
MAX_PARTIAL_RECORDINGS = 16
"""Calls in a row that no recording may serve, of a function that may run in parts or eagerly instead."""
MAX_UNSETTLED = 4
"""Recordings in a row whose state was not settled, as optimizers' is before their first step."""


class RecompilePolicy:
    """The policy of one function, from what its calls have shown.

    The caller has the entries: methods take them, and return those to use from then on. It also has the lock.
    """

    def __init__(self, fn: Any, fullgraph: bool, dynamic: bool | None, budget: Budget) -> None:
        self.fn = fn
        self.name: str = getattr(fn, "__name__", type(fn).__name__)
        self.fullgraph = fullgraph
        self.budget = budget
        self.rent = Rent()
        self.learned = Learned(dynamic)
        self.misses: list[str] = []
        self.recordings = 0
        self._unserved = 0
        self._limited = False  # it was said that further calls run eagerly

    def reset(self, dynamic: bool | None, budget: Budget) -> None:
        """Forget what calls have shown and cost; the history for ``explain`` stays."""
        self.learned = Learned(dynamic)
        self.budget = budget
        self.rent = Rent()

    # ---- while a recording is looked for

    def needs_inputs(self, entry: Entry) -> bool:
        """Whether to record again before ``entry`` is compiled, with the floats that Python read as inputs.

        Floats that a step changes (a learning rate) would make each call record. They are as good as certain to differ,
        and compiling takes longer than recording.
        """
        if entry.plan is not None or self.learned.follow or not entry.recording.reads_floats():
            return False
        self.learned.follow = stance.current.name == "default"
        return self.learned.follow

    # ---- whether to record

    def allows_recording(self, entries: Sequence[Entry]) -> bool:
        """Whether to record another call: calls have paid for it, those served or those that ran eagerly."""
        if self.fullgraph or self._allows(entries):
            return True
        if self.budget.served and self.budget.buys(self.rent, self.budget.served):
            self._unserved = 0  # each such recording has to be paid longer, which is limit enough
            return True
        return False

    def allows_program(self, entries: Sequence[Entry], entry: Entry) -> bool:
        """Whether to compile another program of ``entry``."""
        return self._allows(entries) or self.budget.buys(entry.rent, entry.calls())

    def _allows(self, entries: Sequence[Entry]) -> bool:
        """Whether the calls served so far have paid for another recording or program."""
        served = sum(e.newly_served() for e in entries)
        self.budget.served += served
        self._unserved = 0 if served else self._unserved
        return self.budget.allows()

    def gives_up(self, entries: Sequence[Entry]) -> bool:
        """Whether too many calls in a row, this one included, were declined to continue."""
        return not self.budget.closed and self._count_unserved(entries) >= self._most and not self.fullgraph

    def close(self, entries: Sequence[Entry], reason: str) -> tuple[str, str]:
        """Record and compile no more; return the cause and a remedy."""
        self.budget.closed = True
        cause, remedy = self.learned.cause(self.name, entries, reason)
        return f"spent {self.budget.says()}, and none of them fitted the last {self._unserved} calls: {cause}", remedy

    def at_limit(self, entries: Sequence[Entry], reason: str | None) -> bool:
        """Whether the user's limit of recordings is reached; CaptureError if all calls must be graphs."""
        limit = stance.current.limit
        if limit is None or len(entries) < limit:
            return False
        cause = f"{self.name}: torch._dynamo hit config.recompile_limit ({limit}). Last reason: {reason}"
        why = BreakReason(cause, Section.FIND)
        if self.fullgraph:
            raise CaptureError(str(why))
        if not self._limited:
            self._limited = True
            cost = "Calls that no recording matches run eagerly"
            warn_user(cause, cost, why.advice, about=("limit", self.name), fn=self.fn)
        return True

    def hopeless(
        self, entries: Sequence[Entry], reason: str | None, seen: tuple[SeenValue, Any] | None
    ) -> Refusal | None:
        """Return why the graph breaks instead of another recording: too many in a row served no call.

        ``seen``: this call had another value at a place where Python needs one.
        """
        learned = self.learned
        if reason is not None:
            self.misses = [*self.misses[-MAX_MISSES:], reason]
            if logs.wanted("recompiles"):
                logs.log("recompiles", f"{self.name}: {reason}")
        line = None if seen is None else learned.line_in_need(self.name, *seen, self.fullgraph, self.fn)
        most = self._most if line is None else MAX_NEEDED
        if self._count_unserved(entries) < most or len(entries) < most:
            return None
        cause = f"{most} consecutive recordings of {self.name} matched no later call: {reason}"
        why = BreakReason(cause, Section.FIND) if seen is None else needed(cause)
        return Refusal(why, learned.lines(most) if line is None else {line} - {0})

    def _count_unserved(self, entries: Sequence[Entry]) -> int:
        """How many calls in a row no recording has served, with the present one."""
        self._allows(entries)
        self._unserved += 1
        return self._unserved

    @property
    def _most(self) -> int:
        """How many recordings in a row may serve no later call."""
        return MAX_RECORDINGS if self.fullgraph else MAX_PARTIAL_RECORDINGS

    # ---- recording

    def make_room(self, entries: Sequence[Entry]) -> list[Entry]:
        """``entries`` without the least recently used one of too many, those whose state has moved, and ended ones."""
        # Every entry is checked, so the next recording knows all moved state.
        return [e for e in entries[: MAX_RECORDINGS - 1] if not (e.has_ended() or self.learned.moved(e.recording))]

    def record(
        self, entries: Sequence[Entry], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[Any, Recording | Refusal]:
        """Record a call, with all dynamic that has varied."""
        self.learned.note_objects(args, kwargs)
        learned, guards = self.learned, [e.recording.guards for e in entries]
        numbers = learned.numbers.of_call(guards, args, kwargs)
        follow = learned.follow and not any(g.reads.asks_types for g in guards)
        start = time.perf_counter()
        with self.budget.spending():
            made = record(
                self.fn, args, kwargs, self.name, self.fullgraph, places=learned.places(), follow=follow,
                varying=learned.varying_sizes(entries, args, kwargs), numbers=numbers, shared=learned.shared,
            )  # fmt: skip
        if isinstance(made[1], Recording):
            made[1].seconds = time.perf_counter() - start
        self.recordings += 1
        return made

    def keep(
        self, entries: list[Entry], recording: Recording | Refusal, plan: Callable[[Recording, Sized], Plan]
    ) -> list[Entry] | Refusal:
        """Use a recording for the calls to come, or learn from it what the next one is to do otherwise.

        A refusal when there is no use in further ones. ``plan`` makes what serves every size.
        """
        learned = self.learned
        if isinstance(recording, Refusal):
            return recording
        if learned.numbers.asked(recording.guards):
            return entries  # the next call with this value is recorded
        if recording.unsettled is None:
            learned.unsettled = 0
            if logs.wanted("graphs"):
                logs.log("graphs", str(recording.graph))
            if recording.sizes is not None:
                learned.sizes.check(recording.sizes.sources, recording.sizes.conditions)
            entry = Entry(recording, follows=learned.follow)
            # The check of the other recordings is last: those that a dynamic program replaces are then gone.
            every, entries = self._for_every_size(entries, entry, plan)
            return [entry, *every, *learned.still_useful(entries, recording)]
        if not learned.moved(recording) and not learned.shares(recording):
            learned.unsettled += 1
            if learned.unsettled >= MAX_UNSETTLED:
                cause = f"every call of {self.name} {recording.unsettled.cause}{self._definition}"
                return Refusal(replace(recording.unsettled, cause=cause), recording.blamed)
        return entries

    def _for_every_size(
        self, entries: list[Entry], new: Entry, plan: Callable[[Recording, Sized], Plan]
    ) -> tuple[list[Entry], list[Entry]]:
        """An entry that serves every size, when an earlier recording and ``new`` differ in nothing else; the others."""
        if new.recording.sizes is None:
            return [], entries
        reasons = []
        for e in entries:
            if e.is_sized():
                continue
            try:
                general = sized(e.recording, new.recording)
            except NotSized as reason:
                reasons.append(f"this size was compiled separately: {reason}")
                continue
            made = plan(general.recording, general)
            return [Entry(made.recording, new.follows, made)], [e for e in entries if not e.covered_by(made.recording)]
        self.misses += reasons[:1]
        return [], entries

    @property
    def _definition(self) -> str:
        """Return the place of the function's definition, for messages."""
        code = getattr(inspect.unwrap(getattr(self.fn, "forward", self.fn)), "__code__", None)
        return "" if code is None else f" (defined at {code.co_filename}:{code.co_firstlineno})"

"""Fault localization: which part of the library makes a call wrong, and which line of the program shows it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import Any, TypeVar

from tracecomp.base import config
from tracecomp.base.errors import Source
from tracecomp.compiled.eager_vs_compiled import EARLIER, RAISED, Call, Lockstep, Outcome, mismatches, outcome
from tracecomp.compiled.entry import Entry
from tracecomp.compiled.function import Compiled
from tracecomp.eager.overrides import unwatch_calls, watch_calls
from tracecomp.inspect.calls import CallFault, Calls, run_calls
from tracecomp.inspect.changes import Change
from tracecomp.inspect.comparison import Divergence, shown_source
from tracecomp.inspect.eager_check import numpy_alone
from tracecomp.inspect.line_watch import line_that_changes, line_that_differs, line_that_parts, lines_of
from tracecomp.inspect.observed import Event, Observed, observe
from tracecomp.inspect.paths import Limits
from tracecomp.passes.pipeline import LOWERING, PIPELINE
from tracecomp.passes.steps import Step

Make = Callable[[], Compiled]
T = TypeVar("T")


class Blame:
    """Find the cause of wrong ``calls`` of ``fn``; ``compiled`` and ``noted`` build its compiled forms."""

    def __init__(
        self, fn: Callable[..., object], call: Call, tolerance: float | None, compiled: Make, noted: Make
    ) -> None:
        self.fn = fn
        self.call = call
        self.tolerance = tolerance
        self.compiled = compiled
        self.noted = noted
        self.roots = Lockstep(fn, fn).roots(call)

    def recorded(self, calls: Calls, limits: Limits | None = None) -> Divergence:
        """Locate a wrong call whose graph is right in the interpreter: the recording, or a guard."""
        fault = calls.fault
        assert fault is not None
        observed = observe(self.fn, self.call, self.roots)
        if EARLIER in fault.mismatches[0].place:
            what = "the memory of an earlier result was written again"
            return self._at(fault, "results", what, self._line(fault, observed))
        change = fault.step.change or _before(calls)
        if change is not None and not fault.recorded:
            return self._guard(fault, observed, change)
        if change is None and not fault.recorded and (parted := self._like_none_before(fault)) is not None:
            return parted
        if fault.step.change is not None:
            observed = self._changed(fault.step.change)
        if observed.wrong:
            wrong = observed.wrong[0]
            return self._at(fault, "recorded", wrong.what, wrong.source)
        if self._right_at_each_size(calls, limits):
            return self._at(fault, "dynamic sizes", "right without: dynamic sizes", self._line(fault, observed))
        if all(m.place.startswith("gradient") for m in fault.mismatches):
            what = "the backward pass of a compiled call"
            return self._at(fault, "backward", what, self._line(fault, observed))
        line = None if fault.step.change else self._differs(observed)
        if line is not None:
            return self._at(fault, "recorded", "a line's eager result and its recorded one", line)
        return self._at(fault, "recorded", "state after the call", self._line(fault, observed))

    def _right_at_each_size(self, calls: Calls, limits: Limits | None) -> bool:
        """Whether the calls are right if each size is recorded alone; False if that is so anyway."""
        made = self.noted()
        if made.dynamic is False or (made.dynamic is None and limits is None):
            return False
        made.dynamic = False
        made.reset()
        with numpy_alone():
            return run_calls(self.fn, made, self.call, self.tolerance, limits, len(calls.steps)).fault is None

    def _differs(self, observed: Observed) -> Source | None:
        """The first line whose eager values differ from those of the recording."""
        known: dict[Source, list[Any]] = {}
        for ran in observed.applications:
            if ran.source is not None:
                known.setdefault(ran.source, []).extend(ran.results)
        before = Lockstep(self.fn, self.fn).state(self.call)
        try:
            return line_that_differs(self.fn, self.call, known, self.roots)
        finally:
            before.restore()

    def _changed(self, change: Change) -> Observed:
        """Observe a changed call; the state is restored."""
        return self._in(change, lambda given, roots: observe(self.fn, given, roots))

    def _in(self, change: Change, look: Callable[[Call, dict[str, Any]], T]) -> T:
        """Return ``look`` of a changed call and its roots, and restore the state."""
        before = Lockstep(self.fn, self.fn).state(self.call)
        try:
            given = change.make(self.call)
            with nullcontext() if change.around is None else change.around():
                return look(given, Lockstep(self.fn, self.fn).roots(given))
        finally:
            change.undo()
            before.restore()

    def _guard(self, fault: CallFault, usual: Observed, change: Change) -> Divergence:
        """Locate a guard: the recording of another call served this one; find the first difference between the two."""
        changed = self._changed(change)
        if changed.raised is not None and fault.mismatches[0].place == RAISED:  # and not by the old recording
            return self._at(fault, "guards", "an old recording served a call that raises an error", changed.raised)
        line = self._line(fault, changed)
        if changed.refused:
            return self._at(fault, "recorded", f"the recording ended early: {changed.refused}", line)
        parted = self._parted(fault, usual, changed)
        if parted is not None and parted.stage == "guards" and (branch := self._branch(change)) is not None:
            return self._at(fault, "guards", "a condition holds in one of the calls alone", branch)
        if parted is None and not any(m.place.startswith(("result", "gradient", RAISED)) for m in fault.mismatches):
            # The observed calls are equal: the recording misses a side effect.
            return self._at(fault, "recorded", "state after the call", line)
        return parted or self._at(fault, "guards", "an old recording served this call", line)

    def _branch(self, change: Change) -> Source | None:
        """The line at which a changed call takes another way than the usual one."""
        usual = lines_of(self.fn, self.call, self.roots)
        return line_that_parts(usual, self._in(change, lambda given, roots: lines_of(self.fn, given, roots)))

    def _like_none_before(self, fault: CallFault) -> Divergence | None:
        """The first difference between this call and all recorded ones; None if it equals one of them."""
        here = self._after(fault.number - 1)
        parted = None
        for n in range(fault.made_in):
            parted = self._parted(fault, self._after(n), here)
            if parted is None:
                break
        return parted

    def _parted(self, fault: CallFault, usual: Observed, here: Observed) -> Divergence | None:
        """The first difference between the recorded call and the one that its recording served."""
        for a, b in zip_longest(usual.events, here.events):
            if not _alike(a, b):
                event = b or a
                kind = "predicates" if event.kind == "value" else "guards"
                what = "a value that Python reads" if event.kind == "value" else f"{event.what[0]}"
                return self._at(fault, kind, f"{what} differs in this call", event.source)
        return None

    def _after(self, count: int) -> Observed:
        """Observe the call after ``count`` earlier ones; the state is restored."""
        before = Lockstep(self.fn, self.fn).state(self.call)
        try:
            for _ in range(count):
                outcome(self.fn, self.call, self.roots, differentiate=False)
            return observe(self.fn, self.call, self.roots)
        finally:
            before.restore()

    def _line(self, fault: CallFault, observed: Observed) -> Source | None:
        """The line that computes or changes the differing value."""
        places = [m.place for m in fault.mismatches]
        # State comes before results that are read from it.
        place = next((p for p in places if not p.startswith(("gradient", "result"))), None)
        place = place or next((p for p in places if not p.startswith("gradient")), places[0])
        known = observed.results.get(place.removesuffix(".requires_grad").partition(EARLIER)[0])
        if known is not None:
            return known
        given = self.call
        before = Lockstep(self.fn, self.fn).state(self.call)
        try:
            if fault.step.change is not None:
                given = fault.step.change.make(self.call)
            found = line_that_changes(self.fn, given, place, Lockstep(self.fn, self.fn).roots(given))
        finally:
            if fault.step.change is not None:
                fault.step.change.undo()
            before.restore()
        if found is None:
            found = next((s for s in observed.results.values() if s is not None), None)
        return found or next((e.source for e in reversed(observed.events) if e.source), None)

    def any_line(self) -> Source | None:
        """The line that changes the first piece of state that the call changes, or that computes its result."""
        before = Lockstep(self.fn, self.fn).state(self.call)
        try:
            left = outcome(self.fn, self.call, self.roots, differentiate=False)
        finally:
            before.restore()
        same = Outcome({k: v for k, v in left.values.items() if k in before.values})
        for mismatch in mismatches(Outcome({k: before.values[k] for k in same.values}), same, 0.0):
            found = line_that_changes(self.fn, self.call, mismatch.place, self.roots)
            if found is not None:
                return found
        observed = observe(self.fn, self.call, self.roots)
        return next((s for s in observed.results.values() if s is not None), None)

    def _at(self, fault: CallFault, stage: str, what: str, source: Source | None) -> Divergence:
        return Divergence(stage, what, shown_source(source), call=str(fault))

    # ---- machine code

    def eager(self, calls: Calls, limits: Limits | None) -> Divergence | None:
        """Find calls in which machine code of eager operators differs from numpy."""
        run = _Eager(self.fn)
        with numpy_alone():
            found = run_calls(self.fn, run, self.call, self.tolerance, limits, len(calls.steps)).fault
        if found is None:
            return None
        with numpy_alone():
            observed = observe(self.fn, self.call, self.roots)
        line = None if found.step.change else self._differs(observed)
        line = line or self._line(found, observed)
        return replace(self._at(found, "eager", "machine code of eager operators", line), step="eager programs")

    def native(self, calls: Calls, limits: Limits | None) -> Divergence:
        """Locate a wrong native call whose graphs are all right: the part of the library without which it is right."""
        fault = calls.fault
        assert fault is not None
        line = self._line(fault, observe(self.fn, self.call, self.roots))
        for name, make in self._without():
            if self._right(calls, limits, make):
                return replace(self._at(fault, name, f"right without: {name}", line), step=name)
        return self._at(fault, "native call", "skipping any single step does not correct it", line)

    def _right(self, calls: Calls, limits: Limits | None, run: Callable[[Callable[[Make], Calls]], Calls]) -> bool:
        def again(make: Make) -> Calls:
            return run_calls(self.fn, make(), self.call, self.tolerance, limits, len(calls.steps))

        return run(again).fault is None

    def _at_each_size(self) -> Compiled:
        made = self.compiled()
        made.dynamic = False
        made.reset()
        return made

    def _without(self) -> Iterator[tuple[str, Callable[[Callable[[Make], Calls]], Calls]]]:
        """Yield the same calls, each without one part of the library."""

        def fresh(again: Callable[[Make], Calls]) -> Calls:
            # If programs are verified, none is loaded from the disk, not even one that these calls have stored.
            with tempfile.TemporaryDirectory() as folder, config.override(cache_dir=folder, verify=True):
                return again(self.compiled)

        yield "cache", fresh
        # Steps before call paths: without native calls, a preparation is also reused less often.
        steps: list[Step[Any]] = [*PIPELINE, *LOWERING]
        for name in [s.name for s in reversed(steps) if not s.needed]:
            yield name, partial(_overriding, make=self.compiled, skip_passes=(name,))
        yield "dynamic sizes", lambda again: again(self._at_each_size)
        yield "native call", lambda again: again(lambda: _through_python(self.compiled()))
        yield "threads", lambda again: _overriding(again, self.compiled, num_threads=1)


def _before(calls: Calls) -> Change | None:
    """The change of the call before the last, if the last is the original one."""
    return calls.steps[-2].change if len(calls.steps) > 1 else None


def _overriding(again: Callable[[Make], Calls], make: Make, **settings: Any) -> Calls:
    with config.override(**settings):
        return again(make)


class _Eager:
    """A function in eager mode, regardless of settings around its calls."""

    recordings = 0

    def __init__(self, fn: Callable[..., object]) -> None:
        self.fn = fn

    def __call__(self, *args: object, **kwargs: object) -> object:
        unwatch_calls()  # those of ``numpy_alone``: machine code serves calls that are made often
        try:
            with config.override(eager="native"):
                return self.fn(*args, **kwargs)
        finally:
            watch_calls()


def _through_python(compiled: Compiled) -> Compiled:
    """The same function, whose calls all go through Python."""

    class Slow(type(compiled)):  # type: ignore[misc]
        def _fitted(self, entry: Entry, leaves: object) -> None:
            return None

    compiled.__class__ = Slow
    compiled.__call__ = compiled._general
    return compiled


def _alike(a: Event | None, b: Event | None) -> bool:
    return a is not None and b is not None and (a.kind, a.source) == (b.kind, b.source) and bool(a.what == b.what)

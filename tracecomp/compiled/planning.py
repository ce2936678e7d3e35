"""The plans of one function's recordings: made while a call waits, or in the background while calls run eagerly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

from tracecomp.base.locks import Lock
from tracecomp.compiled.backends import BACKENDS, Make, where, with_settings
from tracecomp.compiled.background import Job
from tracecomp.compiled.entry import Entry
from tracecomp.compiled.recompile_policy import RecompilePolicy
from tracecomp.compiled.replay import CallSizes, Plan
from tracecomp.record.dynamic_shapes.generalize import Sized
from tracecomp.record.recording import Recording
from tracecomp.runtime.malloc import return_unused


class Planner:
    """Makes plans by the options of a compiled function; ``policy`` has its budget, ``lock`` is the function's.

    ``make`` makes the program of a graph. Calls wait for it if ``waits`` is true. ``alike`` compiles other functions
    with the same options.
    """

    def __init__(
        self, backend: str, threads: int | None, settings: Mapping[str, object], waits: bool,
        alike: Callable[[], Callable[[Any], Any]], policy: RecompilePolicy, lock: Lock,
    ) -> None:  # fmt: skip
        self.waits = waits or backend != "native" or "check" in settings
        self.make: Make = partial(with_settings, settings, BACKENDS[backend]) if settings else BACKENDS[backend]
        self._threads = threads
        self._settings = settings
        self._alike = alike
        self._policy = policy
        self._lock = lock

    def plan(self, entry: Entry) -> Plan:
        """The plan of an entry; a compilation that is under way in the background is waited for."""
        if entry.plan is None:
            with self._lock, nullcontext() if entry.job is None else entry.job.delivered():
                if entry.plan is None:
                    return_unused()
                    entry.plan = self._new(entry.recording)
        return entry.plan

    def for_sizes(self, recording: Recording, sized: Sized) -> Plan:
        """A plan that serves more sizes than those of the recording."""
        return self._new(recording, sized)

    def awaited(self, entry: Entry, sizes: CallSizes) -> Job | None:
        """The job of the program for a call, which is not ready or has failed; None for a call that need not wait."""
        if self.waits:
            return None
        with self._lock:
            if not self.take(entry):
                return entry.job
            if entry.job is None and not entry.is_ready(sizes):
                entry.job = where(self._settings, lambda: entry.begin(sizes))
            return entry.job

    def take(self, entry: Entry) -> bool:
        """Use what the background has compiled for ``entry``; False if it has failed."""
        job = entry.job
        if job is None or not job.done.is_set():
            if job is not None and job.lost:
                entry.job = None
            return True
        if job.error:
            return False
        budget = self._policy.budget
        budget.spent += job.worked
        with budget.spending(), job.delivered():
            self.plan(entry).make_begun()
        entry.job, entry.made = None, job.says
        return True

    def wait(self, entry: Entry) -> Job | None:
        """Return when all programs of ``entry`` are ready: None, or the job that has failed."""
        if entry.job is not None:
            entry.job.wait()
            with self._lock:
                if not self.take(entry):
                    return entry.job
        self.plan(entry).wait()
        return None

    def _new(self, recording: Recording, sized: Sized | None = None) -> Plan:
        return Plan(recording, self.make, self._threads, self._alike(), sized, None if self.waits else self._settings)

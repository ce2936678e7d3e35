"""Dispatch of calls: find the recording whose guards hold and run it, or ask the policy what to do without one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import takewhile
from typing import Any
from weakref import WeakSet

from tracecomp.autograd import profiler
from tracecomp.base import logs
from tracecomp.base.capture_guide import BreakReason, Section
from tracecomp.base.errors import CaptureError
from tracecomp.base.gc_pause import without_collecting
from tracecomp.base.locks import Lock
from tracecomp.base.user_warnings import warn_user
from tracecomp.compiled import background, stance
from tracecomp.compiled.backends import BACKENDS
from tracecomp.compiled.background import Job
from tracecomp.compiled.budget import Budget
from tracecomp.compiled.entry import Entry
from tracecomp.compiled.native_call import call_code
from tracecomp.compiled.parts import Parts
from tracecomp.compiled.planning import Planner
from tracecomp.compiled.recompile_policy import RecompilePolicy
from tracecomp.compiled.replay import Arguments, CallSizes, Plan
from tracecomp.compiled.sampled_verification import Verifier
from tracecomp.eager.modes import asks_for_eager, modes
from tracecomp.eager.tensor import Tensor
from tracecomp.record.capture import Refusal
from tracecomp.record.pytree import Leaves, flatten_call
from tracecomp.record.recording import Recording, SeenValue


class CallDispatcher:
    """The calls of ``fn``: each runs a recording, compiled parts, or Python.

    ``entries`` are the recordings in use, most recently used first. ``parts`` or ``eager_because`` are set once the
    graph has broken.
    """

    __slots__ = ("__call__", "__dict__", "__weakref__")  # a function in a slot is called without Python
    __call__: Callable[..., Any]
    quiet = False
    """Whether graph breaks are silent: another compiled function has warned, or the program did not ask to compile."""
    whole = False
    """Whether it becomes eager where its graph breaks, instead of running in parts."""

    def __init__(
        self, fn: Any, fullgraph: bool, threads: int | None, backend: str, dynamic: bool | None, fast_math: bool,
        checked: bool, disable: bool, wait: bool,
    ) -> None:  # fmt: skip
        if backend not in BACKENDS:
            raise ValueError(f"compile(): backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
        self.fn = fn
        self.fullgraph = fullgraph
        self.threads = threads
        self.backend = backend
        self.dynamic = dynamic
        self.fast_math = fast_math
        self.checked = checked
        self.waits = wait
        self.entries: list[Entry] = []
        self.eager_because = "disable=True" if disable else None
        self.parts: Parts | None = None
        self._recompile = RecompilePolicy(fn, fullgraph, dynamic, self._new_budget())
        self._name = self._recompile.name
        self._lock = Lock()
        settings = {k: True for k, asked in (("fast_math", fast_math), ("check", checked)) if asked}
        self._planner = Planner(backend, threads, settings, wait, self._alike, self._recompile, self._lock)
        self._chain: list[Any] = []
        self._ended = 0  # objects of recordings that are gone
        self._verifier: Verifier | None = None
        self.__call__ = self._general
        _all.add(self)

    _new_budget: Callable[[], Budget] = Budget

    def _alike(self) -> Callable[[Any], Any]:
        """Compiles other functions with the options of this one."""
        raise NotImplementedError

    def reset(self) -> None:
        """Forget all recordings."""
        self.entries = []
        self.parts = None
        if self._recompile.budget.closed and self.eager_because is not None:
            self.eager_because = None
            self.__call__ = self._verifier or self._general
        self._recompile.reset(self.dynamic, self._new_budget())
        self._relink()

    # ---- with a recording

    def _general(self, *args: Any, **kwargs: Any) -> Any:
        """A call that native code alone cannot serve."""
        if self.eager_because is not None or modes.recorder is not None or _is_eager_now():
            return self.fn(*args, **kwargs)
        if self.parts is not None:
            return self.parts(*args, **kwargs)
        try:
            structure, leaves = flatten_call(args, kwargs)
        except RecursionError:
            return self._run_unflattened(args, kwargs)
        entries, policy = self.entries, self._recompile
        # The recordings in order of use. Each checks its guards; one whose guards hold may still meet another value
        # (``bool(t)``), and the next check then knows that value.
        known: dict[int, Any] = {}
        reason = new = missed = None
        for entry in entries:
            recording = entry.recording
            miss, sizes = entry.miss(structure, leaves)
            if miss is not None:
                # The first whose arguments have the same structure tells more than that theirs is another.
                if missed is None or (missed.guards.structure != structure and recording.guards.structure == structure):
                    reason, missed = miss, recording
                continue
            if known and not recording.allows(known):
                continue
            if policy.needs_inputs(entry):
                reason = reason or "numbers it reads become inputs"
                continue
            if not entry.is_ready(sizes):
                if entry.job is None and not policy.allows_program(entries, entry):
                    return policy.budget.eagerly(self.fn, args, kwargs, entry.rent)
                if (job := self._planner.awaited(entry, sizes)) is not None:
                    return self._meanwhile(job, args, kwargs)
            held, found = self._run(entry, leaves, (args, kwargs), sizes)
            if held == len(recording.predicates):  # the call is done
                self._fitted(entry, leaves)
                return found
            # Nothing was changed yet. An eager call repeats an error, and its writes before; else try other recordings.
            if held < 0 and not recording.may_be_left:
                return self.fn(*args, **kwargs)
            if held < 0:
                reason = f"on a path already recorded: {found}"
                continue
            known.update(enumerate([p.seen for p in recording.predicates[:held]]))
            known[held] = found
            new = (recording.predicates[held], found)
            policy.learned.another_path(*new)
            reason = f"the value at {new[0].source} was {found}, a path not seen before"
        return self._record(args, kwargs, entries, reason, new, missed)

    def _run_unflattened(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        """Run a call eagerly whose arguments hold themselves, or are nested too deeply."""
        if self.fullgraph:
            cause = f"{self._name} is given a container that holds itself, or is nested too deeply"
            raise CaptureError(str(BreakReason(cause, Section.STATE, "Pass its tensors")))
        return self.fn(*args, **kwargs)

    def _run(self, entry: Entry, leaves: Leaves, given: Arguments, sizes: CallSizes) -> tuple[int, Any]:
        """Call the plan of ``entry``, as one event if a profile is active."""
        if not entry.is_ready(sizes):
            with self._recompile.budget.spending():
                self._plan(entry).prepare(sizes)
        plan = self._plan(entry)
        if not profiler.watching():
            return plan.call(leaves, given, sizes)
        plan.prepare_timing()
        with profiler.record_function(f"compiled {self._name}"):
            return plan.call(leaves, given, sizes)

    def _meanwhile(self, job: Job, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        """Make a call whose program is being compiled, or cannot be."""
        if job.error and self.eager_because is None:
            self._stay_eager(job)
        return job.eagerly(self.fn, args, kwargs)

    def _stay_eager(self, job: Job) -> None:
        """Run all calls eagerly, because a program cannot be compiled."""
        self.eager_because = background.failed(job)
        self.__call__ = self.fn

    def wait(self) -> None:
        """Return when the programs of all calls recorded so far are compiled and loaded.

        Until then, calls run eagerly: large programs are compiled in another process.
        """
        for entry in self.entries:
            if (failed := self._planner.wait(entry)) is not None:
                return self._stay_eager(failed)
        for part in () if self.parts is None else self.parts.used():
            part.wait()

    def _plan(self, entry: Entry) -> Plan:
        return self._planner.plan(entry)

    def _fitted(self, entry: Entry, leaves: Leaves) -> None:
        """Try the entry that fitted last first, and without Python, if that is possible.

        Its record is made again if that promises to be worth it.
        """
        again, lost = entry.wants_record(), entry.wants_check()
        if not (again or lost) and self.entries and self.entries[0] is entry:
            return
        with self._lock:
            self.entries = [entry, *(e for e in self.entries if e is not entry)]
            code = call_code() if (again or lost) and self.backend == "native" else None
            if code is not None and again and entry.plan is not None and entry.plan.sized is None:
                without_collecting(partial(entry.write_record, leaves, code))
                if self.__call__ == self._general:
                    self.__call__ = code.builtin(self._general, self._chain)
                elif self._verifier is not None and self._verifier.run == self._general:
                    self._verifier.run = code.builtin(self._general, self._chain)
            if code is not None and entry.fast is None:
                entry.watch(leaves, code)
            self._relink()

    def _relink(self) -> None:
        """Let native code try the records in the order of entries, up to the first entry that needs Python.

        None while a profile is active, which needs the kernels, or while all calls must be eager.
        """
        python = profiler.watching() or stance.current.name == "force_eager"
        ended = -1
        while ended != self._ended:  # a collection while the list is made may end objects
            ended = self._ended
            entries = [] if python else self.entries
            self._chain[:] = [e.fast for e in takewhile(lambda e: e.fast is not None, entries)]

    def _object_ended(self) -> None:
        """Drop what refers to an object that is gone. Python may call this at any time, so it is without the lock."""
        self._ended += 1
        for e in self.entries:
            e.drop_moved()
            if e.has_ended():
                self._recompile.learned.ended = e.recording.guards.kinds()
        self.entries = [e for e in self.entries if not e.has_ended()]
        self._relink()

    # ---- without a recording

    def _record(
        self, args: tuple[object, ...], kwargs: dict[str, object], tried: list[Entry], reason: str | None,
        seen: tuple[SeenValue, Any] | None, missed: Recording | None,
    ) -> Any:  # fmt: skip
        """Record the call, which none of ``tried`` fits, and keep the recording; run as Python if more would not help.

        ``seen``: this call had another value at a place where Python needs one. ``missed``: the one that fits best.
        """
        with self._lock:
            run = self._instead(args, kwargs, tried, reason)
            if run is None:
                if missed is not None:
                    self._recompile.learned.missed(missed, flatten_call(args, kwargs)[1])
                return self._make_recording(args, kwargs, reason, seen)
        return run(*args, **kwargs)  # without the lock: the function may wait for another thread that calls it

    def _instead(
        self, args: tuple[object, ...], kwargs: dict[str, object], tried: list[Entry], reason: str | None
    ) -> Callable[..., Any] | None:
        """Return what to call instead of recording; None to record."""
        fn: Callable[..., Any] = self.fn
        if len(self.entries) > len(tried):  # another thread has recorded meanwhile
            return self
        if any(isinstance(x, Tensor) and x.is_meta for x in flatten_call(args, kwargs)[1]):
            return fn  # there is nothing to compute
        if not stance.current.records(self._name) or self._recompile.at_limit(self.entries, reason):
            return fn
        return None if self._recompile.allows_recording(self.entries) else self._decline(reason or "")

    def _make_recording(
        self, args: tuple[object, ...], kwargs: dict[str, object], reason: str | None,
        seen: tuple[SeenValue, Any] | None,
    ) -> Any:  # fmt: skip
        """Record the call, with the lock."""
        policy = self._recompile
        hopeless = policy.hopeless(self.entries, reason, seen)
        if hopeless is not None:
            self._break(hopeless)
            return self(*args, **kwargs)
        self.entries = policy.make_room(self.entries)
        result, recording = policy.record(self.entries, args, kwargs)
        if isinstance(recording, Recording):
            recording.guards.reads.lifetimes.watch(self._object_ended)
        kept = policy.keep(self.entries, recording, self._planner.for_sizes)
        if isinstance(kept, Refusal):
            self._break(kept)
        else:
            self.entries = kept
            self._relink()
        return result

    def _decline(self, reason: str) -> Callable[..., Any]:
        """Return the eager call for one that is not worth a recording or program; after many in a row stop for good."""
        with self._lock:
            if self._recompile.gives_up(self.entries):
                self._stop(reason)
        policy = self._recompile
        return lambda *args, **kwargs: policy.budget.eagerly(self.fn, args, kwargs, policy.rent)

    def _stop(self, reason: str) -> None:
        """Record and compile no more, unless later calls pay for it. Recordings that have served calls stay."""
        spent, remedy = self._recompile.close(self.entries, reason)
        self.entries = [e for e in self.entries if e.calls()]
        self._relink()
        if not self.entries:
            self.eager_because = f"it {spent}"
            self.__call__ = self.fn
        if not self.quiet:
            which = "Calls that no recording matches" if self.entries else "Its calls"
            warn_user(f"{self._name} {spent}", f"{which} now run eagerly", remedy, about=self._name, fn=self.fn)

    def _break(self, why: Refusal) -> None:
        """Run as Python with compiled parts from now on, cut at the lines; as Python alone if there are none."""
        reason: BreakReason = why.reason
        if self.fullgraph:
            raise CaptureError(str(reason))
        if logs.wanted("breaks"):
            logs.log("breaks", f"{self._name}: {reason}")
        parts = None if self.whole else Parts(self.fn, why.lines, str(reason), self._alike())
        if parts is not None and parts.found:
            self.parts = parts
        else:
            self.eager_because = str(reason)
        self._chain.clear()
        self.entries = []
        if not self.quiet:
            how = "as Python between compiled parts" if self.parts is not None else "eagerly, without compiled code"
            cause = f"graph break in {self._name}: {reason.cause}"
            warn_user(cause, f"Its calls now run {how}, which is slower", reason.advice, fn=self.fn)


def _is_eager_now() -> bool:
    """Whether compiled functions run eagerly: by the stance, or by a mode of this thread."""
    return stance.current.name == "force_eager" or asks_for_eager() is not None


_all: WeakSet[CallDispatcher] = WeakSet()


def relink_all() -> None:
    """Update the native call paths of all compiled functions."""
    for dispatcher in list(_all):
        dispatcher._relink()


profiler.watchers.append(relink_all)

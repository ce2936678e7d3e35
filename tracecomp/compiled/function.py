"""``compile`` and ``trace``: the first call runs eagerly and is recorded; later calls that fit run the recording."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial, update_wrapper
from itertools import takewhile
from types import MethodType
from typing import Any
from weakref import WeakSet

from tracecomp.autograd import profiler
from tracecomp.base import config, logs
from tracecomp.base.capture_guide import BreakReason, Section
from tracecomp.base.errors import CaptureError, Source
from tracecomp.base.lazy_names import load_module
from tracecomp.base.locks import Lock
from tracecomp.base.user_warnings import warn_user
from tracecomp.compiled import stance
from tracecomp.compiled.backends import BACKENDS, Make, with_settings
from tracecomp.compiled.budget import Budget
from tracecomp.compiled.eager_vs_compiled import Call
from tracecomp.compiled.entry import Entry
from tracecomp.compiled.kernel_profile import Profile
from tracecomp.compiled.mismatch_lines import first_difference, in_pieces
from tracecomp.compiled.native_call import call_code, fast_record
from tracecomp.compiled.parts import Parts
from tracecomp.compiled.program_state import ProgramState
from tracecomp.compiled.replay import Arguments, Plan
from tracecomp.compiled.sampled_verification import Verifier
from tracecomp.compiled.varying_values import MAX_NEEDED, Learned, needed
from tracecomp.eager.modes import asks_for_eager, modes
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.graph import Graph
from tracecomp.record.capture import Refusal, record
from tracecomp.record.dynamic_shapes.generalize import sized
from tracecomp.record.dynamic_shapes.padding import NotSized
from tracecomp.record.pytree import Leaves, flatten_call
from tracecomp.record.recording import Recording, SeenValue
from tracecomp.runtime.malloc import return_unused

MAX_RECORDINGS = 64
"""Recordings of one function: a program that needs more changes at every call."""
MAX_MISSES = 256
"""Reasons for new recordings that are kept for ``explain``."""
MAX_PARTIAL_RECORDINGS = 16
"""Calls in a row that no recording may serve, of a function that may run in parts or eagerly instead."""
MAX_UNSETTLED = 4
"""Recordings in a row whose state was not settled, as optimizers' is before their first step."""


class Compiled:
    """A function or module whose calls are recorded once per kind of call and then run from the recording."""

    __slots__ = ("__call__", "__dict__", "__weakref__")  # a function in a slot is called without Python
    __call__: Callable[..., Any]

    def __init__(
        self, fn: Any, *, fullgraph: bool = False, threads: int | None = None, backend: str = "native",
        dynamic: bool | None = None, fast_math: bool = False, disable: bool = False, checked: bool = False,
        verify: str | int | None = None, mismatch: str = "raise",
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
        self.entries: list[Entry] = []
        self.misses: list[str] = []
        self.eager_because = "disable=True" if disable else None
        self.parts: Parts | None = None
        self._limited = False  # it was said that further calls run eagerly
        self.quiet = False  # a part of another compiled function, which has warned
        self.recordings = 0
        self._unserved = 0
        self._budget = self._new_budget()
        self._learned = Learned(dynamic)
        self._lock = Lock()
        self._chain: list[Any] = []
        self._verifier = None if verify is None else Verifier(self, verify, mismatch)
        self.__call__ = self._verifier or self._general
        _all.add(self)
        if not hasattr(fn, "state_dict"):
            update_wrapper(self, fn, updated=())

    _new_budget: Callable[[], Budget] = Budget

    def _general(self, *args: Any, **kwargs: Any) -> Any:
        """A call that native code alone cannot serve."""
        if self.eager_because is not None or modes.recorder is not None or _is_eager_now():
            return self.fn(*args, **kwargs)
        if self.parts is not None:
            return self.parts(*args, **kwargs)
        structure, leaves = flatten_call(args, kwargs)
        entries = self.entries
        # The recordings in order of use. Each checks its guards; one whose guards hold may still meet another value
        # (``bool(t)``), and the next check then knows that value.
        known: dict[int, Any] = {}
        reason = new = None
        for entry in entries:
            recording = entry.recording
            miss = recording.guards.miss(structure, leaves)
            if miss is not None:
                if reason is None:
                    reason = miss
                    if not self._budget.closed:
                        self._learned.missed(recording, leaves)
                continue
            if known and not recording.allows(known):
                continue
            if (
                entry.plan is None
                and not self._learned.follow
                and recording.reads_floats()
                and stance.current.name == "default"
            ):
                # Floats that a step changes (a learning rate) would make each call record: they become inputs first.
                # They are as good as certain to differ, and compiling takes longer than recording.
                self._learned.follow = True
                reason = reason or "numbers it reads become inputs"
                continue
            if not self._is_ready(entry, leaves) and not self._allows():
                return self._decline("these sizes need another program")(*args, **kwargs)
            held, found = self._run(entry, leaves, (args, kwargs))
            if held == len(recording.predicates):  # the call is done
                self._fitted(entry, leaves)
                return found
            # Nothing was changed yet, so that another recording may be tried.
            if held < 0:
                reason = f"on a path already recorded: {found}"
                continue
            known.update(enumerate([p.seen for p in recording.predicates[:held]]))
            known[held] = found
            new = (recording.predicates[held], found)
            self._learned.another_path(*new)
            reason = f"the value at {new[0].source} was {found}, a path not seen before"
        return self._record(args, kwargs, entries, reason, new)

    @staticmethod
    def _is_ready(entry: Entry, leaves: Leaves) -> bool:
        """Whether a call that ``entry`` fits needs nothing compiled."""
        return entry.plan is not None and entry.plan.is_ready(leaves)

    def _run(self, entry: Entry, leaves: Leaves, given: Arguments) -> tuple[int, Any]:
        """Call the plan of ``entry``, as one event if a profile is active."""
        if not self._is_ready(entry, leaves):
            with self._budget.spending():
                self._plan(entry).prepare(leaves)
        plan = self._plan(entry)
        if not profiler.watching():
            return plan.call(leaves, given)
        plan.prepare_timing()
        with profiler.record_function(f"compiled {self._name}"):
            return plan.call(leaves, given)

    def _line_of_difference(self, call: Call, place: str, before: ProgramState) -> Source | None:
        """The line where an eager call first differs from the recording that serves it, or sets ``place``.

        The call is made again, from the state ``before``.
        """
        args, kwargs = call
        source = None
        if self.parts is not None:
            source = in_pieces(self.parts.used(), partial(self._general, *args, **kwargs))
        elif self.entries:
            entry = self.entries[0]
            _, new = record(
                self.fn, args, kwargs, self._name, False, places=self._learned.places(), follow=entry.follows,
            )  # fmt: skip
            source = first_difference(self.fn, entry.recording, new)
        before.restore()
        return source or _above("inspect.line_watch").line_of_place(self.fn, call, place)

    def save(
        self, path: str | os.PathLike[str], *args: Any, also: Sequence[tuple[object, ...]] = (),
        kind: str = "code", levels: Sequence[str] | None = None, dynamic_shapes: object = None,
    ) -> str:  # fmt: skip
        """Write the programs of calls with ``args`` to a file, with the current state; return the file's digest.

        ``kind`` "code" is machine code, which needs only numpy and ``tracecomp_runtime``, without llvmlite and without
        this function's code. It is loaded by its digest only. ``levels`` are its processors (default: ``x86-64-v2``,
        ``-v3`` and ``-v4``; also available: ``aarch64``). ``kind`` "graph" is text, checked and compiled by the loader.
        ``also`` are further tuples of arguments, of other shapes. Calls that are not recorded yet are made, until they
        settle.

        ``dynamic_shapes`` makes sizes dynamic, by the arguments' names or in their order, as in ``{"x": {0:
        Dim("batch", max=64)}}``; those of ``mark_dynamic`` are dynamic, too. Such a program takes all sizes of the
        range (from 1 on, unless ``Dim`` has ``min``), and sizes of one name are equal. It is recorded at some of them,
        on repeated elements of ``args``, and the changes of these calls are reverted.

        CaptureError names parts that cannot be saved; ValueError for a ``kind`` or level that does not exist, and for a
        size without an end.

        >>> import tracecomp, tempfile, os
        >>> double = tracecomp.compile(lambda x: x * 2)
        >>> path = os.path.join(tempfile.mkdtemp(), "double.tcp")
        >>> digest = double.save(path, tracecomp.ones(3))
        >>> tracecomp.load_program(path, digest=digest)(tracecomp.ones(3))
        tensor([2., 2., 2.])
        """
        digest: str = _above("compiled.saving").save(self, path, args, also, kind, levels, dynamic_shapes)
        return digest

    def __get__(self, owner: object, kind: type | None = None) -> Any:
        return self if owner is None else MethodType(self, owner)

    def __getattr__(self, name: str) -> Any:
        if name == "fn":
            raise AttributeError(name)
        return getattr(self.fn, name)

    def __reduce__(self) -> Any:
        return self._alike(), (self.fn,)

    def _alike(self) -> Callable[[Any], Compiled]:
        """Compiles other functions with the options of this one."""
        return partial(
            Compiled, fullgraph=self.fullgraph, threads=self.threads, backend=self.backend, dynamic=self.dynamic,
            fast_math=self.fast_math, checked=self.checked,
        )  # fmt: skip

    @property
    def _orig_mod(self) -> Any:
        """The module that was compiled, under PyTorch's name."""
        return self.fn

    @property
    def graphs(self) -> list[Graph]:
        """The graphs recorded so far, most recently used first."""
        return [e.recording.graph for e in self.entries]

    def explain(self, *args: Any, **kwargs: Any) -> Any:
        """Return recordings and their reasons, fusions and refusals, and memory: an ``inspect.Explanation``.

        With arguments, also the time and bottleneck of each kernel, and the number of calls after which compiling has
        paid. These are measured on copies of all state. ``print`` shows the result.
        """
        return _above("inspect.explain").explained(self, args, kwargs)

    def report(
        self, path: str | os.PathLike[str], *args: Any, against: object = None, errors: bool = False, **kwargs: Any
    ) -> Any:
        """Write all facts to one self-contained HTML file, and a JSON file next to it; return its path.

        With arguments, kernels are measured as in ``explain``. ``against`` is the JSON file of an earlier report: the
        page then begins with the changes. With ``errors``, every node is computed again, in its own type and in
        float64, which takes as long as the interpreter: the page can colour nodes by the distance.
        """
        return _above("inspect.report").write_report(self, path, args, kwargs, against, errors)

    def profile(self, *args: Any, calls: int = 10, **kwargs: Any) -> Profile:
        """Profile a call: time, bytes, operations and share of the machine's peak for each kernel.

        ``calls`` runs are timed, on copies of all state, so nothing changes; a call that is not compiled yet is first
        made until it is. RuntimeError when it does not run as native kernels alone.
        """
        structure, leaves = flatten_call(args, kwargs)
        for _ in range(MAX_UNSETTLED):
            for entry in self.entries:
                if entry.recording.guards.miss(structure, leaves) is None:
                    return self._plan(entry).profile(leaves, calls)
            self(*args, **kwargs)
        raise RuntimeError(f"profile(): {self._name} was not compiled: {self.eager_because or self.misses[-1:]}")

    def reset(self) -> None:
        """Forget all recordings."""
        self.entries = []
        self.parts = None
        self._learned = Learned(self.dynamic)
        if self._budget.closed and self.eager_because is not None:
            self.eager_because = None
            self.__call__ = self._verifier or self._general
        self._budget = self._new_budget()
        self._relink()

    @property
    def _name(self) -> str:
        return getattr(self.fn, "__name__", type(self.fn).__name__)

    def _how(self) -> tuple[Make, int | None, Callable[[Any], Compiled]]:
        """Further arguments of plans."""
        make = BACKENDS[self.backend]
        chosen = {k: True for k, asked in (("fast_math", self.fast_math), ("check", self.checked)) if asked}
        return partial(with_settings, chosen, make) if chosen else make, self.threads, self._alike()

    def _plan(self, entry: Entry) -> Plan:
        if entry.plan is None:
            with self._lock:
                if entry.plan is None:
                    return_unused()
                    entry.plan = Plan(entry.recording, *self._how())
        return entry.plan

    def _fitted(self, entry: Entry, leaves: Leaves) -> None:
        """Try the entry that fitted last first, and without Python, if that is possible.

        Its record is made again after 1, 2, 4, ... calls that Python had to serve.
        """
        entry.slow_calls += 1
        again = entry.slow_calls & (entry.slow_calls - 1) == 0
        if not again and self.entries and self.entries[0] is entry:
            return
        with self._lock:
            self.entries = [entry, *(e for e in self.entries if e is not entry)]
            code = call_code() if again and self.backend == "native" else None
            if code is not None and entry.plan is not None and entry.plan.sized is None:
                entry.calls()
                entry.fast = fast_record(entry.plan, leaves, code)
                if self.__call__ == self._general:
                    self.__call__ = code.builtin(self._general, self._chain)
                elif self._verifier is not None and self._verifier.run == self._general:
                    self._verifier.run = code.builtin(self._general, self._chain)
            self._relink()

    def _relink(self) -> None:
        """Let native code try the records in the order of entries, up to the first entry that needs Python.

        None while a profile is active, which needs the kernels, or while all calls must be eager.
        """
        python = profiler.watching() or stance.current.name == "force_eager"
        entries = [] if python else self.entries
        self._chain[:] = [e.fast for e in takewhile(lambda e: e.fast is not None, entries)]

    def _object_ended(self) -> None:
        """Drop what refers to an object that is gone. Python may call this at any time, so it is without the lock."""
        for e in self.entries:
            e.drop_moved()
            if e.has_ended():
                self._learned.ended = e.recording.guards.kinds()
        self.entries = [e for e in self.entries if not e.has_ended()]
        self._relink()

    def _record(
        self, args: tuple[object, ...], kwargs: dict[str, object], tried: list[Entry], reason: str | None,
        seen: tuple[SeenValue, Any] | None,
    ) -> Any:  # fmt: skip
        """Record the call, which none of ``tried`` fits, and keep the recording; run as Python if more would not help.

        ``seen``: this call had another value at a place where Python needs one.
        """
        with self._lock:
            run = self._instead(args, kwargs, tried, reason)
            if run is None:
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
        if not stance.current.records(self._name) or self._at_limit(reason):
            return fn
        return None if self.fullgraph or self._allows() else self._decline(reason or "")

    def _make_recording(
        self, args: tuple[object, ...], kwargs: dict[str, object], reason: str | None,
        seen: tuple[SeenValue, Any] | None,
    ) -> Any:  # fmt: skip
        """Record the call, with the lock."""
        self._learned.note_ended(args, kwargs)
        if reason is not None:
            self.misses = [*self.misses[-MAX_MISSES:], reason]
            if logs.wanted("recompiles"):
                logs.log("recompiles", f"{self._name}: {reason}")
        learned = self._learned
        line = None if seen is None else learned.line_in_need(self._name, *seen, self.fullgraph, self.fn)
        most = self._most if line is None else MAX_NEEDED
        if not self._make_room(most):
            cause = f"{most} consecutive recordings of {self._name} matched no later call: {reason}"
            why = BreakReason(cause, Section.FIND) if seen is None else needed(cause)
            self._break(why, learned.lines(most) if line is None else {line} - {0})
            return self(*args, **kwargs)
        self.entries = [e for e in self.entries if not (e.has_ended() or learned.moved(e.recording))]
        numbers = learned.numbers.of_call([e.recording.guards for e in self.entries], args, kwargs)
        follow = learned.follow and not any(e.recording.guards.reads.asks_types for e in self.entries)
        with self._budget.spending():
            result, recording = record(
                self.fn, args, kwargs, self._name, self.fullgraph, places=learned.places(), follow=follow,
                varying=learned.varying_sizes(self.entries, args, kwargs), numbers=numbers, shared=learned.shared,
            )  # fmt: skip
        self.recordings += 1
        hopeless = self._keep(recording)
        if hopeless is not None:
            self._break(hopeless.reason, hopeless.lines)
        return result

    def _keep(self, recording: Recording | Refusal) -> Refusal | None:
        """Use a recording for the calls to come, or learn from it what the next one is to do otherwise.

        A refusal when there is no use in further ones.
        """
        learned = self._learned
        if isinstance(recording, Refusal):
            return recording
        if learned.numbers.asked(recording.guards):
            pass  # the next call with this value is recorded
        elif recording.unsettled is None:
            learned.unsettled = 0
            if logs.wanted("graphs"):
                logs.log("graphs", str(recording.graph))
            if recording.sizes is not None:
                learned.sizes.check(recording.sizes.sources, recording.sizes.conditions)
            entry = Entry(recording, follows=learned.follow)
            recording.guards.reads.lifetimes.watch(self._object_ended)
            # The check of the other recordings is last: those that a dynamic program replaces are then gone.
            every = self._for_every_size(entry)
            self.entries = [entry, *every, *learned.still_useful(self.entries, recording)]
            self._relink()
        elif learned.moved(recording) or learned.shares(recording):
            self._relink()
        else:
            learned.unsettled += 1
            if learned.unsettled >= MAX_UNSETTLED:
                cause = f"every call of {self._name} {recording.unsettled.cause}{self._place}"
                return Refusal(replace(recording.unsettled, cause=cause), recording.blamed)
        return None

    def _for_every_size(self, new: Entry) -> list[Entry]:
        """An entry that serves every size, when an earlier recording and ``new`` differ in nothing else."""
        if new.recording.sizes is None:
            return []
        reasons = []
        for e in self.entries:
            if e.is_sized():
                continue
            try:
                found = sized(e.recording, new.recording)
            except NotSized as reason:
                reasons.append(f"this size was compiled separately: {reason}")
                continue
            plan = Plan(found.recording, *self._how(), found)
            self.entries = [e for e in self.entries if not e.covered_by(plan.recording)]
            return [Entry(plan.recording, new.follows, plan)]
        self.misses += reasons[:1]
        return []

    def _make_room(self, most: int) -> bool:
        """Whether another recording is worthwhile after ``most`` consecutive ones that served no call.

        If there are too many, the least recently used one is dropped.
        """
        if self._count_unserved() >= most and len(self.entries) >= most:
            return False
        if len(self.entries) >= MAX_RECORDINGS:
            self.entries.pop()
        return True

    def _count_unserved(self) -> int:
        """How many calls in a row no recording has served, with the present one."""
        self._allows()
        self._unserved += 1
        return self._unserved

    def _allows(self) -> bool:
        """Whether the calls served so far have paid for another recording or program."""
        served = sum(e.newly_served() for e in self.entries)
        self._budget.served += served
        self._unserved = 0 if served else self._unserved
        return self._budget.allows()

    def _decline(self, reason: str) -> Callable[..., Any]:
        """Return the eager call for one that is not worth a recording or program; after many in a row stop for good."""
        with self._lock:
            if not self._budget.closed and self._count_unserved() >= self._most and not self.fullgraph:
                self._stop(reason)
        return lambda *args, **kwargs: self._budget.eagerly(self.fn, args, kwargs)

    def _stop(self, reason: str) -> None:
        """Record and compile no more. Recordings that have served calls stay."""
        self._budget.closed = True
        cause, remedy = self._learned.cause(self._name, self.entries, reason)
        self.entries = [e for e in self.entries if e.calls()]
        self._relink()
        spent = f"spent {self._budget.says()}, and none of them fitted the last {self._unserved} calls: {cause}"
        if not self.entries:
            self.eager_because = f"it {spent}"
            self.__call__ = self.fn
        if not self.quiet:
            which = "Calls that no recording matches" if self.entries else "Its calls"
            warn_user(f"{self._name} {spent}", f"{which} now run eagerly", remedy, about=self._name, fn=self.fn)

    def _at_limit(self, reason: str | None) -> bool:
        """Whether the limit of recordings is reached; CaptureError if all calls must be graphs."""
        limit = stance.current.limit
        if limit is None or len(self.entries) < limit:
            return False
        cause = f"{self._name}: torch._dynamo hit config.recompile_limit ({limit}). Last reason: {reason}"
        why = BreakReason(cause, Section.FIND)
        if self.fullgraph:
            raise CaptureError(str(why))
        if not self._limited:
            self._limited = True
            cost = "Calls that no recording matches run eagerly"
            warn_user(cause, cost, why.advice, about=("limit", self._name), fn=self.fn)
        return True

    @property
    def _place(self) -> str:
        """Return the place of the function's definition, for messages."""
        code = getattr(inspect.unwrap(getattr(self.fn, "forward", self.fn)), "__code__", None)
        return "" if code is None else f" (defined at {code.co_filename}:{code.co_firstlineno})"

    @property
    def _most(self) -> int:
        """How many recordings in a row may serve no later call."""
        return MAX_RECORDINGS if self.fullgraph else MAX_PARTIAL_RECORDINGS

    def _break(self, reason: BreakReason, lines: Set[int]) -> None:
        """Run as Python with compiled parts from now on, cut at ``lines``; as Python alone if there are none."""
        if self.fullgraph:
            raise CaptureError(str(reason))
        if logs.wanted("breaks"):
            logs.log("breaks", f"{self._name}: {reason}")
        parts = Parts(self.fn, lines, str(reason), self._alike())
        if parts.found:
            self.parts = parts
        else:
            self.eager_because = str(reason)
        self._chain.clear()
        self.entries = []
        if not self.quiet:
            how = "as Python between compiled parts" if parts.found else "eagerly, without compiled code"
            cause = f"graph break in {self._name}: {reason.cause}"
            warn_user(cause, f"Its calls now run {how}, which is slower", reason.advice, fn=self.fn)


def _is_eager_now() -> bool:
    """Whether compiled functions run eagerly: by the stance, or by a mode of this thread."""
    return stance.current.name == "force_eager" or asks_for_eager() is not None


_all: WeakSet[Compiled] = WeakSet()


def relink_all() -> None:
    """Update the native call paths of all compiled functions."""
    for compiled in list(_all):
        compiled._relink()


profiler.watchers.append(relink_all)


def _above(module: str) -> Any:
    """Import a module of a higher layer, which inspects or saves compiled functions, on first use."""
    return load_module(f"tracecomp.{module}")


def compile(
    model: object = None,
    *,
    fullgraph: bool = False,
    threads: int | None = None,
    backend: str = "native",
    dynamic: bool | None = None,
    fast_math: bool = False,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
    disable: bool = False,
    checked: bool = False,
    verify: str | int | None = None,
    mismatch: str = "raise",
) -> Any:
    """Record ``model`` (a function or module) in its first call and run it natively when a call fits; also a decorator.

    With ``fullgraph=False``, parts that cannot be captured run eagerly after a warning instead of raising CaptureError.
    ``backend`` is ``"native"`` or ``"interpret"``. Sizes in which a call differs from an earlier one become dynamic, so
    that one recording serves all of them, if the program permits it. With ``dynamic=True`` all sizes are dynamic from
    the first call on, with ``dynamic=False`` none (docs/capture.md). ``fast_math=True`` allows other rounding: products
    and sums fused, sums regrouped, ``tanh`` and ``erf`` of floats to 5 ULP (docs/numerics.md). ``checked=True`` checks
    every access and result of compiled programs, which then are slow (docs/testing.md): its findings raise CheckError,
    state being as before the call. ``mode`` and ``options`` are PyTorch's and change nothing here.

    ``verify`` compares calls with eager ones, results and state: ``"first"`` the first that runs from a recording, a
    number every so many calls; TRACECOMP_CHECK=calls:100 does so for all functions. WrongResult where bits differ; with
    ``mismatch="warn"`` a warning.
    """
    if verify is None and not disable:
        verify = config.current().check_calls
    if model is None:
        return partial(
            compile, fullgraph=fullgraph, threads=threads, backend=backend, dynamic=dynamic, fast_math=fast_math,
            disable=disable, checked=checked, verify=verify, mismatch=mismatch,
        )  # fmt: skip
    return Compiled(
        model, fullgraph=fullgraph, threads=threads, backend=backend, dynamic=dynamic, fast_math=fast_math,
        disable=disable, checked=checked, verify=verify, mismatch=mismatch,
    )  # fmt: skip


def trace(fn: Callable[..., object], *args: Any, **kwargs: Any) -> Graph:
    """The graph of ``fn(*args, **kwargs)``, which is run once. CaptureError when it cannot be captured."""
    _, recording = record(fn, args, kwargs, getattr(fn, "__name__", type(fn).__name__), derive=False)
    assert isinstance(recording, Recording)
    return recording.graph


__all__ = ["Compiled", "compile", "trace"]

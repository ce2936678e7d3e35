"""``compare``: the same calls eagerly, as recorded graphs, after each pass, kernel by kernel and as native code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tracecomp.base.capture_guide import BreakReason, Section
from tracecomp.base.errors import CaptureError
from tracecomp.compiled.eager_vs_compiled import Call, Lockstep, Mismatch, outcome, repeated
from tracecomp.compiled.function import Compiled
from tracecomp.inspect.blame import Blame
from tracecomp.inspect.calls import Calls, run_calls
from tracecomp.inspect.comparison import WHOLE, Comparison, Divergence, StageResult, shown_source
from tracecomp.inspect.derivatives import check_derivatives
from tracecomp.inspect.eager_check import eager_fault, numpy_alone
from tracecomp.inspect.graph_runs import Noted, Unhurried
from tracecomp.inspect.observed import Application, Observed, observe
from tracecomp.inspect.paths import Limits
from tracecomp.inspect.stages import GraphComparison

Report = Callable[[str], None]


def compare(
    fn: Callable[..., object],
    *args: Any,
    tolerance: float | None = None,
    report: Report = lambda line: None,
    loops: bool = False,
    changed: bool = True,
    check_finite: bool = False,
    dynamic: bool | None = None,
    **kwargs: Any,
) -> Comparison:
    """Run ``fn(*args, **kwargs)`` in every form from eager to native code, and compare them.

    The forms are: eager, the recorded graphs (numpy interpreter), after each pass, and native code. Native code runs
    kernel by kernel and as a whole, with and without fusion, with one thread and two. ``loops`` adds the interpreter of
    loop programs. Steps of backward passes are compared with differences in float64. Then the call is repeated several
    times. ``changed`` also changes one thing after the other: arguments, numbers, tensors, modes, hooks. If two
    neighbours differ, ``compare`` searches the first diverging node, the user's line and the wrong step.

    ``tolerance`` bounds the difference relative to the largest element of an output (default: by type, see
    ``compiled.differences``). If it is exceeded, the same computation in float64 decides which side is wrong.
    ``check_finite`` counts NaN and infinity that arise in the call as a fault. ``dynamic`` as in ``compile``.
    ``report`` is called with a line of progress per stage. All state that is reachable from ``fn`` and its arguments is
    restored at the end: tensors, gradients, optimizers, random numbers, attributes, variables. CaptureError if ``fn``
    cannot be recorded.
    """
    if dynamic is None and isinstance(fn, Compiled):
        dynamic = fn.dynamic
    fn = fn.fn if isinstance(fn, Compiled) else fn
    comparing = _Comparing(fn, (args, kwargs), tolerance, report, dynamic)
    before = Lockstep(fn, fn).state(comparing.call)
    try:
        return comparing.run(loops, changed, check_finite)
    finally:
        before.restore()


class _Comparing:
    """State of one comparison."""

    def __init__(
        self, fn: Callable[..., object], call: Call, tolerance: float | None, report: Report, dynamic: bool | None
    ) -> None:
        self.fn = fn
        self.call = call
        self.report = report
        self.dynamic = dynamic
        self.result = Comparison(getattr(fn, "__name__", type(fn).__name__), tolerance=tolerance)
        self.blame = Blame(fn, call, tolerance, self._compiled, self._noted)

    def _compiled(self) -> Compiled:
        made = Unhurried(self.fn, dynamic=self.dynamic)
        made.quiet = True
        return made

    def _noted(self) -> Noted:
        return Noted(self.fn, dynamic=self.dynamic)

    def run(self, loops: bool, changed: bool, check_finite: bool) -> Comparison:
        result = self.result
        self.report("recording")
        observed = observe(self.fn, self.call, self.blame.roots)
        result.divergence = next(filter(None, map(eager_fault, observed.applications)), None)
        if result.divergence is not None:
            return result
        noted = self._noted()
        calls = self._by_numpy(noted)
        if calls.error is not None:
            raise calls.error
        if calls.fault is not None or any(d.nearer for d in calls.differences):
            self._check_repeatable()
        if not noted.runs and calls.fault is None:
            raise CaptureError(noted.eager_because or _never_settled(noted, result.name))
        result.stages.append(StageResult("recorded", list(calls.differences)))
        if calls.fault is not None:
            result.divergence = self.blame.recorded(calls)
            return result
        if observed.wrong and any(d.ulp for d in calls.differences):  # numpy computed both, so their bits are equal
            wrong = observed.wrong[0]
            where = shown_source(wrong.source)
            result.divergence = Divergence("recorded", wrong.what, where, scope="/".join(wrong.scope))
            return result
        self._finite(observed, check_finite)
        self._graphs(noted, loops)
        if result.ok:
            self._derivatives(self._settled())
        if result.ok:
            self._calls(changed, loops)
        return result

    def _by_numpy(self, noted: Noted, limits: Limits | None = None, most: int | None = None) -> Calls:
        """Eager and interpreted calls, both in numpy: a wrong pass would affect compiled eager operators and the graph
        alike."""
        with numpy_alone():
            return run_calls(self.fn, noted, self.call, self.result.tolerance, limits, most)

    def _check_repeatable(self) -> None:
        """Raise CaptureError if eager calls from the same state differ, which would be taken for a wrong recording."""
        if (apart := repeated(self.fn, self.call)) is not None:
            raise CaptureError(_unrepeatable(self.result.name, apart))

    def _settled(self) -> Observed:
        """Observe a second call, which finds gradients and an optimizer's state; the state is restored."""
        before = Lockstep(self.fn, self.fn).state(self.call)
        try:
            outcome(self.fn, self.call, self.blame.roots, differentiate=False)
            return observe(self.fn, self.call, self.blame.roots)
        finally:
            before.restore()

    def _graphs(self, noted: Noted, loops: bool, seen: frozenset[str] = frozenset()) -> None:
        """Compare every executed graph, stage by stage; ``seen`` are texts of graphs that are already compared."""
        counts: dict[bool, int] = {}
        for run in noted.runs:
            if str(run.graph) in seen:
                continue
            number = counts[run.is_backward] = counts.get(run.is_backward, -1) + 1
            part = ("backward " if run.is_backward else "") + (f"graph {number} " if number else "")
            GraphComparison(self.result, run, self.report, part, loops).run()
            if not self.result.ok:
                found = self.result.divergence
                if found is not None and found.source == WHOLE:
                    self.result.divergence = replace(found, source=shown_source(self.blame.any_line()))
                return

    def _derivatives(self, observed: Observed) -> None:
        self.report("checking derivatives")
        result = self.result
        result.checked_derivatives, faults = check_derivatives(observed)
        for fault in faults:
            where = shown_source(fault.source)
            if fault.own:
                result.notes.append(f"{fault}\n  at {where}")
            elif result.divergence is None:
                scope = "/".join(fault.scope)
                result.divergence = Divergence("derivative", fault.what, where, scope=scope, phase="backward")

    def _calls(self, changed: bool, loops: bool) -> None:
        """Make several calls natively; if one is wrong, repeat it in the interpreter."""
        result = self.result
        self.report("calling again" + (", with one change at a time" if changed else ""))
        limits = Limits(self.fn, self.call) if changed else None
        calls = result.calls = run_calls(self.fn, self._compiled(), self.call, result.tolerance, limits)
        if calls.fault is None:
            return
        self.report(f"locating the cause of the difference in call {calls.fault.number}")
        noted = self._noted()
        again = self._by_numpy(noted, limits, len(calls.steps))
        if again.fault is not None and again.fault.number <= calls.fault.number:
            result.divergence = self.blame.recorded(again, limits)
            return
        self._graphs(noted, loops)
        if result.divergence is None:
            result.divergence = self.blame.eager(calls, limits) or self.blame.native(calls, limits)
        else:
            result.divergence = replace(result.divergence, call=str(calls.fault))

    def _finite(self, observed: Observed, fails: bool) -> None:
        """Report where NaN and infinity begin."""
        first = next((a for a in observed.applications if _becomes_infinite(a)), None)
        if first is None:
            return
        kind = "NaN" if any(np.isnan(r).any() for r in first.results if r.dtype.kind in "fc") else "infinity"
        text = f"{kind} begins in {first.op.name}: {_operands(first)}"
        where = shown_source(first.source)
        if fails:
            scope = "/".join(first.scope)
            self.result.divergence = Divergence("not finite", text, where, scope=scope)
        else:
            self.result.notes.append(f"{text}, on both sides\n  at {where}")


def _never_settled(noted: Noted, name: str) -> str:
    why = f": {noted.misses[-1]}" if noted.misses else ""
    cause = f"{name} differs at every call: no recording matched the next call{why}"
    return str(BreakReason(cause, Section.FIND))


def _unrepeatable(name: str, apart: Mismatch) -> str:
    cause = f"two eager calls of {name} from the same state differ: {apart}"
    remedy = (
        "It reads an iterator, a file, a clock or other state outside of Python objects: pass its values as arguments"
    )
    return str(BreakReason(cause, Section.FIND, remedy))


def _finite(x: object) -> bool:
    return not isinstance(x, np.ndarray) or x.dtype.kind not in "fc" or bool(np.isfinite(x).all())


def _becomes_infinite(made: Application) -> bool:
    """Whether finite operands give NaN or infinity; constants with such values do not count."""
    if made.op.kind == "creation" or all(map(_finite, made.results)):
        return False
    numbers = [x for x in made.operands if isinstance(x, float)]
    return bool(made.operands) and all(map(_finite, made.operands)) and all(map(np.isfinite, numbers))


def _operands(made: Application) -> str:
    """The operands of the first element that is not finite."""
    bad = next(r for r in made.results if not _finite(r))
    place = np.unravel_index(int(np.argmax(~np.isfinite(bad))), bad.shape)
    shown = []
    for x in made.operands:
        if isinstance(x, np.ndarray) and x.shape == bad.shape:
            shown.append(f"{x[place]:.6g}")
        elif isinstance(x, np.ndarray) and x.size and x.dtype.kind == "f":
            shown.append(f"[{x.min():.6g} to {x.max():.6g}]")
        else:
            shown.append(str(x) if not isinstance(x, np.ndarray) else f"{x.dtype.name}{list(x.shape)}")
    at = f" at {list(map(int, place))}" if bad.ndim else ""
    return f"{made.op.name}({', '.join(shown)}) = {bad[place]}{at}"


__all__ = ["Calls", "Comparison", "compare"]

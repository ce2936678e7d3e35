"""The same call eagerly and compiled, from the same state: the resulting states, and their differences."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tracecomp.autograd.api import grad
from tracecomp.base.user_warnings import silenced
from tracecomp.compiled.differences import TOLERANCE, Difference, changed_in_the_last_place, difference
from tracecomp.compiled.program_state import BASE, PLAIN, Opaque, ProgramState, SavedState, TensorState
from tracecomp.eager.grad_fn import FREED
from tracecomp.eager.modes import enable_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.arrays import same_bits

Array = np.ndarray[Any, Any]
Call = tuple[tuple[Any, ...], dict[str, Any]]

CHANGES = 3
"""How often operands are changed in their last place, before a difference is more than what rounding brings."""

EARLIER = ", as it is held from call "
"""In the place of a mismatch: a later call has changed the result of an earlier one."""

RAISED = "the error raised"
"""The place of a mismatch of errors."""

_NUMBER_TOLERANCE = 1e-4
"""Agreement of numbers that Python got of tensors, relative."""


@dataclass
class Outcome:
    """The outcome of a call: the state at every place, or the exception."""

    values: dict[str, Any] = field(default_factory=dict)
    error: Exception | None = None
    result: Any = None


@dataclass(frozen=True)
class Mismatch:
    """A place where two outcomes differ, and how."""

    place: str
    eager: Any
    compiled: Any
    difference: Difference | None = None

    def __str__(self) -> str:
        if self.difference is not None and np.isfinite(self.difference.absolute):
            return f"{self.place}: {self.difference}, relative {self.difference.relative:.3g}"
        return f"{self.place}: {_short(self.eager)} eagerly, {_short(self.compiled)} compiled"


def outcome(fn: Callable[..., object], call: Call, roots: Mapping[str, object], differentiate: bool = True) -> Outcome:
    """Call ``fn``; return the state reachable from the result and from ``roots``, and the result's gradients."""
    args, kwargs = call
    try:
        with contextlib.redirect_stdout(io.StringIO()), silenced():
            result = fn(*args, **kwargs)
            found = gradients(result, roots) if differentiate else []
    except Exception as error:  # of the program: an outcome like any other, which both ways must have
        return Outcome(ProgramState(roots).values, error)
    return Outcome(ProgramState({"result": result, "gradient": found, **roots}).values, None, result)


def gradients(result: object, roots: Mapping[str, object]) -> list[Any]:
    """The gradients of all that a result holds with regard to the leaves that it depends on, for fixed directions.

    If there are several tensors, the gradients of the first one alone follow.
    """
    found = ProgramState({"result": result}).tensors.values()
    outs = tuple(t for t in found if t.grad_fn is not None and t._data.dtype.kind == "f" and t._data.size)
    leaves = [t for t in ProgramState(roots).tensors.values() if t._requires_grad and t._grad_fn is None]
    if not outs or not leaves:
        return []
    rng = np.random.default_rng(0)
    directions = [Tensor._wrap(np.asarray(rng.standard_normal(t._data.shape)).astype(t._data.dtype)) for t in outs]
    try:
        with enable_grad():
            given = list(grad(outs, leaves, directions, retain_graph=True, allow_unused=True))
            if len(outs) > 1:  # gradients of the others are missing then
                given += grad(outs[:1], leaves, directions[:1], retain_graph=True, allow_unused=True)
    except RuntimeError as error:
        if str(error) != FREED:
            raise
        return []
    return [] if all(g is None for g in given) else given


def mismatches(
    eager: Outcome, compiled: Outcome, tolerance: float | None = None, moved: Outcome | None = None
) -> list[Mismatch]:
    """Differences of the outcomes beyond rounding; ``moved`` is the eager one of operands changed in their last
    place."""
    if eager.error is not None or compiled.error is not None:
        if type(eager.error) is type(compiled.error) or _both_refuse(eager.error, compiled.error):
            return list(_differing(eager, compiled, tolerance, moved))
        return [Mismatch(RAISED, eager.error, compiled.error)]
    return list(_differing(eager, compiled, tolerance, moved))


def _both_refuse(a: Exception | None, b: Exception | None) -> bool:
    return a is not None and b is not None and (isinstance(a, type(b)) or isinstance(b, type(a)))


def _differing(eager: Outcome, compiled: Outcome, tolerance: float | None, moved: Outcome | None) -> Iterator[Mismatch]:
    for place in {**eager.values, **compiled.values}:
        if BASE in place:  # a view in eager mode may be a separate tensor
            continue
        a, b = eager.values.get(place, "nothing"), compiled.values.get(place, "nothing")
        if isinstance(a, TensorState) and isinstance(b, TensorState):
            c = None if moved is None else moved.values.get(place)
            found = _tensor_mismatch(place, a, b, c if isinstance(c, TensorState) else None, tolerance)
            if found is not None:
                yield found
        elif not _same_value(a, b, tolerance):
            yield Mismatch(place, a, b)


def _tensor_mismatch(
    place: str, a: TensorState, b: TensorState, c: TensorState | None, tolerance: float | None
) -> Mismatch | None:
    if a.requires_grad is not b.requires_grad:
        return Mismatch(f"{place}.requires_grad", a.requires_grad, b.requires_grad)
    if a.array.dtype != b.array.dtype or a.array.shape != b.array.shape:
        return Mismatch(place, a, b)
    comparable = c is not None and c.array.dtype == a.array.dtype and c.array.shape == a.array.shape
    moved = c.array if c is not None and comparable else None
    if a.array.dtype.kind in "biu" and moved is not None and not np.array_equal(moved, a.array):
        return None  # a last place of the operands decides it
    found = arrays_differ(b.array, a.array, moved)
    return None if found.agrees(tolerance) else Mismatch(place, a, b, found)


def arrays_differ(have: Array, want: Array, moved: Array | None = None) -> Difference:
    """As ``difference``; complex arrays as pairs of real ones."""
    if moved is None and same_bits(have, want):
        return Difference(0.0, 0.0, 0.0, want.dtype.name)
    if want.dtype.kind != "c":
        return difference(have, want, moved)
    real = np.dtype(f"f{want.dtype.itemsize // 2}")
    given = [None if a is None else np.ascontiguousarray(a).view(real) for a in (have, want, moved)]
    return difference(given[0], given[1], given[2])  # type: ignore[arg-type]


def _differences(eager: Outcome, compiled: Outcome, tolerance: float | None, wrong: Set[str]) -> Iterator[Difference]:
    """How far results, gradients and state are apart; at places that are not ``wrong``, rounding explains it."""
    for place, a in eager.values.items():
        b = compiled.values.get(place)
        if BASE not in place and isinstance(a, TensorState) and isinstance(b, TensorState):
            apart = arrays_differ(b.array, a.array)
            yield apart if place in wrong or apart.agrees(tolerance) else replace(apart, nearer=True)


def _same_value(a: Any, b: Any, tolerance: float | None) -> bool:
    if a.__class__ is not b.__class__:  # a number that a recording follows has the class of its value
        return False
    if isinstance(a, float):
        alike = tolerance != 0.0 and abs(a - b) <= _NUMBER_TOLERANCE * max(abs(a), abs(b))
        return bool(a == b or (a != a and b != b) or alike)
    if isinstance(a, Opaque):
        return bool(a.kind == b.kind)
    return bool(a == b)


def _short(value: object) -> str:
    if isinstance(value, TensorState):
        kind = f"{value.array.dtype.name}{list(value.array.shape)}"
        return f"{kind} {np.array2string(value.array, threshold=6, precision=4)}" if value.array.size < 7 else kind
    if isinstance(value, Exception):
        return f"{type(value).__name__}: {str(value)[:200]}"
    return "no error" if value is None else repr(value)[:200]


def repeated(fn: Callable[..., Any], call: Call) -> Mismatch | None:
    """A place at which two eager calls from the same state differ: they read a file, an iterator, or similar state.

    The state of Python objects is restored.
    """
    lockstep = Lockstep(fn, fn)
    before, roots = lockstep.state(call), lockstep.roots(call)
    first = outcome(fn, call, roots)
    before.restore()
    second = outcome(fn, call, roots)
    before.restore()
    return next(iter(mismatches(first, second, 0.0)), None)


class Lockstep:
    """``fn`` and ``compiled``, with equal calls: each call starts both from the same state, and continues from that of
    compiled.

    ``roots`` lead to all state. ``held`` are results that are kept, with the contents that they must keep.
    """

    def __init__(
        self, fn: Callable[..., Any], compiled: Callable[..., Any], tolerance: float | None = None,
        differentiate: bool = True,
    ) -> None:  # fmt: skip
        self.fn = fn
        self.compiled = compiled
        self.tolerance = tolerance
        self.differentiate = differentiate
        self.held: list[tuple[int, ProgramState]] = []
        self.calls = 0
        self._wrong: set[str] = set()
        self.eager = Outcome()
        self.latest = Outcome()
        self.error: Exception | None = None

    def state(self, call: Call) -> SavedState:
        """The current state."""
        return SavedState(self.roots(call))

    def roots(self, call: Call) -> dict[str, Any]:
        fn = getattr(self.fn, "__wrapped__", self.fn)
        return {"args": call[0], "kwargs": call[1], getattr(fn, "__name__", "self"): fn}

    def outcome(self, fn: Callable[..., Any], call: Call, roots: Mapping[str, object]) -> Outcome:
        """The outcome of a call of ``fn``, with gradients if they are compared."""
        return outcome(fn, call, roots, self.differentiate)

    def mismatches(self, eager: Outcome, compiled: Outcome) -> list[Mismatch]:
        """Differences of two outcomes beyond the tolerance."""
        return mismatches(eager, compiled, self.tolerance)

    def step(self, call: Call) -> list[Mismatch]:
        """Make the call both ways; where they differ, and where results of earlier calls have changed."""
        return self.compare(call, self.state(call)) + self._kept(self.latest, call)

    def compare(self, call: Call, before: SavedState) -> list[Mismatch]:
        """Make the call both ways from the present state, which is ``before``; where they differ."""
        roots = self.roots(call)
        eager = self.eager = outcome(self.fn, call, roots, self.differentiate)
        before.restore()
        compiled = self.latest = outcome(self.compiled, call, roots, self.differentiate)
        self.calls += 1
        found = self.mismatches(eager, compiled)
        self.error = eager.error
        if self.tolerance != 0.0 and any(m.difference and np.isfinite(m.difference.relative) for m in found):
            after = self.state(call)
            for seed in range(CHANGES):
                before.restore()
                again = {m.place for m in mismatches(eager, compiled, self.tolerance, self.moved(call, roots, seed))}
                found = [m for m in found if m.place in again]
            after.restore()
        self._wrong = {m.place for m in found}
        return found

    @property
    def differences(self) -> list[Difference]:
        """How far results and state of the latest call are apart."""
        return list(_differences(self.eager, self.latest, self.tolerance, self._wrong))

    def moved(self, call: Call, roots: Mapping[str, object], seed: int) -> Outcome:
        """The eager outcome of operands that are moved by about one unit in the last place."""
        tensors = [t for t in ProgramState(roots).tensors.values() if t._data.dtype.kind == "f"]
        for t, array in zip(tensors, changed_in_the_last_place([t._data for t in tensors], seed), strict=True):
            if t._data.flags.writeable:
                np.copyto(t._data, array)
        return outcome(self.fn, call, roots, self.differentiate)

    def _kept(self, latest: Outcome, call: Call) -> list[Mismatch]:
        """Results of earlier calls that a later call has changed; every other result is held on to."""
        found = []
        for number, state in self.held:
            now = ProgramState({"result": state.objects.get("result")}).values
            for place, was in state.values.items():
                # The random state is global and continues.
                mine = isinstance(was, TensorState) and place.startswith("result")
                if mine and not _unchanged(was, now.get(place)):
                    where = f"{place}{EARLIER}{number}, after call {self.calls}"
                    found.append(Mismatch(where, was, now.get(place)))
        self.held = self.held[-1:] if not found else []
        if self.calls % 3 and latest.result is not None and not isinstance(latest.result, PLAIN):
            held = ProgramState({"result": latest.result})
            results = [t._data for place, t in held.tensors.items() if place.startswith("result")]
            state = self.state(call)
            others = [t._data for t in state.tensors.values()]
            others += [x for x in state.objects.values() if isinstance(x, np.ndarray)]
            if not any(np.may_share_memory(r, a) for r in results for a in others):
                self.held.append((self.calls, held))
        return found


def _unchanged(was: TensorState, now: object) -> bool:
    return isinstance(now, TensorState) and was.array.tobytes() == now.array.tobytes()


__all__: Sequence[str] = ["TOLERANCE", "Call", "Lockstep", "Mismatch", "Outcome", "mismatches", "outcome"]

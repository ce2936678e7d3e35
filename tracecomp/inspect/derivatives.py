"""Check of derivatives: every step of a backward pass against differences of its operator in float64.

Let ``g`` be result gradients and ``f`` an operator. The gradient ``v`` of an operand must satisfy ``<v, d> = d/dt <g,
f(x + t d)>`` for any direction ``d``. A central difference gives the right side to about ten digits in float64. Points
where ``f`` has a kink (a maximum of equal numbers, ``relu`` at 0) are left out: they have no unique derivative.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracecomp.base.errors import Source
from tracecomp.eager.grad_fn import AccumulateGrad, CopySlices, OpNode
from tracecomp.eager.modes import no_grad, unrecorded
from tracecomp.eager.tensor import Tensor
from tracecomp.eager.vjp_program import derivative
from tracecomp.inspect.observed import Application, BackwardStep, FunctionRun, Observed
from tracecomp.inspect.wide import wide_array, wide_attrs
from tracecomp.ir.graph import Graph, attrs_key
from tracecomp.ir.op import Attrs, Op

Array = np.ndarray[Any, Any]
Loss = Callable[[list[Any]], Array]
"""The terms whose sum is differentiated: their rounding limits what differences show, even if the sum is near 0."""

STEP = 1e-6
"""The step of differences, relative to the largest operand."""
RULE_TOLERANCE = 2e-5
"""Agreement of a rule in float64 with differences, relative to the sum of the absolute terms."""
RUN_TOLERANCE = {"float16": 5e-3, "bfloat16": 5e-2, "float32": 1e-3, "float64": 1e-8}
"""Agreement of what ran with the same rule in float64, relative to its largest element."""
_SYMMETRIC = frozenset(("cholesky", "eigh", "eigvalsh"))
"""Operators that read one triangle of a symmetric matrix, and spread its gradient over both, as PyTorch does."""
_FEW = 6
"""Elements that a second difference moves, if the first met a kink."""
_OF_A_KIND = 3
"""Uses of an operator with the same shapes that are checked: more find no other errors, and differences are slow."""
_MOST_ELEMENTS = 1 << 20
"""Elements of operands that are checked: differences in float64 of more take seconds for each operator."""


@dataclass(frozen=True)
class DerivativeFault:
    """A step of a backward pass whose gradient does not match differences."""

    what: str
    source: Source | None
    scope: tuple[str, ...] = ()
    own: bool = False

    def __str__(self) -> str:
        return self.what


def check_derivatives(observed: Observed) -> tuple[int, list[DerivativeFault]]:
    """Check the steps in the order of the backward pass; return their number, and the errors."""
    checked, found = 0, []
    numbers = [a.number for a in observed.applications]
    known: Counter[Any] = Counter()
    for step in observed.backward:
        for fault in _check_step(step, observed, numbers, known):
            found.append(fault)
        checked += 1
    return checked, found


def _check_step(
    step: BackwardStep, observed: Observed, numbers: list[int], known: Counter[object]
) -> Iterator[DerivativeFault]:
    node = step.node
    origin = node.origin
    source, scope = (None, ()) if origin is None else (origin.source, origin.scope)
    yield from _arrived(step, source, scope)
    if isinstance(node, AccumulateGrad):
        error = step.found[0]
        if error is not None and error.size and np.abs(error).max() > 1e-4 * (1 + np.abs(_largest(step.grads))):
            yield DerivativeFault("a gradient was not accumulated into .grad", source, scope)
    elif isinstance(node, OpNode):
        at = bisect_left(numbers, node.number) - 1
        made = observed.applications[at] if at >= 0 else None
        if made is not None and made.op is node.op:
            wanted = tuple(e is not None for e in node.edges)
            yield from _check_operator(made, wanted, step, known)
    elif isinstance(node, CopySlices):
        yield from _check_copy(node, step, source, scope)
    else:
        run = next((r for r in observed.functions if r.node is node), None)
        if run is not None:
            yield from _check_function(run, step)


def _largest(arrays: Sequence[Array | None]) -> float:
    return max((float(np.abs(a).max(initial=0.0)) for a in arrays if a is not None), default=0.0)


def _arrived(step: BackwardStep, source: Source | None, scope: tuple[str, ...]) -> Iterator[DerivativeFault]:
    """Check that the gradient at a node is the sum of those sent to it."""
    for have, want in zip(step.grads, step.expected or (), strict=False):
        if want is None or have is None:
            continue
        apart = np.abs(have.astype(want.dtype) - want).max(initial=0.0) if have.shape == want.shape else np.inf
        if apart > 10 * RUN_TOLERANCE.get(have.dtype.name, 1e-3) * max(float(np.abs(want).max(initial=0.0)), 1e-30):
            yield DerivativeFault("the gradients that reach a value were not accumulated", source, scope)


def _check_operator(
    made: Application, wanted: tuple[bool, ...], step: BackwardStep, known: Counter[object]
) -> Iterator[DerivativeFault]:
    """One operator: its rule in float64 against differences, and the executed gradients against the rule."""
    op = made.op
    if any(_is_complex(x) for x in (*made.operands, *made.results)) or op.name == "bitcast":
        return
    if sum(np.size(x) for x in made.operands) > _MOST_ELEMENTS:
        return
    operands = _wide_operands(made.operands)
    attrs = wide_attrs(op, made.attrs)
    plain = {k: v for k, v in attrs.items() if not isinstance(v, Graph)}
    grads = [None if g is None else wide_array(g) for g in step.grads]
    try:
        with np.errstate(all="ignore"):
            exact = _by_rule(op, attrs, operands, grads, wanted)
            key = (op.name, attrs_key(plain), tuple(x.shape for x in operands), wanted)
            known[key] += 1
            wrong = list(_differ(op, attrs, operands, grads, exact)) if known[key] <= _OF_A_KIND else []
    except (TypeError, ValueError, RuntimeError):
        return  # no float64 form
    what = f"{op.name} has a different derivative from {op.name}"
    yield from (DerivativeFault(f"{what}: {w}", made.source, made.scope) for w in wrong)
    for number, (have, want) in enumerate(zip(step.found, exact, strict=False)):
        if have is None or want is None or wrong:
            continue
        tolerance = RUN_TOLERANCE.get(have.dtype.name)
        scale = max(float(np.abs(want[np.isfinite(want)]).max(initial=0.0)), _terms(grads, want.size))
        fits = have.shape == want.shape
        apart = np.abs(have - want) if fits else np.array(np.inf)
        if tolerance is not None and float(np.nan_to_num(apart).max(initial=0.0)) > tolerance * scale:
            text = f"the gradient of operand {number} of {op.name} differs from its rule"
            yield DerivativeFault(text, made.source, made.scope)


def _terms(grads: Sequence[Array | None], size: int) -> float:
    """The allowance for rounding, relative to the tolerance, if gradients cancel in ``size`` sums."""
    return 1e-3 * sum(float(np.abs(g).sum()) for g in grads if g is not None) / max(size, 1)


def _wide_operands(operands: Sequence[object]) -> list[Array]:
    """The operands in float64; a number has the type of the last array, as in any primitive."""
    kind = next((wide_array(x).dtype for x in reversed(operands) if isinstance(x, np.ndarray)), np.dtype(np.float64))
    return [wide_array(x) if isinstance(x, np.ndarray) else np.asarray(x, kind) for x in operands]


def _is_complex(x: object) -> bool:
    return isinstance(x, complex) or (isinstance(x, np.ndarray) and x.dtype.kind == "c")


def _by_rule(
    op: Op, attrs: Attrs, operands: list[Array], grads: list[Array | None], wanted: tuple[bool, ...]
) -> list[Array | None]:
    """The gradients that the operator's rule gives in float64."""
    outs = _results(op, operands, attrs)
    types = [(x.dtype, x.shape) for x in operands]
    present = tuple(g is not None for g in grads)
    program = derivative(op, attrs, types, [(o.dtype, o.shape) for o in outs], wanted, present)
    found = program.run([*operands, *outs, *grads], lambda o, given, a: o.impl(*given, **a))
    return [None if f is None else np.asarray(f) for f in found]


def _results(op: Op, operands: Sequence[object], attrs: Attrs) -> list[Array]:
    found = op.impl(*operands, **attrs)
    return [*map(np.asarray, found)] if isinstance(found, tuple) else [np.asarray(found)]


def _differ(
    op: Op, attrs: dict[str, object], operands: list[Array], grads: list[Array | None], exact: list[Array | None]
) -> Iterator[str]:
    """Yield the operands whose gradients do not match differences."""

    def loss(at: list[object]) -> Array:
        return _terms_of(_results(op, at, attrs), grads)

    for number, gradient in enumerate(exact):
        if gradient is not None and operands[number].dtype == np.float64:
            text = differs_from_differences(loss, operands, number, gradient, op.name in _SYMMETRIC)
            if text:
                yield text


def _terms_of(results: Sequence[Array], grads: Sequence[Array | None]) -> Array:
    """The products of results and their gradients, as one array."""
    products = [np.ravel(r * g) for r, g in zip(results, grads, strict=False) if g is not None]
    return np.concatenate(products) if products else np.zeros(0)


def differs_from_differences(
    loss: Loss, operands: list[Any], number: int, gradient: Array, symmetric: bool = False
) -> str:
    """Return the slope of ``loss`` in operand ``number`` if ``gradient`` differs; "" if they agree.

    ``symmetric``: the operand moves as a symmetric matrix.
    """
    x = operands[number]
    rng = np.random.default_rng(0)
    size = STEP * max(float(np.abs(x[np.isfinite(x)]).max(initial=0.0)), 1e-3)
    for few in (False, True, True, True):
        direction = _direction(x, rng, few)
        if direction is not None and symmetric:
            direction = (direction + direction.swapaxes(-1, -2)) / 2
        if direction is None or not np.isfinite(gradient).all():
            return ""
        terms = gradient * direction
        with np.errstate(all="ignore"):
            parts = [loss(_moved(operands, number, direction * (k * size))) for k in (-2, -1, 0, 1, 2)]
            at = [float(part.sum()) for part in parts]
            largest = max(float(np.abs(part).sum()) for part in parts)
        central = (8 * (at[3] - at[1]) - (at[4] - at[0])) / (12 * size)
        rounding = 20 * largest * 1e-16 / size
        allowed = RULE_TOLERANCE * float(np.abs(terms).sum()) + rounding + 1e-12
        if not np.isfinite(central) or abs(central - float(terms.sum())) <= allowed:
            continue
        if not _smooth(at, size, allowed):
            continue
        rule = float(terms.sum())
        return f"finite differences give {central:.6g} for operand {number}, but the gradient is {rule:.6g}"
    return ""


def _smooth(at: Sequence[float], size: float, allowed: float) -> bool:
    """Whether the slopes on both sides are equal up to curvature."""
    left, right = (at[2] - at[0]) / (2 * size), (at[4] - at[2]) / (2 * size)
    near_left, near_right = (at[2] - at[1]) / size, (at[3] - at[2]) / size
    gap, near_gap = abs(right - left), abs(near_right - near_left)
    if max(gap, near_gap) <= 10 * allowed:
        return True
    return near_gap > 0 and 1.5 <= gap / near_gap <= 2.7  # curvature doubles the wider gap


def _direction(x: Array, rng: np.random.Generator, few: bool) -> Array | None:
    """A random direction in the elements that are finite and not 0 (where many functions have kinks)."""
    direction = rng.choice([-1.0, 1.0], x.shape) * rng.uniform(0.5, 1.0, x.shape)
    direction = np.where(np.isfinite(x) & ((x != 0) | (not x.any())), direction, 0.0)
    if few:
        places = np.flatnonzero(direction)
        if not places.size:
            return None
        kept = np.zeros(x.size, bool)
        kept[rng.choice(places, min(_FEW, places.size), replace=False)] = True
        direction = np.where(kept.reshape(x.shape), direction, 0.0)
    return direction if direction.any() else None


def _moved(operands: Sequence[object], number: int, by: Array) -> list[Any]:
    return [x + by if n == number else x for n, x in enumerate(operands)]


def _check_copy(
    node: CopySlices, step: BackwardStep, source: Source | None, scope: tuple[str, ...]
) -> Iterator[DerivativeFault]:
    """Check a write through views: the gradient is split between the overwritten and the written values."""
    grad, found = step.grads[0], step.found
    if grad is None or len(found) < 2:
        return
    numbers = np.arange(grad.size).reshape(grad.shape)
    for op, attrs in node.chain:
        numbers = np.asarray(op.impl(numbers, **attrs))
    kept = grad.copy().reshape(-1)
    kept[numbers.reshape(-1)] = 0
    base, value = found[0], found[1]
    if base is not None and not np.allclose(base, kept.reshape(grad.shape), equal_nan=True):
        yield DerivativeFault("the gradient of overwritten elements is not 0", source, scope)
    if value is not None and value.size == numbers.size:
        wanted = grad.reshape(-1)[numbers].reshape(value.shape)
        if not np.allclose(value, wanted, equal_nan=True):
            yield DerivativeFault("the gradient of written elements is not that of their destination", source, scope)


def _check_function(run: FunctionRun, step: BackwardStep) -> Iterator[DerivativeFault]:
    """A user's Function: its ``backward`` against differences of its ``forward``."""
    function: Any = run.node.function  # type: ignore[attr-defined]
    operands = [wide_array(x._data) if isinstance(x, Tensor) else x for x in run.args]
    grads = [None if g is None else wide_array(g) for g in step.grads]

    def loss(at: Sequence[object]) -> Array:
        given = [Tensor._wrap(x) if isinstance(x, np.ndarray) else x for x in at]
        with no_grad(), unrecorded():
            out = function.apply(*given)
        outs = out if isinstance(out, tuple) else (out,)
        return _terms_of([o._data for o in outs], grads)

    for number, gradient in enumerate(step.found):
        x = operands[number]
        if gradient is None or not isinstance(x, np.ndarray) or x.dtype != np.float64:
            continue
        try:
            text = differs_from_differences(loss, operands, number, wide_array(gradient))
        except Exception:  # the user's code may reject float64
            return
        if text:
            what = f"{function.__name__}.backward is not the derivative of its forward: {text}"
            yield DerivativeFault(what, run.source, run.scope, own=True)

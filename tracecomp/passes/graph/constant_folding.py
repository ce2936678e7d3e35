"""Constant folding: values that depend on constants only are computed once, by the operators' numpy meaning.

Results that contain a single number become ``full``. Others become constant inputs when they are small and expensive.
Positions and masks, a few instructions on an index, are cheaper to compute at their use than to load.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from tracecomp.ir.graph import Graph, Value
from tracecomp.ir.op import KINDS
from tracecomp.ir.sum_order import EXACT_REDUCTIONS
from tracecomp.ir.types import Shape, TensorType, float32, float64
from tracecomp.passes.graph.rewrite import Application, Replacement, Rewriter, Rules, constant, rewrite
from tracecomp.passes.graph.subgraph import subgraph
from tracecomp.passes.steps import Log

Array = np.ndarray[Any, Any]

KNOWN_LIMIT = 1 << 18
"""Largest value, in elements, that folding evaluates."""

STORED_LIMIT = 4096
"""Largest constant, in elements, that folding stores."""

_SUMS = ("reduction", "contraction", "convolution", "window", "cumulative", "transform")
"""Kinds of operators whose float results depend on the order of terms, or on rounding in between."""
_WHOLE = {float64: 1 << 53, float32: 1 << 24}
"""Largest whole number up to which sums are exact; up to 256 for half types."""

_LEFT = ("creation", "random", "control")


def fold_constants(graph: Graph, log: Log) -> Graph:
    """Return ``graph`` with values that depend only on constants folded."""
    rules = Rules()
    folder = _Folder()
    # Creation is cheap, random values must differ between calls, and control flow is not evaluated here.
    rules.on_kind(*(kind for kind in KINDS if kind not in _LEFT))(folder.constant_result)
    rules.on("take")(folder.take_of_progression)
    rules.on("put")(folder.put_of_progression)
    rules.on("scan")(scan_of_constants)
    return rewrite(graph, rules, log, "constant_folding")


def _is_rounded_otherwise(a: Application, arrays: Sequence[Array]) -> bool:
    """Whether numpy's result may differ in bits from the program's: functions with an error bound, sums of floats."""
    if not a.types[0].dtype.is_floating_point or a.op.name in EXACT_REDUCTIONS:
        return False
    if a.op.kind not in _SUMS and a.op.name != "grouped_mm":
        return a.op.ulp > 0
    # Sums of small whole numbers are exact in any order.
    if not all(array.dtype.kind in "fiu" and np.array_equal(array, np.trunc(array)) for array in arrays):
        return True
    largest = prod(float(np.abs(array).max(initial=0)) for array in arrays)
    return (
        largest * max((array.size for array in arrays), default=0) > _WHOLE.get(a.types[0].dtype, 256)
        or a.op.name == "prod"
    )


class _Folder:
    """Remember the elements of known values."""

    def __init__(self) -> None:
        self._arrays: dict[Value, Array | None] = {}

    def constant_result(self, g: Rewriter, a: Application) -> Replacement:
        """exp(full(0.0)) -> full(1.0); small results whose elements differ become constant inputs"""
        results = self._results(g, a)
        if results is None:
            return None
        # A single number needs no memory.
        if all(_is_uniform(r) for r in results):
            return [g.full(r.flat[0].item(), t.shape, t.dtype) for r, t in zip(results, a.types, strict=True)]
        # Positions and masks are cheaper to compute from an index than to load; large constants would only grow the
        # program.
        if _is_cheap(g, a) or sum(r.size for r in results) > STORED_LIMIT:
            return None
        return [_stored(g, r, t) for r, t in zip(results, a.types, strict=True)]

    def take_of_progression(self, g: Rewriter, a: Application) -> Replacement:
        """take(x, [2, 3, 4]) -> slice(x, 2:5)"""
        run = self._progression(g, a.inputs[1], a)
        if run is None:
            return None
        return g.apply("slice", a.inputs[0], **_slice_of_axis(a.inputs[0].shape, a.attrs["axis"], run))

    def put_of_progression(self, g: Rewriter, a: Application) -> Replacement:
        """put(x, [2, 3, 4], y, mode="add") -> slice_update(x, slice(x, 2:5) + y, 2:5)"""
        base, index, new = a.inputs
        run, op = self._progression(g, index, a), _COMBINED.get(a.attrs["mode"])
        if run is None:
            return None
        place = _slice_of_axis(base.shape, a.attrs["axis"], run)
        if op is not None:
            # Positions of a progression are all different, so one combined update equals a sequence of updates.
            new = g.apply(op, g.apply("slice", base, **place), new)
        return g.apply("slice_update", base, new, **place)

    def _progression(self, g: Rewriter, index: Value, a: Application) -> range | None:
        """Return a known list of indices that rise in equal steps within the axis."""
        known = self._known(g, index) if index.ndim == 1 and index.type.numel else None
        if known is None:
            return None
        # A slice has one constant step.
        first, step = int(known[0]), int(known[1] - known[0]) if known.size > 1 else 1
        run = range(first, first + step * known.size, step) if step > 0 else range(0)
        inside = len(run) > 0 and run[0] >= 0 and run[-1] < a.inputs[0].shape[a.attrs["axis"]]
        # Out-of-range positions have to fail as they would at run time, so they stay.
        return run if inside and np.array_equal(known, run) else None

    def _results(self, g: Rewriter, a: Application) -> list[Array] | None:
        """The results of ``a`` when its operands are known."""
        if a.op.kind in ("random", "control") or a.op.is_separate:  # operands of other processes may differ
            return None
        known: list[Array] = []
        for operand in a.inputs:
            array = self._known(g, operand)
            if array is None:
                return None
            known.append(array)
        if sum(t.numel for t in a.types) > KNOWN_LIMIT or _is_rounded_otherwise(a, known):
            return None
        # Division by zero and overflow give numpy's run-time results, without its warnings.
        with np.errstate(all="ignore"):
            found = a.op.impl(*known, **a.attrs)
        found = found if isinstance(found, tuple) else (found,)
        # numpy may widen (a mean, a sum); the operator's type is the result's.
        return [np.asarray(r, t.dtype.numpy) for r, t in zip(found, a.types, strict=True)]

    def _known(self, g: Rewriter, value: Value) -> Array | None:
        if value in self._arrays:
            return self._arrays[value]
        found = self._arrays[value] = self._find(g, value)
        return found

    def _find(self, g: Rewriter, value: Value) -> Array | None:
        node = value.node
        # Above the limit nothing is evaluated: folding must not take much memory.
        if value.type.numel > KNOWN_LIMIT:
            return None
        if node is None:
            given = g.graph.inputs[value.index]
            return given.data if given.role == "constant" else None
        results = self._results(g, Application(node.op, node.inputs, node.attrs, tuple([v.type for v in node.outputs])))
        return None if results is None else results[value.index]


_COMBINED = {"add": "add", "mul": "mul", "max": "maximum", "min": "minimum"}


def _slice_of_axis(shape: Shape, axis: int, run: range) -> dict[str, tuple[int, ...]]:
    """Attributes of the slice that takes positions ``run`` of one axis."""
    return {
        "starts": tuple(run[0] if d == axis else 0 for d in range(len(shape))),
        "stops": tuple(run[-1] + 1 if d == axis else n for d, n in enumerate(shape)),
        "steps": tuple(run.step if d == axis else 1 for d in range(len(shape))),
    }


def scan_of_constants(g: Rewriter, a: Application) -> Replacement:
    """scan(..., full(0.0), ...) -> scan with the number in its body"""
    carries, xs = a.attrs["carries"], a.attrs["xs"]
    body: Graph = a.attrs["body"]
    given = [i for i in body.inputs if i.role != "constant"]
    # Operands that are the same for all steps, or stacked from one number, are numbers in the body.
    numbers = {n: c for n, v in enumerate(a.inputs) if n >= carries and (c := constant(v)) is not None}
    if not numbers:
        return None
    kept = [i for n, i in enumerate(given) if n not in numbers] + [i for i in body.inputs if i.role == "constant"]
    smaller = subgraph(body, kept, body.outputs, {given[n].value: c for n, c in numbers.items()})
    attrs = {**a.attrs, "body": smaller, "xs": xs - sum(n < carries + xs for n in numbers)}
    return g.add(a.op, (v for n, v in enumerate(a.inputs) if n not in numbers), attrs)


def _is_uniform(array: Array) -> bool:
    # By bytes, so that 0.0 and -0.0, or two different NaNs, are not one number.
    return array.size > 0 and array.tobytes() == array.flat[0].tobytes() * array.size


def _is_cheap(g: Rewriter, a: Application) -> bool:
    """Whether computing the result at its use is as cheap as loading it."""
    if a.op.kind == "view":
        return True
    # A constant input is loaded anyway, so an elementwise result of it is better stored once.
    loads = any(v.node is None for v in a.inputs)
    return a.op.kind == "elementwise" and "costly" not in a.op.traits and not loads


def _stored(g: Rewriter, array: Array, type: TensorType) -> Value:
    if _is_uniform(array):
        return g.full(array.flat[0].item(), type.shape, type.dtype)
    return g.constant(array, type)

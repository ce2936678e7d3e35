"""Check of eager machine code against numpy in float64: it comes from the same compiler, and may be as wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tracecomp.base import config
from tracecomp.eager.evaluate import ORDERED
from tracecomp.eager.overrides import unwatch_calls, watch_calls
from tracecomp.inspect.comparison import Divergence, around_worst, shown_source
from tracecomp.inspect.observed import Application
from tracecomp.inspect.wide import wide_array, wide_attrs

Array = np.ndarray[Any, Any]

FUNCTIONS = frozenset((
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "atan2",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sigmoid", "erf", "erfc", "sqrt", "pow", "hypot",
))  # fmt: skip
"""Operators that a single function computes, whose errors docs/numerics.md gives."""

FUNCTION_ULP = 16.0
"""Largest error of a function's results in units in the last place; only normal numbers count."""

_CHOSEN = frozenset(("maximum", "minimum"))


@contextmanager
def numpy_alone() -> Iterator[None]:
    """Run eager operators of this thread by their numpy definitions.

    Without watched calls, machine code would still serve functions that were called often.
    """
    watch_calls()
    try:
        with config.override(eager="numpy"):
            yield
    finally:
        unwatch_calls()


def eager_fault(made: Application) -> Divergence | None:
    """The fault of an operator that ran eagerly, if machine code ran it and is wrong."""
    found = made.results[0]
    name = made.op.name
    if found.dtype.name not in ("float32", "float64") or name not in FUNCTIONS | ORDERED | _CHOSEN:
        return None
    wide = [wide_array(x) if isinstance(x, np.ndarray) else x for x in made.operands]
    attrs = wide_attrs(made.op, made.attrs)
    with np.errstate(all="ignore"):
        exact = np.asarray(made.op.impl(*wide, **attrs))
        if name in ORDERED:
            # For any order of n terms, the error is below n roundings of the sum of their absolute values.
            terms = wide[0].size // max(found.size, 1)
            bound = 2 * terms * np.finfo(found.dtype).eps * np.asarray(made.op.impl(np.abs(wide[0]), **attrs))
            right = bool(np.all(~(np.abs(found - exact) > bound)))
        else:
            right = last_places(found, exact.astype(found.dtype)) <= FUNCTION_ULP
    if right:
        return None
    types = ", ".join(f"{x.dtype.name}{list(x.shape)}" for x in made.operands if isinstance(x, np.ndarray))
    return Divergence(
        "eager", f"{name}({types}), which eager mode runs as machine code too", shown_source(made.source),
        step=f"codegen (the function {name})", scope="/".join(made.scope),
        values=around_worst(found, exact.astype(found.dtype)),
    )  # fmt: skip


def last_places(found: Array, wanted: Array) -> float:
    """The largest error of normal numbers, in units in the last place."""
    normal = np.isfinite(wanted) & (np.abs(wanted) > np.finfo(wanted.dtype).tiny)
    with np.errstate(all="ignore"):
        apart = np.abs(found.astype(np.float64) - wanted.astype(np.float64)) / np.spacing(np.abs(wanted))
    return float(np.where(normal, apart, 0.0).max(initial=0.0))


__all__ = ["FUNCTIONS", "FUNCTION_ULP", "eager_fault", "last_places", "numpy_alone"]

"""Running a primitive on arrays, without numpy's warnings about numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Context
from functools import partial
from typing import Any

import numpy as np

from tracecomp import eager_kernels
from tracecomp.base import config
from tracecomp.eager.modes import modes
from tracecomp.ir.op import OPS, Attrs, Op
from tracecomp.ir.types import TensorType, from_numpy_dtype

_WARNING = frozenset(
    (
        "elementwise", "reduction", "contraction", "convolution", "window", "cumulative", "scatter", "control",
        "transform",
    )
)  # fmt: skip
_ROUNDED_OTHERWISE = ("floor_divide", "maximum", "minimum")
"""Operators, in addition to those with an error bound, whose rounding differs: quotients that are rounded before
truncation, and the order of two zeros."""

INEXACT = frozenset(
    op.name for op in OPS.values() if op.kind == "elementwise" and (op.ulp > 0 or op.name in _ROUNDED_OTHERWISE)
)
"""Operators whose numpy results have other bits than those of machine code."""

SLOW = frozenset(("relu", "sign", "where", "copysign", "remainder", "fmod"))
"""Operators with the same bits in numpy, whose loop there has a branch or a call for each element: where signs are
random, machine code takes a thirtieth of the time."""
_MANY = 4096
"""Elements from which on it is worth making machine code for them."""

ORDERED = frozenset(("sum", "prod"))
"""Reductions whose bits depend on the order, for floats."""

_quiet: list[Context] = []
"""Contexts that silence numpy. Entering one takes a tenth of the time of ``np.errstate``. A caller removes one from the
list while in use, because a context can be entered once at a time."""


def _new_context() -> Context:
    context = Context()
    context.run(np.seterr, all="ignore")
    return context


def evaluate(op: Op, arrays: Sequence[Any], attrs: Attrs) -> Any:
    """Apply ``op`` to ``arrays``: by ``op.impl`` if its bits are those of machine code, else by machine code."""
    # Other kinds move elements, draw bits, or are the host's in compiled programs too.
    if op.kind not in _WARNING:
        if op.kind == "external" and modes.trial_run:
            raise RuntimeError("host routines, and communication with other processes, cannot run during a check")
        if modes.untold and op.communicates:
            return _untold(op, arrays, attrs)
        if op.name == "random_bits" and config.current().eager == "native":
            found = eager_kernels.random_bits(*arrays, **attrs)
            return op.impl(*arrays, **attrs) if found is None else found
        if op.kind == "elimination" and arrays[0].dtype.kind != "c" and config.current().eager == "native":
            return quietly(partial(eager_kernels.eliminate, op), (arrays, attrs, evaluate), {})
        return by_host(op, arrays, attrs) if op.kind == "external" else op.impl(*arrays, **attrs)
    if config.current().eager == "native":
        # If numpy rounds or sums differently, machine code computes the result; None if it has no kernel for these
        # types.
        if op.name in INEXACT or (op.name in SLOW and max(np.size(x) for x in arrays) >= _MANY):
            found = eager_kernels.evaluate_natively(op, arrays)
            if found is not None:
                return found
        elif op.name in ORDERED:
            if arrays[0].dtype.kind in "fVc":
                return quietly(partial(eager_kernels.reduce_in_order, op.name), arrays, attrs)
        elif op.kind == "contraction" and arrays[0].dtype.kind in "fVc":
            found = quietly(eager_kernels.contract, arrays, attrs)
            if found is not None:
                return found
        elif op.kind == "control":
            return eager_kernels.run_region(op, arrays, attrs, evaluate)
        elif op.kind == "transform":
            found = eager_kernels.transform(op, arrays, attrs, evaluate)
            if found is not None:
                return found
        elif op.kind == "convolution" and arrays[0].dtype.kind in "fV":
            return quietly(partial(eager_kernels.convolve, op), (*arrays, attrs), {})
    return quietly(op.impl, arrays, attrs)


def by_host(op: Op, arrays: Sequence[Any], attrs: Attrs) -> Any:
    """Apply an operator that the host runs in compiled programs too, with the same bits."""
    if op.name == "grouped_mm" and config.current().eager == "native":
        return quietly(eager_kernels.grouped_product, arrays, attrs)
    return op.impl(*arrays, **attrs)


def _untold(op: Op, arrays: Sequence[Any], attrs: Attrs) -> Any:
    """Zeros instead of the result that ``op`` would give together with other processes."""
    found = op.infer(*[TensorType(from_numpy_dtype(a.dtype), a.shape) for a in arrays], **attrs)
    zeros = [np.zeros(t.shape, t.dtype.numpy) for t in (found if isinstance(found, tuple) else (found,))]
    return tuple(zeros) if isinstance(found, tuple) else zeros[0]


def quietly(fn: Callable[..., object], arrays: Sequence[object], attrs: Attrs) -> Any:
    """``fn(*arrays, **attrs)`` without numpy's warnings."""
    try:
        context = _quiet.pop()
    except IndexError:
        context = _new_context()
    try:
        settings = config.overridden()
        if settings is None:
            return context.run(fn, *arrays, **attrs)
        return context.run(config.under, settings, partial(fn, *arrays, **attrs))
    finally:
        _quiet.append(context)

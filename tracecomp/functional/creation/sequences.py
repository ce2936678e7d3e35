"""Sequences: ``arange``, ``linspace``, ``eye`` and triangular indices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracecomp.eager.device import Device, Layout, use
from tracecomp.eager.modes import modes
from tracecomp.eager.tensor import Tensor, create, wrap
from tracecomp.functional.creation.creation import constant, finish
from tracecomp.functional.default_dtype import default_dtype
from tracecomp.functional.dims import as_index, is_index
from tracecomp.functional.dtype_support import ALL
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import Number, bring, cast, followed_tensor, operand
from tracecomp.functional.publish import function
from tracecomp.ir.arrays import new_array
from tracecomp.ir.types import DType, float32, float64, int64

_LONG = 1 << 61
"""Bound below which sums of two numbers fit 64 bits."""


@function(to="torch")
def arange(
    start: Number, end: Number | None = None, step: Number = 1, *, dtype: DType | None = None, layout: Layout = None,
    device: Device = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """start, start + step, ... below ``end``; ``arange(end)`` starts at 0."""
    if end is None:
        start, end = 0, start
    # The usual range of indices, without the checks of other arguments.
    if modes.recorder is None and not use.begun and dtype is None and _ascends(start, end, step):
        return finish(wrap(np.arange(int(start), int(end), int(step), dtype=np.int64)), requires_grad, device)
    bounds: list[Any] = [operand(x, "arange", name) for x, name in ((start, "start"), (end, "end"), (step, "step"))]
    start, end, step = (x.item() if isinstance(x, Tensor) else x for x in bounds)
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (step > 0 and start > end) or (step < 0 and start < end):
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    if not all(isinstance(x, int) or math.isfinite(x) for x in (start, end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if dtype is None:
        dtype = default_dtype() if any(isinstance(x, float) for x in (start, end, step)) else int64
    if not dtype.is_floating_point:
        start, end, step = (x if isinstance(x, int) else int(x) for x in (start, end, step))
        if step == 0:
            raise ValueError("step must be nonzero")
    if isinstance(start, int) and isinstance(end, int) and step % 1 == 0:
        # Rounded up without floats, which would lose digits of large bounds and formulas of dynamic sizes.
        count = max(0, -((start - end) // int(step)))
    else:
        count = math.ceil((end - start) / step)
    return finish(_sequence(count, start, step, dtype), requires_grad, device)


def _ascends(start: object, end: object, step: object) -> bool:
    """Whether these are Python ints of 64 bits that define a nonempty range from ``start`` to ``end``."""
    if type(start) is not int or type(end) is not int or type(step) is not int:
        return False
    return 0 < step < _LONG and -_LONG < start < end < _LONG


def _sequence(count: int, start: Number, step: Number, dtype: DType) -> Tensor:
    """start + step * i in ``dtype``; computed in the float64 or int64 range first for exactness."""
    index = create("iota", shape=(count,), axis=0, dtype=_wide(dtype))
    if step != 1:
        index = prim.mul(index, bring(step, index.dtype))
    if start != 0:
        index = prim.add(index, bring(start, index.dtype))
    return cast(index, dtype)


def _wide(dtype: DType) -> DType:
    return float64 if dtype.is_floating_point else int64


@function(to="torch")
def range_(
    start: Number, end: Number | None = None, step: Number = 1, *, dtype: DType | None = None, layout: Layout = None,
    device: Device = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Like :func:`arange` but including ``end``."""
    if end is None:
        start, end = 0, start
    count = math.floor((end - start) / step) + 1
    return finish(_sequence(count, start, step, dtype or default_dtype()), requires_grad, device)


@function(to="torch", takes=ALL, makes=True)
def linspace(
    start: Number | complex | Tensor, end: Number | complex | Tensor, steps: int, *, dtype: DType | None = None,
    layout: Layout = None, device: Device = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """``steps`` evenly spaced numbers from ``start`` to ``end``, both included."""
    start, end, dtype = _ends("linspace", start, end, steps, dtype)
    return finish(_linspace(start, end, steps, dtype), requires_grad, device)


def _number(x: Number | complex | Tensor, name: str) -> Any:
    if isinstance(x, Tensor):
        if x.ndim:
            raise RuntimeError(f"{name} only supports 0-dimensional start and end tensors")
        return x.item()
    return x


def _ends(name: str, start: Any, end: Any, steps: Any, dtype: DType | None) -> tuple[Any, Any, DType]:
    """Both ends as numbers of ``dtype``, and that type: complex when one of them is, unless given."""
    start, end = _number(start, name), _number(end, name)
    if not is_index(steps):
        raise TypeError(f"{name}() received an invalid combination of arguments: steps must be int, not {steps!r}")
    steps = as_index(steps)
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    if isinstance(start, complex) or isinstance(end, complex):
        made = default_dtype().to_complex()
        if dtype is not None and not dtype.is_complex:
            raise RuntimeError(
                f"torch.{name}(): inferred dtype {made!r} can't be safely cast to passed dtype {dtype!r}"
            )
        return start, end, dtype or made
    if dtype is not None and dtype.kind == "int":
        return int(start), int(end), dtype
    return start, end, dtype or default_dtype()


def _linspace(start: Any, end: Any, steps: int, dtype: DType) -> Tensor:
    if steps == 1:
        return constant((1,), start, dtype)
    if dtype.itemsize == 2 and dtype.is_floating_point:
        return cast(_linspace(start, end, steps, float32), dtype)
    if any(followed_tensor(x) is not None for x in (start, end, steps)):
        return _followed_linspace(start, end, steps, dtype)
    width = dtype.numpy if dtype.differentiable else np.dtype(np.float64)
    first, last = width.type(start), width.type(end)
    step = (last - first) / width.type(max(steps - 1, 1))
    index = np.arange(steps).astype(width)
    half = np.arange(steps) < steps // 2
    values = np.where(half, first + step * index, last - step * (steps - 1 - index))
    return wrap(values.astype(dtype.numpy))


def _followed_linspace(start: Any, end: Any, steps: int, dtype: DType) -> Tensor:
    """Compute ``_linspace`` in the graph, from dynamic numbers of the recording."""
    kind = dtype if dtype.differentiable else float64
    first, last = constant((), start, kind), constant((), end, kind)
    step = (last - first) / constant((), steps - 1, kind)
    index = create("iota", shape=(steps,), axis=0, dtype=kind)
    half = create("iota", shape=(steps,), axis=0, dtype=int64) < steps // 2
    return cast(prim.where(half, first + step * index, last - step * (steps - 1 - index)), dtype)


@function(to="torch", takes=ALL)
def logspace(
    start: Number | complex | Tensor, end: Number | complex | Tensor, steps: int, base: float = 10.0, *,
    dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """``base`` to the powers of :func:`linspace`."""
    low, high, dtype = _ends("logspace", start, end, steps, dtype)
    width = np.dtype(np.complex128 if dtype.is_complex else np.float64)
    low, high = width.type(low), width.type(high)
    powers = np.linspace(low, high, steps, dtype=width) if steps != 1 else np.asarray([low], width)
    if not dtype.is_complex:  # this package's own powers: numpy's depend on the processor
        raised = prim.pow(constant(powers.shape, base, float64), wrap(powers))
        return finish(cast(raised, dtype), requires_grad, device)
    with np.errstate(all="ignore"):
        return finish(wrap(np.power(width.type(base), powers).astype(dtype.numpy)), requires_grad, device)


@function(to="torch", takes=ALL, makes=True)
def eye(
    n: int, m: int | None = None, *, dtype: DType | None = None, layout: Layout = None, device: Device = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """The identity matrix, ``n`` x ``m``."""
    m = n if m is None else m
    for value, name in ((n, "n"), (m, "m")):
        if value < 0:
            raise RuntimeError(f"{name} must be greater or equal to 0, got {value}")
    row = create("iota", shape=(n, m), axis=0, dtype=int64)
    column = create("iota", shape=(n, m), axis=1, dtype=int64)
    return finish(cast(prim.eq(row, column), dtype or default_dtype()), requires_grad, device)


def _indices(row: int, col: int, offset: int, lower: bool, dtype: DType) -> Tensor:
    for value, name in ((row, "row"), (col, "col")):
        if value < 0:
            raise RuntimeError(f"{name} must be non-negative, got {value}")
    below = _count_below(row, col, offset if lower else offset - 1)
    result = new_array((2, below if lower else row * col - below), dtype.numpy)
    ends = np.clip(np.arange(row) + (offset + lower), 0, col)
    counts = ends if lower else col - ends
    starts = np.cumsum(counts) - counts  # where each row begins in the result
    result[0] = np.repeat(np.arange(row), counts)
    result[1] = np.arange(result.shape[1]) - np.repeat(starts if lower else starts - ends, counts)
    return wrap(result)


def _count_below(row: int, col: int, offset: int) -> int:
    """The number of elements of a matrix on or below a diagonal."""
    empty = min(max(-offset, 0), row)
    full = min(max(col - offset - 1, empty), row)
    return (full - empty) * (empty + full + 1 + 2 * offset) // 2 + (row - full) * col


@function(to="torch")
def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: DType = int64, device: Device = None, layout: Layout = None
) -> Tensor:
    """Row and column indices of the lower triangle, shape (2, k)."""
    return finish(_indices(row, col, offset, True, dtype), False, device)


@function(to="torch")
def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: DType = int64, device: Device = None, layout: Layout = None
) -> Tensor:
    """Row and column indices of the upper triangle, shape (2, k)."""
    return finish(_indices(row, col, offset, False, dtype), False, device)

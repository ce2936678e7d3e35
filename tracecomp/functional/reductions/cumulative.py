"""Running sums, products and extremes; differences, integrals and gradients along a dimension."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tracecomp.eager.tensor import Tensor, create, inside
from tracecomp.functional.dims import wrap_dim, wrap_dims
from tracecomp.functional.dtype_support import ALL, COMPLEX, FLOATS
from tracecomp.functional.elementwise.arithmetic import mul, sub
from tracecomp.functional.elementwise.complexes import log_of_sum
from tracecomp.functional.elementwise.logic import truth
from tracecomp.functional.named_results import CummaxResult, CumminResult, ValuesIndices
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import Number, as_float, cast
from tracecomp.functional.publish import function
from tracecomp.functional.reductions.reduction import sum
from tracecomp.functional.shape.joining import cat
from tracecomp.functional.shape.shaping import cut_range, to_shape
from tracecomp.ir.types import DType, bool_, int64, uint8
from tracecomp.ops.reduction import shift


def _running(name: str, primitive: Any, input: Tensor, dim: int, dtype: DType | None) -> Tensor:
    if not isinstance(dim, int):
        raise TypeError(f"{name}(): argument 'dim' must be int, not {type(dim).__name__}")
    x = cast(input, dtype) if dtype is not None else input if input.dtype.differentiable else cast(input, int64)
    axis = wrap_dim(dim, x.ndim)
    return prim.cast(x, dtype=x.dtype) if x.ndim == 0 or x.numel() == 0 else primitive(x, axis=axis)


@function(takes=ALL, inplace=True)
def cumsum(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Running sums along ``dim``."""
    return _running("cumsum", prim.cumsum, input, dim, dtype)


@function(takes=ALL, inplace=True)
def cumprod(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Running products along ``dim``."""
    return _running("cumprod", _running_products, input, dim, dtype)


def _running_products(x: Tensor, axis: int) -> Tensor:
    return _prefixes(prim.mul, x, axis, 1.0) if x.dtype.is_complex else prim.cumprod(x, axis=axis)


def _prefixes(join: Callable[[Tensor, Tensor], Tensor], x: Tensor, axis: int, neutral: float) -> Tensor:
    """Combine all elements up to each by ``join``, in log2(n) steps (Hillis and Steele 1986): without a primitive
    scan."""
    reach = 1
    while reach < x.shape[axis]:
        x = join(shift(x, reach, neutral, axis), x)
        reach *= 2
    return x


def _extreme(
    result: type[ValuesIndices], primitive: Callable[..., tuple[Tensor, Tensor]], x: Tensor, dim: int
) -> ValuesIndices:
    axis = wrap_dim(dim, x.ndim)
    if x.ndim == 0 or x.numel() == 0:
        return result(prim.cast(x, dtype=x.dtype), create("full", value=0, shape=tuple(x.shape), dtype=int64))
    values, indices = primitive(cast(x, uint8) if x.dtype is bool_ else x, axis=axis)
    return result(cast(values, x.dtype), indices)


@function()
def cummax(input: Tensor, dim: int) -> ValuesIndices:
    """Running maximum along ``dim`` and its positions."""
    return _extreme(CummaxResult, prim.cummax, input, dim)


@function()
def cummin(input: Tensor, dim: int) -> ValuesIndices:
    """Running minimum along ``dim`` and its positions."""
    return _extreme(CumminResult, prim.cummin, input, dim)


@function(takes=FLOATS + COMPLEX, composite=True)
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """log of the running sum of exp(x): computed relative to the running maximum, and rescaled where it grows."""
    x = as_float(input)
    axis = wrap_dim(dim, x.ndim)
    if x.ndim == 0 or x.numel() == 0:
        return prim.cast(x, dtype=x.dtype)
    if x.dtype.is_complex:
        return _prefixes(log_of_sum, x, axis, -math.inf)
    top = prim.cummax(x.detach(), axis=axis)[0]
    before = shift(top, 1, -math.inf, axis)
    scale = prim.where(prim.eq(before, top), 1.0, prim.exp(prim.sub(before, top)))
    top = prim.where(prim.eq(prim.abs(top), math.inf), 0.0, top)
    total = prim.recurrence(scale, prim.exp(prim.sub(x, top)), axis=axis)
    return prim.add(prim.log(total), top)


@function(takes=ALL, composite=True)
def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Differences of neighbours along ``dim``, ``n`` times."""
    if input.ndim == 0:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    if n == 0:
        return prim.cast(input, dtype=input.dtype)
    axis = wrap_dim(dim, input.ndim)
    parts = [p for p in (prepend, input, append) if p is not None]
    x = cat(parts, axis) if len(parts) > 1 else input
    for _ in range(min(n, x.shape[axis])):
        size = x.shape[axis]
        later, earlier = cut_range(x, axis, 1, size), cut_range(x, axis, 0, size - 1)
        x = prim.bitwise_xor(later, earlier) if x.dtype is bool_ else prim.sub(later, earlier)
    return x


def _spacing(y: Tensor, x: Tensor | None, dx: Number | Tensor, axis: int) -> Any:
    """Distances between samples: a number, or a tensor that broadcasts along ``axis``."""
    if x is None:
        return dx
    if x.ndim == 1 and y.ndim > 1:
        if x.shape[0] != y.shape[axis]:
            raise RuntimeError(
                f"There must be one `x` value for each sample point, got {x.shape[0]} for {y.shape[axis]} samples"
            )
        x = to_shape(x, _column(x, axis, y.ndim))
    own = x.ndim - (y.ndim - axis)
    return prim.sub(cut_range(x, own, 1, x.shape[own]), cut_range(x, own, 0, x.shape[own] - 1))


def _column(x: Tensor, axis: int, ndim: int) -> tuple[int, ...]:
    return tuple(x.shape[0] if i == axis else 1 for i in range(ndim))


def _areas(y: Tensor, x: Tensor | None, dx: Number | Tensor, axis: int) -> Tensor:
    """Twice the area between neighbours; for integers in their type, as in PyTorch."""
    y = y if y.dtype is not bool_ else cast(truth(y), int64)
    n = y.shape[axis]
    pairs = prim.add(cut_range(y, axis, 1, n), cut_range(y, axis, 0, n - 1))
    return mul(pairs, _spacing(y, x, dx, axis))


@function("trapz", takes=ALL, composite=True)
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Number | Tensor = 1.0, dim: int = -1) -> Tensor:
    """Integral along ``dim`` by the trapezoidal rule."""
    if x is not None and bool_ in (y.dtype, x.dtype):
        raise RuntimeError("trapezoid(): bool tensors are not supported. Convert y and x, as with y.float()")
    if y.shape[wrap_dim(dim, y.ndim)] == 0:
        shape = tuple(n for i, n in enumerate(y.shape) if i != wrap_dim(dim, y.ndim))
        return create("full", value=0.0, shape=shape, dtype=as_float(y).dtype)
    axis = wrap_dim(dim, y.ndim)
    if x is not None:
        return mul(sum(_areas(y, x, dx, axis), axis), 0.5)
    n = y.shape[axis]
    ends = prim.add(cut_range(y, axis, 0, 1), cut_range(y, axis, n - 1, n))
    whole = sum(y, axis)
    return mul(sub(whole, mul(to_shape(ends, tuple(whole.shape)), 0.5)), dx)


@function(takes=ALL, composite=True)
def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Number | Tensor = 1.0, dim: int = -1) -> Tensor:
    """Running integrals along ``dim`` by the trapezoidal rule."""
    axis = wrap_dim(dim, y.ndim)
    areas = _areas(y, x, dx, axis)
    return mul(cumsum(areas, axis), 0.5)


@function(to="torch", takes=ALL, composite=True)
def gradient(
    input: Tensor, *, spacing: Number | Sequence[Number] | Sequence[Tensor] = 1, dim: int | Sequence[int] | None = None,
    edge_order: int = 1,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Slopes by central differences inside and one-sided ones (of order 1 or 2) at the edges."""
    spacing = 1 if spacing is None else spacing
    dims = list(range(input.ndim)) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    wrap_dims(dims, input.ndim)
    steps = list(spacing) if isinstance(spacing, list | tuple) else [spacing] * len(dims)
    if len(steps) != len(dims):
        raise RuntimeError(
            f"torch.gradient expected spacing to be unspecified, a scalar, or a list of length equal to 'self.dim() = "
            f"{input.ndim}', but got {len(steps)}"
        )
    x = as_float(input)
    found = []
    for d, step in zip(dims, steps, strict=True):
        axis = wrap_dim(d, x.ndim)
        if x.shape[axis] <= edge_order:
            raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
        found.append(_slopes(x, axis, step, edge_order))
    return tuple(found)


def _slopes(x: Tensor, axis: int, step: Any, edge_order: int) -> Tensor:
    n = x.shape[axis]

    def part(t: Tensor, a: int, b: int) -> Tensor:
        return cut_range(t, axis, a, b)

    if isinstance(step, Tensor) and step.ndim:
        places = to_shape(as_float(step), _column(step, axis, x.ndim))
    else:
        index = create("iota", shape=(n,), axis=0, dtype=x.dtype)
        places = to_shape(mul(index, step), _column(index, axis, x.ndim))
    gap = prim.sub(part(places, 1, n), part(places, 0, n - 1))
    gap = gap if gap.requires_grad else inside(gap)
    slope = prim.div(prim.sub(part(x, 1, n), part(x, 0, n - 1)), gap)
    first, last = part(slope, 0, 1), part(slope, n - 2, n - 1)
    if n == 2:
        return prim.concat(first, last, axis=axis)
    left, right = part(gap, 0, n - 2), part(gap, 1, n - 1)
    total = prim.add(left, right)
    if not gap.requires_grad:
        left, right, total = inside(left), inside(right), inside(total)
    low, high = part(slope, 0, n - 2), part(slope, 1, n - 1)
    middle = prim.div(prim.add(prim.mul(low, right), prim.mul(high, left)), total)
    if edge_order == 2:
        bend = prim.div(prim.sub(high, low), total)
        first = prim.sub(first, prim.mul(part(bend, 0, 1), part(gap, 0, 1)))
        last = prim.add(last, prim.mul(part(bend, n - 3, n - 2), part(gap, n - 2, n - 1)))
    return prim.concat(first, middle, last, axis=axis)

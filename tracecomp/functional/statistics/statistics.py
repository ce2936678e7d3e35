"""Counting and correlation: histograms, covariance, norms of differences."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

from tracecomp.eager.tensor import Tensor, create
from tracecomp.functional.creation.creation import constant
from tracecomp.functional.creation.sequences import linspace
from tracecomp.functional.dtype_support import COMPLEX, FLOATS, NUMBERS
from tracecomp.functional.elementwise.arithmetic import div, mul, sub
from tracecomp.functional.elementwise.complexes import real
from tracecomp.functional.linalg.matmul import matmul
from tracecomp.functional.named_results import CountsAllEdges, CountsEdges, HistogramddResult, HistogramResult
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import Number, as_float, cast, not_implemented
from tracecomp.functional.publish import function
from tracecomp.functional.shape.shaping import adjoint, in_new_memory, to_shape
from tracecomp.functional.value_checks import is_not_negative, required
from tracecomp.ir.types import float64, int64, type_word


@function(composite=True)
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """The number of occurrences of each non-negative integer, or the sums of their ``weights``."""
    if input.dtype.kind != "int":
        raise not_implemented("bincount_cpu", input.dtype)
    if input.ndim != 1:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    n = input.numel()
    if weights is not None and tuple(weights.shape) != (n,):
        raise RuntimeError("weights should be 1-d and have the same length as input")
    places = cast(input, int64)
    if n and int(prim.min(places, axes=(0,))) < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    size = max(int(prim.max(places, axes=(0,))) + 1 if n else 0, minlength)
    if weights is None:
        amount = create("full", value=1, shape=(n,), dtype=int64)
    else:
        amount = weights if weights.dtype.name == "float32" else cast(weights, float64)
    return prim.put(constant((size,), 0, amount.dtype), places, amount, axis=0, mode="add")


def _edges(x: Tensor, low: Number, high: Number, margin: float) -> tuple[float, float]:
    """The range of the bins; if all elements are equal, ``margin`` around them."""
    if x.numel() == 0 and low == high:
        return low, low + 2 * margin
    if low == high:
        flat = to_shape(x, (x.numel(),))
        low, high = float(prim.min(flat, axes=(0,))), float(prim.max(flat, axes=(0,)))
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"range of [{low}, {high}] is not finite")
    if low == high:
        low, high = low - margin, high + margin
    if low > high:
        raise RuntimeError("max must be larger than min")
    return low, high


@function(takes=FLOATS, composite=True)
def histc(input: Tensor, bins: int = 100, min: Number = 0, max: Number = 0) -> Tensor:
    """Counts in ``bins`` equal bins of [min, max] (of the data's range when both are equal)."""
    if bins <= 0:
        raise RuntimeError("bins must be > 0")
    low, high = _edges(input, min, max, 1)
    x = to_shape(input, (input.numel(),))
    real = as_float(x) if x.dtype.is_floating_point else cast(x, float64)
    inside = prim.bitwise_and(prim.ge(real, float(low)), prim.le(real, float(high)))
    place = prim.floor(prim.div(prim.mul(prim.sub(real, float(low)), float(bins)), float(high - low)))
    place = prim.cast(prim.minimum(prim.where(inside, place, float(bins)), float(bins)), dtype=int64)
    place = prim.where(prim.bitwise_and(inside, prim.ge(place, bins)), bins - 1, place)
    ones = constant((x.numel(),), 1, input.dtype)
    counts = prim.put(constant((bins + 1,), 0, input.dtype), place, ones, axis=0, mode="add")
    return prim.slice(counts, starts=(0,), stops=(bins,), steps=(1,))


@function(takes=FLOATS, composite=True)
def histogram(
    input: Tensor, bins: int | Tensor, *, range: Sequence[float] | None = None, weight: Tensor | None = None,
    density: bool = False,
) -> CountsEdges:  # fmt: skip
    """(counts, edges) of bins, defined by their number and range, or by their edges."""
    x = to_shape(input, (input.numel(),))
    if isinstance(bins, Tensor):
        edges = bins
    else:
        low, high = _edges(x, *((range[0], range[1]) if range else (0.0, 0.0)), 0.5)
        edges = linspace(low, high, bins + 1, dtype=x.dtype)
    weights = constant((x.numel(),), 1, x.dtype) if weight is None else to_shape(weight, (x.numel(),))
    counts = _binned([x], [edges], weights)
    widths = prim.sub(edges[1:], edges[:-1])
    if density:
        counts = prim.div(counts, prim.mul(widths, prim.sum(counts, axes=(0,))))
    return HistogramResult(counts, edges if edges is not bins else in_new_memory(edges, edges))


def _binned(columns: Sequence[Tensor], edges: Sequence[Tensor], weights: Tensor) -> Tensor:
    """Sums of weights in the cells of a grid of edges; the last cell of each axis is closed."""
    sizes = [e.numel() - 1 for e in edges]
    total = math.prod(sizes)
    flat: Tensor | None = None
    inside: Tensor | None = None
    for x, edge, size in zip(columns, edges, sizes, strict=True):
        rows = prim.reshape(x, shape=(x.numel(), 1))
        place = prim.sub(prim.sum(prim.cast(prim.le(edge, rows), dtype=int64), axes=(1,)), 1)
        place = prim.where(prim.eq(x, edge[-1]), size - 1, place)
        good = prim.bitwise_and(prim.ge(place, 0), prim.lt(place, size))
        flat = place if flat is None else prim.add(prim.mul(flat, size), place)
        inside = good if inside is None else prim.bitwise_and(inside, good)
    assert flat is not None and inside is not None
    where = prim.where(inside, flat, total)
    sums = prim.put(constant((total + 1,), 0, weights.dtype), where, weights, axis=0, mode="add")
    return prim.reshape(prim.slice(sums, starts=(0,), stops=(total,), steps=(1,)), shape=tuple(sizes))


@function(to="torch", takes=FLOATS, composite=True)
def histogramdd(
    input: Tensor, bins: int | Sequence[int] | Sequence[Tensor], *, range: Sequence[float] | None = None,
    weight: Tensor | None = None, density: bool = False,
) -> CountsAllEdges:  # fmt: skip
    """(counts, list of edges) over the last dimension's coordinates."""
    width = input.shape[-1] if input.ndim else 0
    if not width:
        raise RuntimeError(f"histogramdd(): input needs at least one coordinate, but its shape is {list(input.shape)}")
    points = to_shape(input, (input.numel() // width, width))
    if not isinstance(bins, int) and len(bins) != width:
        raise RuntimeError("histogramdd: The size of bins must be equal to the innermost dimension of the input.")
    columns = [points[:, i].contiguous() for i in builtins.range(width)]
    wanted: Sequence[int | Tensor] = [bins] * width if isinstance(bins, int) else bins
    bounds = [(range[2 * i], range[2 * i + 1]) if range else (0.0, 0.0) for i in builtins.range(width)]
    edges = []
    for i, b in enumerate(wanted):
        if isinstance(b, Tensor):
            edges.append(b)
            continue
        low, high = _edges(columns[i], *bounds[i], 0.5)
        edges.append(linspace(low, high, b + 1, dtype=points.dtype))
    weights = constant((points.shape[0],), 1, points.dtype) if weight is None else to_shape(weight, (points.shape[0],))
    counts = _binned(columns, edges, weights)
    if density:
        volume: Any = prim.sum(counts, axes=tuple(builtins.range(width)))
        for i, e in enumerate(edges):
            widths = prim.sub(e[1:], e[:-1])
            counts = prim.div(counts, to_shape(widths, tuple(n if j == i else 1 for j, n in enumerate(counts.shape))))
        counts = prim.div(counts, volume)
    return HistogramddResult(counts, tuple(edges))


def _at_most_two(name: str, x: Tensor) -> None:
    if x.ndim > 2:
        raise RuntimeError(
            f"{name}(): expected input to have two or fewer dimensions but got an input with {x.ndim} dimensions"
        )


def _cov_weights(n: int, fweights: Tensor | None, aweights: Tensor | None) -> Tensor | None:
    """The product of the weights, one per observation."""
    weights: Tensor | None = None
    for w in (fweights, aweights):
        if w is None:
            continue
        if w.ndim > 1 or w.numel() != n:
            raise RuntimeError("cov(): expected weights to have the same numel as there are observations in the input")
        if w is fweights and w.dtype.is_floating_point:
            raise RuntimeError(f"cov(): expected fweights to have integral dtype but got {type_word(w.dtype)} dtype")
        if w is aweights and not w.dtype.is_floating_point:
            raise RuntimeError(f"cov(): expected aweights to have floating point dtype but got {type_word(w.dtype)}")
        message = f"cov(): {'fweights' if w is fweights else 'aweights'} cannot be negative"
        w = to_shape(required(w, is_not_negative, message), (n,))
        weights = w if weights is None else mul(weights, w)
    return weights


@function(takes=NUMBERS + COMPLEX, composite=True)
def cov(
    input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """Covariance of the rows, with integer repetitions ``fweights`` and observation weights ``aweights``."""
    _at_most_two("cov", input)
    x = as_float(input)
    x = to_shape(x, (1, x.numel())) if x.ndim < 2 else x
    n = x.shape[1]
    weights = _cov_weights(n, fweights, aweights)
    if weights is None:
        mean = prim.div(prim.sum(x, axes=(1,)), float(n))
        norm: Any = builtins.max(float(n - correction), 0.0)
    else:
        total = weights.sum()
        mean = div(prim.sum(mul(x, weights), axes=(1,)), total)
        norm = sub(total, correction)
        if aweights is not None and correction:
            norm = sub(total, div(mul(mul(weights, aweights).sum(), correction), total))
        norm = norm.clamp(min=0)
    centered = prim.sub(x, to_shape(mean, (x.shape[0], 1)))
    scaled = centered if weights is None else mul(centered, weights)
    square = div(matmul(centered, adjoint(scaled)), norm)
    return to_shape(square, ()) if input.ndim < 2 or x.shape[0] == 1 else square


@function(takes=NUMBERS + COMPLEX, composite=True)
def corrcoef(input: Tensor) -> Tensor:
    """Correlation of the rows."""
    _at_most_two("corrcoef", input)
    c = cov(input)
    if c.ndim == 0:
        return prim.div(c, c)
    d = prim.sqrt(real(c.diagonal()))
    ratio = div(div(c, to_shape(d, (d.numel(), 1))), d)
    if ratio.dtype.is_complex:
        return prim.complex(prim.real(ratio).clamp(-1, 1), prim.imag(ratio).clamp(-1, 1))
    return ratio.clamp(-1, 1)

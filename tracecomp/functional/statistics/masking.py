"""Reductions over unmasked elements: the functions of ``torch.masked`` on dense tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tracecomp.eager.tensor import Tensor, create
from tracecomp.functional.dims import Dim, reduce_axes
from tracecomp.functional.dtype_support import ALL, NUMBERS
from tracecomp.functional.elementwise.complexes import real
from tracecomp.functional.linalg.norms import power_norm
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import as_float, cast, not_implemented, scalar
from tracecomp.functional.publish import function
from tracecomp.functional.reductions import cumulative, reduction
from tracecomp.functional.reductions.sorting import nanmedian
from tracecomp.functional.shape.shaping import to_shape
from tracecomp.functional.special import special
from tracecomp.ir.types import DType, bool_, int64


def _limits(dtype: DType) -> tuple[Any, Any]:
    if dtype.differentiable:
        return -math.inf, math.inf
    bits = dtype.itemsize * 8
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype.signed else (0, (1 << bits) - 1)


def _seen(input: Tensor, mask: Tensor | None) -> Tensor | None:
    """The mask in the shape of ``input``."""
    return None if mask is None else prim.expand(cast(mask, bool_), shape=tuple(input.shape))


def _filled(input: Tensor, mask: Tensor | None, value: Any) -> Tensor:
    seen = _seen(input, mask)
    return input if seen is None else prim.where(seen, input, scalar(value, input.dtype))


def _converted(input: Tensor, dtype: DType | None) -> Tensor:
    return input if dtype is None else cast(input, dtype)


def _summable(input: Tensor, dtype: DType | None) -> Tensor:
    if dtype is None and not input.dtype.differentiable:
        dtype = int64
    return _converted(input, dtype)


@function(to="masked", takes=ALL, composite=True)
def sum_(
    input: Tensor, dim: Dim = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """Sum of unmasked elements."""
    return reduction.sum(_filled(_summable(input, dtype), mask, 0), dim, keepdim)


@function(to="masked", takes=ALL, composite=True)
def prod(
    input: Tensor, dim: Dim = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """Product of unmasked elements."""
    x = _filled(_summable(_converted(input, dtype), None), mask, 1)
    return reduction.product(x, reduce_axes(dim, x.ndim), keepdim)


def _running(
    name: str, run: Callable[..., Tensor], input: Tensor, dim: int, dtype: DType | None, mask: Tensor | None
) -> Tensor:
    """A running sum or product; integers keep their type, as in PyTorch."""
    x = _converted(input, dtype)
    if x.dtype is bool_:
        raise not_implemented(f"{name}_out_cpu", bool_)
    return run(_filled(x, mask, 0 if name == "cumsum" else 1), dim, dtype=x.dtype)


@function(to="masked", takes=ALL, composite=True)
def cumsum(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Running sums of unmasked elements."""
    return _running("cumsum", cumulative.cumsum, input, dim, dtype, mask)


@function(to="masked", takes=ALL, composite=True)
def cumprod(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Running products of unmasked elements."""
    return _running("cumprod", cumulative.cumprod, input, dim, dtype, mask)


def _extreme(name: str, low_first: bool) -> None:
    def run(
        input: Tensor, dim: Dim = None, *, keepdim: bool = False, dtype: DType | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        x = _converted(input, dtype)
        low, high = _limits(x.dtype)
        fill = low if low_first else high
        call = reduction.amax if low_first else reduction.amin
        return call(_filled(x, mask, fill), () if dim is None else dim, keepdim)

    run.__name__, run.__doc__ = name, f"{'Largest' if low_first else 'Smallest'} unmasked element."
    function(to="masked", composite=True)(run)


_extreme("amax", True)
_extreme("amin", False)


def _position(name: str, low_first: bool) -> None:
    def run(
        input: Tensor, dim: int | None = None, *, keepdim: bool = False, dtype: DType | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        x = _converted(input, dtype)
        low, high = _limits(x.dtype)
        call = reduction.argmax if low_first else reduction.argmin
        return cast(call(_filled(x, mask, low if low_first else high), dim, keepdim), x.dtype)

    run.__name__, run.__doc__ = name, f"Position of the {'largest' if low_first else 'smallest'} unmasked element."
    function(to="masked", composite=True)(run)


_position("argmax", True)
_position("argmin", False)


def _count(x: Tensor, mask: Tensor | None, axes: Any, keepdim: bool) -> Tensor:
    seen = _seen(x, mask)
    ones = create("full", value=1.0, shape=tuple(x.shape), dtype=x.dtype) if seen is None else cast(seen, x.dtype)
    return reduction.reduced(prim.sum, ones, axes, keepdim)


@function(to="masked", takes=ALL, composite=True)
def mean(
    input: Tensor, dim: Dim = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """Mean of unmasked elements."""
    x = _converted(input, dtype)
    axes = reduce_axes(dim, x.ndim)
    total = reduction.reduced(prim.sum, _filled(x, mask, 0), axes, keepdim)
    return prim.div(total, _count(x, mask, axes, keepdim))


@function(to="masked", takes=NUMBERS, composite=True)
def median(
    input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """Lower median of unmasked elements."""
    return nanmedian(_filled(_converted(input, dtype), mask, math.nan), dim, keepdim)[0]


@function(to="masked", takes=ALL, composite=True)
def norm(
    input: Tensor, ord: float = 2.0, dim: Dim = None, *, keepdim: bool = False, dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The p-norm of unmasked elements."""
    x = _converted(input, dtype)
    fill = math.inf if ord == -math.inf else 0.0
    return power_norm(_filled(x, mask, fill), float(ord), reduce_axes(dim, x.ndim), keepdim)


def _spread(
    input: Tensor, dim: Dim, unbiased: bool | None, correction: float | None, keepdim: bool, dtype: DType | None,
    mask: Tensor | None,
) -> Tensor:  # fmt: skip
    x = _converted(input, dtype)
    x = as_float(x)
    axes = reduce_axes(dim, x.ndim)
    count = _count(x, mask, axes, True)
    center = prim.div(reduction.reduced(prim.sum, _filled(x, mask, 0), axes, True), count)
    gap = _filled(prim.sub(x, center), mask, 0)
    total = reduction.reduced(prim.sum, reduction.squared(gap), axes, keepdim)
    minus = float((1 if unbiased is None else int(unbiased)) if correction is None else correction)
    count = real(count)
    spread = prim.div(total, to_shape(prim.maximum(prim.sub(count, minus), 0.0), tuple(total.shape)))
    return cast(spread, x.dtype)  # complex numbers keep their type here, as in PyTorch, though variances are real


@function(to="masked", takes=ALL, composite=True)
def var(
    input: Tensor, dim: Dim = None, unbiased: bool | None = None, *, correction: float | None = None,
    keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Variance of unmasked elements."""
    return _spread(input, dim, unbiased, correction, keepdim, dtype, mask)


@function(to="masked", takes=ALL, composite=True)
def std(
    input: Tensor, dim: Dim = None, unbiased: bool | None = None, *, correction: float | None = None,
    keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Standard deviation of unmasked elements."""
    spread = _spread(input, dim, unbiased, correction, keepdim, dtype, mask)
    return cast(reduction.safe_sqrt(real(spread)), spread.dtype)


@function(to="masked", composite=True)
def softmax(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Softmax over unmasked elements."""
    return reduction.softmax(_filled(_converted(input, dtype), mask, -math.inf), dim)


@function(to="masked", composite=True)
def log_softmax(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Logarithm of :func:`softmax`."""
    return reduction.log_softmax(_filled(_converted(input, dtype), mask, -math.inf), dim)


@function(to="masked", composite=True)
def softmin(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Softmax of negated unmasked elements."""
    return reduction.softmax(prim.neg(_filled(_converted(input, dtype), mask, math.inf)), dim)


@function(to="masked", takes=ALL, composite=True)
def normalize(
    input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """Unmasked elements divided by their norm along ``dim``."""
    x = _converted(input, dtype)
    size = norm(x, ord, dim, keepdim=True, mask=mask)
    return prim.div(_filled(x, mask, 0), prim.maximum(size, float(eps)))


@function(to="masked", takes=ALL, composite=True)
def logsumexp(
    input: Tensor, dim: Dim = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """log of the sum of exponentials of unmasked elements."""
    x = _converted(input, dtype)
    return cast(reduction.logsumexp(_filled(x, mask, _limits(x.dtype)[0]), dim, keepdim), x.dtype)


@function(to="masked", composite=True)
def logaddexp(
    input: Tensor, other: Tensor, *, dtype: DType | None = None, input_mask: Tensor | None = None,
    other_mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """:func:`torch.logaddexp` of masked operands."""
    a = _filled(_converted(input, dtype), input_mask, -math.inf)
    return special.logaddexp(a, _filled(_converted(other, dtype), other_mask, -math.inf))

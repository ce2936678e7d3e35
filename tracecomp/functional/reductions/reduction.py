"""Reductions over some or all dimensions."""

from __future__ import annotations

import builtins
import math
from typing import Any, overload

from tracecomp.eager.tensor import Tensor, create
from tracecomp.functional.dims import Dim, Shape, keep_dims, one_axis, reduce_axes, wrap_dim
from tracecomp.functional.dtype_support import ALL
from tracecomp.functional.elementwise import arithmetic, logic
from tracecomp.functional.elementwise.complexes import of_number
from tracecomp.functional.named_results import AminmaxResult, MaxResult, MinMax, MinResult, ValuesIndices
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import Number, as_float, cast, not_implemented, operand, rounded, wide
from tracecomp.functional.publish import function
from tracecomp.functional.shape.shaping import cut_range, row_major, to_shape
from tracecomp.ir.types import DType, bool_, int64, type_word, uint8


def reduced(primitive: Any, x: Tensor, axes: Shape, keepdim: bool) -> Tensor:
    """A primitive reduction with ``keepdim``."""
    result = primitive(x, axes=axes)
    return to_shape(result, keep_dims(x.shape, axes)) if keepdim else result


def count_of(x: Tensor, axes: Shape) -> int:
    """The number of elements of each sum."""
    return math.prod(x.shape[i] for i in axes)


def _sum_dtype(x: Tensor, dtype: DType | None) -> Tensor:
    if dtype is not None:
        return cast(x, dtype)
    return x if x.dtype.differentiable else cast(x, int64)


@function(takes=ALL)
def sum(input: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """Sum over ``dim`` (all dimensions by default); integers and bools add up in int64."""
    axes = reduce_axes(dim, input.ndim)
    if dtype is bool_:
        return reduced(prim.any, logic.truth(input), axes, keepdim)
    return reduced(prim.sum, _sum_dtype(input, dtype), axes, keepdim)


@function(composite=True)
def nansum(input: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """:func:`sum` with NaN as zero."""
    return sum(without_nan(input), dim, keepdim, dtype=dtype)


def without_nan(x: Tensor) -> Tensor:
    return prim.where(prim.isnan(x), 0.0, x) if x.dtype.is_floating_point else x


@function(takes=ALL)
def prod(input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """Product over ``dim`` (all dimensions by default); integers and bools multiply in int64."""
    axes = reduce_axes(dim, input.ndim)
    if dtype is bool_:
        return reduced(prim.all, logic.truth(input), axes, keepdim)
    return product(_sum_dtype(input, dtype), axes, keepdim)


def product(x: Tensor, axes: Shape, keepdim: bool) -> Tensor:
    """The product over ``axes``, for any type but bool."""
    return reduced(_complex_product if x.dtype.is_complex else prim.prod, x, axes, keepdim)


def _complex_product(x: Tensor, axes: Shape) -> Tensor:
    """The product by halves: the gradient of a zero is the product of all others, without a division."""
    rest = tuple(i for i in range(x.ndim) if i not in axes)
    shape, n = tuple(x.shape[i] for i in rest), count_of(x, axes)
    if n == 0:
        return prim.add(prim.sum(x, axes=axes), 1.0)
    last = len(rest)
    factors = to_shape(prim.permute(x, dims=rest + axes), (*shape, n))
    while n > 1:
        half = n // 2
        low, high = cut_range(factors, last, 0, half), cut_range(factors, last, half, 2 * half)
        middle = prim.mul(low, high)
        factors = prim.concat(middle, cut_range(factors, last, 2 * half, n), axis=last) if n % 2 else middle
        n -= half
    return to_shape(factors, shape)


def _need_float(name: str, x: Tensor, dtype: DType | None) -> Tensor:
    if dtype is not None:
        x = cast(x, dtype)
    if not x.dtype.differentiable:
        raise RuntimeError(
            f"{name}(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. "
            f"Got: {type_word(x.dtype)}"
        )
    return x


@function(takes=ALL, composite=True)
def mean(input: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """Mean over ``dim``; RuntimeError for integers without a floating ``dtype``."""
    x = _need_float("mean", input, dtype)
    axes = reduce_axes(dim, x.ndim)
    return rounded(prim.div(reduced(prim.sum, wide(x), axes, keepdim), count_of(x, axes)), x)


@function(composite=True)
def nanmean(input: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """:func:`mean` over elements that are not NaN."""
    x = _need_float("nanmean", input, dtype)
    axes = reduce_axes(dim, x.ndim)
    present = cast(prim.logical_not(prim.isnan(x)), x.dtype)
    return prim.div(reduced(prim.sum, without_nan(x), axes, keepdim), reduced(prim.sum, present, axes, keepdim))


def _bool_as(primitive_name: str, x: Tensor, axes: Shape, keepdim: bool) -> Tensor:
    """Extremes of bools are any and all."""
    if x.dtype is bool_:
        return reduced(prim.any if primitive_name == "max" else prim.all, x, axes, keepdim)
    return reduced(getattr(prim, primitive_name), x, axes, keepdim)


def _extreme(name: str, primitive: str, x: Tensor, dim: Dim, keepdim: bool) -> Tensor:
    axes = reduce_axes(dim, x.ndim)
    if any_zero(x, axes):
        if len(axes) == x.ndim and (dim is None or dim == ()):
            raise RuntimeError(
                f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
                "Specify the reduction dim with the 'dim' argument."
            )
        axis = next(i for i in axes if x.shape[i] == 0)
        raise IndexError(f"{name}(): Expected reduction dim {axis} to have non-zero size.")
    return _bool_as(primitive, x, axes, keepdim)


@function()
def amax(input: Tensor, dim: Dim = (), keepdim: bool = False) -> Tensor:
    """Largest over ``dim``; equal extremes share the gradient."""
    return _extreme("amax", "max", input, dim, keepdim)


@function()
def amin(input: Tensor, dim: Dim = (), keepdim: bool = False) -> Tensor:
    """Smallest over ``dim``; equal extremes share the gradient."""
    return _extreme("amin", "min", input, dim, keepdim)


@function(composite=True)
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """Smallest and largest."""
    return AminmaxResult(
        _extreme("aminmax", "min", input, dim, keepdim), _extreme("aminmax", "max", input, dim, keepdim)
    )


def arg_extreme(primitive: str, x: Tensor, axis: int) -> Tensor:
    """The first position of the extreme along an axis."""
    if x.ndim == 0:
        return create("full", value=0, shape=(), dtype=int64)
    found: Tensor = getattr(prim, primitive)(cast(x, uint8) if x.dtype is bool_ else x, axes=(axis,))
    return found


def _selected(kind: str, result: Any, x: Tensor, dim: int, keepdim: bool) -> Any:
    """(values, indices) along ``dim``; the gradient flows to the selected element."""
    axis = one_axis(dim, x.ndim, kind, tuple(x.shape))
    indices = arg_extreme(f"arg{kind}", x, axis)
    if x.ndim == 0:
        return result(prim.cast(x, dtype=x.dtype), indices)
    return result(*pick(x, to_shape(indices, keep_dims(x.shape, (axis,))), axis, keepdim))


def pick(x: Tensor, indices: Tensor, axis: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    """Values at ``indices`` (which keep the axis), and the indices."""
    values = prim.gather(x, indices, axis=axis)
    if keepdim:
        return values, indices
    shape = tuple(n for i, n in enumerate(x.shape) if i != axis)
    return to_shape(values, shape), to_shape(indices, shape)


def _max_or_min(kind: str, result: Any, pairwise: Any, args: tuple[Any, ...], kwargs: dict[str, object]) -> Any:
    input, *rest = args
    names = dict(zip(("dim", "keepdim"), rest, strict=False)) | kwargs
    other = names.pop("other", None)
    dim = names.get("dim")
    if isinstance(dim, Tensor):
        other = dim
    if other is not None:
        return pairwise(input, other)
    if dim is None:
        return _extreme(kind, kind, input, None, False)
    return _selected(kind, result, input, dim, names.get("keepdim", False))


@overload
def max(input: Tensor) -> Tensor: ...
@overload
def max(input: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...
@overload
def max(input: Tensor, other: Tensor) -> Tensor: ...
@function(composite=True)
def max(input: Tensor, *args: Any, **kwargs: Any) -> Any:
    """The largest element; with ``dim``, (values, indices) along it; with a tensor, :func:`maximum`."""
    return _max_or_min("max", MaxResult, arithmetic.maximum, (input, *args), kwargs)


@overload
def min(input: Tensor) -> Tensor: ...
@overload
def min(input: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...
@overload
def min(input: Tensor, other: Tensor) -> Tensor: ...
@function(composite=True)
def min(input: Tensor, *args: Any, **kwargs: Any) -> Any:
    """The smallest element; with ``dim``, (values, indices) along it; with a tensor, :func:`minimum`."""
    return _max_or_min("min", MinResult, arithmetic.minimum, (input, *args), kwargs)


def _arg(kind: str, x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    if x.dtype is bool_:
        raise RuntimeError(f"{kind}(): does not support bool input")
    if dim is None:
        if x.numel() == 0:
            raise IndexError(f"{kind}(): Expected reduction dim to be specified for input.numel() == 0.")
        flat = getattr(prim, kind)(to_shape(x, (x.numel(),)), axes=(0,))
        return to_shape(flat, (1,) * x.ndim) if keepdim else flat
    axis = one_axis(dim, x.ndim, kind, tuple(x.shape))
    indices = arg_extreme(kind, x, axis)
    return to_shape(indices, keep_dims(x.shape, (axis,))) if keepdim else indices


@function()
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The first position of the largest element, in the flattened order without ``dim``."""
    return _arg("argmax", input, dim, keepdim)


@function()
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The first position of the smallest element, in the flattened order without ``dim``."""
    return _arg("argmin", input, dim, keepdim)


def _truth_result(x: Tensor, result: Tensor) -> Tensor:
    return cast(result, uint8) if x.dtype is uint8 else result


@function(takes=ALL)
def all(input: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """Whether every element is nonzero."""
    axes = _truth_axes(dim, input.ndim)
    return _truth_result(input, reduced(prim.all, logic.truth(input), axes, keepdim))


@function(takes=ALL)
def any(input: Tensor, dim: Dim = None, keepdim: bool = False) -> Tensor:
    """Whether some element is nonzero."""
    axes = _truth_axes(dim, input.ndim)
    return _truth_result(input, reduced(prim.any, logic.truth(input), axes, keepdim))


def _truth_axes(dim: Dim, ndim: int) -> Shape:
    """For all and any an empty tuple of dims reduces nothing."""
    if dim is not None and not isinstance(dim, int) and len(dim) == 0:
        return ()
    return reduce_axes(dim, ndim)


@function(takes=ALL)
def count_nonzero(input: Tensor, dim: Dim = None) -> Tensor:
    """The number of nonzero elements."""
    return prim.sum(cast(logic.truth(input), int64), axes=reduce_axes(dim, input.ndim))


@function("special.logsumexp", takes=ALL, composite=True)
def logsumexp(input: Tensor, dim: Dim, keepdim: bool = False) -> Tensor:
    """log(sum(exp(input))) over ``dim``, shifted by the maximum so that it does not overflow."""
    x = as_float(input)
    axes = reduce_axes(dim, x.ndim)
    if any_zero(x, axes):
        return of_number("log", reduced(prim.sum, of_number("exp", x), axes, keepdim))
    sizes = x.detach()
    top = prim.max(prim.real(sizes) if x.dtype.is_complex else sizes, axes=axes)
    top = cast(prim.where(prim.eq(prim.abs(top), math.inf), 0.0, top), x.dtype)
    kept = to_shape(top, keep_dims(x.shape, axes))
    total = of_number("log", prim.sum(of_number("exp", prim.sub(x, kept)), axes=axes))
    result = prim.add(total, top)
    return to_shape(result, keep_dims(x.shape, axes)) if keepdim else result


def any_zero(x: Tensor, axes: Shape) -> bool:
    """Whether some reduced axis is empty."""
    return builtins.any(x.shape[i] == 0 for i in axes)


def safe_sqrt(x: Tensor) -> Tensor:
    """Square root whose gradient at zero is zero instead of infinite."""
    zero = prim.eq(x, 0.0)
    return prim.where(zero, 0.0, prim.sqrt(prim.where(zero, 1.0, x)))


def _moments(input: Tensor, dim: Dim, correction: Number, keepdim: bool, name: str) -> tuple[Tensor, Tensor]:
    """Variance and mean, for half types in float32; complex numbers vary in both parts."""
    if not input.dtype.differentiable:
        raise RuntimeError(f"{name} only support floating point and complex dtypes")
    axes = reduce_axes(dim, input.ndim)
    count = count_of(input, axes)
    kept = keep_dims(input.shape, axes)
    x = wide(input)
    center = to_shape(prim.div(prim.sum(x, axes=axes), count), kept)
    deviation = prim.sub(x, center)
    total = reduced(prim.sum, squared(deviation), axes, keepdim)
    average = center if keepdim else to_shape(center, tuple(total.shape))
    return prim.div(total, builtins.max(count - correction, 0)), average


def squared(x: Tensor) -> Tensor:
    """Squares of absolute values."""
    if not x.dtype.is_complex:
        return prim.mul(x, x)
    re, im = prim.real(x), prim.imag(x)
    return prim.add(prim.mul(re, re), prim.mul(im, im))


def _correction(dim: Any, unbiased: Any, correction: Any, name: str) -> tuple[Dim, Any]:
    """The correction; ``var(x, unbiased)`` passes a bool as ``dim``."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if correction is not None:
        return dim, operand(correction, name, "correction")
    return dim, 1 if unbiased is None else int(unbiased)


def _publish_moments(name: str, root: bool, with_mean: bool) -> None:
    def run(
        input: Tensor, dim: Dim | bool = None, unbiased: bool | None = None, keepdim: bool = False, *,
        correction: Number | None = None,
    ) -> Any:  # fmt: skip
        axes, n = _correction(dim, unbiased, correction, name)
        spread, average = _moments(input, axes, n, keepdim, name)
        spread = rounded(safe_sqrt(spread) if root else spread, input)
        return (spread, rounded(average, input)) if with_mean else spread

    run.__name__ = name
    run.__annotations__["return"] = "tuple[Tensor, Tensor]" if with_mean else "Tensor"
    run.__doc__ = f"{'Standard deviation' if root else 'Variance'}{' and mean' if with_mean else ''} over ``dim``."
    function(takes=ALL, composite=True)(run)


for _name, _root, _with_mean in (
    ("var", False, False), ("std", True, False), ("var_mean", False, True), ("std_mean", True, True),
):  # fmt: skip
    _publish_moments(_name, _root, _with_mean)


@function("special.softmax", takes=ALL, composite=True)
def softmax(input: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along ``dim``."""
    given = input if dtype is None else cast(input, dtype)
    x = wide(row_major(given))
    if not x.dtype.is_floating_point:
        raise not_implemented("softmax_lastdim_kernel_impl", x.dtype)
    axes = reduce_axes(wrap_dim(dim, x.ndim), x.ndim)
    if any_zero(x, axes):
        return prim.exp(given)
    kept = keep_dims(x.shape, axes)
    powers = prim.exp(prim.sub(x, to_shape(prim.max(x.detach(), axes=axes), kept)))
    total = to_shape(prim.sum(powers, axes=axes), kept)
    return rounded(prim.mul(powers, prim.div(1.0, total)), given)


@function("special.log_softmax", takes=ALL, composite=True)
def log_softmax(input: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """log(softmax(x)) along ``dim``, computed without the quotient."""
    given = input if dtype is None else cast(input, dtype)
    x = wide(row_major(given))
    if not x.dtype.is_floating_point:
        raise not_implemented("log_softmax_lastdim_kernel_impl", x.dtype)
    axes = reduce_axes(wrap_dim(dim, x.ndim), x.ndim)
    if any_zero(x, axes):
        return given.clone()
    kept = keep_dims(x.shape, axes)
    shifted = prim.sub(x, to_shape(prim.max(x.detach(), axes=axes), kept))
    return rounded(prim.sub(shifted, to_shape(prim.log(prim.sum(prim.exp(shifted), axes=axes)), kept)), given)

"""Norms of vectors and matrices, cross products, vector products."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tracecomp.eager.tensor import Tensor
from tracecomp.functional.dims import Dim, Shape, keep_dims, reduce_axes, wrap_dim, wrap_dims
from tracecomp.functional.dtype_support import ALL, COMPLEX, FLOATS
from tracecomp.functional.linalg.factors import singular_values
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import cast, rounded, same_scalar_type, wide, with_zero_gradient
from tracecomp.functional.publish import function
from tracecomp.functional.reductions.reduction import any_zero, reduced, safe_sqrt
from tracecomp.functional.shape.shaping import cut_range, movedim, to_shape
from tracecomp.ir.types import DType, broadcast_shapes, type_word


def power_norm(x: Tensor, p: float, axes: Shape, keepdim: bool) -> Tensor:
    """(sum |x|^p)^(1/p) with its limits at 0 and infinity; the gradient at zero is zero.

    Half types are computed in float32: squares of 300 overflow float16. Complex numbers count by their absolute values.
    """
    x = x.abs() if x.dtype.is_complex else x
    return rounded(_power_norm(wide(x), p, axes, keepdim), x)


def _power_norm(x: Tensor, p: float, axes: Shape, keepdim: bool) -> Tensor:
    if p == 2:
        return safe_sqrt(reduced(prim.sum, prim.mul(x, x), axes, keepdim))
    size = prim.abs(x)
    if math.isinf(p):
        return reduced(prim.max if p > 0 else prim.min, size, axes, keepdim)
    if p == 0:
        return reduced(prim.sum, with_zero_gradient(cast(prim.ne(x, 0.0), x.dtype), x), axes, keepdim)
    if p == 1:
        return reduced(prim.sum, size, axes, keepdim)
    zero = prim.eq(size, 0.0)
    powers = prim.where(zero, 0.0 if p > 0 else math.inf, prim.pow(prim.where(zero, 1.0, size), float(p)))
    total = reduced(prim.sum, powers, axes, keepdim)
    flat = prim.bitwise_or(prim.eq(total, 0.0), prim.eq(total, math.inf))
    root = prim.pow(prim.where(flat, 1.0, total), 1.0 / p)
    edge = total if p > 0 else prim.div(1.0, total)
    return prim.where(flat, edge.detach(), root)


def _in_dtype(x: Tensor, dtype: DType | None, name: str) -> Tensor:
    """Convert ``x`` to ``dtype``; RuntimeError if only one of both is complex."""
    if dtype is None:
        return x
    if dtype.is_complex is not x.dtype.is_complex:
        kind = "complex" if x.dtype.is_complex else "real"
        raise RuntimeError(f"{name}: dtype should be {kind} for {kind} inputs, but got {type_word(dtype)}")
    return cast(x, dtype)


@function(to="linalg", takes=ALL, composite=True)
def vector_norm(
    x: Tensor, ord: float = 2, dim: Dim = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """The p-norm over ``dim`` (all dimensions by default)."""
    if not x.dtype.differentiable:
        raise RuntimeError(
            f"linalg.vector_norm: Expected a floating point or complex tensor as input. Got {type_word(x.dtype)}"
        )
    x = _in_dtype(x, dtype, "linalg.vector_norm")
    axes = reduce_axes(dim, x.ndim)
    if any_zero(x, axes) and (ord < 0 or math.isinf(ord)):
        raise RuntimeError(
            f"linalg.vector_norm cannot compute the {ord} norm on an empty tensor because the operation does not have "
            "an identity"
        )
    return power_norm(x, float(ord), axes, keepdim)


def _singular_norm(x: Tensor, ord: float | str) -> Tensor:
    """Norms of singular values over the last two axes, which are dropped."""
    s = singular_values(x)
    axes = (s.ndim - 1,)
    if isinstance(ord, str) or s.shape[-1] == 0:
        return prim.sum(s, axes=axes)
    return (prim.max if ord > 0 else prim.min)(s, axes=axes)


@function(to="linalg", takes=ALL, composite=True)
def matrix_norm(
    A: Tensor, ord: float | str = "fro", dim: Sequence[int] = (-2, -1), keepdim: bool = False, *,
    dtype: DType | None = None,
) -> Tensor:  # fmt: skip
    """Matrix norms: "fro", "nuc", inf, -inf, 1, -1, 2, -2 over two dimensions."""
    if A.ndim < 2:
        raise RuntimeError("linalg.matrix_norm: The input tensor A must have at least 2 dimensions.")
    if not A.dtype.differentiable:
        raise RuntimeError(
            f"linalg.matrix_norm: Expected a floating point or complex tensor as input. Got {A.dtype.name}"
        )
    if ord not in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    if len(dim) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {list(dim)}")
    x = _in_dtype(A, dtype, "linalg.matrix_norm")
    row, column = wrap_dims(dim, x.ndim)
    axes = tuple(sorted((row, column)))
    if ord == "fro":
        return power_norm(x, 2.0, axes, keepdim)
    if isinstance(ord, str) or ord in (2, -2):
        result = _singular_norm(movedim(x, (row, column), (-2, -1)), ord)
    else:
        sum_axis, pick_axis = (row, column) if abs(ord) == 1 else (column, row)
        totals = prim.sum(x.abs(), axes=(sum_axis,))
        pick_axis -= pick_axis > sum_axis
        if totals.shape[pick_axis] == 0 and ord > 0:
            result = prim.sum(totals, axes=(pick_axis,))
        else:
            result = (prim.max if ord > 0 else prim.min)(totals, axes=(pick_axis,))
    return to_shape(result, keep_dims(x.shape, axes)) if keepdim else result


@function(to="linalg", takes=ALL, composite=True)
def norm_(
    A: Tensor, ord: int | float | str | None = None, dim: Dim = None, keepdim: bool = False, *,
    dtype: DType | None = None,
) -> Tensor:  # fmt: skip
    """A vector norm or, for two dims, a matrix norm; without ``ord`` the 2-norm of all elements."""
    dims = [dim] if isinstance(dim, int) else dim
    if ord is None or (dims is not None and len(dims) == 1 and not isinstance(ord, str)):
        return vector_norm(A, 2 if ord is None else ord, dims, keepdim, dtype=dtype)
    if dims is None:
        if isinstance(ord, str) or A.ndim == 2:
            if A.ndim != 2:
                raise RuntimeError(
                    f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {A.ndim}D."
                )
            return matrix_norm(A, ord, (0, 1), keepdim, dtype=dtype)
        if A.ndim > 2:
            raise RuntimeError(
                f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {A.ndim}D."
            )
        return vector_norm(A, ord, None, keepdim, dtype=dtype)
    return matrix_norm(A, ord, dims, keepdim, dtype=dtype)


@function(takes=ALL, composite=True)
def norm(
    input: Tensor, p: int | float | str | None = "fro", dim: Dim = None, keepdim: bool = False,
    dtype: DType | None = None,
) -> Tensor:  # fmt: skip
    """The p-norm over ``dim``; "fro" is the 2-norm and "nuc" the sum of singular values."""
    if input.dtype.is_complex and p != "nuc":
        input = input.abs()
    if not input.dtype.differentiable and dtype is None:
        raise RuntimeError(
            "linalg.vector_norm: Expected a floating point or complex tensor as input. Got " + type_word(input.dtype)
        )
    x = input if dtype is None else cast(input, dtype)
    if p == "nuc":
        return matrix_norm(x, "nuc", (0, 1) if dim is None or isinstance(dim, int) else dim, keepdim)
    if isinstance(p, str) and p != "fro":
        raise RuntimeError(f"linalg.matrix_norm: Order {p} not supported.")
    order = 2.0 if p in ("fro", None) else float(p)
    axes = reduce_axes(dim, x.ndim)
    return power_norm(x, order, axes, keepdim)


@function(takes=FLOATS + COMPLEX, inplace=True, composite=True)
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Slices along ``dim`` scaled down where their p-norm exceeds ``maxnorm``."""
    if p <= 0:
        raise RuntimeError("renorm: non-positive-norm not supported")
    if input.ndim < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {input.ndim} dimensions")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    axis = wrap_dim(dim, input.ndim)
    axes = tuple(i for i in range(input.ndim) if i != axis)
    size = power_norm(input, float(p), axes, True)
    over = prim.gt(size, float(maxnorm))
    factor = prim.div(float(maxnorm), prim.add(prim.where(over, size, 1.0), 1e-7))
    return prim.mul(input, cast(prim.where(over, factor, 1.0), input.dtype))


def cross_of(a: Tensor, b: Tensor, axis: int) -> Tensor:
    """a[i+1] b[i+2] - a[i+2] b[i+1] along an axis of size 3."""

    def part(x: Tensor, i: int) -> Tensor:
        return cut_range(x, axis, i % 3, i % 3 + 1)

    pieces = [
        prim.sub(prim.mul(part(a, i + 1), part(b, i + 2)), prim.mul(part(a, i + 2), part(b, i + 1))) for i in range(3)
    ]
    return prim.concat(*pieces, axis=axis)


def _cross(a: Tensor, b: Tensor, dim: int) -> Tensor:
    if a.ndim != b.ndim:
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    axis = wrap_dim(dim, a.ndim)
    if a.shape[axis] != 3 or b.shape[axis] != 3:
        raise RuntimeError(
            f"linalg.cross: inputs dimension {dim} must have length 3. Got {a.shape[axis]} and {b.shape[axis]}"
        )
    same_scalar_type(a, b)
    shape = broadcast_shapes(tuple(a.shape), tuple(b.shape))
    return cross_of(prim.expand(a, shape=shape), prim.expand(b, shape=shape), axis)


@function(to="linalg", takes=ALL, composite=True)
def cross_(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """Cross product of 3-vectors along ``dim``."""
    return _cross(input, other, dim)


@function(takes=ALL, composite=True)
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """Cross product of 3-vectors along ``dim`` (the first dimension of size 3 by default)."""
    if dim is None:
        dim = next((i for i, n in enumerate(input.shape) if n == 3), -1)
        if dim == -1:
            raise RuntimeError("no dimension of size 3 in input")
    return _cross(input, other, dim)


@function(to="linalg", takes=FLOATS + COMPLEX, composite=True)
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Sum of products along ``dim``, broadcast."""
    if x.dtype is not y.dtype:
        raise RuntimeError(
            "linalg.vecdot: Expected x and y to have the same dtype, but found x of type "
            f"{type_word(x.dtype)} and y of type {type_word(y.dtype)} instead"
        )
    product = prim.mul(x.conj(), y)
    return prim.sum(product, axes=reduce_axes(dim, product.ndim))

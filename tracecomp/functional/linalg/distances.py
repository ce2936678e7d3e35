"""Distances between vectors in p-norms."""

from __future__ import annotations

import math

from tracecomp.eager.tensor import Tensor
from tracecomp.functional.dtype_support import COMPLEX, FLOATS
from tracecomp.functional.elementwise.arithmetic import sub
from tracecomp.functional.linalg.matmul import matmul
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import cast, rounded, same_scalar_type, wide, with_zero_gradient
from tracecomp.functional.publish import function
from tracecomp.functional.reductions.reduction import safe_sqrt
from tracecomp.functional.shape.shaping import matrix_transpose, to_shape


@function(to="torch", takes=FLOATS, composite=True)
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Tensor:
    """Distances in the p-norm between every row of ``x1`` and every row of ``x2``.

    Euclidean ones of more than 25 rows use matrix products, as in PyTorch (``compute_mode`` selects it): faster, with
    fewer digits if rows are nearly equal.
    """
    if compute_mode not in _MODES:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    if x1.ndim < 2 or x2.ndim < 2:
        which, bad = ("X1", x1) if x1.ndim < 2 else ("X2", x2)
        raise RuntimeError(f"cdist only supports at least 2D tensors, {which} got: {bad.ndim}D")
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}")
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    same_scalar_type(x1, x2)
    a, b = tuple(x1.shape), tuple(x2.shape)
    if p == 2 and max(a[-2], b[-2]) >= _MODES[compute_mode]:
        return _euclidean(x1, x2)
    left = prim.reshape(x1, shape=(*a[:-1], 1, a[-1]))
    right = prim.reshape(x2, shape=(*b[:-2], 1, *b[-2:]))
    return _norm(prim.sub(left, right), p)


_MODES = {
    "use_mm_for_euclid_dist_if_necessary": 26, "use_mm_for_euclid_dist": 0, "donot_use_mm_for_euclid_dist": math.inf
}  # fmt: skip
"""Number of rows above which Euclidean distances use products."""


def _euclidean(x1: Tensor, x2: Tensor) -> Tensor:
    """sqrt(|x|^2 - 2 x y + |y|^2)"""
    squares = [prim.sum(prim.mul(x, x), axes=(x.ndim - 1,)) for x in (x1, x2)]
    first = prim.reshape(squares[0], shape=(*x1.shape[:-1], 1))
    second = prim.reshape(squares[1], shape=(*x2.shape[:-2], 1, x2.shape[-2]))
    total = prim.add(prim.sub(first, prim.mul(matmul(x1, matrix_transpose(x2)), 2.0)), second)
    return safe_sqrt(prim.maximum(total, 0.0))


def _norm(difference: Tensor, p: float) -> Tensor:
    """The p-norm over the last dimension, for half types in float32; its gradient at zero is zero."""
    return rounded(_wide_norm(wide(difference), p), difference)


def _wide_norm(difference: Tensor, p: float) -> Tensor:
    size = prim.abs(difference)
    axes = (difference.ndim - 1,)
    if p == 0:
        counted = cast(prim.ne(difference, 0.0), difference.dtype)
        return prim.sum(with_zero_gradient(counted, difference), axes=axes)
    if p == 1:
        return prim.sum(size, axes=axes)
    if math.isinf(p):
        if difference.shape[-1] == 0:
            return prim.sum(size, axes=axes)
        return prim.max(size, axes=axes)
    if p == 2:
        return safe_sqrt(prim.sum(prim.mul(difference, difference), axes=axes))
    zero = prim.eq(size, 0.0)
    powers = prim.where(zero, 0.0, prim.pow(prim.where(zero, 1.0, size), float(p)))
    total = prim.sum(powers, axes=axes)
    empty = prim.eq(total, 0.0)
    return prim.where(empty, 0.0, prim.pow(prim.where(empty, 1.0, total), 1.0 / p))


@function(takes=FLOATS + COMPLEX, composite=True)
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of ``input - other``."""
    difference = sub(input, other)
    if difference.dtype.is_complex:
        difference = difference.abs()
    return _norm(to_shape(difference, (difference.numel(),)), float(p))

"""Solving, inverses and determinants by LU; pseudo-inverses by LAPACK, through numpy.

Derivatives are written with differentiable primitives. Sources: Giles, "Collected matrix derivative results" (2008);
Golub and Pereyra (1973) for the pseudo-inverse.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracecomp.base.errors import LinAlgError, at_user_line, failure
from tracecomp.ir.arrays import Array
from tracecomp.ir.op import Composed, Gradients, Operand, Operands, Sample
from tracecomp.ir.types import TensorType, int32, int64
from tracecomp.ops.define import of, require
from tracecomp.ops.linalg.matrix import (
    OBLONG,
    SQUARES,
    WIDE,
    adjoint,
    as_type,
    decomposition,
    matrices,
    mm,
    scale_columns,
    square,
    zero_pivot,
)
from tracecomp.ops.linalg.triangular import lu_by_rows
from tracecomp.ops.parts import conj, imaginary
from tracecomp.ops.prim import prim

# ---- solving


def _solve_infer(a: TensorType, b: TensorType) -> TensorType:
    require(
        square("solve")(a).shape[:-1] == b.shape[:-1],
        RuntimeError,
        f"linalg.solve: Incompatible shapes of A and B for the equation AX = B: {a} and {b}",
    )
    return b


def _singular(x: Array, kind: str) -> Exception:
    """The error. LAPACK has not reported the position, and rounds differently: without a zero here, the last one is
    named."""
    return zero_pivot(lu_by_rows(x, fails="")[0], kind, x.shape[:-2]) or failure(kind, detail=x.shape[-1])


def _solve_impl(a: Array, b: Array) -> Any:
    try:
        return np.linalg.solve(a, b)
    except np.linalg.LinAlgError:
        raise _singular(a, "singular") from None


def _substituted(lu: Array, b: Array) -> Any:
    """X with L U X = B."""
    below = prim.triangular_solve(lu, b, above=False, ones=True, turn=False)
    return prim.triangular_solve(lu, below, above=True, ones=False, turn=False)


def _solve_composed(a: Operand, b: Operand) -> Any:
    lu, swaps = prim.lu_factor(a, fails="singular")
    order = prim.pivot_order(swaps, size=a.shape[-1])
    rows = prim.expand(prim.reshape(order, shape=(*order.shape, 1)), shape=tuple(b.shape))
    return _substituted(lu, prim.gather(b, rows, axis=b.ndim - 2))


def _solve_vjp(grads: Operands, outs: Operands, ins: Operands) -> Any:
    gb = prim.matrix_solve(adjoint(ins[0]), grads[0])
    return (prim.neg(mm(gb, adjoint(outs[0]))), gb)


decomposition("matrix_solve", "X with A X = B, batches of equal leading axes", _solve_infer, _solve_impl, _solve_vjp,
              loop=Composed(_solve_composed),
              samples=tuple(Sample((of(d, *a, domain="regular"), of(d, *b)))
                            for d in WIDE for a, b in (((3, 3), (3, 2)), ((2, 4, 4), (2, 4, 1)),
                                                                 ((0, 2, 2), (0, 2, 3)))))  # fmt: skip


def _inverse_impl(x: Array) -> Any:
    try:
        return np.linalg.inv(x)
    except np.linalg.LinAlgError:
        raise _singular(x, "inverse") from None


def _inverse_composed(x: Operand) -> Any:
    lu, swaps = prim.lu_factor(x, fails="inverse")
    order = prim.pivot_order(swaps, size=x.shape[-1])
    column = prim.iota(like=x, shape=tuple(x.shape), axis=x.ndim - 1, dtype=int64)
    turned_rows = prim.eq(column, prim.reshape(order, shape=(*order.shape, 1)))
    return _substituted(lu, prim.cast(turned_rows, dtype=x.dtype))


decomposition("matrix_inverse", "inverse of square matrices", square("inv"), _inverse_impl,
              lambda g, o, i: (prim.neg(mm(mm(adjoint(o[0]), g[0]), adjoint(o[0]))),), ("outs",),
              loop=Composed(_inverse_composed), samples=matrices(*SQUARES))  # fmt: skip


def _pinv_impl(x: Array, *, rtol: float, hermitian: bool) -> Any:
    try:
        return np.linalg.pinv(x, rcond=rtol, hermitian=hermitian).astype(x.dtype)
    except np.linalg.LinAlgError:
        raise LinAlgError(at_user_line("linalg.pinv: The singular value decomposition failed to converge.")) from None


def _pinv_vjp(grads: Operands, outs: Operands, ins: Operands, *, rtol: float, hermitian: bool) -> Any:
    """From dP = -P dA P + P P' dA' (I - A P) + (I - P A) dA' P' P."""
    a, p, g = ins[0], outs[0], adjoint(grads[0])
    first = mm(mm(adjoint(p), grads[0]), adjoint(p))
    second = mm(prim.sub(g, mm(a, mm(p, g))), mm(p, adjoint(p)))
    third = mm(mm(adjoint(p), p), prim.sub(g, mm(mm(g, p), a)))
    return (prim.sub(prim.add(second, third), first),)


decomposition("pinv", "Moore-Penrose pseudo-inverse; singular values up to rtol times the largest count as zero",
              lambda x, *, rtol, hermitian: TensorType(x.dtype, (*x.shape[:-2], x.shape[-1], x.shape[-2])),
              _pinv_impl, _pinv_vjp, attrs={"rtol": float, "hermitian": bool},
              samples=matrices(*OBLONG, rtol=1e-6, hermitian=False))  # fmt: skip


# ---- determinants


def _det_vjp(grads: Operands, outs: Operands, ins: Operands) -> Any:
    """The cofactor matrix by singular values, which exists for singular matrices too."""
    u, s, v = prim.svd(ins[0], full=False)
    n = s.shape[-1]
    zero = (0,) * len(s.shape)
    axis = len(s.shape) - 1
    ahead, behind = (*zero[:-1], 1), (*zero[:-1], -1)
    left = prim.cumprod(prim.pad(s, low=ahead, high=behind, interior=zero, value=1.0), axis=axis)
    back = prim.flip(prim.pad(s, low=behind, high=ahead, interior=zero, value=1.0), axes=(axis,))
    others = prim.mul(left, prim.flip(prim.cumprod(back, axis=axis), axes=(axis,)))
    sign = prim.mul(prim.det(u), prim.det(v)) if n else None
    cofactor = mm(scale_columns(u, others), v)
    weight = grads[0] if sign is None else prim.mul(grads[0], conj(sign))
    return (prim.mul(cofactor, prim.reshape(weight, shape=(*weight.shape, 1, 1))),)


def _batch(x: TensorType) -> TensorType:
    return TensorType(x.dtype, square("det")(x).shape[:-2])


def _sign_and_pivots(x: Operand) -> tuple[Any, Any]:
    """The sign of LU's row exchanges, and U's diagonal."""
    lu, swaps = prim.lu_factor(x, fails="")
    n, lead = x.shape[-1], tuple(x.shape[:-2])
    own = prim.iota(like=swaps, shape=tuple(swaps.shape), axis=len(lead), dtype=int32)
    moved = prim.cast(prim.ne(swaps, prim.add(own, 1)), dtype=int32)
    odd = prim.remainder(prim.sum(moved, axes=(len(lead),)), 2)
    flat = prim.reshape(lu, shape=(*lead, n * n))
    starts, steps = (0,) * (len(lead) + 1), (*(1,) * len(lead), n + 1)
    diagonal = prim.slice(flat, starts=starts, stops=(*lead, n * n), steps=steps)
    return prim.cast(prim.sub(1, prim.mul(odd, 2)), dtype=x.dtype), diagonal


def _det_composed(x: Operand) -> Any:
    sign, pivots = _sign_and_pivots(x)
    return prim.mul(prim.prod(pivots, axes=(pivots.ndim - 1,)), sign)


def _slogdet_composed(x: Operand) -> Any:
    sign, pivots = _sign_and_pivots(x)
    axes = (pivots.ndim - 1,)
    signs = prim.mul(prim.prod(prim.sign(pivots), axes=axes), sign)
    return signs, prim.sum(prim.log(prim.abs(pivots)), axes=axes)


decomposition("det", "determinant of square matrices", _batch, lambda x: np.asarray(np.linalg.det(x), x.dtype),
              _det_vjp, ("ins",), loop=Composed(_det_composed), samples=matrices(*SQUARES))  # fmt: skip


def _slogdet_infer(x: TensorType) -> tuple[TensorType, TensorType]:
    result = _batch(x)
    return result, TensorType(x.dtype.to_real(), result.shape)


def _slogdet_vjp(grads: Gradients, outs: Operands, ins: Operands) -> Any:
    """Derivative of slogdet; the angle of a complex sign varies."""
    g = None if grads[1] is None else as_type(grads[1], ins[0])
    if grads[0] is not None and outs[0].dtype.is_complex:
        turning = imaginary(prim.imag(prim.mul(conj(outs[0]), grads[0])))
        g = turning if g is None else prim.add(g, turning)
    if g is None:
        return (None,)
    inverse = adjoint(prim.matrix_inverse(ins[0]))
    return (prim.mul(inverse, prim.reshape(g, shape=(*g.shape, 1, 1))),)


def _slogdet_impl(x: Array) -> Any:
    sign, log = np.linalg.slogdet(x)
    return np.asarray(sign, x.dtype), np.asarray(log, x.real.dtype)


decomposition("slogdet", "sign and logarithm of the absolute value of the determinant",
              _slogdet_infer, _slogdet_impl, _slogdet_vjp,
              loop=Composed(_slogdet_composed), samples=matrices(*SQUARES))  # fmt: skip

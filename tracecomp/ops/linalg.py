"""Solving, inverses and determinants, run by the host's LAPACK through numpy.

Derivatives are written with differentiable primitives. Sources: Giles, "Collected matrix derivative results" (2008);
Golub and Pereyra (1973) for the pseudo-inverse.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracecomp.errors import LinAlgError
from tracecomp.ir.op import Sample
from tracecomp.ir.types import TensorType
from tracecomp.ops.define import of, require
from tracecomp.ops.matrix import (
    OBLONG,
    SQUARES,
    decomposition,
    matrices,
    mm,
    scale_columns,
    square,
    turned,
)
from tracecomp.ops.prim import prim

# ---- solving


def _solve_infer(a: TensorType, b: TensorType) -> TensorType:
    require(
        square("solve")(a).shape[:-1] == b.shape[:-1],
        RuntimeError,
        f"linalg.solve: Incompatible shapes of A and B for the equation AX = B: {a} and {b}",
    )
    return b


def _solve_impl(a: Any, b: Any) -> Any:
    try:
        return np.linalg.solve(a, b)
    except np.linalg.LinAlgError:
        raise LinAlgError("linalg.solve: The solver failed because the input matrix is singular.") from None


def _solve_vjp(grads: Any, outs: Any, ins: Any) -> Any:
    gb = prim.matrix_solve(turned(ins[0]), grads[0])
    return (prim.neg(mm(gb, turned(outs[0]))), gb)


decomposition("matrix_solve", "X with A X = B, batches of equal leading axes", _solve_infer, _solve_impl, _solve_vjp,
              samples=tuple(Sample((of(d, *a, domain="regular"), of(d, *b)))
                            for d in ("f32", "f64") for a, b in (((3, 3), (3, 2)), ((2, 4, 4), (2, 4, 1)),
                                                                 ((0, 2, 2), (0, 2, 3)))))  # fmt: skip


def _inverse_impl(x: Any) -> Any:
    try:
        return np.linalg.inv(x)
    except np.linalg.LinAlgError:
        raise LinAlgError(
            "linalg.inv: The diagonal element is zero, the inversion could not be completed because the input matrix "
            "is singular."
        ) from None


decomposition("matrix_inverse", "inverse of square matrices", square("inv"), _inverse_impl,
              lambda g, o, i: (prim.neg(mm(mm(turned(o[0]), g[0]), turned(o[0]))),), ("outs",),
              samples=matrices(*SQUARES))  # fmt: skip


def _pinv_impl(x: Any, *, rtol: float, hermitian: bool) -> Any:
    return np.linalg.pinv(x, rcond=rtol, hermitian=hermitian).astype(x.dtype)


def _pinv_vjp(grads: Any, outs: Any, ins: Any, *, rtol: float, hermitian: bool) -> Any:
    """From dP = -P dA P + P P' dA' (I - A P) + (I - P A) dA' P' P."""
    a, p, g = ins[0], outs[0], turned(grads[0])
    first = mm(mm(turned(p), grads[0]), turned(p))
    second = mm(prim.sub(g, mm(a, mm(p, g))), mm(p, turned(p)))
    third = mm(mm(turned(p), p), prim.sub(g, mm(mm(g, p), a)))
    return (prim.sub(prim.add(second, third), first),)


decomposition("pinv", "Moore-Penrose pseudo-inverse; singular values up to rtol times the largest count as zero",
              lambda x, *, rtol, hermitian: TensorType(x.dtype, (*x.shape[:-2], x.shape[-1], x.shape[-2])),
              _pinv_impl, _pinv_vjp, attrs={"rtol": float, "hermitian": bool},
              samples=matrices(*OBLONG, rtol=1e-6, hermitian=False))  # fmt: skip


# ---- determinants


def _det_vjp(grads: Any, outs: Any, ins: Any) -> Any:
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
    weight = grads[0] if sign is None else prim.mul(grads[0], sign)
    return (prim.mul(cofactor, prim.reshape(weight, shape=(*weight.shape, 1, 1))),)


def _batch(x: TensorType) -> TensorType:
    return TensorType(x.dtype, square("det")(x).shape[:-2])


decomposition("det", "determinant of square matrices", _batch, lambda x: np.asarray(np.linalg.det(x), x.dtype),
              _det_vjp, ("ins",), samples=matrices(*SQUARES))  # fmt: skip


def _slogdet_vjp(grads: Any, outs: Any, ins: Any) -> Any:
    g = grads[1]
    if g is None:
        return (None,)
    inverse = turned(prim.matrix_inverse(ins[0]))
    return (prim.mul(inverse, prim.reshape(g, shape=(*g.shape, 1, 1))),)


def _slogdet_impl(x: Any) -> Any:
    sign, log = np.linalg.slogdet(x)
    return np.asarray(sign, x.dtype), np.asarray(log, x.dtype)


decomposition("slogdet", "sign and logarithm of the absolute value of the determinant",
              lambda x: (_batch(x), _batch(x)), _slogdet_impl, _slogdet_vjp, ("ins",),
              samples=matrices(*SQUARES))  # fmt: skip

"""Eigenvalue and singular value decompositions, run by the host's LAPACK through numpy.

Derivatives are written with differentiable primitives, after Giles, "Collected matrix derivative results" (2008).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from tracecomp.ir.arrays import Array
from tracecomp.ir.op import Gradients, Operand, Operands
from tracecomp.ir.types import TensorType
from tracecomp.ops.linalg.matrix import (
    OBLONG,
    SQUARES,
    adjoint,
    as_type,
    columns,
    decomposition,
    given,
    matrices,
    mm,
    rows,
    rows_minus_columns,
    scale_columns,
    scale_rows,
    square,
    unit,
)
from tracecomp.ops.parts import imaginary
from tracecomp.ops.prim import prim

# ---- eigenvalues and singular values


def _differences(s: Operand) -> Any:
    """s[j] - s[i]; infinite where they are equal, so that what is divided by it vanishes."""
    table = prim.sub(prim.reshape(s, shape=(*s.shape[:-1], 1, s.shape[-1])), prim.reshape(s, shape=(*s.shape, 1)))
    return prim.where(prim.eq(table, 0.0), float("inf"), table)


def _as_diagonal(s: Operand, like: Operand) -> Any:
    return scale_rows(unit(like), s)


def _skew(x: Operand) -> Any:
    return prim.sub(x, adjoint(x))


def _over(x: Operand, gap: Operand) -> Any:
    return prim.div(x, as_type(gap, x))


def _eigh_infer(x: TensorType, *, uplo: str) -> tuple[TensorType, TensorType]:
    return TensorType(x.dtype.to_real(), square("eigh")(x).shape[:-1]), x


def _eigh_impl(x: Array, *, uplo: Literal["L", "U"]) -> Any:
    values, vectors = np.linalg.eigh(x, UPLO=uplo)
    return values, vectors


def _eigh_vjp(grads: Gradients, outs: Operands, ins: Operands, *, uplo: str) -> Any:
    values, vectors = outs
    inner = None
    if grads[1] is not None:
        inner = _over(prim.mul(_skew(mm(adjoint(vectors), grads[1])), 0.5), _differences(values))
    if grads[0] is not None:
        diagonal = _as_diagonal(grads[0], vectors)
        inner = diagonal if inner is None else prim.add(inner, diagonal)
    assert inner is not None  # a rule runs where some result is used
    return (mm(mm(vectors, inner), adjoint(vectors)),)


decomposition("eigh", "eigenvalues, ascending, and eigenvectors of Hermitian matrices", _eigh_infer, _eigh_impl,
              _eigh_vjp, ("outs",), attrs={"uplo": str},
              samples=matrices(*SQUARES, domain="definite", uplo="L"))  # fmt: skip


def _svd_infer(x: TensorType, *, full: bool) -> tuple[TensorType, ...]:
    m, n = x.shape[-2:]
    k, lead = min(m, n), x.shape[:-2]
    u, v = ((*lead, m, m if full else k), (*lead, n if full else k, n))
    return TensorType(x.dtype, u), TensorType(x.dtype.to_real(), (*lead, k)), TensorType(x.dtype, v)


def _svd_impl(x: Array, *, full: bool) -> Any:
    u, s, v = np.linalg.svd(x, full_matrices=full)
    return u, s, v


def _angles(x: Operand) -> Any:
    """The imaginary part of the diagonal."""
    return imaginary(prim.where(prim.eq(rows_minus_columns(x), 0), prim.imag(x), 0.0))


def _svd_vjp(grads: Gradients, outs: Operands, ins: Operands, *, full: bool) -> Any:
    m, n = ins[0].shape[-2:]
    k = min(m, n)
    u, s, v = columns(outs[0], 0, k), outs[1], rows(outs[2], 0, k)
    gu = None if grads[0] is None else columns(grads[0], 0, k)
    gv = None if grads[2] is None else rows(grads[2], 0, k)
    inner = _as_diagonal(given(grads[1], s), mm(adjoint(u), u))
    gap = _differences(prim.mul(s, s))
    inverse = prim.div(1.0, prim.where(prim.eq(s, 0.0), float("inf"), s))
    if gu is not None:
        turning = mm(adjoint(u), gu)
        inner = prim.add(inner, scale_columns(_over(_skew(turning), gap), s))
        if turning.dtype.is_complex:  # a phase that a column of U and a row of V share
            inner = prim.add(inner, scale_columns(_angles(turning), inverse))
    if gv is not None:
        inner = prim.add(inner, scale_rows(_over(_skew(mm(v, adjoint(gv))), gap), s))
    total = mm(mm(u, inner), v)
    if gu is not None and m > k:
        outside = prim.sub(gu, mm(u, mm(adjoint(u), gu)))
        total = prim.add(total, mm(scale_columns(outside, inverse), v))
    if gv is not None and n > k:
        outside = prim.sub(gv, mm(mm(gv, adjoint(v)), v))
        total = prim.add(total, mm(u, scale_rows(outside, inverse)))
    return (total,)


decomposition("svd", "U, singular values descending, V's adjoint", _svd_infer, _svd_impl, _svd_vjp,
              attrs={"full": bool}, samples=matrices(*OBLONG, full=False))  # fmt: skip


def _eigvalsh_vjp(grads: Operands, outs: Operands, ins: Operands, *, uplo: str) -> Any:
    return _eigh_vjp((grads[0], None), prim.eigh(ins[0], uplo=uplo), ins, uplo=uplo)


decomposition("eigvalsh", "eigenvalues, ascending, of Hermitian matrices, when nobody wants their vectors",
              lambda x, *, uplo: _eigh_infer(x, uplo=uplo)[0], lambda x, *, uplo: np.linalg.eigvalsh(x, UPLO=uplo),
              _eigvalsh_vjp, ("ins",), attrs={"uplo": str},
              samples=matrices(*SQUARES, domain="definite", uplo="L"))  # fmt: skip


def _svdvals_vjp(grads: Operands, outs: Operands, ins: Operands) -> Any:
    return _svd_vjp((None, grads[0], None), prim.svd(ins[0], full=False), ins, full=False)


decomposition("svdvals", "singular values, descending, when nobody wants their vectors",
              lambda x: _svd_infer(x, full=False)[1], lambda x: np.linalg.svd(x, compute_uv=False),
              _svdvals_vjp, ("ins",), samples=matrices(*OBLONG))  # fmt: skip

"""Eigenvalue and singular value decompositions, run by the host's LAPACK through numpy.

Derivatives are written with differentiable primitives, after Giles, "Collected matrix derivative results" (2008).
"""

from __future__ import annotations

from functools import reduce
from typing import Any, Literal

import numpy as np

from tracecomp.base.errors import LinAlgError, at_user_line
from tracecomp.ir.arrays import Array
from tracecomp.ir.op import Gradients, Operand, Operands, Sample
from tracecomp.ir.types import TensorType
from tracecomp.ops.define import of
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
    """s[j] - s[i]; infinite if they are equal, so that quotients by it vanish."""
    table = prim.sub(prim.reshape(s, shape=(*s.shape[:-1], 1, s.shape[-1])), prim.reshape(s, shape=(*s.shape, 1)))
    return prim.where(prim.eq(table, 0.0), float("inf"), table)


def _as_diagonal(s: Operand, like: Operand) -> Any:
    return scale_rows(unit(like), s)


# ---- vectors without a determined phase

_PHASE = 1e-2
"""Largest derivative by the phase for which a loss counts as independent of it: PyTorch's bound."""


def _phase_free(re: Array, im: Array, *, message: str) -> Any:
    if not (np.abs(im) <= _PHASE).all():
        raise RuntimeError(at_user_line(message))
    return re


decomposition("phase_free", "``re``, if ``im``, on which a loss with a gradient by vectors does not depend, is zero; "
              "else the error ``message``", lambda re, im, *, message: re, _phase_free,
              lambda g, o, i, *, message: (g[0], None), (), attrs={"message": str},
              samples=tuple(Sample((of(d, *s), of(d, *s, domain="zero")), {"message": "phase"})
                            for d in ("f32", "f64") for s in ((1, 3), (2, 1, 3), (0, 1, 2))))  # fmt: skip


def _diagonal_angles(x: Operand) -> Any:
    """The imaginary part of the diagonal, as a row."""
    im = prim.where(prim.eq(rows_minus_columns(x), 0), prim.imag(x), 0.0)
    return prim.sum(im, axes=(len(x.shape) - 1,))


def _checked(weights: Operand, angles: Operand, message: str) -> Any:
    """``weights`` of values, after a check that the vectors' phases, with derivatives ``angles``, change nothing."""
    row = (*weights.shape[:-1], 1, weights.shape[-1])
    parts = (prim.reshape(x, shape=row) for x in (weights, angles))
    return prim.reshape(prim.phase_free(*parts, message=message), shape=tuple(weights.shape))


def _skew(x: Operand) -> Any:
    return prim.sub(x, adjoint(x))


def _over(x: Operand, gap: Operand) -> Any:
    return prim.div(x, as_type(gap, x))


def no_phase(name: str) -> str:
    """PyTorch's message for a loss that depends on the phase of eigenvectors of ``name``."""
    return (
        f"{name}_backward: The eigenvectors in the complex case are specified up to multiplication by e^{{i phi}}. The "
        "specified loss function depends on this quantity, so it is ill-defined."
    )


def _eigh_infer(x: TensorType, *, uplo: str) -> tuple[TensorType, TensorType]:
    return TensorType(x.dtype.to_real(), square("eigh")(x).shape[:-1]), x


def _eigh_impl(x: Array, *, uplo: Literal["L", "U"]) -> Any:
    values, vectors = np.linalg.eigh(x, UPLO=uplo)
    return values, vectors


def _eigh_vjp(grads: Gradients, outs: Operands, ins: Operands, *, uplo: str) -> Any:
    values, vectors = outs
    inner, weights = None, grads[0]
    if grads[1] is not None:
        turning = mm(adjoint(vectors), grads[1])
        inner = _over(prim.mul(_skew(turning), 0.5), _differences(values))
        if turning.dtype.is_complex:
            weights = _checked(given(weights, values), _diagonal_angles(turning), no_phase("linalg_eigh"))
    if weights is not None:
        diagonal = _as_diagonal(weights, vectors)
        inner = diagonal if inner is None else prim.add(inner, diagonal)
    assert inner is not None  # a rule runs only if some result is used
    return (mm(mm(vectors, inner), adjoint(vectors)),)


decomposition("eigh", "eigenvalues, ascending, and eigenvectors of Hermitian matrices", _eigh_infer, _eigh_impl,
              _eigh_vjp, ("outs",), attrs={"uplo": str},
              samples=matrices(*SQUARES, domain="definite", uplo="L"))  # fmt: skip


def _svd_infer(x: TensorType, *, full: bool) -> tuple[TensorType, ...]:
    m, n = x.shape[-2:]
    k, lead = min(m, n), x.shape[:-2]
    u, v = ((*lead, m, m if full else k), (*lead, n if full else k, n))
    return TensorType(x.dtype, u), TensorType(x.dtype.to_real(), (*lead, k)), TensorType(x.dtype, v)


def _svd_impl(x: Array, *, full: bool, vectors: bool = True) -> Any:
    try:
        if vectors:
            u, s, v = np.linalg.svd(x, full_matrices=full)
            return u, s, v
        return np.linalg.svd(x, compute_uv=False)
    except np.linalg.LinAlgError:
        why = "" if np.isfinite(x).all() else " because the input matrix contained non-finite values"
        raise LinAlgError(at_user_line(f"linalg.svd: The algorithm failed to converge{why}.")) from None


_NO_PHASE_OF_SINGULAR_VECTORS = (
    "svd_backward: The singular vectors in the complex case are specified up to multiplication by e^{i phi}. The "
    "specified loss function depends on this phase term, making it ill-defined."
)
"""PyTorch's message for a loss that depends on the phase of singular vectors."""


def _svd_inner(u: Operand, s: Operand, v: Operand, gu: Operand | None, gs: Operand | None, gv: Operand | None) -> Any:
    """The middle factor, between U and V, of the gradient."""
    gap = _differences(prim.mul(s, s))
    weights = given(gs, s)
    found, angles = list[Any](), list[Any]()
    if gu is not None:
        turning = mm(adjoint(u), gu)
        found.append(scale_columns(_over(_skew(turning), gap), s))
        if turning.dtype.is_complex:  # a phase shared by a column of U and a row of V
            angles.append(_diagonal_angles(turning))
            found.append(_as_diagonal(imaginary(prim.mul(angles[0], _inverse(s))), turning))
    if gv is not None:
        turning = mm(v, adjoint(gv))
        found.append(scale_rows(_over(_skew(turning), gap), s))
        if turning.dtype.is_complex:
            angles.append(_diagonal_angles(turning))
    if angles:
        weights = _checked(weights, reduce(prim.add, angles), _NO_PHASE_OF_SINGULAR_VECTORS)
    return reduce(prim.add, found, _as_diagonal(weights, mm(adjoint(u), u)))


def _inverse(s: Operand) -> Any:
    return prim.div(1.0, prim.where(prim.eq(s, 0.0), float("inf"), s))


def _svd_vjp(grads: Gradients, outs: Operands, ins: Operands, *, full: bool) -> Any:
    m, n = ins[0].shape[-2:]
    k = min(m, n)
    u, s, v = columns(outs[0], 0, k), outs[1], rows(outs[2], 0, k)
    gu = None if grads[0] is None else columns(grads[0], 0, k)
    gv = None if grads[2] is None else rows(grads[2], 0, k)
    total = mm(mm(u, _svd_inner(u, s, v, gu, grads[1], gv)), v)
    if gu is not None and m > k:
        outside = prim.sub(gu, mm(u, mm(adjoint(u), gu)))
        total = prim.add(total, mm(scale_columns(outside, _inverse(s)), v))
    if gv is not None and n > k:
        outside = prim.sub(gv, mm(mm(gv, adjoint(v)), v))
        total = prim.add(total, mm(u, scale_rows(outside, _inverse(s))))
    return (total,)


decomposition("svd", "U, singular values descending, V's adjoint", _svd_infer, _svd_impl, _svd_vjp,
              attrs={"full": bool}, samples=matrices(*OBLONG, full=False))  # fmt: skip


def _eigvalsh_vjp(grads: Operands, outs: Operands, ins: Operands, *, uplo: str) -> Any:
    return _eigh_vjp((grads[0], None), prim.eigh(ins[0], uplo=uplo), ins, uplo=uplo)


decomposition("eigvalsh", "eigenvalues of Hermitian matrices, ascending, without eigenvectors",
              lambda x, *, uplo: _eigh_infer(x, uplo=uplo)[0], lambda x, *, uplo: np.linalg.eigvalsh(x, UPLO=uplo),
              _eigvalsh_vjp, ("ins",), attrs={"uplo": str},
              samples=matrices(*SQUARES, domain="definite", uplo="L"))  # fmt: skip


def _svdvals_vjp(grads: Operands, outs: Operands, ins: Operands) -> Any:
    return _svd_vjp((None, grads[0], None), prim.svd(ins[0], full=False), ins, full=False)


decomposition("svdvals", "singular values, descending, without singular vectors",
              lambda x: _svd_infer(x, full=False)[1], lambda x: _svd_impl(x, full=False, vectors=False),
              _svdvals_vjp, ("ins",), samples=matrices(*OBLONG))  # fmt: skip

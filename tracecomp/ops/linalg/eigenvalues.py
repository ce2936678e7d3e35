"""Eigenvalues and eigenvectors of general matrices, which are complex; run by the host's LAPACK through numpy.

Derivatives: Boeddeker, Hanebrink, Drude, Heymann and Haeb-Umbach, "On the computation of complex-valued gradients"
(2017), for eigenvectors of length 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracecomp.base.errors import at_user_line
from tracecomp.ir.arrays import Array
from tracecomp.ir.op import Gradients, Operand, Operands
from tracecomp.ir.types import TensorType
from tracecomp.ops.linalg.factorization import no_phase
from tracecomp.ops.linalg.matrix import (
    SQUARES,
    adjoint,
    as_type,
    decomposition,
    matrices,
    mm,
    rows_minus_columns,
    square,
)
from tracecomp.ops.prim import prim


def _eigvals_infer(x: TensorType) -> TensorType:
    return TensorType(square("eig")(x).dtype.to_complex(), x.shape[:-1])


def _eig_infer(x: TensorType) -> tuple[TensorType, TensorType]:
    return _eigvals_infer(x), TensorType(x.dtype.to_complex(), x.shape)


def _finite(x: Array) -> Array:
    if not np.isfinite(x).all():
        raise RuntimeError(at_user_line("torch.linalg.eig: input tensor should not contain infs or NaNs."))
    return x


def _eig_impl(x: Array) -> Any:
    dtype = np.result_type(x, np.complex64)
    values, vectors = np.linalg.eig(_finite(x))
    return values.astype(dtype, copy=False), vectors.astype(dtype, copy=False)


def _eigvals_impl(x: Array) -> Any:
    return np.linalg.eigvals(_finite(x)).astype(np.result_type(x, np.complex64), copy=False)


def _eig_vjp(grads: Gradients, outs: Operands, ins: Operands) -> Any:
    values, vectors = outs
    back = adjoint(vectors)
    off = prim.ne(rows_minus_columns(vectors), 0)
    if grads[1] is None:
        inner = prim.mul(prim.cast(prim.where(off, 0, 1), dtype=values.dtype), _row(grads[0]))
    else:
        turn = mm(back, grads[1])
        own = _row(prim.sum(prim.where(off, 0.0, turn), axes=(len(turn.shape) - 1,)))
        length = prim.phase_free(prim.real(own), prim.imag(own), message=no_phase("linalg_eig"))
        along = prim.mul(mm(back, vectors), as_type(length, back))
        gaps = prim.sub(_row(values), prim.reshape(values, shape=(*values.shape, 1)))
        gaps = prim.conj(prim.where(off, gaps, 1.0))
        diagonal = 0.0 if grads[0] is None else _row(grads[0])
        inner = prim.where(off, prim.div(prim.sub(turn, along), gaps), diagonal)
    total = prim.matrix_solve(back, mm(inner, back))
    return (total if ins[0].dtype.is_complex else prim.real(total),)


def _row(values: Operand | None) -> Any:
    assert values is not None  # a rule runs only if some result is used
    return prim.reshape(values, shape=(*values.shape[:-1], 1, values.shape[-1]))


decomposition("eig", "eigenvalues and eigenvectors, of length 1, of general matrices", _eig_infer, _eig_impl, _eig_vjp,
              ("outs",), samples=matrices(*SQUARES))  # fmt: skip


def _eigvals_vjp(grads: Operands, outs: Operands, ins: Operands) -> Any:
    return _eig_vjp((grads[0], None), prim.eig(ins[0]), ins)


decomposition("eigvals", "eigenvalues of general matrices, without eigenvectors", _eigvals_infer,
              _eigvals_impl, _eigvals_vjp, ("ins",), samples=matrices(*SQUARES))  # fmt: skip

"""Eigenvalues and eigenvectors of general matrices, which are complex; run by the host's LAPACK through numpy.

Derivatives: Boeddeker, Hanebrink, Drude, Heymann and Haeb-Umbach, "On the computation of complex-valued gradients"
(2017), for eigenvectors of length 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracecomp.base.errors import at_user_line
from tracecomp.ir.arrays import Array
from tracecomp.ir.op import Gradients, Operand, Operands, Pair, Paired, Sample
from tracecomp.ir.types import TensorType
from tracecomp.ops.define import of
from tracecomp.ops.linalg.matrix import (
    SQUARES,
    adjoint,
    decomposition,
    matrices,
    mm,
    rows_minus_columns,
    square,
)
from tracecomp.ops.prim import prim

_PHASE = 1e-2
"""What counts as no dependence on the phase of eigenvectors, as in PyTorch."""


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
        length = prim.phase_free(prim.real(own), prim.imag(own))
        along = prim.mul(mm(back, vectors), prim.complex(length, prim.mul(length, 0.0)))
        gaps = prim.sub(_row(values), prim.reshape(values, shape=(*values.shape, 1)))
        gaps = prim.conj(prim.where(off, gaps, 1.0))
        diagonal = 0.0 if grads[0] is None else _row(grads[0])
        inner = prim.where(off, prim.div(prim.sub(turn, along), gaps), diagonal)
    total = prim.matrix_solve(back, mm(inner, back))
    return (total if ins[0].dtype.is_complex else prim.real(total),)


def _row(values: Operand | None) -> Any:
    assert values is not None  # a rule runs where some result is used
    return prim.reshape(values, shape=(*values.shape[:-1], 1, values.shape[-1]))


def _in_parts(x: Pair | Operand) -> tuple[Operand, ...]:
    return (x.re, x.im) if isinstance(x, Pair) else (x,)


def _eig_parts(x: Pair | Operand) -> tuple[Pair, Pair]:
    values_re, values_im, vectors_re, vectors_im = prim.eig_parts(*_in_parts(x))
    return Pair(values_re, values_im), Pair(vectors_re, vectors_im)


_GENERAL = tuple(Sample((of(d, *s, domain="regular"),)) for d in ("f32", "f64", "c64", "c128") for s in SQUARES)

decomposition("eig", "eigenvalues and eigenvectors, of length 1, of general matrices", _eig_infer, _eig_impl, _eig_vjp,
              ("outs",), loop=Paired(), parts=_eig_parts, dtypes="wide field", samples=_GENERAL)  # fmt: skip


def _eigvals_vjp(grads: Operands, outs: Operands, ins: Operands) -> Any:
    return _eig_vjp((grads[0], None), prim.eig(ins[0]), ins)


decomposition("eigvals", "eigenvalues of general matrices, when nobody wants their vectors", _eigvals_infer,
              _eigvals_impl, _eigvals_vjp, ("ins",), loop=Paired(),
              parts=lambda x: Pair(*prim.eigvals_parts(*_in_parts(x))), dtypes="wide field",
              samples=_GENERAL)  # fmt: skip


# ---- the same on parts, for the host to run between compiled parts


def _joined(parts: tuple[Array, ...]) -> Array:
    if len(parts) == 1:
        return parts[0]
    whole = np.empty(parts[0].shape, np.result_type(parts[0], np.complex64))
    whole.real, whole.imag = parts
    return whole


def _eig_of_parts(*parts: Array) -> Any:
    values, vectors = _eig_impl(_joined(parts))
    return values.real, values.imag, vectors.real, vectors.imag


def _eigvals_of_parts(*parts: Array) -> Any:
    values = _eigvals_impl(_joined(parts))
    return values.real, values.imag


def _of_parts(count: int) -> Any:
    """The types of ``count`` pairs of results."""

    def infer(x: TensorType, *im: TensorType) -> tuple[TensorType, ...]:
        values = TensorType(x.dtype, square("eig")(x).shape[:-1])
        return (values, values, x, x)[: 2 * count]

    return infer


_PAIRS = (*matrices(*SQUARES), *(Sample((of(d, 2, 3, 3), of(d, 2, 3, 3))) for d in ("f32", "f64")))

decomposition("eig_parts", "eig of real matrices, or of real and imaginary parts; parts of both results", _of_parts(2),
              _eig_of_parts, None, (), samples=_PAIRS)  # fmt: skip
decomposition("eigvals_parts", "eigvals of real matrices, or of real and imaginary parts; parts of the result",
              _of_parts(1), _eigvals_of_parts, None, (), samples=_PAIRS)  # fmt: skip


def _phase_free(re: Array, im: Array) -> Any:
    if not (np.abs(im) <= _PHASE).all():
        raise RuntimeError(
            at_user_line(
                "linalg_eig_backward: The eigenvectors in the complex case are specified up to multiplication by "
                "e^{i phi}. The specified loss function depends on this quantity, so it is ill-defined."
            )
        )
    return re


decomposition("phase_free", "the real part of numbers that must be real for a gradient by eigenvectors to exist",
              lambda re, im: re, _phase_free, lambda g, o, i: (g[0], None), (),
              samples=tuple(Sample((of(d, *s), of(d, *s, domain="zero"))) for d in ("f32", "f64")
                            for s in ((1, 3), (2, 1, 3), (0, 1, 2))))  # fmt: skip

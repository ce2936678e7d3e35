"""QR, eigenvalue and singular value decompositions, run by the host's LAPACK through numpy.

Derivatives are written with differentiable primitives. Sources: Giles, "Collected matrix derivative results" (2008);
Walter and Lehmann (2012) for QR.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from tracecomp.ir.types import TensorType
from tracecomp.ops.matrix import (
    OBLONG,
    SQUARES,
    columns,
    decomposition,
    given,
    matrices,
    mm,
    rows,
    scale_columns,
    scale_rows,
    square,
    turned,
    unit,
    upper,
)
from tracecomp.ops.prim import prim

# ---- QR


def _qr_infer(x: TensorType, *, full: bool) -> tuple[TensorType, TensorType]:
    m, n = x.shape[-2:]
    k = m if full else min(m, n)
    return TensorType(x.dtype, (*x.shape[:-2], m, k)), TensorType(x.dtype, (*x.shape[:-2], k, n))


def _qr_impl(x: Any, *, full: bool) -> Any:
    q, r = np.linalg.qr(x, mode="complete" if full else "reduced")
    return q, r


def _square_qr(q: Any, r: Any, gq: Any, gr: Any) -> Any:
    inner = upper(prim.sub(mm(gr, turned(r)), mm(turned(q), gq)))
    inner = prim.add(inner, turned(upper(inner, 1)))
    total = prim.add(gq, mm(q, inner))
    return turned(prim.triangular_solve(r, turned(total), above=True, ones=False, turn=False))


def _qr_vjp(grads: Any, outs: Any, ins: Any, *, full: bool) -> Any:
    q, r = outs
    gq, gr = given(grads[0], q), given(grads[1], r)
    m, n = ins[0].shape[-2:]
    if full and m > n:
        raise RuntimeError("The QR decomposition is not differentiable when mode='complete' and nrows > ncols")
    if m >= n:
        return (_square_qr(q, r, gq, gr),)
    gr1, gr2 = columns(gr, 0, m), columns(gr, m, n)
    gq = prim.add(gq, mm(columns(ins[0], m, n), turned(gr2)))
    first = _square_qr(q, columns(r, 0, m), gq, gr1)
    return (prim.concat(first, mm(q, gr2), axis=len(q.shape) - 1),)


decomposition("qr", "orthogonal and upper triangular factors", _qr_infer, _qr_impl, _qr_vjp, attrs={"full": bool},
              samples=(*matrices(*OBLONG, full=False), *matrices((3, 3), full=True)))  # fmt: skip


def _geqrf_infer(x: TensorType) -> tuple[TensorType, TensorType]:
    return x, TensorType(x.dtype, (*x.shape[:-2], min(x.shape[-2:])))


def _geqrf_impl(x: Any) -> Any:
    reflections, tau = np.linalg.qr(x, mode="raw")
    return np.swapaxes(reflections, -1, -2), tau


decomposition("geqrf", "Householder reflections, with R above the diagonal, and their factors", _geqrf_infer,
              _geqrf_impl, None, (), samples=matrices(*OBLONG))  # fmt: skip


# ---- eigenvalues and singular values


def _differences(s: Any) -> Any:
    """s[j] - s[i]; infinite where they are equal, so that what is divided by it vanishes."""
    table = prim.sub(prim.reshape(s, shape=(*s.shape[:-1], 1, s.shape[-1])), prim.reshape(s, shape=(*s.shape, 1)))
    return prim.where(prim.eq(table, 0.0), float("inf"), table)


def _as_diagonal(s: Any, like: Any) -> Any:
    return prim.mul(unit(like), prim.reshape(s, shape=(*s.shape, 1)))


def _skew(x: Any) -> Any:
    return prim.sub(x, turned(x))


def _eigh_infer(x: TensorType, *, uplo: str) -> tuple[TensorType, TensorType]:
    return TensorType(x.dtype, square("eigh")(x).shape[:-1]), x


def _eigh_impl(x: Any, *, uplo: Literal["L", "U"]) -> Any:
    values, vectors = np.linalg.eigh(x, UPLO=uplo)
    return values, vectors


def _eigh_vjp(grads: Any, outs: Any, ins: Any, *, uplo: str) -> Any:
    values, vectors = outs
    inner = None
    if grads[1] is not None:
        inner = prim.div(prim.mul(_skew(mm(turned(vectors), grads[1])), 0.5), _differences(values))
    if grads[0] is not None:
        diagonal = _as_diagonal(grads[0], vectors)
        inner = diagonal if inner is None else prim.add(inner, diagonal)
    return (mm(mm(vectors, inner), turned(vectors)),)


decomposition("eigh", "eigenvalues, ascending, and eigenvectors of symmetric matrices", _eigh_infer, _eigh_impl,
              _eigh_vjp, ("outs",), attrs={"uplo": str},
              samples=matrices(*SQUARES, domain="definite", uplo="L"))  # fmt: skip


def _svd_infer(x: TensorType, *, full: bool) -> tuple[TensorType, ...]:
    m, n = x.shape[-2:]
    k, lead = min(m, n), x.shape[:-2]
    shapes = ((*lead, m, m if full else k), (*lead, k), (*lead, n if full else k, n))
    return tuple(TensorType(x.dtype, s) for s in shapes)


def _svd_impl(x: Any, *, full: bool) -> Any:
    u, s, v = np.linalg.svd(x, full_matrices=full)
    return u, s, v


def _svd_vjp(grads: Any, outs: Any, ins: Any, *, full: bool) -> Any:
    m, n = ins[0].shape[-2:]
    k = min(m, n)
    u, s, v = columns(outs[0], 0, k), outs[1], rows(outs[2], 0, k)
    gu = None if grads[0] is None else columns(grads[0], 0, k)
    gv = None if grads[2] is None else rows(grads[2], 0, k)
    inner = _as_diagonal(given(grads[1], s), mm(turned(u), u))
    gap = _differences(prim.mul(s, s))
    if gu is not None:
        inner = prim.add(inner, scale_columns(prim.div(_skew(mm(turned(u), gu)), gap), s))
    if gv is not None:
        inner = prim.add(inner, scale_rows(prim.div(_skew(mm(v, turned(gv))), gap), s))
    total = mm(mm(u, inner), v)
    inverse = prim.div(1.0, prim.where(prim.eq(s, 0.0), float("inf"), s))
    if gu is not None and m > k:
        outside = prim.sub(gu, mm(u, mm(turned(u), gu)))
        total = prim.add(total, mm(scale_columns(outside, inverse), v))
    if gv is not None and n > k:
        outside = prim.sub(gv, mm(mm(gv, turned(v)), v))
        total = prim.add(total, mm(u, scale_rows(outside, inverse)))
    return (total,)


decomposition("svd", "U, singular values descending, V transposed", _svd_infer, _svd_impl, _svd_vjp,
              attrs={"full": bool}, samples=matrices(*OBLONG, full=False))  # fmt: skip


def _eigvalsh_vjp(grads: Any, outs: Any, ins: Any, *, uplo: str) -> Any:
    return _eigh_vjp((grads[0], None), prim.eigh(ins[0], uplo=uplo), ins, uplo=uplo)


decomposition("eigvalsh", "eigenvalues, ascending, of symmetric matrices, when nobody wants their vectors",
              lambda x, *, uplo: _eigh_infer(x, uplo=uplo)[0], lambda x, *, uplo: np.linalg.eigvalsh(x, UPLO=uplo),
              _eigvalsh_vjp, ("ins",), attrs={"uplo": str},
              samples=matrices(*SQUARES, domain="definite", uplo="L"))  # fmt: skip


def _svdvals_vjp(grads: Any, outs: Any, ins: Any) -> Any:
    return _svd_vjp((None, grads[0], None), prim.svd(ins[0], full=False), ins, full=False)


decomposition("svdvals", "singular values, descending, when nobody wants their vectors",
              lambda x: _svd_infer(x, full=False)[1], lambda x: np.linalg.svd(x, compute_uv=False),
              _svdvals_vjp, ("ins",), samples=matrices(*OBLONG))  # fmt: skip

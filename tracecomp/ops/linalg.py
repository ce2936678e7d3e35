"""Matrix decompositions and solves over the last two axes, run by the host's LAPACK through numpy.

Derivatives are written with differentiable primitives. Sources: Giles, "Collected matrix derivative results" (2008);
Walter and Lehmann (2012) for QR; Golub and Pereyra (1973) for the pseudo-inverse.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracecomp.ir.op import External, Op, register
from tracecomp.ir.types import TensorType, int32, int64
from tracecomp.ops.define import check_dtype
from tracecomp.ops.prim import prim

_LETTERS = "abcdefgh"


class LinAlgError(RuntimeError):
    """A matrix has no such decomposition: singular, or not positive-definite."""


def mm(a: Any, b: Any) -> Any:
    """Product of two batches of matrices with the same leading axes."""
    batch = _LETTERS[: len(a.shape) - 2]
    return prim.contract(a, b, spec=f"{batch}mk,{batch}kn->{batch}mn")


def turned(x: Any) -> Any:
    """The last two axes swapped."""
    n = len(x.shape)
    return prim.permute(x, dims=(*range(n - 2), n - 1, n - 2))


def _rows_minus_columns(x: Any) -> Any:
    shape, n = tuple(x.shape), len(x.shape)
    row = prim.iota(like=x, shape=shape, axis=n - 2, dtype=int64)
    return prim.sub(row, prim.iota(like=x, shape=shape, axis=n - 1, dtype=int64))


def lower(x: Any, below: int = 0) -> Any:
    """The lower triangle, from ``below`` diagonals under the main one."""
    return prim.where(prim.ge(_rows_minus_columns(x), below), x, 0.0)


def upper(x: Any, above: int = 0) -> Any:
    """The upper triangle, from ``above`` diagonals over the main one."""
    return prim.where(prim.le(_rows_minus_columns(x), -above), x, 0.0)


def on_diagonal(x: Any) -> Any:
    return prim.where(prim.eq(_rows_minus_columns(x), 0), x, 0.0)


def scale_columns(x: Any, s: Any) -> Any:
    return prim.mul(x, prim.reshape(s, shape=(*s.shape[:-1], 1, s.shape[-1])))


def scale_rows(x: Any, s: Any) -> Any:
    return prim.mul(x, prim.reshape(s, shape=(*s.shape, 1)))


def unit(like: Any) -> Any:
    """Identity matrices of the shape of ``like``."""
    return prim.cast(prim.eq(_rows_minus_columns(like), 0), dtype=like.dtype)


def columns(x: Any, start: int, stop: int) -> Any:
    return _cut(x, len(x.shape) - 1, start, stop)


def rows(x: Any, start: int, stop: int) -> Any:
    return _cut(x, len(x.shape) - 2, start, stop)


def _cut(x: Any, axis: int, start: int, stop: int) -> Any:
    n = len(x.shape)
    return prim.slice(
        x,
        starts=tuple(start if i == axis else 0 for i in range(n)),
        stops=tuple(stop if i == axis else x.shape[i] for i in range(n)),
        steps=(1,) * n,
    )


def _decomposition(
    name: str,
    doc: str,
    infer: Callable[..., Any],
    impl: Callable[..., Any],
    vjp: Callable[..., Sequence[Any]] | None,
    saves: tuple[int | str, ...] = ("ins", "outs"),
) -> Op:
    def run(*arrays: Any, **attrs: Any) -> Any:
        result = impl(*arrays, **attrs)
        return tuple(map(_dense, result)) if isinstance(result, tuple) else _dense(result)

    def checked(*types: TensorType, **attrs: Any) -> Any:
        check_dtype(name, types, "float")
        return infer(*types, **attrs)

    return register(
        Op(name=name, kind="external", doc=doc, infer=checked, impl=run, vjp=vjp, saves=saves, loop=External())
    )


def _dense(x: Any) -> Any:
    return np.ascontiguousarray(x).reshape(np.shape(x))


def _given(g: Any, like: Any) -> Any:
    """A gradient, or zeros where a result was not used."""
    return prim.mul(like, 0.0) if g is None else g


# ---- Cholesky


def _cholesky_impl(x: Any) -> Any:
    try:
        return np.linalg.cholesky(x)
    except np.linalg.LinAlgError:
        batches = x.reshape(-1, *x.shape[-2:])
        for matrix in batches:
            for k in range(1, matrix.shape[0] + 1):
                if not np.linalg.det(matrix[:k, :k].astype(np.float64)) > 0:
                    raise LinAlgError(
                        "linalg.cholesky: The factorization could not be completed because the input is not "
                        f"positive-definite (the leading minor of order {k} is not positive-definite)."
                    ) from None
        raise LinAlgError("linalg.cholesky: the input is not positive-definite.") from None


def _cholesky_vjp(grads: Any, outs: Any, ins: Any) -> Any:
    factor = outs[0]
    inner = lower(mm(turned(factor), grads[0]))
    inner = prim.mul(prim.add(inner, turned(lower(inner, 1))), 0.5)
    left = prim.matrix_solve(turned(factor), inner)
    return (turned(prim.matrix_solve(turned(factor), turned(left))),)


_decomposition("cholesky", "lower triangular factor of symmetric positive-definite matrices", lambda x: x,
               _cholesky_impl, _cholesky_vjp, ("outs",))  # fmt: skip


# ---- solving


def _solve_infer(a: TensorType, b: TensorType) -> TensorType:
    return b


def _solve_impl(a: Any, b: Any) -> Any:
    try:
        return np.linalg.solve(a, b)
    except np.linalg.LinAlgError:
        raise LinAlgError("linalg.solve: The solver failed because the input matrix is singular.") from None


def _solve_vjp(grads: Any, outs: Any, ins: Any) -> Any:
    gb = prim.matrix_solve(turned(ins[0]), grads[0])
    return (prim.neg(mm(gb, turned(outs[0]))), gb)


_decomposition("matrix_solve", "X with A X = B, batches of equal leading axes", _solve_infer, _solve_impl, _solve_vjp)


def _inverse_impl(x: Any) -> Any:
    try:
        return np.linalg.inv(x)
    except np.linalg.LinAlgError:
        raise LinAlgError(
            "linalg.inv: The diagonal element is zero, the inversion could not be completed because the input matrix "
            "is singular."
        ) from None


_decomposition("matrix_inverse", "inverse of square matrices", lambda x: x, _inverse_impl,
               lambda g, o, i: (prim.neg(mm(mm(turned(o[0]), g[0]), turned(o[0]))),), ("outs",))  # fmt: skip


def _pinv_impl(x: Any, *, rtol: float, hermitian: bool) -> Any:
    return np.linalg.pinv(x, rcond=rtol, hermitian=hermitian).astype(x.dtype)


def _pinv_vjp(grads: Any, outs: Any, ins: Any, *, rtol: float, hermitian: bool) -> Any:
    """From dP = -P dA P + P P' dA' (I - A P) + (I - P A) dA' P' P."""
    a, p, g = ins[0], outs[0], turned(grads[0])
    first = mm(mm(turned(p), grads[0]), turned(p))
    second = mm(prim.sub(g, mm(a, mm(p, g))), mm(p, turned(p)))
    third = mm(mm(turned(p), p), prim.sub(g, mm(mm(g, p), a)))
    return (prim.sub(prim.add(second, third), first),)


_decomposition("pinv", "Moore-Penrose pseudo-inverse; singular values up to rtol times the largest count as zero",
               lambda x, *, rtol, hermitian: TensorType(x.dtype, (*x.shape[:-2], x.shape[-1], x.shape[-2])),
               _pinv_impl, _pinv_vjp)  # fmt: skip


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
    return TensorType(x.dtype, x.shape[:-2])


_decomposition("det", "determinant of square matrices", _batch, lambda x: np.asarray(np.linalg.det(x), x.dtype),
               _det_vjp, ("ins",))  # fmt: skip


def _slogdet_vjp(grads: Any, outs: Any, ins: Any) -> Any:
    g = grads[1]
    if g is None:
        return (None,)
    inverse = turned(prim.matrix_inverse(ins[0]))
    return (prim.mul(inverse, prim.reshape(g, shape=(*g.shape, 1, 1))),)


def _slogdet_impl(x: Any) -> Any:
    sign, log = np.linalg.slogdet(x)
    return np.asarray(sign, x.dtype), np.asarray(log, x.dtype)


_decomposition("slogdet", "sign and logarithm of the absolute value of the determinant",
               lambda x: (_batch(x), _batch(x)), _slogdet_impl, _slogdet_vjp, ("ins",))  # fmt: skip


# ---- LU with partial pivoting


def _lu_impl(x: Any) -> Any:
    lu = np.array(x)
    m, n = x.shape[-2:]
    batch = x.shape[:-2]
    flat = lu.reshape(math.prod(batch), m, n)
    each = np.arange(len(flat))
    pivots = np.zeros((len(flat), min(m, n)), np.int32)
    for k in range(min(m, n)):
        best = k + np.argmax(np.abs(flat[:, k:, k]), axis=1) if len(flat) else pivots[:, k]
        pivots[:, k] = best + 1
        flat[each, k], flat[each, best] = flat[each, best], flat[each, k].copy()
        pivot = flat[:, k, k, None]
        with np.errstate(all="ignore"):
            flat[:, k + 1 :, k] = np.where(pivot == 0, flat[:, k + 1 :, k], flat[:, k + 1 :, k] / pivot)
        flat[:, k + 1 :, k + 1 :] -= flat[:, k + 1 :, k, None] * flat[:, k, None, k + 1 :]
    return flat.reshape(x.shape), pivots.reshape(*batch, min(m, n))


def permutation(pivots: Any, size: int) -> Any:
    """The rows of A in the order of L U, from LAPACK's list of swaps (counted from 1)."""
    flat = pivots.reshape(math.prod(pivots.shape[:-1]), pivots.shape[-1])
    order = np.tile(np.arange(size), (len(flat), 1))
    each = np.arange(len(flat))
    for k in range(flat.shape[1]):
        other = flat[:, k] - 1
        order[each, k], order[each, other] = order[each, other], order[each, k].copy()
    return order.reshape(*pivots.shape[:-1], size)


register(
    Op(
        name="pivot_order", kind="external", doc="order of rows that LAPACK's swaps give",
        infer=lambda p, *, size: TensorType(int64, (*p.shape[:-1], size)),
        impl=lambda p, *, size: np.ascontiguousarray(permutation(p, size)), loop=External(),
    )
)  # fmt: skip


def _lu_infer(x: TensorType) -> tuple[TensorType, TensorType]:
    return x, TensorType(int32, (*x.shape[:-2], min(x.shape[-2:])))


def _lu_vjp(grads: Any, outs: Any, ins: Any) -> Any:
    lu, pivots = outs
    g = grads[0]
    m, n = lu.shape[-2:]
    k = min(m, n)
    core, gcore = columns(rows(lu, 0, k), 0, k), columns(rows(g, 0, k), 0, k)
    low = prim.add(lower(core, 1), unit(core))
    up = upper(core)
    glow, gup = lower(gcore, 1), upper(gcore)
    rest: Any = None
    if n > k:
        other, gother = columns(lu, k, n), columns(g, k, n)
        rest = prim.matrix_solve(turned(low), gother)
        glow = prim.sub(glow, lower(mm(rest, turned(other)), 1))
    elif m > k:
        other, gother = rows(lu, k, m), rows(g, k, m)
        rest = turned(prim.matrix_solve(up, turned(gother)))
        gup = prim.sub(gup, upper(mm(turned(other), rest)))
    inner = prim.add(lower(mm(turned(low), glow), 1), upper(mm(gup, turned(up))))
    inner = prim.matrix_solve(turned(low), inner)
    total = turned(prim.matrix_solve(up, turned(inner)))
    if rest is not None:
        total = prim.concat(total, rest, axis=len(lu.shape) - (1 if n > k else 2))
    order = prim.pivot_order(pivots, size=m)
    place = prim.sort(order, axis=len(order.shape) - 1, descending=False)[1]
    index = prim.expand(prim.reshape(place, shape=(*place.shape, 1)), shape=tuple(total.shape))
    return (prim.gather(total, index, axis=len(total.shape) - 2),)


_decomposition("lu_factor", "L and U in one matrix, and LAPACK's row swaps", _lu_infer, _lu_impl, _lu_vjp, ("outs",))


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
    return turned(prim.matrix_solve(r, turned(prim.add(gq, mm(q, inner)))))


def _qr_vjp(grads: Any, outs: Any, ins: Any, *, full: bool) -> Any:
    q, r = outs
    gq, gr = _given(grads[0], q), _given(grads[1], r)
    m, n = ins[0].shape[-2:]
    if full and m > n:
        raise RuntimeError("The QR decomposition is not differentiable when mode='complete' and nrows > ncols")
    if m >= n:
        return (_square_qr(q, r, gq, gr),)
    gr1, gr2 = columns(gr, 0, m), columns(gr, m, n)
    gq = prim.add(gq, mm(columns(ins[0], m, n), turned(gr2)))
    first = _square_qr(q, columns(r, 0, m), gq, gr1)
    return (prim.concat(first, mm(q, gr2), axis=len(q.shape) - 1),)


_decomposition("qr", "orthogonal and upper triangular factors", _qr_infer, _qr_impl, _qr_vjp)


# ---- eigenvalues and singular values


def _differences(s: Any) -> Any:
    """s[j] - s[i], ones on the diagonal."""
    table = prim.sub(prim.reshape(s, shape=(*s.shape[:-1], 1, s.shape[-1])), prim.reshape(s, shape=(*s.shape, 1)))
    return prim.where(prim.eq(_rows_minus_columns(table), 0), 1.0, table)


def _as_diagonal(s: Any, like: Any) -> Any:
    return prim.mul(unit(like), prim.reshape(s, shape=(*s.shape, 1)))


def _eigh_infer(x: TensorType, *, uplo: str) -> tuple[TensorType, TensorType]:
    return TensorType(x.dtype, x.shape[:-1]), x


def _eigh_impl(x: Any, *, uplo: str) -> Any:
    values, vectors = np.linalg.eigh(x, UPLO=uplo)
    return values, vectors


def _eigh_vjp(grads: Any, outs: Any, ins: Any, *, uplo: str) -> Any:
    values, vectors = outs
    inner = None
    if grads[1] is not None:
        inner = prim.div(mm(turned(vectors), grads[1]), _differences(values))
        inner = prim.sub(inner, on_diagonal(inner))
    if grads[0] is not None:
        diagonal = _as_diagonal(grads[0], vectors)
        inner = diagonal if inner is None else prim.add(inner, diagonal)
    return (mm(mm(vectors, inner), turned(vectors)),)


_decomposition("eigh", "eigenvalues, ascending, and eigenvectors of symmetric matrices", _eigh_infer, _eigh_impl,
               _eigh_vjp, ("outs",))  # fmt: skip


def _svd_infer(x: TensorType, *, full: bool) -> tuple[TensorType, ...]:
    m, n = x.shape[-2:]
    k, lead = min(m, n), x.shape[:-2]
    shapes = ((*lead, m, m if full else k), (*lead, k), (*lead, n if full else k, n))
    return tuple(TensorType(x.dtype, s) for s in shapes)


def _svd_impl(x: Any, *, full: bool) -> Any:
    u, s, v = np.linalg.svd(x, full_matrices=full)
    return u, s, v


def _skew(x: Any) -> Any:
    return prim.sub(x, turned(x))


def _svd_vjp(grads: Any, outs: Any, ins: Any, *, full: bool) -> Any:
    m, n = ins[0].shape[-2:]
    k = min(m, n)
    u, s, v = columns(outs[0], 0, k), outs[1], rows(outs[2], 0, k)
    gu = None if grads[0] is None else columns(grads[0], 0, k)
    gv = None if grads[2] is None else rows(grads[2], 0, k)
    inner = _as_diagonal(_given(grads[1], s), mm(turned(u), u))
    gap = _differences(prim.mul(s, s))
    if gu is not None:
        inner = prim.add(inner, scale_columns(prim.div(_skew(mm(turned(u), gu)), gap), s))
    if gv is not None:
        inner = prim.add(inner, scale_rows(prim.div(_skew(mm(v, turned(gv))), gap), s))
    total = mm(mm(u, inner), v)
    inverse = prim.div(1.0, s)
    if gu is not None and m > k:
        outside = prim.sub(gu, mm(u, mm(turned(u), gu)))
        total = prim.add(total, mm(scale_columns(outside, inverse), v))
    if gv is not None and n > k:
        outside = prim.sub(gv, mm(mm(gv, turned(v)), v))
        total = prim.add(total, mm(u, scale_rows(outside, inverse)))
    return (total,)


_decomposition("svd", "U, singular values descending, V transposed", _svd_infer, _svd_impl, _svd_vjp)

"""QR by Householder reflections. Derivative: Walter and Lehmann (2012)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracecomp.ir.arrays import Array
from tracecomp.ir.index import Index, index
from tracecomp.ir.loops import Buffer, If, IndexValue, Load, Loop, Stmt, Store
from tracecomp.ir.op import Composed, Imperative, Operand, Operands, Sample, Types
from tracecomp.ir.scalars import call
from tracecomp.ir.types import TensorType
from tracecomp.ops.define import of, require
from tracecomp.ops.linalg.elimination import Matrix, Panel, panels, strips
from tracecomp.ops.linalg.householder import Workspace, applied, gathered, reflections
from tracecomp.ops.linalg.matrix import (
    OBLONG,
    WIDE,
    adjoint,
    as_type,
    columns,
    decomposition,
    given,
    lower,
    matrices,
    mm,
    rows,
    rows_minus_columns,
    unit,
    upper,
)
from tracecomp.ops.parts import conj
from tracecomp.ops.prim import prim
from tracecomp.ops.statements import Names, vectors

# ---- QR


def _qr_infer(x: TensorType, *, full: bool) -> tuple[TensorType, TensorType]:
    m, n = x.shape[-2:]
    k = m if full else min(m, n)
    return TensorType(x.dtype, (*x.shape[:-2], m, k)), TensorType(x.dtype, (*x.shape[:-2], k, n))


def _qr_composed(x: Operand, *, full: bool) -> tuple[Any, Any]:
    m, n = x.shape[-2:]
    k = m if full else min(m, n)
    a, tau = prim.geqrf(x)
    q = prim.reflect(a, tau, unit(prim.full(like=x, value=0.0, shape=(*x.shape[:-1], k), dtype=x.dtype)), turn=False)
    return q, upper(rows(a, 0, k))


def _qr_impl(x: Array, *, full: bool) -> Any:
    q, r = np.linalg.qr(x, mode="complete" if full else "reduced")
    return q, r


def _square_qr(q: Operand, r: Operand, gq: Operand, gr: Operand) -> Any:
    inner = upper(prim.sub(mm(gr, adjoint(r)), mm(adjoint(q), gq)))
    if inner.dtype.is_complex:  # R's diagonal is real, so the phase of Q's columns is free
        inner = prim.where(prim.eq(rows_minus_columns(inner), 0), as_type(prim.real(inner), inner), inner)
    inner = prim.add(inner, adjoint(upper(inner, 1)))
    total = prim.add(gq, mm(q, inner))
    return adjoint(prim.triangular_solve(r, adjoint(total), above=True, ones=False, turn=False))


def _qr_vjp(grads: Operands, outs: Operands, ins: Operands, *, full: bool) -> Any:
    q, r = outs
    gq, gr = given(grads[0], q), given(grads[1], r)
    m, n = ins[0].shape[-2:]
    if full and m > n:
        raise RuntimeError("The QR decomposition is not differentiable when mode='complete' and nrows > ncols")
    if m >= n:
        return (_square_qr(q, r, gq, gr),)
    gr1, gr2 = columns(gr, 0, m), columns(gr, m, n)
    gq = prim.add(gq, mm(columns(ins[0], m, n), adjoint(gr2)))
    first = _square_qr(q, columns(r, 0, m), gq, gr1)
    return (prim.concat(first, mm(q, gr2), axis=len(q.shape) - 1),)


decomposition("qr", "orthogonal and upper triangular factors", _qr_infer, _qr_impl, _qr_vjp, attrs={"full": bool},
              loop=Composed(_qr_composed),
              samples=(*matrices(*OBLONG, full=False), *matrices((3, 3), full=True)))  # fmt: skip


def _geqrf_infer(x: TensorType) -> tuple[TensorType, TensorType]:
    return x, TensorType(x.dtype, (*x.shape[:-2], min(x.shape[-2:])))


def _geqrf_impl(x: Array) -> Any:
    reflections, tau = np.linalg.qr(x, mode="raw")
    return np.swapaxes(reflections, -1, -2), tau


def _geqrf_composed(x: Operand) -> tuple[Any, Any]:
    """QR of matrices scaled to 1, whose squares neither overflow nor vanish."""
    if 0 in x.shape:
        return x, prim.full(like=x, value=0.0, shape=(*x.shape[:-2], min(x.shape[-2:])), dtype=x.dtype)
    n = len(x.shape)
    most = prim.max(prim.abs(x), axes=(n - 2, n - 1))
    usual = prim.bitwise_and(prim.gt(most, 0.0), prim.lt(most, math.inf))
    size = prim.exp2(prim.floor(prim.log2(prim.where(usual, most, 1.0))))
    size = prim.reshape(size, shape=(*size.shape, 1, 1))
    a, tau = prim.reflections(prim.div(x, size))
    return prim.where(prim.le(rows_minus_columns(a), 0), prim.mul(a, size), a), tau


decomposition("geqrf", "Householder reflections, with R above the diagonal, and their factors", _geqrf_infer,
              _geqrf_impl, None, (), loop=Composed(_geqrf_composed), samples=matrices(*OBLONG))  # fmt: skip


def _reflections_loop(
    ins: Sequence[Buffer], outs: Sequence[Buffer], in_types: Sequence[TensorType], out_types: Types
) -> list[Stmt]:
    (*lead, m, n), names = in_types[0].shape, Names()
    batch, k = names.var(math.prod(lead)), min(m, n)
    x = Matrix(outs[0], lambda i, j: (index(batch) * m + i) * n + j)
    tau = Matrix(outs[1], lambda i, j: index(batch) * k + j)
    work = Workspace.of(names, outs[0], m)

    def panel(panel: Panel) -> list[Stmt]:
        result = reflections(names, work, x, tau, panel, m)
        others = list[Stmt]()
        for start, count, repeat in strips(names, n):
            behind = call("gt", IndexValue(start + count), IndexValue(panel.end))
            columns = applied(names, work, tau, x, panel, m, start, count, True, panel.end)
            others.extend(repeat([If(behind, tuple(columns))]))
        more = call("lt", IndexValue(panel.end), IndexValue(Index(const=n)))
        return [*result, If(more, (*gathered(names, work, x, panel, m), *others))]

    if not in_types[0].numel:
        return []
    start = index(batch) * (m * n)
    copied = vectors(names, m * n, lambda i: [Store(outs[0], start + i, Load(ins[0], start + i))])
    return [Loop("parallel", batch, (*work.declared(), *copied, *panels(names, k, panel)))]


decomposition("reflections", "geqrf for numbers whose squares neither overflow nor vanish", _geqrf_infer,
              _geqrf_impl, None, (), loop=Imperative(_reflections_loop),
              samples=matrices(*OBLONG, (40, 37), (37, 75)))  # fmt: skip


# ---- products with Q


def _reflect_infer(a: TensorType, tau: TensorType, x: TensorType, *, turn: bool) -> TensorType:
    fits = a.shape[:-1] == x.shape[:-1] and tau.shape[:-1] == a.shape[:-2] and tau.shape[-1] <= min(a.shape[-2:])
    require(fits, RuntimeError, f"reflect: {tau} factors of reflections {a} do not fit {x}")
    return x


def _reflect_impl(a: Array, tau: Array, x: Array, *, turn: bool) -> Any:
    k = tau.shape[-1]
    v = np.tril(a[..., :k], -1) + np.eye(a.shape[-2], k, dtype=a.dtype)
    factors = tau.conj() if turn else tau
    for i in range(k) if turn else reversed(range(k)):
        column = v[..., i : i + 1]
        x = x - factors[..., i, None, None] * (column @ (np.swapaxes(column.conj(), -1, -2) @ x))
    return x


def _reflect_vjp(grads: Operands, outs: Operands, ins: Operands, *, turn: bool) -> Any:
    """Derivative reflection by reflection, since the operand of each cannot be recovered from its result."""
    a, tau, x = ins
    n, k, g = a.shape[-1], tau.shape[-1], grads[0]
    back = prim.reflect(a, tau, g, turn=not turn)
    if k == 0:
        return None, None, back
    given_v = prim.add(lower(columns(a, 0, k), 1), unit(columns(a, 0, k)))
    factors = prim.reshape(tau, shape=(*tau.shape[:-1], 1, k))
    steps: list[Any] = []
    found: dict[int, tuple[Any, Any]] = {}
    for i in range(k) if turn else reversed(range(k)):
        v, t = columns(given_v, i, i + 1), columns(factors, i, i + 1)
        t = conj(t) if turn else t
        inner = mm(adjoint(v), x)
        steps.append((i, v, t, x, inner))
        x = prim.sub(x, prim.mul(t, mm(v, inner)))
    for i, v, t, x, inner in reversed(steps):
        outer = mm(adjoint(v), g)
        of_v = prim.neg(prim.add(prim.mul(t, mm(x, adjoint(outer))), prim.mul(conj(t), mm(g, adjoint(inner)))))
        of_t = prim.neg(mm(outer, adjoint(inner)))
        found[i] = of_v, conj(of_t) if turn else of_t
        g = prim.sub(g, prim.mul(conj(t), mm(v, outer)))
    axis = len(a.shape) - 1
    of_a, of_tau = (prim.concat(*(found[i][part] for i in range(k)), axis=axis) for part in range(2))
    of_a = lower(of_a, 1)
    if n > k:
        of_a = prim.concat(of_a, prim.mul(columns(a, k, n), 0.0), axis=axis)
    return of_a, prim.reshape(of_tau, shape=tuple(tau.shape)), back


def _reflect_loop(
    ins: Sequence[Buffer], outs: Sequence[Buffer], in_types: Sequence[TensorType], out_types: Types, *, turn: bool
) -> list[Stmt]:
    (*lead, m, width), (n, k), names = in_types[2].shape, (in_types[0].shape[-1], in_types[1].shape[-1]), Names()
    batch = names.var(math.prod(lead))
    a = Matrix(ins[0], lambda i, j: (index(batch) * m + i) * n + j)
    tau = Matrix(ins[1], lambda i, j: index(batch) * k + j)
    x = Matrix(outs[0], lambda i, j: (index(batch) * m + i) * width + j)
    work = Workspace.of(names, outs[0], m)

    def panel(panel: Panel) -> list[Stmt]:
        result = gathered(names, work, a, panel, m)
        for start, count, repeat in strips(names, width):
            result.extend(repeat(applied(names, work, tau, x, panel, m, start, count, turn)))
        return result

    if not in_types[2].numel:
        return []
    start = index(batch) * (m * width)
    copied = vectors(names, m * width, lambda i: [Store(outs[0], start + i, Load(ins[2], start + i))])
    return [Loop("parallel", batch, (*work.declared(), *copied, *panels(names, k, panel, back=not turn)))]


decomposition("reflect", "Q X (or Q'X if ``turn``) for geqrf's reflections and factors", _reflect_infer, _reflect_impl,
              _reflect_vjp, ("ins",),
              attrs={"turn": bool}, loop=Imperative(_reflect_loop),
              samples=tuple(
                  Sample((of(d, *lead, m, n), of(d, *lead, k), of(d, *lead, m, p)), {"turn": turn})
                  for d in WIDE for turn in (False, True)
                  for lead, m, n, k, p in (((), 3, 3, 3, 3), ((2,), 4, 3, 2, 5), ((0,), 2, 2, 2, 2))
              ))  # fmt: skip

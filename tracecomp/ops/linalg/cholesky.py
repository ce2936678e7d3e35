"""The Cholesky factorization. Derivative: Giles (2008), as in ``linalg.py``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracecomp.base.errors import failure, in_batch, matrix_weight
from tracecomp.ir.arrays import Array
from tracecomp.ir.index import Index, index
from tracecomp.ir.loops import Buffer, Check, If, IndexValue, Let, Load, Loop, Read, Stmt, Store, cast
from tracecomp.ir.op import Imperative, Operands, Types
from tracecomp.ir.scalars import call, const
from tracecomp.ir.types import TensorType, int32, int64
from tracecomp.ops.linalg.elimination import Matrix, Panel, eliminated, panels, strips
from tracecomp.ops.linalg.matrix import SQUARES, adjoint, decomposition, lower, matrices, mm, square
from tracecomp.ops.parts import conj
from tracecomp.ops.prim import prim
from tracecomp.ops.statements import Names, vectors


def _infer(x: TensorType, *, strict: bool, above: bool) -> tuple[TensorType, TensorType]:
    return square("cholesky")(x), TensorType(int32, x.shape[:-2])


def _impl(x: Array, *, strict: bool, above: bool) -> tuple[Any, Any]:
    info = np.zeros(x.shape[:-2], np.int32)
    try:
        return np.linalg.cholesky(x, upper=above), info
    except np.linalg.LinAlgError:
        factor = np.empty(x.shape, x.dtype)
        for batch in np.ndindex(info.shape):
            low, info[batch] = _by_rows(x[batch].T.conj() if above else x[batch])
            factor[batch] = low.T.conj() if above else low
            if strict and info[batch]:
                raise not_definite(info, x.shape[-1]) from None
        return factor, info


def not_definite(info: Array, size: int) -> Exception:
    """The error for the first matrix whose ``info`` is not 0."""
    name = in_batch("definite", info.shape, size)
    flat = info.reshape(-1)
    first = int(np.flatnonzero(flat)[0])
    return failure(name, detail=first * matrix_weight(name) + int(flat[first]))


def _by_rows(x: Array) -> tuple[Any, int]:
    """The factor, and the order of the first leading minor that is not positive-definite (0: all are)."""
    rest, info = np.tril(x), 0
    with np.errstate(all="ignore"):
        for k in range(len(x)):
            pivot = rest[k, k] = rest[k, k].real
            info = info or (0 if pivot > 0 else k + 1)
            rest[k:, k] /= np.sqrt(pivot)
            rest[k + 1 :, k + 1 :] -= np.tril(np.outer(rest[k + 1 :, k], rest[k + 1 :, k].conj()))
    return rest, info


def _vjp(grads: Operands, outs: Operands, ins: Operands, *, strict: bool, above: bool) -> Any:
    factor, given = (adjoint(outs[0]), adjoint(grads[0])) if above else (outs[0], grads[0])
    inner = lower(mm(adjoint(factor), given))
    inner = prim.mul(prim.add(inner, adjoint(lower(inner, 1))), 0.5)
    left = prim.triangular_solve(conj(factor), inner, above=False, ones=False, turn=True)
    return (adjoint(prim.triangular_solve(conj(factor), adjoint(left), above=False, ones=False, turn=True)),)


def _loop(
    ins: Sequence[Buffer], outs: Sequence[Buffer], in_types: Sequence[TensorType], out_types: Types, *, strict: bool,
    above: bool,
) -> list[Stmt]:  # fmt: skip
    """The upper triangle of U with U'U = A, row by row in memory, transposed at the end unless ``above``."""
    (*lead, n, _), names = in_types[0].shape, Names()
    if not math.prod(lead):
        return []
    number = names.var(math.prod(lead))
    batch = index(number)
    given, x = (Matrix(b, lambda i, j: (batch * n + i) * n + j) for b in (ins[0], outs[0]))
    turned_x = Matrix(x.buffer, lambda i, j: x.at(j, i))
    info = Matrix(outs[1], lambda i, j: batch)
    clear = info.store(Index(), Index(), const(0, int32))

    def panel(panel: Panel) -> list[Stmt]:
        result = _diagonal(names, x, info, panel)
        for start, count, repeat in strips(names, n):
            behind = call("gt", IndexValue(start + count), IndexValue(panel.end))
            body = eliminated(
                names, turned_x, x, panel, n, start, count, lambda value, row: call("div", value, x.load(row, row)),
                lambda column: call("ge", IndexValue(column), IndexValue(panel.end)), triangle=True,
            )  # fmt: skip
            result.extend(repeat([If(behind, tuple(body))]))
        return result

    steps = panels(names, n, panel)
    start = batch * (n * n)
    first = vectors(names, n * n, lambda i: [Store(x.buffer, start + i, Load(ins[0], start + i))])
    first, last = (first, []) if above else (_turned(names, given, x, n), _turned(names, x, x, n))
    body = (clear, *first, *steps, *last, *_cleared(names, x, n, above))
    check = _checked(names, outs[1], in_batch("definite", tuple(lead), n)) if strict else []
    return [Loop("parallel", number, body), *check]


def _checked(names: Names, info: Buffer, fails: str) -> list[Stmt]:
    """Check one matrix after the other, the first one last: the last report is the error."""
    batch, order = names.var(info.size), names.let()
    found = Read(order, int64, frozenset((batch,)))
    at = index(batch) * -1 + (info.size - 1)
    place = call("add", found, IndexValue(at * matrix_weight(fails))) if matrix_weight(fails) else found
    fine = Check(call("eq", found, const(0, int64)), fails, place)
    return [Loop("serial", batch, (Let(order, cast(Load(info, at), int64)), fine))]


def _diagonal(names: Names, x: Matrix, info: Matrix, panel: Panel) -> list[Stmt]:
    """The rows of U within a panel's columns. The lower triangle is undefined."""
    c, r, lane, over = names.var(panel.count), names.var(panel.count), names.var(panel.count), names.var(panel.count)
    top, by, side, dtype = names.let(), names.let(), names.let(), x.buffer.dtype
    step, row = panel.first + index(c), panel.first + index(r)
    pivot = Read(top, dtype, frozenset(x.at(step, step).vars()))
    first = call("eq", info.load(Index(), Index()), const(0, int32))
    bad = call("and", call("not", call("gt", pivot, const(0.0, dtype))), first)
    note = If(bad, (info.store(Index(), Index(), cast(IndexValue(step + 1), int32)),))
    column = panel.first + index(lane)
    root = Read(side, dtype, pivot.over)
    divided = call(
        "select", call("eq", IndexValue(column), IndexValue(step)), root, call("div", x.load(step, column), root)
    )
    scaled = Loop("vector", lane, (x.store(step, column, divided),))
    column = panel.first + index(over)
    factor = Read(by, dtype, frozenset(x.at(step, row).vars()))
    less = call("fma", call("neg", factor), x.load(step, column), x.load(row, column))
    below = (Let(by, x.load(step, row)), Loop("vector", over, (x.store(row, column, less),)))
    others = Loop("serial", r, (If(call("gt", IndexValue(row), IndexValue(step)), below),))
    first_two = Let(top, x.load(step, step)), Let(side, call("sqrt", pivot))
    return [Loop("serial", c, (*first_two, note, scaled, others))]


def _turned(names: Names, source: Matrix, target: Matrix, n: int) -> list[Stmt]:
    """``target`` is the transpose of ``source``; within one matrix, the upper triangle is copied to the lower one."""
    row, result = names.var(n), list[Stmt]()
    for start, count, repeat in strips(names, n):
        lane = names.var(count)
        column = start + index(lane)
        wanted = call("lt", IndexValue(column), IndexValue(index(row))) if source is target else None
        store = target.store(index(row), column, source.load(column, index(row)), wanted)
        result.extend(repeat([Loop("vector", lane, (store,))]))
    return [Loop("serial", row, tuple(result))]


def _cleared(names: Names, x: Matrix, n: int, above: bool) -> list[Stmt]:
    """Zeros on the other side of the diagonal."""
    row, result = names.var(n), list[Stmt]()
    for start, count, repeat in strips(names, n):
        lane = names.var(count)
        column = start + index(lane)
        beyond = call("lt" if above else "gt", IndexValue(column), IndexValue(index(row)))
        zero = const(0.0, x.buffer.dtype)
        result.extend(repeat([Loop("vector", lane, (x.store(index(row), column, zero, beyond),))]))
    return [Loop("serial", row, tuple(result))]


decomposition("cholesky", "lower (upper if ``above``) triangular factor of Hermitian positive-definite matrices, read "
              "from it, and the orders of the first leading minors that are not (0: none; an error if ``strict``)",
              _infer, _impl, _vjp, ("outs",),
              attrs={"strict": bool, "above": bool}, loop=Imperative(_loop),
              samples=(*matrices(*SQUARES, domain="definite", strict=True, above=False),
                       *matrices((3, 3), domain="definite", strict=True, above=True),
                       *matrices((39, 39), (2, 70, 70), domain="definite", strict=False, above=False),
                       *matrices((2, 70, 70), domain="definite", strict=False, above=True)))  # fmt: skip

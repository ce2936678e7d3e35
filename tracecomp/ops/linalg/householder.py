"""Loops of Householder reflections: panels of columns, whose reflections are then applied together.

The product of a panel's reflections is I - V T V'. T's inverse is the upper triangle of V'V with 1/tau on its diagonal
(Puglisi, 1992). Applying it is two products in register tiles and a substitution between them.
"""

from __future__ import annotations

from tracecomp.ir.immutable import immutable
from tracecomp.ir.index import Index, index
from tracecomp.ir.loops import Acc, Accumulate, Buffer, Expr, If, IndexValue, Let, Local, Loop, Read, Stmt, Update
from tracecomp.ir.pieces import pieces
from tracecomp.ir.scalars import call, const
from tracecomp.ops.linalg.elimination import HEIGHT, PANEL, WIDTH, Matrix, Panel
from tracecomp.ops.statements import Names

# Reflections of a panel that one register tile processes.
TILE = 8


@immutable
class Workspace:
    """Scratch memory of a panel's reflections: V by rows, V'V, V'X for a strip of columns, a row of scalars."""

    v: Matrix
    gram: Matrix
    inner: Matrix
    row: Matrix

    @staticmethod
    def of(names: Names, like: Buffer, rows: int) -> Workspace:
        def local(height: int, width: int) -> Matrix:
            return Matrix(Buffer(names.let(), like.dtype, height * width), lambda i, j: i * width + j)

        return Workspace(local(rows, PANEL), local(PANEL, PANEL), local(PANEL, WIDTH), local(1, PANEL))

    def declared(self) -> list[Stmt]:
        return [Local(m.buffer) for m in (self.v, self.gram, self.inner, self.row)]


def _named(names: Names, value: Expr, over: Index) -> tuple[Let, Read]:
    name = names.let()
    return Let(name, value), Read(name, value.dtype, frozenset(over.vars()))


def reflections(names: Names, work: Workspace, x: Matrix, tau: Matrix, panel: Panel, rows: int) -> list[Stmt]:
    """Replace the panel's columns by reflections, below the diagonal, and R above it, like LAPACK's geqr2."""
    c, i, lane, dtype = names.var(panel.count), names.var(rows), names.var(panel.count), x.buffer.dtype
    step, total = panel.first + index(c), names.let()
    below = call("gt", IndexValue(index(i)), IndexValue(step))
    column = panel.first + index(lane)
    terms = (If(below, (Update(total, (x.load(index(i), step), x.load(index(i), column))),)),)
    acc = Accumulate((Acc(total, "fma", dtype, const(0.0, dtype)),), (Loop("serial", i, terms),))
    found = Read(total, dtype, frozenset((lane,)))
    sums = Loop("vector", lane, (acc, work.row.store(Index(), index(lane), found)))
    return [Loop("serial", c, (sums, *_reflected(names, work.row, x, tau, panel, index(c), rows)))]


def _reflected(names: Names, row: Matrix, x: Matrix, tau: Matrix, panel: Panel, c: Index, rows: int) -> list[Stmt]:
    """Apply step ``c``, for which ``row`` has the column's products with all columns, below the diagonal."""
    step, dtype = panel.first + c, x.buffer.dtype
    zero, one = const(0.0, dtype), const(1.0, dtype)
    first, alpha = _named(names, x.load(step, step), step)
    second, rest = _named(names, row.load(Index(), c), step)
    norm = call("sqrt", call("fma", alpha, alpha, rest))
    none = call("eq", rest, zero)
    third, beta = _named(names, call("select", none, alpha, call("neg", call("copysign", norm, alpha))), step)
    factor = call("select", none, zero, call("div", call("sub", beta, alpha), beta))
    fourth, weight = _named(names, factor, step)
    fifth, scale = _named(names, call("select", none, zero, call("div", one, call("sub", alpha, beta))), step)

    def placed(lane: Index, behind: Expr, here: Expr, before: Expr) -> Expr:
        sides = IndexValue(lane), IndexValue(c)
        return call("select", call("gt", *sides), behind, call("select", call("eq", *sides), here, before))

    lane, over, i = names.var(panel.count), names.var(panel.count), names.var(rows)
    column = panel.first + index(lane)
    have = x.load(step, column)
    product = call("mul", weight, call("fma", row.load(Index(), index(lane)), scale, have))
    name, taken = _named(names, product, step + column)
    top = Loop("vector", lane, (
        name, row.store(Index(), index(lane), taken),
        x.store(step, column, placed(index(lane), call("sub", have, taken), beta, have)),
    ))  # fmt: skip
    at, column = index(i), panel.first + index(over)
    name, v = _named(names, call("mul", x.load(at, step), scale), at + step)
    have = x.load(at, column)
    less = call("fma", call("neg", v), row.load(Index(), index(over)), have)
    others = (name, Loop("vector", over, (x.store(at, column, placed(index(over), less, v, have)),)))
    below = Loop("serial", i, (If(call("gt", IndexValue(at), IndexValue(step)), others),))
    return [first, second, third, fourth, fifth, tau.store(Index(), step, weight), top, below]


def gathered(names: Names, work: Workspace, x: Matrix, panel: Panel, rows: int) -> list[Stmt]:
    """Copy V of a panel into one place, with its ones and zeros, and compute V'V."""
    i, lane, dtype = names.var(rows), names.var(panel.count), x.buffer.dtype
    sides = IndexValue(index(i)), IndexValue(panel.first + index(lane))
    zero, one = const(0.0, dtype), const(1.0, dtype)
    value = call("select", call("gt", *sides), x.load(index(i), panel.first + index(lane)), zero)
    value = call("select", call("eq", *sides), one, value)
    copied = Loop("serial", i, (Loop("vector", lane, (work.v.store(index(i), index(lane), value),)),))
    return [copied, *_products(names, work, work.v, work.gram, panel, rows, Index(), panel.count)]


def _products(
    names: Names, work: Workspace, x: Matrix, target: Matrix, panel: Panel, rows: int, start: Index, width: int
) -> list[Stmt]:
    """V'X for ``width`` columns of X."""
    result: list[Stmt] = []
    dtype = x.buffer.dtype
    for first in range(0, panel.count, TILE):
        height = min(TILE, panel.count - first)
        t, lane, i, total = names.var(height), names.var(width), names.var(rows), names.let()
        place = index(t) + first
        terms = work.v.load(index(i), place), x.load(index(i), start + index(lane))
        within = If(call("ge", IndexValue(index(i)), IndexValue(panel.first)), (Update(total, terms),))
        acc = Accumulate((Acc(total, "fma", dtype, const(0.0, dtype)),), (Loop("serial", i, (within,)),))
        found = Read(total, dtype, frozenset((t, lane)))
        store = target.store(place, index(lane), found)
        result.append(Loop("tile", t, (Loop("vector", lane, (acc, store)),)))
    return result


def applied(
    names: Names, work: Workspace, tau: Matrix, x: Matrix, panel: Panel, rows: int, start: Index, width: int,
    turn: bool, behind: Index | None = None,
) -> list[Stmt]:  # fmt: skip
    """Apply the panel's reflections to ``width`` columns of X, or to those from ``behind`` on: the first reflection
    last, or first if ``turn``."""
    result = _products(names, work, x, work.inner, panel, rows, start, width)
    result += _substituted(names, work, tau, panel, width, turn)
    for p in pieces(rows, HEIGHT):
        number, t, lane = names.var(p.count), names.var(p.length), names.var(width)
        first = p.start(index(number))
        row, column = first + index(t), start + index(lane)
        s, total, dtype = names.var(panel.count), names.let(), x.buffer.dtype
        terms = call("neg", work.v.load(row, index(s))), work.inner.load(index(s), index(lane))
        sums = Loop("serial", s, (Update(total, terms),))
        acc = Accumulate((Acc(total, "fma", dtype, x.load(row, column)),), (sums,))
        where = None if behind is None else call("ge", IndexValue(column), IndexValue(behind))
        store = x.store(row, column, Read(total, dtype, frozenset(x.at(row, column).vars())), where)
        tile = Loop("tile", t, (Loop("vector", lane, (acc, store)),))
        within = call("gt", IndexValue(first + p.length), IndexValue(panel.first))
        result.append(Loop("serial", number, (If(within, (tile,)),)))
    return result


def _substituted(names: Names, work: Workspace, tau: Matrix, panel: Panel, width: int, turn: bool) -> list[Stmt]:
    """Replace V'X by T V'X, or T'V'X if ``turn``: row by row, each minus multiples of those before it, in their
    order."""
    k, s, lane, total, dtype = *(names.var(n) for n in (panel.count, panel.count, width)), names.let(), tau.buffer.dtype
    place, other = (index(v) if turn else index(v) * -1 + (panel.count - 1) for v in (k, s))
    known = call("lt", IndexValue(index(s)), IndexValue(index(k)))
    terms = call("neg", work.gram.load(other, place)), work.inner.load(other, index(lane))
    acc = Accumulate(
        (Acc(total, "fma", dtype, work.inner.load(place, index(lane))),),
        (Loop("serial", s, (If(known, (Update(total, terms),)),)),),
    )
    found = Read(total, dtype, frozenset((k, lane)))
    store = work.inner.store(place, index(lane), call("mul", tau.load(Index(), panel.first + place), found))
    return [Loop("serial", k, (Loop("vector", lane, (acc, store)),))]

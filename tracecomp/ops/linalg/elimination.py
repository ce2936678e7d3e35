"""Loops of triangular solves and of LU: panels of columns, eliminated step by step.

The update of the other columns is a product, computed in register tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tracecomp.ir.immutable import immutable
from tracecomp.ir.index import Index, computed, index
from tracecomp.ir.loops import (
    Acc,
    Accumulate,
    Buffer,
    Expr,
    If,
    IndexValue,
    Let,
    Load,
    Loop,
    Read,
    Stmt,
    Store,
    Update,
    cast,
)
from tracecomp.ir.pieces import pieces
from tracecomp.ir.scalars import call, const
from tracecomp.ir.types import int32, int64
from tracecomp.ops.statements import Names, repeated

# Columns of a panel; rows and columns of a register tile of the update.
PANEL, HEIGHT, WIDTH = 16, 4, 32


@immutable
class Matrix:
    """A matrix in memory: ``at`` is the flat offset of a row and a column."""

    buffer: Buffer
    at: Callable[[Index, Index], Index]

    def load(self, row: Index, column: Index) -> Load:
        return Load(self.buffer, self.at(row, column))

    def store(self, row: Index, column: Index, value: Expr, where: Expr | None = None) -> Store:
        return Store(self.buffer, self.at(row, column), value, where)


@immutable
class Panel:
    """Steps ``first`` to ``first + count - 1``; of the last one, if it is narrow, ``first`` is a constant."""

    first: Index
    count: int

    @property
    def end(self) -> Index:
        return self.first + self.count


def panels(names: Names, steps: int, body: Callable[[Panel], Sequence[Stmt]], back: bool = False) -> list[Stmt]:
    """Emit ``body`` for the full panels of ``steps`` steps, and for a last, narrower one; the last one first if
    ``back``."""
    found: list[Sequence[Stmt]] = []
    for p in pieces(steps, PANEL):
        if p.length < PANEL:
            found.append(body(Panel(Index(const=p.first), p.length)))
        else:
            number = names.var(p.count)
            place = index(number) * -1 + (p.count - 1) if back else index(number)
            found.append([Loop("serial", number, tuple(body(Panel(p.start(place), PANEL))))])
    return [s for part in (reversed(found) if back else found) for s in part]


def strips(names: Names, size: int) -> Iterator[tuple[Index, int, Callable[[Sequence[Stmt]], list[Stmt]]]]:
    """Yield (first column, columns, repetition) of full strips of columns, and of a last, narrower one."""
    return repeated(names, size, WIDTH)


def eliminated(
    names: Names, left: Matrix, target: Matrix, panel: Panel, rows: int, start: Index, width: int,
    divide: Callable[[Expr, Index], Expr], where: Callable[[Index], Expr | None], triangle: bool = False,
) -> list[Stmt]:  # fmt: skip
    """Solve ``width`` columns for a panel: its rows by substitution, then subtract their multiples from all rows below
    it; with ``triangle`` only from those above or on the diagonal."""
    r, lane = names.var(panel.count), names.var(width)
    row, column = panel.first + index(r), start + index(lane)
    reduced, value = _less(names, left, target, panel, row, column, index(r))
    within = (reduced, target.store(row, column, divide(value, row), where(column)))
    result: list[Stmt] = [Loop("serial", r, (Loop("vector", lane, within),))]
    # Full panels end at tile borders, so a last, lower tile is below all of them.
    begin = 0 if panel.first.terms else panel.end.const
    for first, height, repeat in repeated(names, rows - begin, HEIGHT, first=begin):
        t, lane = names.var(height), names.var(width)
        row, column = first + index(t), start + index(lane)
        reduced, value = _less(names, left, target, panel, row, column)
        inner = (reduced, target.store(row, column, value, where(column)))
        tile = Loop("tile", t, (Loop("vector", lane, inner),))
        taken = _taken(panel, first, start + width if triangle else None)
        result.extend(repeat([tile if height < HEIGHT else If(taken, (tile,))]))
    return result


def _less(
    names: Names, left: Matrix, target: Matrix, panel: Panel, row: Index, column: Index, steps: Index | None = None
) -> tuple[Stmt, Expr]:
    """An element minus the multiples of the panel's (first ``steps``) rows, and its name."""
    s, total, dtype = names.var(panel.count), names.let(), target.buffer.dtype
    step = panel.first + index(s)
    body: tuple[Stmt, ...] = (Update(total, (call("neg", left.load(row, step)), target.load(step, column))),)
    if steps is not None:
        body = (If(call("lt", IndexValue(index(s)), IndexValue(steps)), body),)
    over = frozenset(target.at(row, column).vars())
    acc = Acc(total, "fma", dtype, target.load(row, column))
    return Accumulate((acc,), (Loop("serial", s, body),)), Read(total, dtype, over)


def _taken(panel: Panel, first: Index, before: Index | None) -> Expr:
    """Whether the tile with first row ``first`` is below the panel, and begins ``before`` a row."""
    below = call("ge", IndexValue(first), IndexValue(panel.end))
    return below if before is None else call("and", below, call("lt", IndexValue(first), IndexValue(before)))


def largest(names: Names, x: Matrix, start: Index, rows: int, column: Index) -> tuple[Stmt, Index]:
    """The row, not before ``start``, of the first largest absolute value (or NaN) of a column."""
    i, best, place = names.var(rows), names.let(), names.let()
    dtype = x.buffer.dtype
    value, most = call("abs", x.load(index(i), column)), Read(best, dtype)
    more = call("or", call("gt", value, most), call("and", call("isnan", value), call("not", call("isnan", most))))
    take = If(more, (Update(best, (value,)), Update(place, (IndexValue(index(i)),))))
    accs = Acc(best, "set", dtype, const(-1.0, dtype)), Acc(place, "set", int64, IndexValue(start))
    search = If(call("ge", IndexValue(index(i)), IndexValue(start)), (take,))
    return Accumulate(accs, (Loop("serial", i, (search,)),)), computed(Read(place, int64), (0, rows - 1))


def swapped(names: Names, x: Matrix, a: Index, b: Index, width: int, left: Index) -> list[Stmt]:
    """Swap rows ``a`` and ``b`` in ``width`` columns from ``left`` on."""
    result: list[Stmt] = []
    for start, count, repeat in strips(names, width):
        lane, one, other = names.var(count), names.let(), names.let()
        column = left + start + index(lane)
        over = frozenset(column.vars())
        first, second = Read(one, x.buffer.dtype, over), Read(other, x.buffer.dtype, over)
        lets = (Let(one, x.load(a, column)), Let(other, x.load(b, column)))
        result.extend(repeat([Loop("vector", lane, (*lets, x.store(a, column, second), x.store(b, column, first)))]))
    return result


def copied(names: Names, source: Matrix, target: Matrix, rows: int, panel: Panel) -> Stmt:
    """A panel's columns of all rows."""
    row, lane = names.var(rows), names.var(panel.count)
    at = index(row), panel.first + index(lane)
    return Loop("serial", row, (Loop("vector", lane, (target.store(*at, source.load(*at)),)),))


def pivoted(names: Names, x: Matrix, whole: Matrix, pivots: Matrix, panel: Panel, rows: int, width: int) -> list[Stmt]:
    """Factor a panel ``x`` of LU: swap a row with the largest element to the top, and subtract its multiples from the
    rows below. Rows are swapped in the panel and in the ``whole`` matrix of ``width`` columns."""
    c, i, pivot, dtype = names.var(panel.count), names.var(rows), names.let(), x.buffer.dtype
    step, row = panel.first + index(c), index(i)
    search, found = largest(names, x, step, rows, step)
    note = pivots.store(Index(), step, cast(IndexValue(found + 1), int32))
    parts = ((x, panel.count, panel.first), (whole, width, Index()))
    moved = tuple(stmt for part, count, left in parts for stmt in swapped(names, part, step, found, count, left))
    swap = If(call("ne", IndexValue(found), IndexValue(step)), moved)
    top = Let(pivot, x.load(step, step))
    below = _row_less(names, x, panel, index(c), row, Read(pivot, dtype, frozenset(x.at(step, step).vars())))
    rest = Loop("serial", i, (If(call("gt", IndexValue(row), IndexValue(step)), tuple(below)),))
    return [Loop("serial", c, (search, note, swap, top, rest))]


def _row_less(names: Names, x: Matrix, panel: Panel, c: Index, row: Index, pivot: Expr) -> list[Stmt]:
    """Update a row's part in the panel: the factor at position ``c``, after it the row minus that multiple of the row
    of step c.

    The part is stored as one vector, because loads of vectors have to wait for single elements stored earlier.
    """
    lane, by, dtype, step = names.var(panel.count), names.let(), x.buffer.dtype, panel.first + c
    divisor = call("select", call("eq", pivot, const(0.0, dtype)), const(1.0, dtype), pivot)
    factor = Read(by, dtype, frozenset(x.at(row, step).vars()))
    place = panel.first + index(lane)
    here, above = x.load(row, place), x.load(step, place)
    less = call("fma", call("neg", factor), above, here)
    sides = IndexValue(index(lane)), IndexValue(c)
    value = call("select", call("eq", *sides), factor, call("select", call("gt", *sides), less, here))
    return [Let(by, call("div", x.load(row, step), divisor)), Loop("vector", lane, (x.store(row, place, value),))]

"""What transformed tiles of 3x3 convolutions are made of: sums and differences of a few vectors, F(2x2, 3x3).

A tile of results is ``A^T ((G w G^T) * (B^T d B)) A``, of 4x4 elements ``d`` and weights ``w``; the gradient of the
weights is the sum over tiles of ``G^T ((A y A^T) * (B^T d B)) G``, of 2x2 elements ``y`` of the result's gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from tracecomp.ir.index import Index, Var
from tracecomp.ir.loops import Call, Const, Expr, Let, Read, Stmt
from tracecomp.ir.types import DType
from tracecomp.passes.bilinear import Operand
from tracecomp.passes.rename import Copier


class Terms:
    """Statements on values along ``lane`` that grow term by term."""

    def __init__(self, dtype: DType, lane: Var) -> None:
        self.dtype, self.lane = dtype, lane
        self.stmts: list[Stmt] = []

    def let(self, value: Expr) -> Expr:
        name = f"w{len(self.stmts)}"
        self.stmts.append(Let(name, value))
        return self.read(name)

    def read(self, name: str) -> Expr:
        return Read(name, self.dtype, frozenset((self.lane,)))

    def add(self, a: Expr, b: Expr) -> Expr:
        return self.let(Call("add", (a, b), self.dtype))

    def sub(self, a: Expr, b: Expr) -> Expr:
        return self.let(Call("sub", (a, b), self.dtype))

    def half(self, a: Expr) -> Expr:
        return self.let(Call("mul", (a, Const(0.5, self.dtype)), self.dtype))

    def element(self, operand: Operand, at: dict[Var, Index], exists: Expr | None = None) -> Expr:
        """The operand's element at a place, zero where it does not exist."""
        copier = Copier(at, f"_{len(self.stmts)}")
        self.stmts.extend(copier.stmts(operand.stmts))
        value = copier.expr(operand.expr)
        return self.let(Call("select", (exists, value, Const(0.0, self.dtype)), self.dtype) if exists else value)


Transform = Callable[[Terms, Sequence[Expr]], Sequence[Expr]]


def of_input(t: Terms, d: Sequence[Expr]) -> Sequence[Expr]:
    """B^T"""
    return t.sub(d[0], d[2]), t.add(d[1], d[2]), t.sub(d[2], d[1]), t.sub(d[3], d[1])


def of_weights(t: Terms, w: Sequence[Expr]) -> Sequence[Expr]:
    """G"""
    outer = t.add(w[0], w[2])
    return w[0], t.half(t.add(outer, w[1])), t.half(t.sub(outer, w[1])), w[2]


def to_weights(t: Terms, m: Sequence[Expr]) -> Sequence[Expr]:
    """G^T"""
    outer = t.half(t.add(m[1], m[2]))
    return t.add(m[0], outer), t.half(t.sub(m[1], m[2])), t.add(outer, m[3])


def of_results(t: Terms, y: Sequence[Expr]) -> Sequence[Expr]:
    """A"""
    return y[0], t.add(y[0], y[1]), t.sub(y[0], y[1]), y[1]


def to_results(t: Terms, m: Sequence[Expr]) -> Sequence[Expr]:
    """A^T"""
    return t.add(t.add(m[0], m[1]), m[2]), t.add(t.sub(m[1], m[2]), m[3])


def both_ways(t: Terms, transform: Transform, square: Iterable[Sequence[Expr]]) -> list[Expr]:
    """A square of values transformed column by column, then row by row; its rows one after the other."""
    columns = [transform(t, column) for column in zip(*square, strict=True)]
    return list(chain(*(transform(t, row) for row in zip(*columns, strict=True))))

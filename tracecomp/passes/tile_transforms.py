"""Two neighbouring results of a convolution along one axis from fewer products than one by one: F(2, n) of Winograd.

What the results see and the weights are transformed by sums and differences, multiplied place by place, and what that
gives is transformed back. Windows that move several places at once see each remainder of the place by windows of their
own, which move by one; the results of these are added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

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
        return Read(name, self.dtype, frozenset((self.lane,)))

    def add(self, a: Expr, b: Expr) -> Expr:
        return self.let(Call("add", (a, b), self.dtype))

    def sub(self, a: Expr, b: Expr) -> Expr:
        return self.let(Call("sub", (a, b), self.dtype))

    def half(self, a: Expr) -> Expr:
        return self.let(Call("mul", (a, Const(0.5, self.dtype)), self.dtype))

    def element(self, operand: Operand, at: dict[Var, Index]) -> Expr:
        """The operand's element at a place."""
        copier = Copier(at, f"_{len(self.stmts)}")
        self.stmts.extend(copier.stmts(operand.stmts))
        return self.let(copier.expr(operand.expr))


Transform = Callable[[Terms, Sequence[Expr]], Sequence[Expr]]


@dataclass(frozen=True)
class Form:
    """Two results that see ``seen`` elements together, by products at ``places``."""

    seen: int
    places: int
    of_weights: Transform
    of_input: Transform
    of_products: Transform


def _same(t: Terms, values: Sequence[Expr]) -> Sequence[Expr]:
    return values


def _twice(t: Terms, g: Sequence[Expr]) -> Sequence[Expr]:
    return g[0], g[0]


def _two_weights(t: Terms, g: Sequence[Expr]) -> Sequence[Expr]:
    return g[0], t.add(g[0], g[1]), g[1]


def _seen_by_two(t: Terms, d: Sequence[Expr]) -> Sequence[Expr]:
    return t.sub(d[0], d[1]), d[1], t.sub(d[2], d[1])


def _products_of_two(t: Terms, m: Sequence[Expr]) -> Sequence[Expr]:
    return t.add(m[0], m[1]), t.add(m[1], m[2])


def _three_weights(t: Terms, g: Sequence[Expr]) -> Sequence[Expr]:
    outer = t.add(g[0], g[2])
    return g[0], t.half(t.add(outer, g[1])), t.half(t.sub(outer, g[1])), g[2]


def _seen_by_three(t: Terms, d: Sequence[Expr]) -> Sequence[Expr]:
    return t.sub(d[0], d[2]), t.add(d[1], d[2]), t.sub(d[2], d[1]), t.sub(d[1], d[3])


def _products_of_three(t: Terms, m: Sequence[Expr]) -> Sequence[Expr]:
    return t.add(t.add(m[0], m[1]), m[2]), t.sub(t.sub(m[1], m[2]), m[3])


_FORMS = {
    1: Form(2, 2, _twice, _same, _same),
    2: Form(3, 3, _two_weights, _seen_by_two, _products_of_two),
    3: Form(4, 4, _three_weights, _seen_by_three, _products_of_three),
}


def form_of(window: int, stride: int) -> Form | None:
    """The form for windows of so many places that move by ``stride``; None if there is none."""
    parts = [_FORMS.get(len(range(r, window, stride))) for r in range(stride)]
    known = [part for part in parts if part]
    if len(known) < stride:
        return None

    def of_weights(t: Terms, g: Sequence[Expr]) -> Sequence[Expr]:
        return [v for r, part in enumerate(known) for v in part.of_weights(t, g[r::stride])]

    def of_input(t: Terms, d: Sequence[Expr]) -> Sequence[Expr]:
        return [v for r, part in enumerate(known) for v in part.of_input(t, d[r::stride])]

    def of_products(t: Terms, m: Sequence[Expr]) -> Sequence[Expr]:
        at, total = known[0].places, known[0].of_products(t, m)
        for part in known[1:]:
            made = part.of_products(t, m[at : at + part.places])
            at, total = at + part.places, [t.add(a, b) for a, b in zip(total, made, strict=True)]
        return total

    return Form(window + stride, sum(part.places for part in known), of_weights, of_input, of_products)


def along_each(
    t: Terms, transforms: Iterable[tuple[int, Transform]], values: Sequence[Expr]
) -> Sequence[Expr]:
    """Values in row-major order, so many along each axis, transformed along one axis after the other."""
    (count, transform), *rest = transforms
    size = len(values) // count
    lines = zip(*(values[n * size : (n + 1) * size] for n in range(count)), strict=True)
    turned = zip(*(transform(t, line) for line in lines), strict=True)
    return [v for slab in turned for v in (along_each(t, rest, slab) if rest else slab)]

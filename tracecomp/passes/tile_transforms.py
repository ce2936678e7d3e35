"""Two neighbouring results of a convolution along one axis from fewer products than one by one: F(2, n) of Winograd.

Results are ``A^T ((G w) * (B^T d))``, of the elements ``d`` that they see and the weights ``w``: transformed by sums
and differences, multiplied place by place, and transformed back. The gradient of the weights is the sum over all pairs
of ``G^T ((A y) * (B^T d))``, of the results' gradient ``y``. Windows that move several places at once see each
remainder of the place by windows of their own, which move by one; the results of these are added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

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


@dataclass(frozen=True)
class Form:
    """Two results that see ``seen`` elements together, by products at ``places``."""

    seen: int
    places: int
    of_weights: Transform
    """G"""
    of_input: Transform
    """B^T"""
    of_results: Transform
    """A"""
    to_results: Transform
    """A^T"""
    to_weights: Transform
    """G^T"""


def _same(t: Terms, values: Sequence[Expr]) -> Sequence[Expr]:
    return values


def _one() -> Form:
    def of_weights(t: Terms, w: Sequence[Expr]) -> Sequence[Expr]:
        return w[0], w[0]

    def to_weights(t: Terms, m: Sequence[Expr]) -> Sequence[Expr]:
        return (t.add(m[0], m[1]),)

    return Form(2, 2, of_weights, _same, _same, _same, to_weights)


def _two() -> Form:
    def of_weights(t: Terms, w: Sequence[Expr]) -> Sequence[Expr]:
        return w[0], t.add(w[0], w[1]), w[1]

    def of_input(t: Terms, d: Sequence[Expr]) -> Sequence[Expr]:
        return t.sub(d[0], d[1]), d[1], t.sub(d[2], d[1])

    def sums(t: Terms, m: Sequence[Expr]) -> Sequence[Expr]:
        return t.add(m[0], m[1]), t.add(m[1], m[2])

    return Form(3, 3, of_weights, of_input, of_weights, sums, sums)


def _three() -> Form:
    def of_weights(t: Terms, w: Sequence[Expr]) -> Sequence[Expr]:
        outer = t.add(w[0], w[2])
        return w[0], t.half(t.add(outer, w[1])), t.half(t.sub(outer, w[1])), w[2]

    def of_input(t: Terms, d: Sequence[Expr]) -> Sequence[Expr]:
        return t.sub(d[0], d[2]), t.add(d[1], d[2]), t.sub(d[2], d[1]), t.sub(d[3], d[1])

    def of_results(t: Terms, y: Sequence[Expr]) -> Sequence[Expr]:
        return y[0], t.add(y[0], y[1]), t.sub(y[0], y[1]), y[1]

    def to_results(t: Terms, m: Sequence[Expr]) -> Sequence[Expr]:
        return t.add(t.add(m[0], m[1]), m[2]), t.add(t.sub(m[1], m[2]), m[3])

    def to_weights(t: Terms, m: Sequence[Expr]) -> Sequence[Expr]:
        outer = t.half(t.add(m[1], m[2]))
        return t.add(m[0], outer), t.half(t.sub(m[1], m[2])), t.add(outer, m[3])

    return Form(4, 4, of_weights, of_input, of_results, to_results, to_weights)


_FORMS = {1: _one(), 2: _two(), 3: _three()}


def form_of(window: int, stride: int) -> Form | None:
    """The form for windows of so many places that move by ``stride``; None if there is none."""
    parts = [_FORMS.get(len(range(r, window, stride))) for r in range(stride)]
    known = [part for part in parts if part]
    return _together(known, window) if len(known) == stride else None


def _together(parts: Sequence[Form], window: int) -> Form:
    """The form of windows whose places modulo the number of ``parts`` have these."""
    stride = len(parts)
    places = sum(part.places for part in parts)

    def apart(m: Sequence[Expr]) -> list[Sequence[Expr]]:
        ends = list(accumulate(part.places for part in parts))
        return [m[end - part.places : end] for part, end in zip(parts, ends, strict=True)]

    def of_weights(t: Terms, w: Sequence[Expr]) -> Sequence[Expr]:
        return [v for r, part in enumerate(parts) for v in part.of_weights(t, w[r::stride])]

    def of_input(t: Terms, d: Sequence[Expr]) -> Sequence[Expr]:
        return [v for r, part in enumerate(parts) for v in part.of_input(t, d[r::stride])]

    def of_results(t: Terms, y: Sequence[Expr]) -> Sequence[Expr]:
        return [v for part in parts for v in part.of_results(t, y)]

    def to_results(t: Terms, m: Sequence[Expr]) -> Sequence[Expr]:
        total, *others = (part.to_results(t, own) for part, own in zip(parts, apart(m), strict=True))
        for made in others:
            total = [t.add(a, b) for a, b in zip(total, made, strict=True)]
        return total

    def to_weights(t: Terms, m: Sequence[Expr]) -> Sequence[Expr]:
        made = [part.to_weights(t, own) for part, own in zip(parts, apart(m), strict=True)]
        return [made[k % stride][k // stride] for k in range(window)]

    return Form(window + stride, places, of_weights, of_input, of_results, to_results, to_weights)


def along_each(t: Terms, transforms: Iterable[tuple[int, Transform]], values: Sequence[Expr]) -> Sequence[Expr]:
    """Values in row-major order, so many along each axis, transformed along one axis after the other."""
    (count, transform), *rest = transforms
    size = len(values) // count
    lines = zip(*(values[n * size : (n + 1) * size] for n in range(count)), strict=True)
    turned = zip(*(transform(t, line) for line in lines), strict=True)
    return [v for slab in turned for v in (along_each(t, rest, slab) if rest else slab)]

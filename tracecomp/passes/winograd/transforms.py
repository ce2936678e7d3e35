"""F(2, n) of Winograd: two neighbouring results of a convolution along one axis from fewer products than one by one.

Results are ``A^T ((G w) * (B^T d))``, of the elements ``d`` that they read and the weights ``w``. Both are transformed
by sums and differences, multiplied elementwise, and transformed back. The gradient of the weights is the sum over all
pairs of ``G^T ((A y) * (B^T d))``, with the results' gradient ``y``. Windows with a stride are split by the remainder
of the position; each part moves by one. Longer windows are split into consecutive pieces, whose results are added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tracecomp.ir.index import Index, Var
from tracecomp.ir.loop_copy import Copier
from tracecomp.ir.loops import Call, Const, Expr, Let, Read, Stmt
from tracecomp.ir.types import DType
from tracecomp.passes.cost.reference import LONGEST_PIECE
from tracecomp.passes.nests.contraction_nest import Operand


class Terms:
    """Statements on values along ``lane``, to which terms are appended."""

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
        # A half is exact, so scaling by it rounds only numbers too small to be normal.
        return self.let(Call("mul", (a, Const(0.5, self.dtype)), self.dtype))

    def element(self, operand: Operand, at: dict[Var, Index], exists: Expr | None = None) -> Expr:
        """Return the operand's element at a position, zero if it does not exist."""
        copier = Copier(at, f"_{len(self.stmts)}")
        self.stmts.extend(copier.stmts(operand.stmts))
        value = copier.expr(operand.expr)
        # A select and not a masked load: the address is valid, and the value is ignored.
        return self.let(Call("select", (exists, value, Const(0.0, self.dtype)), self.dtype) if exists else value)


Transform = Callable[[Terms, Sequence[Expr]], Sequence[Expr]]


@dataclass(frozen=True)
class Form:
    """Two results that read ``seen`` elements together, from products at ``places``."""

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
        # One place: F(2, 1) is the plain product, twice.
        return w[0], w[0]

    def to_weights(t: Terms, m: Sequence[Expr]) -> Sequence[Expr]:
        return (t.add(m[0], m[1]),)

    return Form(2, 2, of_weights, _same, _same, _same, to_weights)


def _two() -> Form:
    def of_weights(t: Terms, w: Sequence[Expr]) -> Sequence[Expr]:
        # F(2, 2): three products instead of four.
        return w[0], t.add(w[0], w[1]), w[1]

    def of_input(t: Terms, d: Sequence[Expr]) -> Sequence[Expr]:
        # Signs are chosen so that all other transforms are sums.
        return t.sub(d[0], d[1]), d[1], t.sub(d[2], d[1])

    def sums(t: Terms, m: Sequence[Expr]) -> Sequence[Expr]:
        return t.add(m[0], m[1]), t.add(m[1], m[2])

    return Form(3, 3, of_weights, of_input, of_weights, sums, sums)


def _three() -> Form:
    def of_weights(t: Terms, w: Sequence[Expr]) -> Sequence[Expr]:
        # F(2, 3): four products instead of six, by the points 0, 1, -1 and infinity. Halves are in the transform of the
        # weights, which can be prepacked.
        outer = t.add(w[0], w[2])
        return w[0], t.half(t.add(outer, w[1])), t.half(t.sub(outer, w[1])), w[2]

    def of_input(t: Terms, d: Sequence[Expr]) -> Sequence[Expr]:
        return t.sub(d[0], d[2]), t.add(d[1], d[2]), t.sub(d[2], d[1]), t.sub(d[3], d[1])

    def of_results(t: Terms, y: Sequence[Expr]) -> Sequence[Expr]:
        # The transpose of ``to_results``, as gradients use the same products backwards.
        return y[0], t.add(y[0], y[1]), t.sub(y[0], y[1]), y[1]

    def to_results(t: Terms, m: Sequence[Expr]) -> Sequence[Expr]:
        return t.add(t.add(m[0], m[1]), m[2]), t.add(t.sub(m[1], m[2]), m[3])

    def to_weights(t: Terms, m: Sequence[Expr]) -> Sequence[Expr]:
        # The transpose of ``of_weights``.
        outer = t.half(t.add(m[1], m[2]))
        return t.add(m[0], outer), t.half(t.sub(m[1], m[2])), t.add(outer, m[3])

    return Form(4, 4, of_weights, of_input, of_results, to_results, to_weights)


_FORMS = {1: _one(), 2: _two(), 3: _three()}
"""By the positions of a piece."""


def form_of(window: int, stride: int) -> Form:
    """Return the form for windows of that many positions with a ``stride``: short pieces of each remainder modulo
    it."""
    # Remainders first: a window with a stride reads each remainder of the position like a window of stride 1.
    pieces = [piece for r in range(stride) for piece in _pieces(range(r, window, stride))]
    forms = [_FORMS[len(piece)] for piece in pieces]
    ends = list(accumulate(form.places for form in forms))

    def of_weights(t: Terms, w: Sequence[Expr]) -> Sequence[Expr]:
        return [v for piece, form in zip(pieces, forms, strict=True) for v in form.of_weights(t, [w[k] for k in piece])]

    def of_input(t: Terms, d: Sequence[Expr]) -> Sequence[Expr]:
        # Each piece and one more element, which the second result reads.
        seen = [[d[k] for k in (*piece, piece[-1] + stride)] for piece in pieces]
        return [v for own, form in zip(seen, forms, strict=True) for v in form.of_input(t, own)]

    def of_results(t: Terms, y: Sequence[Expr]) -> Sequence[Expr]:
        return [v for form in forms for v in form.of_results(t, y)]

    def apart(m: Sequence[Expr]) -> list[Sequence[Expr]]:
        return [m[end - form.places : end] for form, end in zip(forms, ends, strict=True)]

    def to_results(t: Terms, m: Sequence[Expr]) -> Sequence[Expr]:
        total, *others = (form.to_results(t, own) for form, own in zip(forms, apart(m), strict=True))
        # Results of pieces are added in their order, which belongs to the order of sums.
        for made in others:
            total = [t.add(a, b) for a, b in zip(total, made, strict=True)]
        return total

    def to_weights(t: Terms, m: Sequence[Expr]) -> Sequence[Expr]:
        made = [form.to_weights(t, own) for form, own in zip(forms, apart(m), strict=True)]
        each = {k: v for piece, values in zip(pieces, made, strict=True) for k, v in zip(piece, values, strict=True)}
        return [each[k] for k in range(window)]

    return Form(window + stride, ends[-1], of_weights, of_input, of_results, to_results, to_weights)


def _pieces(places: Sequence[int]) -> Iterator[Sequence[int]]:
    """Split into the fewest pieces of up to three positions, of about the same length."""
    # Equal pieces round less than a long and a short one.
    count = -(-len(places) // LONGEST_PIECE)
    return (places[len(places) * n // count : len(places) * (n + 1) // count] for n in range(count))


def along_each(t: Terms, transforms: Iterable[tuple[int, Transform]], values: Sequence[Expr]) -> Sequence[Expr]:
    """Values in row-major order, so many along each axis, transformed along one axis after the other."""
    (count, transform), *rest = transforms
    size = len(values) // count
    # Axis by axis: lines along the first, then the same for each transformed slab.
    lines = zip(*(values[n * size : (n + 1) * size] for n in range(count)), strict=True)
    turned = zip(*(transform(t, line) for line in lines), strict=True)
    return [v for slab in turned for v in (along_each(t, rest, slab) if rest else slab)]

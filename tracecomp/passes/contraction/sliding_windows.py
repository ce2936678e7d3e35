"""Unrolled windows that slide along the rows of a register tile: every vector that rows share is loaded once.

Terms that padding makes zero are left out: at compile time if the condition is known, otherwise by a branch. Loops over
summed variables are split where such conditions change, as long as the code stays short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import groupby, pairwise, product

from tracecomp.ir.index import Index, Var, index
from tracecomp.ir.loop_copy import Copier
from tracecomp.ir.loops import Accumulate, Const, Expr, If, Stmt, Update, walk
from tracecomp.passes.contraction.tile_choice import rows_apart, tiles_of
from tracecomp.passes.contraction.tile_schedule import TileSchedule
from tracecomp.passes.cost.reference import REFERENCE, UPDATES_ASKED
from tracecomp.passes.nests.contraction_nest import ACCUMULATOR, BilinearNest
from tracecomp.passes.nests.peeling import Folding, boundaries
from tracecomp.passes.schedule.tiling import loops


@dataclass(frozen=True)
class _Term:
    """Statements that add a term, which is zero unless all ``conditions`` hold; none of these varies over lanes."""

    conditions: tuple[Expr, ...]
    stmts: tuple[Stmt, ...]


@dataclass(frozen=True)
class _Piece:
    """A summed variable from ``low`` on, for all values of ``place``."""

    var: Var
    place: Var
    low: int

    @property
    def names(self) -> list[Var]:
        """The variable of its loop, if it needs one."""
        return [self.place] if self.place.extent > 1 else []

    @property
    def at(self) -> Index:
        return sum(map(index, self.names), Index((), self.low))


_Terms = Callable[[Sequence[_Piece]], list[_Term]]


def written_out(nest: BilinearNest) -> bool:
    """Whether the rows of a tile are unrolled: windows slide along them, or few conditions leave out padding.

    Leaving out terms of padding changes bits if a weight is infinite (no NaN is added). The reference machine decides,
    whatever the tiles of the actual machine.
    """
    tiles = tiles_of(nest, REFERENCE)
    # The panel of a packed operand contains its zeros, so it needs no conditions.
    packed = nest.b_operand(tiles.vector) if tiles.pack != "no" else None
    conditions = [c for operand in (nest.lhs, nest.rhs) if operand is not packed for c in operand.conditions]
    # A condition that varies over lanes cannot leave out a term for all of them.
    beside = any(tiles.vector in c.vars() for c in conditions)
    if tiles.tile is None or not conditions or (beside and not tiles.window):
        return bool(tiles.window)
    steps = tiles.tile.extent // tiles.height
    first = index(Var("step", steps)) * tiles.height if steps > 1 else Index()
    at = {tiles.vector: index(Var("lane", tiles.width)), tiles.tile: first}
    # Unroll on trial: only then are the numbers of conditions and updates known.
    stmts = sliding(nest, tiles, at, tiles.height, "")
    asked, added = (sum(isinstance(s, kind) for s in walk(stmts)) for kind in (If, Update))
    return asked * UPDATES_ASKED <= added


def sliding(
    nest: BilinearNest, tiles: TileSchedule, mapping: dict[Var, Index], height: int, suffix: str
) -> tuple[Stmt, ...]:
    """Return the rows by terms, in order of the position that is read; each row's terms keep their order.

    ``mapping`` says where the lanes and the first of the ``height`` rows are; names end in ``suffix``.
    """
    assert tiles.tile is not None
    short = tiles.unrolled
    # An unrolled variable's values are further rows, at equal column positions.
    beside: list[dict[Var, Index]] = [{short: Index((), m)} for m in range(short.extent)] if short else [{}]
    rows = [
        (n, Copier({**mapping, tiles.tile: mapping[tiles.tile] + n, **at}, f"{suffix}_{n}_{m}"))
        for n in range(height)
        for m, at in enumerate(beside)
    ]
    sums = [copier.stmt(Accumulate((nest.accumulator(),), ())) for _, copier in rows]
    # Positions by which the window moves from one row to the next.
    apart = rows_apart(nest, tiles.vector, tiles.tile, tiles.window[0]) if tiles.window else 0
    lanes = mapping[tiles.vector].vars()

    def terms(pieces: Sequence[_Piece]) -> list[_Term]:
        found = []
        around = {piece.var: piece.at for piece in pieces}
        ending = "".join(f"_{piece.low}" for piece in pieces)
        for place in product(*(range(v.extent) for v in tiles.window)):
            within = {v: Index((), k) for v, k in zip(tiles.window, place, strict=True)}
            for n, copier in rows:
                own = Folding({**copier.mapping, **around, **within}, copier.suffix + ending + _ending(place))
                own.names = dict(copier.names)
                term = _term(nest, own, lanes)
                if term is not None:
                    # Sorted by the position that is read, so that terms which read the same vector are adjacent and
                    # load it once. Terms of one row keep their order: a later position of its window is later in
                    # memory.
                    found.append(((apart * n + sum(place[:1]), place[1:], n), term))
        return [term for _, term in sorted(found, key=lambda t: t[0])]

    body = _summed(nest.reduce[: len(nest.reduce) - len(tiles.window)], terms, tiles.written_terms)
    accs = tuple(a for s in sums if isinstance(s, Accumulate) for a in s.accs)
    return (Accumulate(accs, body), *(s for _, copier in rows for s in copier.stmts(nest.epilogue)))


def _ending(place: Sequence[int]) -> str:
    return "".join(f"_{k}" for k in place)


def _term(nest: BilinearNest, own: Folding, lanes: Set[Var]) -> _Term | None:
    """Return the term of the operands, renamed by ``own``; None when it is zero."""
    found = [own.expr(c) for operand in (nest.lhs, nest.rhs) for c in operand.conditions]
    # A condition that is known to fail means that the operand is padding here: the term would add zero.
    if any(isinstance(c, Const) and not c.value for c in found):
        return None
    # Conditions over lanes stay masks of the loads. Others, that a loop's
    # variable decides, become an ``if`` around the term.
    conditions = tuple(c for c in dict.fromkeys(found) if not isinstance(c, Const) and lanes.isdisjoint(c.vars()))
    # The ``if`` guarantees them, so that loads need no mask for them.
    own.holding.update(conditions)
    update = Update(ACCUMULATOR, (nest.lhs.expr, nest.rhs.expr))
    return _Term(conditions, own.stmts((*nest.lhs.stmts, *nest.rhs.stmts, update)))


def _summed(outer: Sequence[Var], terms: _Terms, most: int) -> tuple[Stmt, ...]:
    """The terms for all values of the ``outer`` variables, in pieces of together at most ``most`` terms."""
    plain = terms(())
    conditions = {c for term in plain for c in term.conditions}
    # Cut where some condition changes: in each piece more of them are known.
    cuts = [[0, *boundaries(v, conditions), v.extent] for v in outer]
    parts = [
        [_Piece(v, Var(f"{v.name}_{low}", high - low), low) for low, high in pairwise(ends)]
        for v, ends in zip(outer, cuts, strict=True)
    ]
    if all(len(pieces) == 1 for pieces in parts):
        return loops("serial", outer, tuple(_skipping(plain)))
    found = {pieces: terms(pieces) for pieces in product(*parts)}
    # Unrolling so many terms takes long to compile; one loop with conditions is used instead.
    if sum(map(len, found.values())) > most:
        return loops("serial", outer, tuple(_skipping(plain)))
    return _in_pieces(parts, (), found)


def _in_pieces(
    parts: Sequence[Sequence[_Piece]], chosen: tuple[_Piece, ...], found: dict[tuple[_Piece, ...], list[_Term]]
) -> tuple[Stmt, ...]:
    """The terms for all values of the variables of ``parts``, in pieces, for the ``chosen`` pieces of those before."""
    if not parts:
        return tuple(_skipping(found[chosen]))
    result: tuple[Stmt, ...] = ()
    for piece in parts[0]:
        result += loops("serial", piece.names, _in_pieces(parts[1:], (*chosen, piece), found))
    return result


def _skipping(terms: Sequence[_Term], known: Set[Expr] = frozenset()) -> Iterator[Stmt]:
    """Emit the terms in order, each under its conditions; neighbours share the conditions that they have in common."""

    def asked(term: _Term) -> Expr | None:
        return next((c for c in term.conditions if c not in known), None)

    # Neighbours with the same condition share one ``if``; their order is not changed.
    for condition, run in groupby(terms, asked):
        if condition is None:
            yield from (s for term in run for s in term.stmts)
        else:
            yield If(condition, tuple(_skipping(list(run), known | {condition})))

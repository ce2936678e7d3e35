"""Contractions by register tiles: a tile of rows by SIMD lanes of the result, the sum inside, one FMA per term.

The packed operand comes first, then rectangles of blocks of register tiles.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product

from tracecomp.ir.index import Index, Var, index, linear, unravel
from tracecomp.ir.loops import Acc, Accumulate, Buffer, Const, Let, Load, Local, Loop, Read, Stmt, Store, Update
from tracecomp.passes.bilinear import ACCUMULATOR, BilinearNest, Operand
from tracecomp.passes.nest import identity
from tracecomp.passes.rename import Copier
from tracecomp.passes.schedule import strip, tiles
from tracecomp.passes.split_vars import merge_vars, merged
from tracecomp.passes.stages import Stages

PARALLEL_WORK = 1 << 22  # multiply-adds, 80 us: see schedule.PARALLEL_WORK
WANTED_BLOCKS = 16
UNROLLED_TERMS = 4
PACK_CHUNK = 16

ROW = Var("row", 1)
LANE = Var("lane", 1)


@dataclass(frozen=True)
class Plan:
    """The choice for one nest: lanes over ``vector``, a tile of ``tile``, ``packed`` the operand copied to a panel.

    ``whole`` is a second, short variable that joins the tile as a whole where the first alone leaves registers idle.
    ``window``: summed variables along which neighbouring rows of the tile read the same vectors, written out so that
    each is loaded once.
    """

    vector: Var | None
    tile: Var | None
    width: int
    height: int
    packed: str = ""
    whole: Var | None = None
    window: tuple[Var, ...] = ()
    stages: Stages | None = None


class Tiled:
    """Emits the register-tiled form: the packed operand first, then rectangles of blocks of register tiles."""

    def __init__(self, nest: BilinearNest, plan: Plan) -> None:
        self.nest, self.plan = nest, plan
        assert plan.vector is not None
        self.vector = plan.vector
        self.tile = plan.tile
        others = [v for v in nest.out if v not in (plan.vector, plan.tile, plan.whole)]
        self.inner = [v for v in others if plan.stages and not (nest.lhs.depends(v) and nest.rhs.depends(v))]
        self.others = [v for v in others if v not in self.inner]
        self.chunks, self.rest = divmod(self.vector.extent, plan.width)
        rows = self.tile.extent if self.tile else 1
        self.steps, self.rows_rest = divmod(rows, plan.height)
        self.terms = product_of(nest.reduce)
        self.moving = nest.rhs if plan.packed == "rhs" else nest.lhs
        around = () if self.moving.inside else nest.outside
        self.panel_others = [v for v in (*around, *others) if self.moving.depends(v)] if plan.packed else []
        self.copies = 0

    def columns(self) -> list[_Columns]:
        """Whole chunks of lanes, and the remaining lanes."""
        columns = [_Columns(self.chunks, 0, self.plan.width)] if self.chunks else []
        if self.rest:
            columns.append(_Columns(1, self.chunks * self.plan.width, self.rest))
        return columns

    def packing(self) -> tuple[Stmt, ...]:
        """The moving operand copied into panels, when the plan asks for it."""
        return tuple(s for c in self.columns() for s in self._pack(c)) if self.plan.packed else ()

    def emit(self) -> tuple[Stmt, ...]:
        """Whole and remaining lanes, by blocks of rows and the remaining rows."""
        outer = product_of(self.others)
        blocks = self._row_blocks(outer * (self.chunks + bool(self.rest)))
        steps = self.steps // blocks
        rows = [(blocks, 0, steps, False)] if blocks > 1 else []
        done = blocks * steps if blocks > 1 else 0
        if self.steps > done or self.rows_rest or not rows:
            rows.append((1, done, self.steps - done, bool(self.rows_rest)))
        return tuple(s for c in self.columns() for r in rows for s in self._rectangle(outer, c, r))

    def _rectangle(self, outer: int, columns: _Columns, rows: tuple[int, int, int, bool]) -> tuple[Stmt, ...]:
        """All blocks of one shape, numbered by one variable that threads share out."""
        blocks, first_step, steps, with_rest = rows
        total = outer * columns.count * blocks
        block = Var("block", total)
        at = index(block) if total > 1 else Index()
        if self.plan.packed:  # threads then read the columns of the panel that they have packed
            step, at = at % blocks, at // blocks
            column, at = at % columns.count, at // columns.count
        else:
            column, at = at % columns.count, at // columns.count
            step, at = at % blocks, at // blocks
        step = step * steps + first_step
        mapping = _positions(self.others, at)
        body = Copier(mapping).stmts(self._block(columns, column, step, steps, with_rest))
        parallel = total > 1 and self.nest.work >= PARALLEL_WORK
        return (Loop("parallel" if parallel else "serial", block, body),) if total > 1 else body

    def _row_blocks(self, others: int) -> int:
        """Into how many blocks the tile's variable is cut, so that threads find enough to share."""
        inner = product_of(self.inner)
        if self.nest.work < PARALLEL_WORK or others >= WANTED_BLOCKS or self.steps * inner < 8:
            return 1
        return max(1, min(-(-WANTED_BLOCKS // others), self.steps * inner // 4, self.steps))

    def _block(self, columns: _Columns, column: Index, first: Index, steps: int, with_rest: bool) -> tuple[Stmt, ...]:
        """``steps`` register tiles below each other, from step ``first``, for all values of the inner variables."""
        stages = self.plan.stages
        if stages is None:
            return self._tiles(self.nest, columns, column, first, steps, with_rest)
        nest = self.nest
        rows = Var("row", steps * self.plan.height + self.rows_rest * with_rest)
        totals = Buffer(self._name("totals"), nest.acc.dtype, product_of(self.inner) * rows.extent * columns.width)
        at = linear([index(v) for v in (*self.inner, ROW, LANE)], [*(v.extent for v in self.inner), rows.extent, columns.width])
        lane = Var("lane", columns.width)
        mapping = {self.vector: column * columns.width + columns.first + index(lane), LANE: index(lane), ROW: index(rows)}
        if self.tile is not None:
            mapping[self.tile] = first * self.plan.height + index(rows)

        def each(stmts: Iterable[Stmt]) -> tuple[Stmt, ...]:
            body = Copier(mapping, f"_{self._name('e')}").stmts(stmts)
            return nested([*self.inner, rows], (Loop("vector", lane, body),), 0)

        load = Load(totals, at)
        body: tuple[Stmt, ...] = ()
        for number, begin, place in stages.pieces():
            part = replace(nest, reduce=[place, *stages.inner], start=load, after=[Store(totals, at, nest.acc)])
            tiles = Copier({stages.cut: begin + index(place)}).stmts(self._tiles(part, columns, column, first, steps, with_rest))
            body += nested([number, *self.inner], tiles, 0)
        return (
            Local(totals),
            *each([Store(totals, at, accumulator(nest).init)]),
            *nested(list(stages.outer), body, 0),
            *each([Let(ACCUMULATOR, load), *nest.after]),
        )

    def _tiles(
        self, nest: BilinearNest, columns: _Columns, column: Index, first: Index, steps: int, with_rest: bool
    ) -> tuple[Stmt, ...]:
        body: list[Stmt] = []
        if steps:
            step = Var(self._name("step"), steps)
            at = (first + index(step)) * self.plan.height
            micro = self._micro(nest, columns, column, at, index(step) * self.plan.height, self.plan.height)
            body.extend([Loop("serial", step, micro)] if steps > 1 else Copier({step: Index()}).stmts(micro))
        if with_rest:
            last = Index((), self.steps * self.plan.height)
            body.extend(self._micro(nest, columns, column, last, Index((), steps * self.plan.height), self.rows_rest))
        return tuple(body)

    def _micro(
        self, nest: BilinearNest, columns: _Columns, column: Index, first: Index, below: Index, height: int
    ) -> tuple[Stmt, ...]:
        """One register tile: ``height`` rows from ``first`` by the lanes of one column of the result."""
        width = columns.width
        lane = Var(self._name("j"), width)
        unit = Var(self._name("i"), height)
        mapping = {self.vector: column * width + columns.first + index(lane)}
        if self.tile is not None:
            mapping[self.tile] = first + index(unit)
        mapping |= {ROW: below + index(unit), LANE: index(lane)}
        copier = Copier(mapping, f"_{self.copies}")
        operands = {"lhs": nest.lhs, "rhs": nest.rhs}
        if self.plan.packed:
            operands[self.plan.packed] = self._from_panel(columns, column, lane)
        lhs, rhs = operands["lhs"], operands["rhs"]
        if self.plan.window:
            return (Loop("vector", lane, self._sliding(lhs, rhs, mapping, first, height)),)
        body: tuple[Stmt, ...] = (*lhs.stmts, *rhs.stmts, Update(ACCUMULATOR, (lhs.expr, rhs.expr)))
        whole = copier.stmts((Accumulate((accumulator(nest),), _summed(nest.reduce, body)), *nest.after))
        whole = (Loop("vector", lane, whole),)
        if self.plan.whole is not None:
            short = Var(self._name("w"), self.plan.whole.extent)
            whole = (Loop("tile", short, Copier({self.plan.whole: index(short)}).stmts(whole)),)
        return (Loop("tile", unit, whole),) if height > 1 else Copier({unit: Index()}).stmts(whole)

    def _sliding(
        self, lhs: Operand, rhs: Operand, mapping: dict[Var, Index], first: Index, height: int
    ) -> tuple[Stmt, ...]:
        """Rows below each other by terms, in order of the place that is read; each row's terms stay in their order."""
        nest, window = self.nest, self.plan.window
        assert self.tile is not None
        outer = nest.reduce[: -len(window)]
        rows = [Copier({**mapping, self.tile: first + n}, f"_{self.copies}_{n}") for n in range(height)]
        sums = [copier.stmt(Accumulate((accumulator(nest),), ())) for copier in rows]
        terms = []
        for place in product(*(range(v.extent) for v in window)):
            for n, copier in enumerate(rows):
                own = Copier(
                    {**copier.mapping, **{v: Index((), k) for v, k in zip(window, place, strict=True)}},
                    copier.suffix + "".join(f"_{k}" for k in place),
                )
                own.names = dict(copier.names)
                update = Update(ACCUMULATOR, (lhs.expr, rhs.expr))
                terms.append(((n + place[0], place[1:], n), own.stmts((*lhs.stmts, *rhs.stmts, update))))
        body = tuple(s for _, stmts in sorted(terms, key=lambda t: t[0]) for s in stmts)
        for var in reversed(outer):
            body = (Loop("serial", var, body),)
        accs = tuple(a for s in sums if isinstance(s, Accumulate) for a in s.accs)
        return (Accumulate(accs, body), *(s for copier in rows for s in copier.stmts(nest.after)))

    def _panel(self, columns: _Columns) -> Buffer:
        size = product_of(self.panel_others) * columns.count * self.terms * columns.width
        return Buffer(f"panel{columns.first}", self.nest.acc.dtype, size)

    def _panel_offset(self, columns: _Columns, column: Index, lane: Index) -> Index:
        """Where the panel holds one lane of one term: by outer position, column, term, lane."""
        at = linear([index(v) for v in self.panel_others], [v.extent for v in self.panel_others])
        at = at * columns.count + column
        term = linear([index(v) for v in self.nest.reduce], [v.extent for v in self.nest.reduce])
        return (at * self.terms + term) * columns.width + lane

    def _from_panel(self, columns: _Columns, column: Index, lane: Var) -> Operand:
        panel = self._panel(columns)
        load = Load(panel, self._panel_offset(columns, column, index(lane)))
        return Operand([Let("packed", load)], Read("packed", panel.dtype, frozenset((*self.nest.reduce, lane))))

    def _pack(self, columns: _Columns) -> tuple[Stmt, ...]:
        """The moving operand copied so that the lanes of every term lie together, by all threads."""
        nest, width = self.nest, columns.width
        operand = self.moving
        column, lane = Var("column", columns.count), Var("lane", width)
        at = index(column) if columns.count > 1 else Index()
        panel = self._panel(columns)
        store = Store(panel, self._panel_offset(columns, at, index(lane)), operand.expr)
        copier = Copier({self.vector: at * width + columns.first + index(lane)}, f"_{panel.name}")
        body = copier.stmts((*operand.stmts, store))
        joined = merge_vars(nest.reduce, list(body))
        summed = merged(nest.reduce, joined)
        body = Copier(joined).stmts(body)
        loads = Operand(list(body[:-1]), operand.expr)
        fast = next((v for v in summed if loads.stride(v) == 1), None)
        if operand.stride(self.vector) == 1 or fast is None:
            body, rest = strip(lane, width, body), summed
        else:
            body, rest = strip(fast, PACK_CHUNK, tiles(lane, PACK_CHUNK, body)), [v for v in summed if v != fast]
        outer = [*self.panel_others, *([column] if columns.count > 1 else []), *rest]
        return (Local(panel), *_shared_out(outer, body, self.terms * panel.size))

    def _name(self, stem: str) -> str:
        self.copies += 1
        return f"{stem}{self.copies}"


@dataclass(frozen=True)
class _Columns:
    """``count`` neighbouring chunks of ``width`` lanes, the first at lane ``first``."""

    count: int
    first: int
    width: int


def _summed(names: list[Var], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Loops over the summed variables; a short innermost one is written out."""
    names = list(names)
    if len(names) > 1 and names[-1].extent <= UNROLLED_TERMS:
        last = names.pop()
        body = tuple(s for n in range(last.extent) for s in Copier({last: Index((), n)}, f"_{n}").stmts(body))
    for var in reversed(names):
        body = (Loop("serial", var, body),)
    return body


def _positions(names: list[Var], at: Index) -> dict[Var, Index]:
    """The values of ``names`` at flat position ``at``."""
    return dict(zip(names, unravel(at, tuple(v.extent for v in names)), strict=True))


def product_of(names: list[Var]) -> int:
    total = 1
    for v in names:
        total *= v.extent
    return total


def _shared_out(names: list[Var], body: tuple[Stmt, ...], work: int) -> tuple[Stmt, ...]:
    """Loops over ``names`` as one loop that threads share, when there is enough to do."""
    total = product_of(names)
    if work < PARALLEL_WORK or total < 2:
        return nested(names, body, 0)
    block = Var("block", total)
    return (Loop("parallel", block, Copier(_positions(names, index(block))).stmts(body)),)


def nested(names: list[Var], body: tuple[Stmt, ...], work: int) -> tuple[Stmt, ...]:
    for depth, var in reversed(list(enumerate(names))):
        kind = "parallel" if depth == 0 and work >= PARALLEL_WORK else "serial"
        body = (Loop(kind, var, body),)
    return body


def accumulator(nest: BilinearNest, lanes: int = 1) -> Acc:
    dtype = nest.acc.dtype
    return Acc(ACCUMULATOR, "fma", dtype, nest.start or Const(identity("fma", dtype), dtype), lanes)

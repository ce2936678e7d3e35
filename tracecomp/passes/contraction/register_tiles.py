"""Scheduling contractions and convolutions by loop tiling: register tiles, packing, blocks for threads.

One micro-kernel serves all: a tile of one output variable (unrolled) by SIMD lanes of another, with the sum over all
summed variables in order inside, one FMA per term. Only the dot form, for results with nothing to tile, sums in
lanes; which form is used depends on shapes and strides alone, never on the machine or on what is fused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tracecomp.ir.index import Index, Var, index, linear
from tracecomp.ir.loop_copy import Copier
from tracecomp.ir.loops import (
    LINE,
    Accumulate,
    Buffer,
    Load,
    Loop,
    Prefetch,
    Stmt,
    Store,
    Update,
    expressions,
)
from tracecomp.passes.contraction.dot_products import dot_form
from tracecomp.passes.contraction.operand_copies import computed_once
from tracecomp.passes.contraction.packing import Columns, Panels
from tracecomp.passes.contraction.sliding_windows import sliding, written_out
from tracecomp.passes.contraction.tile_choice import Plan, plan_of, sums_in_lanes
from tracecomp.passes.cost.machine import Machine
from tracecomp.passes.cost.parallel import parallel_kind_of_products
from tracecomp.passes.nests.contraction_nest import ACCUMULATOR, BilinearNest, Operand, product_of
from tracecomp.passes.schedule.k_blocking import Totals, in_stages
from tracecomp.passes.schedule.tiling import joined, loops, one_after_another, positions


def schedule_bilinear(nest: BilinearNest, machine: Machine) -> tuple[Stmt, ...]:
    """The loops of a contraction or convolution for a machine."""
    packing, body = schedule_parts(nest, machine)
    return (*packing, *body)


def schedule_parts(nest: BilinearNest, machine: Machine) -> tuple[tuple[Stmt, ...], tuple[Stmt, ...]]:
    """The loops that pack an operand, for all values of the variables outside the nest, and the loops that follow."""
    if any(v.extent == 0 for v in nest.out):
        return (), ()
    whole = nest.plain or nest
    in_lanes = sums_in_lanes(whole) or not whole.out
    if in_lanes or not nest.out:
        return (), dot_form(nest, in_lanes, parallel_kind_of_products(nest.work, machine), machine)
    plan = plan_of(nest, machine)
    computing, nest = computed_once(nest, plan, machine)
    tiled = _Tiled(nest, plan, machine)
    if tiled.plan.packed and tiled.moving.inside:
        return computing, (*tiled.packing(), *tiled.emit())
    return (*computing, *(() if tiled.alone else tiled.packing())), tiled.emit()


class _Tiled:
    """Emits the register-tiled form: the packed operand first, then rectangles of blocks of register tiles."""

    def __init__(self, nest: BilinearNest, plan: Plan, machine: Machine) -> None:
        self.nest, self.plan, self.machine, self.tuning = nest, plan, machine, machine.tuning
        self.shared = parallel_kind_of_products(nest.work, machine)
        self.moving = nest.moving(plan.vector)
        self.vector = plan.vector
        self.tile = plan.tile
        others = [v for v in nest.out if v not in (plan.vector, plan.tile, plan.whole)]
        self.inner = self._inner(others) if plan.stages else []
        self.others = [v for v in others if v not in self.inner]
        self.chunks, self.rest = divmod(self.vector.extent - plan.tail, plan.width)
        rows = self.tile.extent if self.tile else 1
        self.steps, self.rows_rest = divmod(rows, plan.height)
        moved = [v for v in others if self.moving.depends(v)] if plan.packed else []
        around = () if self.moving.inside else nest.outside
        # A block packs its own panel when it comes to it, unless there are too few blocks then for threads to share;
        # panels that are the same in many calls are packed by none of them.
        below = 1 if self.inner else max(self.steps // self._least(), 1)
        enough = product_of(moved) * sum(c.count for c in self.columns()) * below >= self.tuning.least_blocks
        apart = not (self.moving.inside or around) and moved == self.others and enough
        self.alone = plan.packed and apart and not nest.is_steady(self.moving)
        panel_others = [] if self.alone else [v for v in around if self.moving.depends(v)] + moved
        self.panels = Panels(nest, self.moving, plan.vector, panel_others, self.alone)
        whole = nest.plain or nest
        self.written_out = plan.tile is not None and (written_out(whole) if nest.padded else bool(plan.window))
        self.copies = 0

    def _inner(self, others: list[Var]) -> list[Var]:
        """Of the variables that one operand alone moves with, those that a block has all of: its totals fit a cache."""
        inner = list(filter(self.nest.one_sided, others))
        tile = self.plan.height * self.plan.width * self.nest.acc.dtype.itemsize
        for var in [v for v in inner if not self.moving.depends(v)]:
            if product_of(inner) * tile > self.tuning.totals_bytes:
                inner.remove(var)
        return inner

    def _apart(self, blocks: int) -> list[Var]:
        """Of the inner variables those that a block has one value of, so that there are enough blocks for threads.

        No more than that if every block would read all the data from memory, because the last cache does not hold them.
        """
        loads = [o.load for o in (self.nest.lhs, self.nest.rhs) if o.load is not None]
        data = sum(x.buffer.size * x.dtype.itemsize for x in loads)
        enough = [v for v in self.inner if blocks * v.extent >= self.tuning.least_blocks]
        if not enough or data <= self.machine.l3_bytes // 2:
            return self.inner
        return [min(enough, key=lambda v: v.extent)]

    def columns(self) -> list[Columns]:
        """Whole chunks of lanes, and the remaining lanes."""
        columns, first = [Columns(self.chunks, 0, self.plan.width)], self.chunks * self.plan.width
        columns += [Columns(1, first, self.rest), Columns(1, first + self.rest, self.plan.tail)]
        return [c for c in columns if c.count and c.width]

    def packing(self) -> tuple[Stmt, ...]:
        """The moving operand copied into panels, when the plan asks for it."""
        found: list[Stmt] = []
        for columns in self.columns() if self.plan.packed else []:
            work = self.panels.terms * self.panels.buffer(columns).size
            found.extend(self.panels.packed(columns, parallel_kind_of_products(work, self.machine)))
        return tuple(found)

    def emit(self) -> tuple[Stmt, ...]:
        """Whole and remaining lanes, by blocks of rows and the remaining rows."""
        outer, columns = product_of(self.others), self.columns()
        if self._whole_rows(outer):
            return self._by_rows(outer, columns)
        blocks = self._row_blocks(outer * sum(c.count for c in columns))
        rows = [self._rows(-(-blocks * max(c.width, self.tuning.least_width) // self.plan.width)) for c in columns]
        total = outer * sum(c.count * r.count for c, cut in zip(columns, rows, strict=True) for r in cut)
        apart = self._apart(total) if self.shared != "serial" and total < self.tuning.least_blocks else []
        parts = [self._blocks(outer, c, cut, apart) for c, cut in zip(columns, rows, strict=True)]
        return one_after_another(self.shared, parts)

    def _whole_rows(self, outer: int) -> bool:
        """Whether a block has all columns of its rows, so that a thread finds what it needs next in its own cache."""
        plain = self.plan.in_cache and not (self.alone or self.plan.stages)
        return self.shared != "serial" and plain and outer * self.steps >= self.tuning.wanted_blocks

    def _by_rows(self, outer: int, columns: list[Columns]) -> tuple[Stmt, ...]:
        """Blocks of all columns of some rows."""
        place = Var("place", outer)
        parts = []
        for number, step, some in _numbered(self._rows(self._row_blocks(outer))):
            body: list[Stmt] = []
            for c in columns:
                column = Var(self._name("column"), c.count)
                names, at = ([column], index(column)) if c.count > 1 else ([], Index())
                body.extend(loops("serial", names, self._block([], c, at, step, some.steps, some.rest)))
            mapping = positions(self.others, index(place) if outer > 1 else Index())
            parts.append(Loop(self.shared, number, Copier(mapping).stmts(body)))
        return one_after_another(self.shared, [self._below(place, parts)])

    def _rows(self, blocks: int) -> list[_Rows]:
        """About so many blocks of rows of nearly one size."""
        steps, equal = self._cut(blocks)
        rows = [_Rows(equal, 0, steps)] if equal else []
        done = equal * steps
        if self.steps > done or self.rows_rest or not rows:
            rows.append(_Rows(1, done, self.steps - done, bool(self.rows_rest)))
        return rows

    def _cut(self, blocks: int) -> tuple[int, int]:
        """Steps of a block, and how many have them; what remains is one more block, of about that size if possible."""
        steps, rest = self.steps // blocks, self.rows_rest / self.plan.height
        cuts = [(abs(self.steps + rest - blocks * n), n) for n in (steps, steps + 1)]
        uneven, even = min(cuts)
        return (even, blocks - 1) if uneven < even else (steps, blocks)

    def _blocks(self, outer: int, columns: Columns, rows: list[_Rows], apart: list[Var]) -> Loop:
        """The blocks of one width, those of a column below each other; a block has one value of each ``apart``."""
        place = Var("place", outer * columns.count * product_of(apart))
        at = index(place) if place.extent > 1 else Index()
        column, at = at % columns.count, at // columns.count
        mapping = positions([*self.others, *apart], at)
        inner = [v for v in self.inner if v not in apart]
        parts = []
        for number, step, some in _numbered(rows):
            packing = self.panels.packed_alone(columns, column, self._name("_own")) if self.alone else ()
            body = (*packing, *self._block(inner, columns, column, step, some.steps, some.rest))
            parts.append(Loop(self.shared, number, Copier(mapping).stmts(body)))
        return self._below(place, parts)

    def _below(self, place: Var, parts: list[Loop]) -> Loop:
        """The parts one after another for every value of ``place``."""
        below = one_after_another(self.shared, parts)
        first = below[0] if len(below) == 1 else None
        if self.shared != "serial" and isinstance(first, Loop) and first.kind == self.shared:
            return joined(self.shared, place, first.var, first.body)
        return Loop(self.shared, place, below)

    def _row_blocks(self, others: int) -> int:
        """Into how many blocks the tile's variable is cut: threads should find enough to share, totals fit a cache."""
        # A block reads all of a panel, or of memory that no cache holds.
        panels = self.alone or self.plan.stages
        wanted = self.tuning.wanted_panels if panels else self.tuning.wanted_blocks
        least = self._least() if self.alone else 2
        inner, blocks = product_of(self.inner), 1
        wanted = wanted // 2 if self.shared == "brief" else wanted
        if self.shared != "serial" and others < wanted and self.steps * inner >= least:
            blocks = _power_below(min(-(-wanted // others), self.steps * inner // least))
        if self.plan.stages:
            row = inner * self.plan.width * self.nest.acc.dtype.itemsize
            blocks = max(blocks, self.steps * self.plan.height * row // self.tuning.totals_bytes)
        return max(1, min(blocks, self.steps))

    def _least(self) -> int:
        """How many tiles below each other a block has at least if it packs its own panel."""
        return -(-self.tuning.packed_rows // self.plan.height)

    def _block(
        self, inner: list[Var], columns: Columns, column: Index, first: Index, steps: int, with_rest: bool
    ) -> tuple[Stmt, ...]:
        """``steps`` register tiles below each other, from step ``first``, for all values of the inner variables."""

        def body(nest: BilinearNest) -> tuple[Stmt, ...]:
            return self._tiles(nest, columns, column, first, steps, with_rest)

        if self.plan.stages is None:
            return body(self.nest)
        rows = steps * self.plan.height + self.rows_rest * with_rest
        spans = {self.tile: (first * self.plan.height, rows)} if self.tile else {}
        spans[self.vector] = (column * columns.width + columns.first, columns.width)
        return in_stages(self.nest, self.plan.stages, Totals(self._name("totals"), inner, spans), body)

    def _tiles(
        self, nest: BilinearNest, columns: Columns, column: Index, first: Index, steps: int, with_rest: bool
    ) -> tuple[Stmt, ...]:
        tiles: list[Stmt] = []
        if steps:
            step = Var(self._name("step"), steps)
            at = (first + index(step)) * self.plan.height
            micro = self._micro(nest, columns, column, at, self.plan.height)
            tiles.extend([Loop("serial", step, micro)] if steps > 1 else Copier({step: Index()}).stmts(micro))
        if with_rest:
            last = Index((), self.steps * self.plan.height)
            tiles.extend(self._micro(nest, columns, column, last, self.rows_rest))
        return tuple(tiles)

    def _micro(
        self, nest: BilinearNest, columns: Columns, column: Index, first: Index, height: int
    ) -> tuple[Stmt, ...]:
        """One register tile: ``height`` rows from ``first`` by the lanes of one column of the result."""
        width = columns.width
        lane = Var(self._name("j"), width)
        unit = Var(self._name("i"), height)
        mapping = {self.vector: column * width + columns.first + index(lane)}
        if self.tile is not None:
            mapping[self.tile] = first + index(unit)
        copier = Copier(mapping, f"_{self.copies}")
        lhs, rhs = nest.lhs, nest.rhs
        still = lhs if self.moving is rhs else rhs
        if self.plan.packed:
            panel = self.panels.read(columns, column, lane)
            lhs, rhs = (lhs, panel) if self.moving is rhs else (panel, rhs)
        if self.tile is not None and self.written_out:
            read, corner = replace(nest, lhs=lhs, rhs=rhs), mapping | {self.tile: first}
            return (Loop("vector", lane, sliding(read, self.plan, corner, height, f"_{self.copies}", self.machine)),)
        body: tuple[Stmt, ...] = (*lhs.stmts, *rhs.stmts, Update(ACCUMULATOR, (lhs.expr, rhs.expr)))
        prefetches = self._streams(column * width + columns.first, first, height, width)
        body = (*self._ahead(still, first), *prefetches, *body)
        summed = _summed(nest.reduce, body, self.tuning.unrolled_terms)
        whole = copier.stmts((Accumulate((nest.accumulator(),), summed), *nest.after))
        whole = (Loop("vector", lane, whole),)
        if self.plan.whole is not None:
            short = Var(self._name("w"), self.plan.whole.extent)
            whole = (Loop("tile", short, Copier({self.plan.whole: index(short)}).stmts(whole)),)
        return (Loop("tile", unit, whole),) if height > 1 else Copier({unit: Index()}).stmts(whole)

    def _ahead(self, still: Operand, first: Index) -> tuple[Stmt, ...]:
        """A prefetch of the tile's elements for a later term, where they lie too far apart for hardware to foresee."""
        load, last = still.load, self.nest.reduce[-1] if self.nest.reduce else None
        if load is None or last is None or self.tile is None or self.plan.stages:
            return ()
        far = abs(still.stride(last) or 0) * load.dtype.itemsize >= self.tuning.far_bytes
        known = all(isinstance(atom, Var) for atom, _ in load.offset.terms)
        if not (far and known and last.extent >= self.tuning.far_terms and still.stride(self.tile) == 1):
            return ()
        ahead = {self.tile: first, last: index(last) + self.tuning.terms_ahead}
        if self.plan.whole is not None:
            ahead[self.plan.whole] = Index()
        return (Prefetch(load.buffer, load.offset.substitute(ahead)),)

    def _streams(self, column: Index, first: Index, height: int, width: int) -> list[Stmt]:
        """Prefetches of what the statements after the sum read and write, a line of each in every term."""
        looped = _looped(self.nest.reduce, self.tuning.unrolled_terms)
        if self.tile is None or not looped or self.plan.stages:
            return []
        at, terms = linear([index(v) for v in looped], [v.extent for v in looped]), product_of(looped)
        result: list[Stmt] = []
        for buffer, offset in _streamed(self.nest.after, self.tuning.epilogue_bytes):
            if offset.coefficient(self.vector) != 1 or not offset.coefficient(self.tile):
                continue
            lanes = LINE // buffer.dtype.itemsize
            across = _power_of_two(-(-width // lanes))
            lines = across * _power_of_two(height)
            each = -(-lines // terms)
            for n in range(each):
                line = (at * each + n) % lines
                ahead = {self.tile: first + line // across, self.vector: column + (line % across) * lanes}
                if self.plan.whole is not None:
                    ahead[self.plan.whole] = Index()
                result.append(Prefetch(buffer, offset.substitute(ahead)))
        return result

    def _name(self, stem: str) -> str:
        self.copies += 1
        return f"{stem}{self.copies}"


@dataclass(frozen=True)
class _Rows:
    """``count`` blocks of ``steps`` tiles below each other, from step ``first``; ``rest``: and the remaining rows."""

    count: int
    first: int
    steps: int
    rest: bool = False


def _numbered(rows: list[_Rows]) -> Iterator[tuple[Var, Index, _Rows]]:
    """Blocks of rows, their number and the first step of each."""
    for some in rows:
        number = Var("number", some.count)
        yield number, (index(number) if some.count > 1 else Index()) * some.steps + some.first, some


def _summed(names: list[Var], body: tuple[Stmt, ...], unrolled: int) -> tuple[Stmt, ...]:
    """Loops over the summed variables; a short innermost one is written out."""
    looped = _looped(names, unrolled)
    for last in names[len(looped) :]:
        body = tuple(s for n in range(last.extent) for s in Copier({last: Index((), n)}, f"_{n}").stmts(body))
    for var in reversed(looped):
        body = (Loop("serial", var, body),)
    return body


def _looped(names: list[Var], unrolled: int) -> list[Var]:
    """The summed variables that have loops: a short innermost one is written out."""
    return names[:-1] if len(names) > 1 and names[-1].extent <= unrolled else names


def _streamed(after: list[Stmt], least: int) -> list[tuple[Buffer, Index]]:
    """The places of buffers of ``least`` bytes that statements read or write, each once."""
    reads = [(x.buffer, x.offset) for x in expressions(after) if isinstance(x, Load)]
    writes = [(s.buffer, s.offset) for s in after if isinstance(s, Store)]
    return [
        (buffer, offset)
        for buffer, offset in dict.fromkeys((*reads, *writes))
        if buffer.size * buffer.dtype.itemsize >= least and all(isinstance(a, Var) for a, _ in offset.terms)
    ]


def _power_below(n: int) -> int:
    return 1 << (n.bit_length() - 1) if n else 0


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()

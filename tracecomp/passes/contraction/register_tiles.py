"""Contractions and convolutions as register tiles, by a schedule: packing, loop tiling for threads, tiles, prefetches.

One micro-kernel serves all: a tile of one output variable (unrolled) by SIMD lanes of another. Inside is the sum over
all summed variables in order, one FMA per term. The schedule (``passes/contraction/tile_schedule.py``) has every
choice, made by ``tile_choice.py`` and ``block_choice.py``. This module decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tracecomp.ir.index import Index, Var, computed, index, linear
from tracecomp.ir.loop_copy import Copier
from tracecomp.ir.loops import (
    LINE,
    Accumulate,
    Call,
    Const,
    Expr,
    If,
    IndexValue,
    Loop,
    Prefetch,
    Stmt,
    Update,
)
from tracecomp.ir.pieces import Pieces
from tracecomp.ir.types import bool_, int64
from tracecomp.passes.contraction.block_choice import epilogue_accesses
from tracecomp.passes.contraction.operand_copies import with_copies
from tracecomp.passes.contraction.packing import Panels
from tracecomp.passes.contraction.sliding_windows import sliding
from tracecomp.passes.contraction.tile_schedule import RowBlocks, TileSchedule
from tracecomp.passes.nests.contraction_nest import ACCUMULATOR, BilinearNest, product_of
from tracecomp.passes.schedule.k_blocking import Totals, in_k_blocks
from tracecomp.passes.schedule.tiling import in_squares, joined, loops, one_after_another, positions

_BLOCKS_AHEAD = 4
"""Blocks between the second prefetch of a line and its use. 2 to 5 read a mapped file fastest, 6 slower (Zen 4)."""


def register_tiles(nest: BilinearNest, schedule: TileSchedule) -> tuple[tuple[Stmt, ...], tuple[Stmt, ...]]:
    """Return the loops that pack an operand, for all values of the variables outside the nest, and the loops after
    them."""
    copying, nest = with_copies(nest, schedule)
    tiled = _Tiled(nest, schedule)
    if schedule.pack == "once" and tiled.b_operand.inside:
        # An operand that is computed in the same kernel does not exist earlier; its panel is packed block by block.
        return copying, (*tiled.packing(), *tiled.emit())
    return (*copying, *tiled.packing()), tiled.emit()


class _Tiled:
    """Emits the packed operand first, then rectangles of blocks of register tiles."""

    def __init__(self, nest: BilinearNest, schedule: TileSchedule) -> None:
        self.nest, self.schedule = nest, schedule
        self.b_operand = nest.b_operand(schedule.vector)
        self.vector, self.tile, self.threads = schedule.vector, schedule.tile, schedule.threads
        # Variables that a block spans are loops inside it.
        self.others = [v for v in schedule.beside(nest) if v not in schedule.block_vars]
        self.by_block = schedule.pack == "block"
        self.panels = Panels(nest, schedule)
        # Numbers all names: every width and every remainder has separate statements.
        self.copies = 0

    def packing(self) -> tuple[Stmt, ...]:
        """Pack the operand that varies along the lanes, if that happens once for all blocks."""
        if self.schedule.pack != "once":
            return ()
        parts = zip(self.schedule.columns(), self.schedule.pack_threads, strict=True)
        return tuple(s for columns, kind in parts for s in self.panels.packed(columns, kind))

    def emit(self) -> tuple[Stmt, ...]:
        """Return full and remaining lanes, by blocks of rows and the remaining rows."""
        outer, columns = product_of(self.others), self.schedule.columns()
        rows = [self.schedule.joined_blocks(n) for n in self.schedule.row_blocks]
        if self.schedule.by_rows:
            return self._by_rows(outer, columns, rows[0])
        parts = [self._blocks(outer, c, some) for c, some in zip(columns, rows, strict=True)]
        # One shared loop over all of them, so that threads meet once at the end.
        return one_after_another(self.threads, parts)

    def _by_rows(self, outer: int, columns: list[Pieces], rows: list[RowBlocks]) -> tuple[Stmt, ...]:
        """Blocks of all columns of some rows."""
        # Columns inside: the thread keeps its rows of A near, and iterates over the columns of B.
        place = Var("place", outer)
        parts = []
        for number, at_row, some in _numbered(rows):
            body: list[Stmt] = []
            for c in columns:
                column = Var(self._name("column"), c.count)
                names, at = ([column], index(column)) if c.count > 1 else ([], Index())
                body.extend(loops("serial", names, self._block([], c, at, at_row, some)))
            mapping = positions(self.others, index(place) if outer > 1 else Index())
            parts.append(Loop(self.threads, number, Copier(mapping).stmts(body)))
        return one_after_another(self.threads, [self._below(place, parts)])

    def _blocks(self, outer: int, columns: Pieces, rows: list[RowBlocks]) -> Loop:
        """The blocks of one width, ordered by column; a block has one value of each ``split_vars``."""
        split = self.schedule.split_vars
        place = Var("place", outer * columns.count * product_of(split))
        at = index(place) if place.extent > 1 else Index()
        # Rows change fastest (``_below``), then columns, then outer positions:
        # neighbouring blocks read the same column of B.
        column, at = at % columns.count, at // columns.count
        mapping = positions([*self.others, *split], at)
        inner = [v for v in self.schedule.block_vars if v not in split]
        parts = []
        for number, at_row, some in _numbered(rows):
            packing = self.panels.packed_by_block(columns, column, self._name("_own")) if self.by_block else ()
            body = (*packing, *self._block(inner, columns, column, at_row, some))
            parts.append(Loop(self.threads, number, Copier(mapping).stmts(body)))
        return self._below(place, parts)

    def _below(self, place: Var, parts: list[Loop]) -> Loop:
        """Return the parts in sequence for every value of ``place``."""
        below = one_after_another(self.threads, parts)
        first = below[0] if len(below) == 1 else None
        # Threads share one loop, so one number encodes place and block.
        if self.threads != "serial" and isinstance(first, Loop) and first.kind == self.threads:
            return joined(self.threads, place, first.var, first.body)
        return Loop(self.threads, place, below)

    def _block(
        self, inner: list[Var], columns: Pieces, column: Index, number: Index, some: RowBlocks
    ) -> tuple[Stmt, ...]:
        """Return register tiles along the rows of block ``number``, for all values of the inner variables."""
        first = some.steps.start(number)

        def body(nest: BilinearNest) -> tuple[Stmt, ...]:
            return self._tiles(nest, columns, column, number, some)

        if self.schedule.k_blocks is None:
            # Without k-blocks a tile's sum begins and ends in registers.
            return body(self.nest)
        height = self.schedule.height
        rows = some.steps.length * height + self.schedule.rows_left * some.rest
        # The range of the block's totals: its rows and columns at all inner values.
        spans = {self.tile: (first * height, rows)} if self.tile else {}
        spans[self.vector] = (columns.start(column), columns.length)
        return in_k_blocks(self.nest, self.schedule.k_blocks, Totals(self._name("totals"), inner, spans), body)

    def _tiles(
        self, nest: BilinearNest, columns: Pieces, column: Index, number: Index, some: RowBlocks
    ) -> tuple[Stmt, ...]:
        tiles: list[Stmt] = []
        height = self.schedule.height
        if some.most:
            step = Var(self._name("step"), some.most)
            exists, at = _step(some, number, step)
            micro = self._micro(nest, columns, column, at * height, height)
            body = micro if exists is None else (If(exists, micro),)
            tiles.extend([Loop("serial", step, body)] if step.extent > 1 else Copier({step: Index()}).stmts(body))
        if some.rest:
            # The remaining rows are one shorter tile with a separate body.
            last = Index((), self.schedule.steps * height)
            micro = self._micro(nest, columns, column, last, self.schedule.rows_left)
            tiles.extend((If(_is_last(some, number), micro),) if some.last else micro)
        return tuple(tiles)

    def _micro(self, nest: BilinearNest, columns: Pieces, column: Index, first: Index, height: int) -> tuple[Stmt, ...]:
        """One register tile: ``height`` rows from ``first`` by the lanes of one column of the result."""
        lane = Var(self._name("j"), columns.length)
        unit = Var(self._name("i"), height)
        mapping = {self.vector: columns.start(column) + index(lane)}
        if self.tile is not None:
            mapping[self.tile] = first + index(unit)
        # A kernel contains several tiles; this suffix makes their names distinct.
        suffix = f"_{self.copies}"
        read = self._read(nest, columns, column, lane)
        if self.tile is not None and self.schedule.written_out:
            # Windows that slide along the rows are unrolled, so they take the corner instead of an unrolled variable.
            corner = mapping | {self.tile: first}
            return (Loop("vector", lane, sliding(read, self.schedule, corner, height, suffix)),)
        terms: tuple[Stmt, ...] = (
            *self._terms_ahead(nest, first),
            *self._epilogue_ahead(columns.start(column), first, height, columns.length),
            *(*read.lhs.stmts, *read.rhs.stmts, Update(ACCUMULATOR, (read.lhs.expr, read.rhs.expr))),
        )
        square, unrolled = self.schedule.transposed, self.schedule.unrolled_terms
        if square:
            ahead = self._lines_ahead(nest, columns.start(column), columns.length)
            loops_of_terms = in_squares(nest.reduce, terms, square, ahead)
        else:
            loops_of_terms = _summed(nest.reduce, terms, unrolled)
        summed = Accumulate((nest.accumulator(),), loops_of_terms)
        if square:  # rows innermost: they share a block in registers
            inner = Copier(mapping, suffix).stmts((summed, *nest.epilogue))
            return (Loop("vector", lane, (Loop("tile", unit, inner),) if height > 1 else _at_first(unit, inner)),)
        # The lanes' loop is outside of the sum: a tile of rows by vectors is then the body of the sum's loop.
        body: tuple[Stmt, ...] = (Loop("vector", lane, Copier(mapping, suffix).stmts((summed, *nest.epilogue))),)
        if self.schedule.unrolled is not None:
            short = Var(self._name("w"), self.schedule.unrolled.extent)
            body = (Loop("tile", short, Copier({self.schedule.unrolled: index(short)}).stmts(body)),)
        # The tile's loop is unrolled: totals of all rows are registers, and one term does all their FMAs.
        return (Loop("tile", unit, body),) if height > 1 else _at_first(unit, body)

    def _read(self, nest: BilinearNest, columns: Pieces, column: Index, lane: Var) -> BilinearNest:
        """Return the nest with its packed operand read from the panel."""
        if self.schedule.pack == "no":
            return nest
        panel = self.panels.read(columns, column, lane)
        return replace(nest, rhs=panel) if self.b_operand is self.nest.rhs else replace(nest, lhs=panel)

    def _terms_ahead(self, nest: BilinearNest, first: Index) -> tuple[Stmt, ...]:
        """A prefetch of A's elements for a later term of the tile."""
        load = nest.a_operand(self.schedule.vector).load
        if not self.schedule.prefetch_terms or load is None or self.tile is None:
            return ()
        last = self.nest.reduce[-1]
        # The last terms prefetch beyond the end: a prefetch of an unmapped address has no effect.
        ahead = {self.tile: first, last: index(last) + self.schedule.prefetch_terms, **self._first_unrolled()}
        return (Prefetch(load.buffer, load.offset.substitute(ahead)),)

    def _lines_ahead(self, nest: BilinearNest, column: Index, width: int) -> list[Stmt]:
        """Prefetches of B's next column of tiles, for each block of terms as many lines as it reads.

        They follow the order of memory: blocks read a line of every lane, which is too many streams for a processor to
        detect. Each line is prefetched again shortly before its block, because a processor drops prefetches while too
        many are under way.
        """
        load = self.b_operand.load
        if not self.schedule.lines_ahead or load is None:
            return []
        (last,), line, terms = nest.reduce, LINE // load.dtype.itemsize, self.schedule.transposed
        start = load.offset.substitute({self.vector: column + width, last: Index()}) + index(last) * width
        offsets = [[start + n * line] for n in range(width * terms // line)]
        if terms == line:  # else blocks share lines
            later = index(last) + _BLOCKS_AHEAD * terms
            for n, both in enumerate(offsets):
                both.append(load.offset.substitute({self.vector: column + n, last: later}))
        return [Prefetch(load.buffer, offset) for both in offsets for offset in both]

    def _epilogue_ahead(self, column: Index, first: Index, height: int, width: int) -> list[Stmt]:
        """Prefetch the operands and results of the statements after the sum, some lines in every term."""
        tile, looped = self.tile, _looped(self.nest.reduce, self.schedule.unrolled_terms)
        if tile is None or not self.schedule.prefetch:
            return []
        at, terms = linear([index(v) for v in looped], [v.extent for v in looped]), product_of(looped)
        result: list[Stmt] = []
        for buffer, offset in epilogue_accesses(self.nest.epilogue):
            lanes = offset.coefficient(self.vector) == 1 and offset.coefficient(tile)
            if buffer.name not in self.schedule.prefetch or not lanes:
                continue
            line = LINE // buffer.dtype.itemsize
            # Powers of two, so that number // across and number % across are shifts; a few lines are fetched twice.
            across = _power_of_two(-(-width // line))
            lines = across * _power_of_two(height)
            # Spread over the terms, so that prefetches do not queue up behind each other.
            each = -(-lines // terms)
            for n in range(each):
                number = (at * each + n) % lines
                ahead = {tile: first + number // across, self.vector: column + (number % across) * line}
                result.append(Prefetch(buffer, offset.substitute({**ahead, **self._first_unrolled()})))
        return result

    def _first_unrolled(self) -> dict[Var, Index]:
        return {} if self.schedule.unrolled is None else {self.schedule.unrolled: Index()}

    def _name(self, stem: str) -> str:
        self.copies += 1
        return f"{stem}{self.copies}"


def _numbered(rows: list[RowBlocks]) -> Iterator[tuple[Var, Index, RowBlocks]]:
    """Blocks of rows, and their number."""
    for some in rows:
        number = Var("number", some.count)
        yield number, index(number) if some.count > 1 else Index(), some


def _step(some: RowBlocks, number: Index, step: Var) -> tuple[Expr | None, Index]:
    """Step ``step`` of block ``number``, and the condition that the block has it."""
    length, at = some.steps.length, some.steps.start(number) + index(step)
    if not some.last or some.last == length:
        return None, at
    # A longer last block: its number, and no other, divides by the number of the others.
    own = at if some.last < length else index(step) - number // some.steps.count * (some.last - length)
    steps = some.steps.end + some.last
    exists = Call("lt", (IndexValue(own), Const(steps if some.last < length else length, int64)), bool_)
    # The bounds are known where the condition holds.
    return exists, computed(IndexValue(at), (0, steps - 1))


def _is_last(some: RowBlocks, number: Index) -> Expr:
    return Call("ge", (IndexValue(number), Const(some.steps.count, int64)), bool_)


def _summed(names: list[Var], body: tuple[Stmt, ...], unrolled: int) -> tuple[Stmt, ...]:
    """Loops over the summed variables; a short innermost one is unrolled."""
    looped = _looped(names, unrolled)
    # The order is unchanged: terms of the innermost variable are adjacent.
    for last in names[len(looped) :]:
        body = tuple(s for n in range(last.extent) for s in Copier({last: Index((), n)}, f"_{n}").stmts(body))
    for var in reversed(looped):
        body = (Loop("serial", var, body),)
    return body


def _at_first(unit: Var, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    return Copier({unit: Index()}).stmts(body)


def _looped(names: list[Var], unrolled: int) -> list[Var]:
    """The summed variables that have loops: a short innermost one is unrolled."""
    return names[:-1] if len(names) > 1 and names[-1].extent <= unrolled else names


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()

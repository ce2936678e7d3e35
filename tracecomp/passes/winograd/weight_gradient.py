"""Gradients of the weights of Winograd convolutions, from fewer products than element by element.

Tiles of the input and of the result's gradient are transformed and multiplied, one matrix product per position,
channels by tiles times tiles by filters. Their totals are transformed back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from math import prod

from tracecomp.ir.index import Index, Var, index, unravel
from tracecomp.ir.loop_copy import Copier
from tracecomp.ir.loops import Acc, Accumulate, Const, Let, Load, Local, Loop, Stmt, Store, Update, both, in_range
from tracecomp.ir.pieces import Pieces, pieces
from tracecomp.passes.contraction.operand_copies import copied
from tracecomp.passes.contraction.tile_choice import filled
from tracecomp.passes.cost.reference import GRADIENT_PART_TILES, GRADIENT_PARTS, GRADIENT_PARTS_WEIGHTS
from tracecomp.passes.nests.contraction_nest import ACCUMULATOR, BilinearNest, product_of
from tracecomp.passes.schedule.records import Chooser
from tracecomp.passes.schedule.tiling import one_after_another, piece, positions, shared_out, strip
from tracecomp.passes.winograd.products import Matrices, TileProducts
from tracecomp.passes.winograd.schedules import GradientSchedule, made_with
from tracecomp.passes.winograd.selection import Windows, up_to
from tracecomp.passes.winograd.transforms import Terms, along_each

WELL_FILLED = 0.75
"""Least filling, relative to the other side, for which lanes are chosen along contiguous results."""


def _parts(tiles: int, weights: int) -> tuple[Pieces, ...]:
    """Split the tiles into parts that are summed separately, for this number of weights."""
    # Parts follow from sizes alone, as they decide the order of the sum; the blocks inside do not.
    wanted = max(min(GRADIENT_PARTS, GRADIENT_PARTS_WEIGHTS // weights, tiles // GRADIENT_PART_TILES), 1)
    # Equal parts if a number of them above half of the wanted one divides the tiles.
    return pieces(tiles, -(-tiles // piece(tiles, wanted)))


def parts_of(tiles: int, weights: int) -> list[tuple[int, int]]:
    """Start and end of each part."""
    found = [(p.first + n * p.length, p.length) for p in _parts(tiles, weights) for n in range(p.count)]
    return [(start, start + length) for start, length in found]


class WeightGradient(TileProducts):
    """Parts of all tiles summed, each in blocks, then their totals added and transformed back."""

    def __init__(self, nest: BilinearNest, windows: Windows, chooser: Chooser) -> None:
        super().__init__(nest, windows, chooser)
        weights = self.groups * self.channels * windows.filter.extent
        # The choice of rows and lanes is free, as each weight is a separate sum.
        self.row, self.lane = self._sides(windows.channel, windows.filter)
        rows, width = self.row.extent, self.lane.extent
        self.parts = _parts(self.tiles, weights)
        self.schedule = made_with(self._chosen(rows, self.wide(width)), chooser)
        self.runs = pieces(rows, min(self.schedule.run, rows))
        self.columns = pieces(width, min(self.schedule.width, width))
        self.copying: tuple[Stmt, ...] = ()
        self.given = windows.other
        # Strided filters (channels first) are copied once, so that lanes are contiguous loads.
        if windows.other.stride(windows.filter) != 1:
            names = self._copied()
            self.copying, self.given = copied(windows.other, "computed", names, self.dtype, self.schedule.copy_threads)

    def _chosen(self, rows: int, width: int) -> GradientSchedule:
        # Totals of a run, for all places, stay in the second cache together with a column of lanes.
        run = piece(rows, self.machine.tuning.winograd_run_rows // self.places)
        # Both sides' transformed tiles in half of the second cache.
        fitting = self.machine.l2_bytes // 2 // (self.places * (run + width) * self.dtype.itemsize)
        totals = sum(some.count for some in self.parts) * self.places * self.groups * rows * self.lane.extent
        work = self.nest.work, product_of(self._copied()), totals
        return GradientSchedule(width, run, max(fitting, 1), *map(self.parallel_kind, work))

    def _copied(self) -> list[Var]:
        """The variables of the result's gradient, filters innermost."""
        other = self.windows.other
        return [*(v for v in self.nest.reduce if other.depends(v)), *self.windows.groups, self.windows.filter]

    def _sides(self, *names: Var) -> tuple[Var, Var]:
        """Choose the variables of rows and of lanes; results should be near each other along the lanes.

        Distant lanes would be stored one by one, each into a separate line.
        """
        most = max(filled(v.extent) for v in names)
        full = [v for v in names if filled(v.extent) >= WELL_FILLED * most]
        lane = min(full, key=lambda v: abs(self.nest.store_stride(v) or 0))
        # The other variable.
        (row,) = (v for v in names if v is not lane)
        return row, lane

    def stmts(self) -> tuple[Stmt, ...]:
        parts = sum(some.count for some in self.parts)
        memory: list[Stmt] = []
        sums: list[Loop] = []
        results: list[Stmt] = []
        for run, columns in product(self.runs, self.columns):
            counts = (self.groups, run.count, columns.count)
            # One part: a block transforms its totals back while they are in cache, and needs memory only for itself.
            if parts == 1:
                sums.append(self._whole(run, columns, counts))
                continue
            totals = self.matrices("totals", *counts, parts, self.places, run.length, columns.length)
            memory.append(Local(totals.buffer))
            # Start of this run of parts in the list of all parts.
            done = 0
            for some in self.parts:
                block = Var("block", prod(counts) * some.count)
                *at, part = unravel(index(block) if block.extent > 1 else Index(), (*counts, some.count))
                body = self._part(totals, run, columns, at, (*at, part + done), some.start(part), some.length)
                sums.append(Loop("serial", block, body))
                done += some.count
            # With several parts the totals are added after all of them exist, by other threads than those that computed
            # them.
            names = [Var(name, count) for name, count in zip(("group", "run", "column"), counts, strict=True)]
            row, body = self._results(totals, run, columns, list(map(index, names)), list(map(index, names)))
            results += shared_out(self.schedule.total_threads, [*names, row], body)
        return (*self.copying, *memory, *one_after_another(self.schedule.threads, sums), *results)

    def _whole(self, run: Pieces, columns: Pieces, counts: tuple[int, ...]) -> Loop:
        """Blocks that sum all tiles and transform back the totals that are still in cache."""
        totals = self.matrices("totals", 1, 1, 1, 1, self.places, run.length, columns.length)
        block, first = Var("block", prod(counts)), [Index()] * 3
        at = unravel(index(block) if block.extent > 1 else Index(), counts)
        summed = self._part(totals, run, columns, at, (*first, Index()), Index(), self.tiles)
        row, body = self._results(totals, run, columns, at, first)
        return Loop("serial", block, (Local(totals.buffer), *summed, Loop("serial", row, body)))

    def _part(
        self,
        totals: Matrices,
        run: Pieces,
        columns: Pieces,
        at: Sequence[Index],
        held: Sequence[Index],
        start: Index,
        tiles: int,
    ) -> tuple[Stmt, ...]:
        """The sums over a number of tiles from ``start``, of a group's run of rows and column of lanes (``at``).

        ``held``: their position among the totals.
        """
        group, row, column = at
        rows, width = run.length, columns.length
        # All positions of a part at once, with the unused rows between them: one run of memory.
        lane = Var("lane", self.places * (rows + 1) * width)
        first = totals.load(*held, Index(), Index(), Index()).offset
        zero = Store(totals.buffer, first + index(lane), Const(0.0, self.dtype))
        body = list(strip(lane, 4 * self.lanes, [zero]))
        for some in pieces(tiles, piece(tiles, self.schedule.chunk)):
            chunk, length = Var("chunk", some.count), some.length
            # Tiles continue in order through all chunks, so a total's sum does not depend on the chunk's size.
            here = start + some.start(index(chunk))
            left, of_left = self._transformed(self.row, group, here, length, run, row)
            right, of_right = self._transformed(self.lane, group, here, length, columns, column)
            products = self.products(
                # The left side is stored tiles by channels, and read transposed: as scalars, for which the order does
                # not matter.
                partial(totals.load, *held),
                partial(_transposed, left),
                right.load,
                (rows, length, width),
                goes_on=True,
            )
            body.append(Loop("serial", chunk, (*of_left, *of_right, *products)))
        return tuple(body)

    def _transformed(
        self, var: Var, group: Index, start: Index, tiles: int, some: Pieces, number: Index
    ) -> tuple[Matrices, tuple[Stmt, ...]]:
        """Return the tiles of the input or the result's gradient, whichever has ``var``, from ``start`` on, and the
        statements that compute them."""
        inputs = var is self.windows.channel
        made = self.matrices("tiles" if inputs else "gradients", self.places, tiles, some.length)
        make = self.inputs if inputs else self._gradients
        return made, (Local(made.buffer), *make(made, group, start, some, number))

    def _gradients(
        self, given: Matrices, group: Index, start: Index, columns: Pieces, column: Index
    ) -> tuple[Stmt, ...]:
        """Transform tiles of the result's gradient from ``start`` on; zero outside the border."""
        _, tiles, width = given.shape
        tile, lane = Var("tile", tiles), Var("lane", width)
        terms = Terms(self.dtype, lane)
        at, first = self.corner(group, start + index(tile))
        at[self.windows.filter] = columns.start(column) + index(lane)
        square = []
        for place in self.results_at(first):
            # Zero outside the border: such a result does not exist, so it adds nothing to any weight.
            exists = both(*(in_range(n, v.extent) for v, n in place.items()))
            # Loaded from inside in any case, as vectors of lanes have one address.
            inside = {v: up_to(n, v.extent - 1) for v, n in place.items()}
            square.append(terms.element(self.given, {**at, **inside}, exists))
        for n, value in enumerate(along_each(terms, [(2, form.of_results) for form in self.forms], square)):
            terms.stmts.append(given.store((Index((), n), index(tile), index(lane)), value))
        return (Loop("serial", tile, self.in_lanes(lane, terms)),)

    def _results(
        self, totals: Matrices, run: Pieces, columns: Pieces, at: Sequence[Index], held: Sequence[Index]
    ) -> tuple[Var, tuple[Stmt, ...]]:
        """Return a row variable and the statements that add the totals of all parts and transform them; ``at``,
        ``held``: see ``_part``."""
        group, number, column = at
        part, row, lane = Var("part", totals.shape[3]), Var("row", run.length), Var("lane", columns.length)
        terms = Terms(self.dtype, lane)
        names = [f"m{n}" for n in range(self.places)]
        updates = (
            Update(name, (totals.load(*held, index(part), Index((), n), index(row), index(lane)),))
            for n, name in enumerate(names)
        )
        # Parts in order.
        accs = tuple(Acc(name, "add", self.dtype, Const(0.0, self.dtype)) for name in names)
        terms.stmts.append(Accumulate(accs, (Loop("serial", part, tuple(updates)),)))
        transforms = [(form.places, form.to_weights) for form in self.forms]
        weights = along_each(terms, transforms, [terms.read(name) for name in names])
        place = positions(self.windows.groups, group)
        place[self.row] = run.start(number) + index(row)
        place[self.lane] = columns.start(column) + index(lane)
        for n, (within, value) in enumerate(zip(self.weights_at(), weights, strict=True)):
            after = (Let(ACCUMULATOR, value), *self.nest.epilogue)
            terms.stmts.extend(Copier({**place, **within}, f"_{n}").stmts(after))
        return row, self.in_lanes(lane, terms)


def _transposed(matrices: Matrices, place: Index, row: Index, column: Index) -> Load:
    return matrices.load(place, column, row)

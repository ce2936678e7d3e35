"""Gradients of the weights of convolutions by small windows, from fewer products than element by element.

Tiles of the input and of the result's gradient are transformed and multiplied, as many products of matrices, channels
by tiles times tiles by filters, and their totals transformed back.
"""

from __future__ import annotations

from functools import partial
from itertools import product

from tracecomp.ir.index import Index, Var, index, unravel
from tracecomp.ir.loops import Acc, Accumulate, Const, Let, Load, Local, Loop, Stmt, Store, Update, both, in_range
from tracecomp.passes.bilinear import ACCUMULATOR, BilinearNest
from tracecomp.passes.computed_once import copied
from tracecomp.passes.machine import Machine
from tracecomp.passes.rename import Copier
from tracecomp.passes.schedule_bilinear import PARALLEL_WORK
from tracecomp.passes.small_windows import Windows, up_to
from tracecomp.passes.strips import one_after_another, piece, positions, shared_out, strip
from tracecomp.passes.tile_products import Matrices, Run, TileProducts, cut
from tracecomp.passes.tile_transforms import Terms, along_each

RUN_ROWS = 1024
"""So many places times channels by a column of filters have totals that stay in cache."""
MOST_PARTS = 8
PART_TILES = 64
PARTS_WEIGHTS = 1 << 15
"""Groups times channels times filters times parts."""


class WeightGradient(TileProducts):
    """Parts of all tiles summed, each in blocks, then their totals added and transformed back."""

    def __init__(self, nest: BilinearNest, windows: Windows, machine: Machine) -> None:
        super().__init__(nest, windows, machine)
        weights = self.groups * self.channels * windows.filter.extent
        self.runs = [Run(*part) for part in cut(self.channels, piece(self.channels, RUN_ROWS // self.places))]
        wanted = max(min(MOST_PARTS, PARTS_WEIGHTS // weights, self.tiles // PART_TILES), 1)
        self.parts = list(cut(self.tiles, -(-self.tiles // piece(self.tiles, wanted))))
        self.copying: tuple[Stmt, ...] = ()
        self.given = windows.other
        if windows.other.stride(windows.filter) != 1:
            names = [*(v for v in nest.reduce if windows.other.depends(v)), *windows.groups, windows.filter]
            self.copying, self.given = copied(windows.other, "computed", names, self.dtype, PARALLEL_WORK)

    def stmts(self) -> tuple[Stmt, ...]:
        parts = sum(count for count, _, _ in self.parts)
        memory: list[Stmt] = []
        sums: list[Loop] = []
        results: list[Stmt] = []
        for run, columns in product(self.runs, self.columns):
            shape = (self.groups, run.count, columns.count, parts, self.places, run.width, columns.width)
            totals = self.matrices("totals", *shape)
            memory.append(Local(totals.buffer))
            done = 0
            for count, first, tiles in self.parts:
                counts = (self.groups, run.count, columns.count, count)
                block = Var("block", self.groups * run.count * columns.count * count)
                *at, part = unravel(index(block) if block.extent > 1 else Index(), counts)
                body = self._part(totals, run, columns, (*at, part + done), part * tiles + first, tiles)
                sums.append(Loop("serial", block, body))
                done += count
            results += self._results(totals, run, columns)
        return (*self.copying, *memory, *one_after_another(self.sharing(self.nest.work), sums), *results)

    def _part(
        self, totals: Matrices, run: Run, columns: Run, at: tuple[Index, ...], start: Index, tiles: int
    ) -> tuple[Stmt, ...]:
        """The sums over a number of tiles from ``start``, of a group's run of channels and column of filters."""
        group, number, column, _ = at
        rows, width = run.width, columns.width
        lane = Var("lane", self.places * (rows + 1) * width)
        first = totals.load(*at, Index(), Index(), Index()).offset
        zero = Store(totals.buffer, first + index(lane), Const(0.0, self.dtype))
        body = list(strip(lane, 4 * self.lanes, [zero]))
        fitting = max(self.machine.l2_bytes // 2 // (self.places * (rows + width) * self.dtype.itemsize), 1)
        for count, begin, length in cut(tiles, piece(tiles, fitting)):
            chunk = Var("chunk", count)
            here = start + index(chunk) * length + begin
            seen = self.matrices("tiles", self.places, length, rows)
            given = self.matrices("gradients", self.places, length, width)
            products = self.products(
                partial(totals.load, *at), partial(_transposed, seen), given.load, (rows, length, width), goes_on=True
            )
            inputs = self.inputs(seen, group, here, run, number)
            gradients = self._gradients(given, group, here, columns, column)
            body.append(
                Loop("serial", chunk, (Local(seen.buffer), Local(given.buffer), *inputs, *gradients, *products))
            )
        return tuple(body)

    def _gradients(self, given: Matrices, group: Index, start: Index, columns: Run, column: Index) -> tuple[Stmt, ...]:
        """Tiles of the result's gradient from ``start`` on; zero behind the border."""
        _, tiles, width = given.shape
        tile, lane = Var("tile", tiles), Var("lane", width)
        terms = Terms(self.dtype, lane)
        at, first = self.corner(group, start + index(tile))
        at[self.windows.filter] = columns.at(column, index(lane))
        square = []
        for place in self.results_at(first):
            exists = both(*(in_range(n, v.extent) for v, n in place.items()))
            inside = {v: up_to(n, v.extent - 1) for v, n in place.items()}
            square.append(terms.element(self.given, {**at, **inside}, exists))
        for n, value in enumerate(along_each(terms, [(2, form.of_results) for form in self.forms], square)):
            terms.stmts.append(given.store((Index((), n), index(tile), index(lane)), value))
        return (Loop("serial", tile, self.in_lanes(lane, terms)),)

    def _results(self, totals: Matrices, run: Run, columns: Run) -> tuple[Stmt, ...]:
        """The totals of all parts, added, and what they give."""
        windows = self.windows
        group, number, column = Var("group", self.groups), Var("run", run.count), Var("column", columns.count)
        part, channel, lane = Var("part", totals.shape[3]), Var("channel", run.width), Var("lane", columns.width)
        terms = Terms(self.dtype, lane)
        names = [f"m{n}" for n in range(self.places)]
        at = index(group), index(number), index(column), index(part)
        updates = (
            Update(name, (totals.load(*at, Index((), n), index(channel), index(lane)),)) for n, name in enumerate(names)
        )
        accs = tuple(Acc(name, "add", self.dtype, Const(0.0, self.dtype)) for name in names)
        terms.stmts.append(Accumulate(accs, (Loop("serial", part, tuple(updates)),)))
        transforms = [(form.places, form.to_weights) for form in self.forms]
        weights = along_each(terms, transforms, [terms.read(name) for name in names])
        place = positions(windows.groups, index(group))
        place[windows.channel] = run.at(index(number), index(channel))
        place[windows.filter] = columns.at(index(column), index(lane))
        for n, (within, value) in enumerate(zip(self.weights_at(), weights, strict=True)):
            after = (Let(ACCUMULATOR, value), *self.nest.after)
            terms.stmts.extend(Copier({**place, **within}, f"_{n}").stmts(after))
        kind = self.sharing(totals.buffer.size)
        return shared_out(kind, [group, number, column, channel], self.in_lanes(lane, terms))


def _transposed(matrices: Matrices, place: Index, row: Index, column: Index) -> Load:
    return matrices.load(place, column, row)

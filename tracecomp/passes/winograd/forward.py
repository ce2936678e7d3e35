"""Winograd convolutions: small windows from fewer products than window by window, such as F(2x2, 3x3): 16 instead of
36.

Input tiles of two neighbouring results along each axis, and the weights, are transformed. They are multiplied position
by position: one matrix product per position, tiles by channels times channels by filters. The products are transformed
back (``passes/winograd/transforms.py``; Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016).

For the gradient of the weights the same tiles, and tiles of the result's gradient, are multiplied and summed
(``passes/winograd/weight_gradient.py``). A block of tiles stays in cache from the first transform to the last. Sizes
alone decide whether this form is used (``passes/winograd/selection.py``), and every sum has one order, for any blocks
and threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tracecomp.ir.index import Index, Var, index, unravel
from tracecomp.ir.loop_copy import Copier
from tracecomp.ir.loops import If, Let, Local, Loop, Stmt, both, in_range
from tracecomp.ir.pieces import Pieces, pieces
from tracecomp.passes.contraction.tile_choice import tile_size
from tracecomp.passes.nests.contraction_nest import ACCUMULATOR, BilinearNest
from tracecomp.passes.schedule.records import Chooser
from tracecomp.passes.schedule.tiling import one_after_another, positions, shared_out
from tracecomp.passes.winograd.products import Matrices, TileProducts
from tracecomp.passes.winograd.schedules import ConvolutionSchedule, made_with
from tracecomp.passes.winograd.selection import Windows
from tracecomp.passes.winograd.transforms import Terms, along_each
from tracecomp.passes.winograd.weight_gradient import WeightGradient


def winograd_form(nest: BilinearNest, windows: Windows, chooser: Chooser) -> tuple[Stmt, ...]:
    """Return the loops of such a convolution or gradient."""
    form = WeightGradient if windows.gradient else _Convolution
    return form(nest, windows, chooser).stmts()


class _Convolution(TileProducts):
    """The weights transformed, then blocks of tiles."""

    def __init__(self, nest: BilinearNest, windows: Windows, chooser: Chooser) -> None:
        super().__init__(nest, windows, chooser)
        filters = windows.filter.extent
        self.schedule = made_with(self._chosen(self.wide(filters)), chooser)
        self.columns = pieces(filters, min(self.schedule.width, filters))

    def _chosen(self, width: int) -> ConvolutionSchedule:
        # The register tile of the products decides how many tiles a block has: whole heights.
        height, _ = tile_size(self.tiles, width, self.lanes, self.machine.registers)
        # Transformed inputs and one column of products, of a block: half of the second cache; the rest is for weights.
        tile_bytes = self.places * (self.channels + width) * self.dtype.itemsize
        # Few enough that threads find blocks to share.
        shared = self.tiles * self.groups // self.machine.tuning.winograd_blocks
        fitting = min(self.machine.l2_bytes // 2 // tile_bytes, shared)
        block = max(fitting // height, 1) * height
        # Threads share the transform of weights by the amount of stores: the arithmetic is a few additions per weight.
        stored = self.places * self.groups * self.channels * self.windows.filter.extent
        return ConvolutionSchedule(width, block, self.parallel_kind(self.nest.work), self.parallel_kind(stored))

    def stmts(self) -> tuple[Stmt, ...]:
        weights = [
            self.matrices("weights", self.groups, columns.count, self.places, self.channels, columns.length)
            for columns in self.columns
        ]
        both = list(zip(self.columns, weights, strict=True))
        blocks = []
        for some in pieces(self.tiles, self.schedule.block):
            block = Var("block", self.groups * some.count)
            group, at = unravel(index(block) if block.extent > 1 else Index(), (self.groups, some.count))
            blocks.append(Loop("serial", block, self._block(both, group, some.start(at), some.length)))
        transformed = (s for columns, kept in both for s in self._weights(columns, kept))
        # Weights are transformed before all blocks, as each block multiplies by all of them.
        return (*transformed, *one_after_another(self.schedule.threads, blocks))

    def _weights(self, columns: Pieces, kept: Matrices) -> tuple[Stmt, ...]:
        windows = self.windows
        group, column = Var("group", self.groups), Var("column", columns.count)
        channel, lane = Var("channel", self.channels), Var("lane", columns.length)
        terms = Terms(self.dtype, lane)
        at = positions(windows.groups, index(group))
        # Lanes are filters: the innermost axis of the transformed weights, as products read them.
        at |= {windows.channel: index(channel), windows.filter: columns.start(index(column)) + index(lane)}
        square = [terms.element(windows.other, {**at, **within}) for within in self.weights_at()]
        transforms = [
            (axis.within.extent, form.of_weights) for axis, form in zip(windows.axes, self.forms, strict=True)
        ]
        for place, value in enumerate(along_each(terms, transforms, square)):
            position = index(group), index(column), Index((), place), index(channel), index(lane)
            terms.stmts.append(kept.store(position, value))
        kind = self.schedule.weight_threads
        return (Local(kept.buffer), *shared_out(kind, [group, column, channel], self.in_lanes(lane, terms)))

    def _block(
        self, weights: Sequence[tuple[Pieces, Matrices]], group: Index, start: Index, tiles: int
    ) -> tuple[Stmt, ...]:
        """Compute ``count`` tiles of a group from ``start``."""
        given = self.matrices("tiles", self.places, tiles, self.channels)
        everything = Pieces(1, 0, self.channels)
        # Transformed once for all columns of filters, and in cache for the next statements.
        body: list[Stmt] = [Local(given.buffer), *self.inputs(given, group, start, everything, Index())]
        for columns, kept in weights:
            made = self.matrices("products", self.places, tiles, columns.length)
            column = Var("column", columns.count)
            of_column = partial(kept.load, group, index(column))
            products = self.products(made.load, given.load, of_column, (tiles, self.channels, columns.length))
            results = self._results(made, columns, group, index(column), start)
            body += [Local(made.buffer), Loop("serial", column, (*products, *results))]
        return tuple(body)

    def _results(self, made: Matrices, columns: Pieces, group: Index, column: Index, start: Index) -> tuple[Stmt, ...]:
        _, tiles, width = made.shape
        tile, lane = Var("tile", tiles), Var("lane", width)
        terms = Terms(self.dtype, lane)
        at, first = self.corner(group, start + index(tile))
        at[self.windows.filter] = columns.start(column) + index(lane)
        # One product for each position, all of one tile: they are transformed back in registers.
        products = [terms.let(made.load(Index((), n), index(tile), index(lane))) for n in range(self.places)]
        transforms = [(form.places, form.to_results) for form in self.forms]
        results = along_each(terms, transforms, products)
        for n, (place, value) in enumerate(zip(self.results_at(first), results, strict=True)):
            after = Copier({**at, **place}, f"_{n}").stmts((Let(ACCUMULATOR, value), *self.nest.epilogue))
            # A tile's second result may be outside the border; it is computed and not stored.
            exists = both(*(in_range(i, v.extent) for v, i in place.items()))
            # The epilogue is emitted for each result, at its position.
            terms.stmts.extend((If(exists, after),) if exists else after)
        return (Loop("serial", tile, self.in_lanes(lane, terms)),)

"""Convolutions by 3x3 windows of stride 1 with 16 products for every 4 results instead of 36: F(2x2, 3x3).

Tiles of 4x4 elements of the input, and the weights, are transformed and multiplied place by place: 16 products of
matrices, tiles by channels times channels by filters. What they give is transformed back to 2x2 results (Lavin and
Gray, "Fast Algorithms for Convolutional Neural Networks", 2016). A block of tiles stays in cache from the first
transformation to the last. Whether a convolution is computed so depends on its sizes alone, and every sum has one
order, whatever the blocks and threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod

from tracecomp.ir.index import Index, Var, computed, index, linear, unravel
from tracecomp.ir.loops import (
    Acc,
    Accumulate,
    Buffer,
    Call,
    Const,
    Expr,
    If,
    IndexValue,
    Let,
    Load,
    Local,
    Loop,
    Read,
    Stmt,
    Store,
    Update,
    both,
    in_range,
)
from tracecomp.ir.types import DType, float32, float64, int64
from tracecomp.passes.bilinear import ACCUMULATOR, BilinearNest, Operand, product_of
from tracecomp.passes.machine import Machine
from tracecomp.passes.rename import Copier
from tracecomp.passes.schedule import sharing
from tracecomp.passes.schedule_bilinear import PARALLEL_WORK
from tracecomp.passes.strips import one_after_another, shared_out, strip
from tracecomp.passes.tile_plan import tile_size

PLACES = 16
LEAST_CHANNELS = 32
LEAST_TILES = 32
MOST_WASTE = 1.2
WANTED_BLOCKS = 8


def pays(channels: int, filters: int, images: int, out: Sequence[int]) -> bool:
    """Whether the products that are saved outweigh the transformations; ``out`` is the spatial size of results."""
    tiles = images * prod(-(-n // 2) for n in out)
    waste = prod(-(-n // 2) * 2 / n for n in out)
    return min(channels, filters) >= LEAST_CHANNELS and tiles >= LEAST_TILES and waste <= MOST_WASTE


@dataclass(frozen=True)
class Windows:
    """The variables of a convolution by 3x3 windows: ``along`` are two pairs of a result's place and one in a window.

    ``x`` moves along them and over ``images``, ``w`` over the window and ``filter``, both over ``channel``.
    """

    images: list[Var]
    along: list[tuple[Var, Var]]
    filter: Var
    channel: Var
    x: Operand
    w: Operand


def windows_of(nest: BilinearNest) -> Windows | None:
    """The windows of a nest over the variables that the graph speaks of (without ones), where this form pays."""
    if nest.acc.dtype not in (float32, float64):
        return None
    found = _windows(nest, nest.lhs, nest.rhs) or _windows(nest, nest.rhs, nest.lhs)
    if found is None or nest.out[-1] != found.filter:
        return None
    sizes = [place.extent for place, _ in found.along]
    return found if pays(found.channel.extent, found.filter.extent, product_of(found.images), sizes) else None


def _windows(nest: BilinearNest, x: Operand, w: Operand) -> Windows | None:
    filters = [v for v in nest.out if w.depends(v)]
    others = [v for v in nest.out if v not in filters]
    within = [k for k in nest.reduce if k.extent == 3 and w.depends(k)]
    along = [(p, k) for k in within for p in others if _alike(x, p, k)]
    channels = [v for v in nest.reduce if all(v != k for _, k in along)]
    if len(along) != 2 or len(set(chain(*along))) != 4 or len(filters) != 1 or len(channels) != 1:
        return None
    images = [v for v in others if all(v != p for p, _ in along)]
    return None if x.depends(filters[0]) else Windows(images, along, filters[0], channels[0], x, w)


def _alike(x: Operand, place: Var, within: Var) -> bool:
    """Whether the next window begins with what comes next in this one."""
    steps = [Copier({v: index(v) + 1}) for v in (place, within)]
    one, other = ((step.stmts(x.stmts), step.expr(x.expr)) for step in steps)
    return x.depends(place) and one == other


class _Terms:
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


Transform = Callable[[_Terms, Sequence[Expr]], Sequence[Expr]]


def _of_weights(t: _Terms, g: Sequence[Expr]) -> Sequence[Expr]:
    outer = t.add(g[0], g[2])
    return g[0], t.half(t.add(outer, g[1])), t.half(t.sub(outer, g[1])), g[2]


def _of_input(t: _Terms, d: Sequence[Expr]) -> Sequence[Expr]:
    return t.sub(d[0], d[2]), t.add(d[1], d[2]), t.sub(d[2], d[1]), t.sub(d[1], d[3])


def _of_products(t: _Terms, m: Sequence[Expr]) -> Sequence[Expr]:
    return t.add(t.add(m[0], m[1]), m[2]), t.sub(t.sub(m[1], m[2]), m[3])


def _both_ways(t: _Terms, transform: Transform, square: list[list[Expr]]) -> list[list[Expr]]:
    """A square of values transformed column by column, then row by row."""
    columns = [transform(t, column) for column in zip(*square, strict=True)]
    return [list(transform(t, row)) for row in zip(*columns, strict=True)]


def _inside(at: Index, place: Var) -> Index:
    """``at``, or the last place of the last window, where a tile ends behind it."""
    last = place.extent + 1
    if at.bounds is None or at.bounds[1] <= last:
        return at
    return computed(Call("min", (IndexValue(at), Const(last, int64)), int64), (at.bounds[0], last))


def _cut(extent: int, length: int) -> Iterator[tuple[int, int, int]]:
    """Number, first position and length of the whole pieces, then of the rest."""
    whole, rest = divmod(extent, length)
    if whole:
        yield whole, 0, length
    if rest:
        yield 1, whole * length, rest


@dataclass(frozen=True)
class _Columns:
    """``count`` runs of ``width`` filters from the first on, and their weights."""

    count: int
    first: int
    width: int
    weights: Buffer


def winograd_form(nest: BilinearNest, windows: Windows, machine: Machine) -> tuple[Stmt, ...]:
    """The loops of such a convolution: the weights transformed, then blocks of tiles."""
    return _Form(nest, windows, machine).stmts()


class _Form:
    def __init__(self, nest: BilinearNest, windows: Windows, machine: Machine) -> None:
        self.nest, self.windows = nest, windows
        self.dtype = nest.acc.dtype
        self.lanes = machine.lanes(self.dtype.itemsize)
        self.shape = (*(v.extent for v in windows.images), *(-(-p.extent // 2) for p, _ in windows.along))
        self.channels, filters = windows.channel.extent, windows.filter.extent
        width = min(4 * self.lanes, filters)
        self.columns = [
            _Columns(count, first, length, self._buffer(f"weights{first}", count, length))
            for count, first, length in _cut(filters, width)
        ]
        tiles = prod(self.shape)
        self.height, _ = tile_size(tiles, width, self.lanes, machine.registers)
        tile_bytes = PLACES * (self.channels + width) * self.dtype.itemsize
        fitting = min(machine.l2_bytes // 2 // tile_bytes, tiles // WANTED_BLOCKS)
        self.block = max(fitting // self.height, 1) * self.height
        self.copies = 0

    def _own(self, body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        """The statements with names of their own."""
        self.copies += 1
        return Copier({}, f"_{self.copies}").stmts(body)

    def _buffer(self, name: str, count: int, width: int) -> Buffer:
        return Buffer(name, self.dtype, count * PLACES * self.channels * width)

    def stmts(self) -> tuple[Stmt, ...]:
        blocks = []
        for count, first, tiles in _cut(prod(self.shape), self.block):
            block = Var("block", count)
            start = index(block) * tiles if count > 1 else Index((), first)
            blocks.append(Loop("serial", block, self._block(start, tiles)))
        weights = tuple(s for columns in self.columns for s in self._weights(columns))
        return (*weights, *one_after_another(sharing(self.nest.work, PARALLEL_WORK), blocks))

    def _weights(self, columns: _Columns) -> tuple[Stmt, ...]:
        windows = self.windows
        column, channel, lane = Var("column", columns.count), Var("channel", self.channels), Var("lane", columns.width)
        terms = _Terms(self.dtype, lane)
        at = {windows.channel: index(channel), windows.filter: self._filter(columns, column, lane)}
        (_, down), (_, across) = windows.along
        square = [
            [terms.element(windows.w, {**at, down: Index((), i), across: Index((), j)}) for j in range(3)]
            for i in range(3)
        ]
        for place, value in enumerate(chain(*_both_ways(terms, _of_weights, square))):
            offset = self._weight(columns, index(column), Index((), place), index(channel), index(lane))
            terms.stmts.append(Store(columns.weights, offset, value))
        body = self._own(strip(lane, self.lanes, terms.stmts))
        kind = sharing(columns.weights.size, PARALLEL_WORK)
        return (Local(columns.weights), *shared_out(kind, [column, channel], body))

    def _filter(self, columns: _Columns, column: Var, lane: Var) -> Index:
        return index(column) * columns.width + columns.first + index(lane)

    def _weight(self, columns: _Columns, column: Index, place: Index, channel: Index, lane: Index) -> Index:
        return linear((column, place, channel, lane), (columns.count, PLACES, self.channels, columns.width))

    def _block(self, start: Index, tiles: int) -> tuple[Stmt, ...]:
        """A number of tiles from ``start``."""
        given = Buffer(f"tiles{tiles}", self.dtype, PLACES * tiles * self.channels)
        body: list[Stmt] = [Local(given), *self._inputs(given, start, tiles)]
        for columns in self.columns:
            made = Buffer(f"products{tiles}_{columns.first}", self.dtype, PLACES * tiles * columns.width)
            column = Var("column", columns.count)
            run = (
                *self._products(given, made, columns, column, tiles),
                *self._results(made, columns, column, start, tiles),
            )
            body += [Local(made), Loop("serial", column, run)]
        return tuple(body)

    def _corner(self, tile: Index) -> tuple[dict[Var, Index], list[tuple[Var, Index]]]:
        """The image of a tile, and where its first result is."""
        *images, down, across = unravel(tile, self.shape)
        (rows, _), (places, _) = self.windows.along
        return dict(zip(self.windows.images, images, strict=True)), [(rows, down * 2), (places, across * 2)]

    def _inputs(self, given: Buffer, start: Index, tiles: int) -> tuple[Stmt, ...]:
        windows = self.windows
        tile, lane = Var("tile", tiles), Var("lane", self.channels)
        terms = _Terms(self.dtype, lane)
        at, corner = self._corner(start + index(tile))
        at = {**at, windows.channel: index(lane), **{within: Index() for _, within in windows.along}}
        (down, _), (across, _) = corner
        rows, places = ([_inside(first + n, v) for n in range(4)] for v, first in corner)
        square = [[terms.element(windows.x, {**at, down: row, across: place}) for place in places] for row in rows]
        for place, value in enumerate(chain(*_both_ways(terms, _of_input, square))):
            offset = linear((Index((), place), index(tile), index(lane)), (PLACES, tiles, self.channels))
            terms.stmts.append(Store(given, offset, value))
        return (Loop("serial", tile, self._own(strip(lane, self.lanes, terms.stmts))),)

    def _products(
        self, given: Buffer, made: Buffer, columns: _Columns, column: Var, tiles: int
    ) -> tuple[Stmt, ...]:
        """For each place, tiles by channels times channels by filters."""
        place = Var("place", PLACES)
        body: list[Stmt] = []
        for count, first, height in _cut(tiles, self.height):
            step, unit, lane = Var("step", count), Var("unit", height), Var("lane", columns.width)
            channel = Var("channel", self.channels)
            tile = index(step) * height + first + index(unit)
            name = f"c_{made.name}_{first}"
            x = Load(given, linear((index(place), tile, index(channel)), (PLACES, tiles, self.channels)))
            w = Load(columns.weights, self._weight(columns, index(column), index(place), index(channel), index(lane)))
            total = Acc(name, "fma", self.dtype, Const(0.0, self.dtype))
            summed = Accumulate((total,), (Loop("serial", channel, (Update(name, (x, w)),)),))
            value = Read(name, self.dtype, frozenset((unit, lane)))
            offset = linear((index(place), tile, index(lane)), (PLACES, tiles, columns.width))
            micro = (Loop("tile", unit, (Loop("vector", lane, (summed, Store(made, offset, value))),)),)
            body.append(Loop("serial", step, micro))
        return (Loop("serial", place, tuple(body)),)

    def _results(
        self, made: Buffer, columns: _Columns, column: Var, start: Index, tiles: int
    ) -> tuple[Stmt, ...]:
        tile, lane = Var("tile", tiles), Var("lane", columns.width)
        terms = _Terms(self.dtype, lane)
        at, corner = self._corner(start + index(tile))
        at[self.windows.filter] = self._filter(columns, column, lane)
        shape = (4, 4, tiles, columns.width)
        square = [
            [
                terms.let(Load(made, linear((Index((), i), Index((), j), index(tile), index(lane)), shape)))
                for j in range(4)
            ]
            for i in range(4)
        ]
        results = _both_ways(terms, _of_products, square)
        (down, first_row), (across, first_place) = corner
        for i, row in enumerate(results):
            for j, value in enumerate(row):
                place = {down: first_row + i, across: first_place + j}
                after = Copier({**at, **place}, f"_{i}{j}").stmts((Let(ACCUMULATOR, value), *self.nest.after))
                exists = both(*(in_range(i, v.extent) for v, i in place.items()))
                terms.stmts.extend((If(exists, after),) if exists else after)
        return (Loop("serial", tile, self._own(strip(lane, self.lanes, terms.stmts))),)

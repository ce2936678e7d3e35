"""Convolutions by 3x3 windows of stride 1, and gradients of their weights, with 16 products instead of 36: F(2x2, 3x3).

Tiles of 4x4 elements of the input, and the weights, are transformed and multiplied place by place: 16 products of
matrices, tiles by channels times channels by filters. What they give is transformed back to 2x2 results (Lavin and
Gray, "Fast Algorithms for Convolutional Neural Networks", 2016). For the weights' gradient the same tiles, and tiles of
2x2 elements of the result's gradient, are multiplied and summed: channels by tiles times tiles by filters. A block of
tiles stays in cache from the first transformation to the last. Whether a sum is computed so depends on its sizes alone,
and every sum has one order, whatever the blocks and threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, product
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
from tracecomp.passes.computed_once import copied
from tracecomp.passes.machine import Machine
from tracecomp.passes.rename import Copier
from tracecomp.passes.schedule import sharing
from tracecomp.passes.schedule_bilinear import PARALLEL_WORK
from tracecomp.passes.strips import one_after_another, piece, shared_out, strip
from tracecomp.passes.tile_plan import tile_size
from tracecomp.passes.tile_transforms import (
    Terms,
    both_ways,
    of_input,
    of_results,
    of_weights,
    to_results,
    to_weights,
)

PLACES = 16
LEAST_CHANNELS = 16
LEAST_TILES = 16
MOST_WASTE = 4 / 3
WANTED_BLOCKS = 8
RUN_CHANNELS = 64
"""Of a gradient: so many channels by a column of filters have totals that stay in cache."""
PART_TILES = 64
PARTS_WEIGHTS = 1 << 15
"""Channels times filters times parts."""


def pays(channels: int, filters: int, images: int, out: Sequence[int]) -> bool:
    """Whether the products that are saved outweigh the transformations; ``out`` is the spatial size of results."""
    tiles = images * prod(-(-n // 2) for n in out)
    waste = prod(-(-n // 2) * 2 / n for n in out)
    return min(channels, filters) >= LEAST_CHANNELS and tiles >= LEAST_TILES and waste <= MOST_WASTE


@dataclass(frozen=True)
class Windows:
    """The variables of a convolution by 3x3 windows: ``along`` are two pairs of a result's place and one in a window.

    ``x`` moves along them and over ``images`` and ``channel``. ``other`` are the weights, which move over the window,
    ``channel`` and ``filter``; or, for ``gradient``, the result's, which moves over ``images``, places and ``filter``.
    """

    images: list[Var]
    along: list[tuple[Var, Var]]
    filter: Var
    channel: Var
    x: Operand
    other: Operand
    gradient: bool


def windows_of(nest: BilinearNest) -> Windows | None:
    """The windows of a nest over the variables that the graph speaks of (without ones), where this form pays."""
    if nest.acc.dtype not in (float32, float64):
        return None
    found = _windows(nest, nest.lhs, nest.rhs) or _windows(nest, nest.rhs, nest.lhs)
    if found is None:
        return None
    in_lanes = found.x.stride(found.channel) == 1 if found.gradient else nest.out[-1] == found.filter
    sizes = [place.extent for place, _ in found.along]
    enough = pays(found.channel.extent, found.filter.extent, product_of(found.images), sizes)
    return found if in_lanes and enough else None


def _windows(nest: BilinearNest, x: Operand, other: Operand) -> Windows | None:
    filters = [v for v in nest.out if other.depends(v)]
    kept = [v for v in nest.out if v not in filters]
    if len(filters) != 1 or x.depends(filters[0]):
        return None
    for images, channels, gradient in ((kept, nest.reduce, False), (nest.reduce, kept, True)):
        along = [(p, k) for k in channels if k.extent == 3 for p in images if _alike(x, p, k)]
        paired = set(chain(*along))
        inside = [v for v in channels if v not in paired]
        if len(along) == 2 and len(paired) == 4 and len(inside) == 1:
            outside = [v for v in images if v not in paired]
            return Windows(outside, along, filters[0], inside[0], x, other, gradient)
    return None


def _alike(x: Operand, place: Var, within: Var) -> bool:
    """Whether the next window begins with what comes next in this one."""
    steps = [Copier({v: index(v) + 1}) for v in (place, within)]
    one, other = ((step.stmts(x.stmts), step.expr(x.expr)) for step in steps)
    return x.depends(place) and one == other


def winograd_form(nest: BilinearNest, windows: Windows, machine: Machine) -> tuple[Stmt, ...]:
    """The loops of such a convolution or gradient."""
    form = _WeightGradient if windows.gradient else _Convolution
    return form(nest, windows, machine).stmts()


def _inside(at: Index, last: int) -> Index:
    """``at``, or the last place, where a tile ends behind it."""
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
class _Run:
    """``count`` runs of ``width`` filters or channels from the first on."""

    count: int
    first: int
    width: int

    def at(self, number: Index, place: Index) -> Index:
        return number * self.width + self.first + place


@dataclass(frozen=True)
class _Matrices:
    """Memory for values of ``shape``, of which the last three axes are 16 places, rows and columns.

    A row lies unused between places: a power of two apart, those of one element would share few lines of a cache.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]

    @property
    def _kept(self) -> tuple[int, ...]:
        *outer, rows, columns = self.shape
        return (*outer, rows + 1, columns)

    @property
    def buffer(self) -> Buffer:
        return Buffer(self.name, self.dtype, prod(self._kept))

    def load(self, *position: Index) -> Load:
        return Load(self.buffer, linear(position, self._kept))

    def store(self, position: Sequence[Index], value: Expr) -> Store:
        return Store(self.buffer, linear(position, self._kept), value)


Element = Callable[[Index, Index, Index], Load]


class _Form:
    """What convolutions and gradients have in common: tiles of the input, products, names."""

    def __init__(self, nest: BilinearNest, windows: Windows, machine: Machine) -> None:
        self.nest, self.windows, self.machine = nest, windows, machine
        self.dtype = nest.acc.dtype
        self.lanes = machine.lanes(self.dtype.itemsize)
        self.shape = (*(v.extent for v in windows.images), *(-(-p.extent // 2) for p, _ in windows.along))
        self.tiles = prod(self.shape)
        self.width = min(4 * self.lanes, windows.filter.extent)
        self.columns = [_Run(*cut) for cut in _cut(windows.filter.extent, self.width)]
        self.kind = sharing(nest.work, PARALLEL_WORK)
        self.copies = 0

    def _own(self, body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        """The statements with names of their own."""
        self.copies += 1
        return Copier({}, f"_{self.copies}").stmts(body)

    def _matrices(self, stem: str, *shape: int) -> _Matrices:
        self.copies += 1
        return _Matrices(f"{stem}{self.copies}", self.dtype, shape)

    def _tile(self, tile: Index) -> tuple[dict[Var, Index], list[Index]]:
        """The image of a tile, and where its first result is."""
        *images, down, across = unravel(tile, self.shape)
        return dict(zip(self.windows.images, images, strict=True)), [down * 2, across * 2]

    def _in_lanes(self, lane: Var, terms: Terms) -> tuple[Stmt, ...]:
        return self._own(strip(lane, self.lanes, terms.stmts))

    def _inputs(self, given: _Matrices, run: _Run, number: Index, start: Index) -> tuple[Stmt, ...]:
        """Tiles of the input from ``start`` on, of the channels of a run."""
        windows = self.windows
        tile, lane = Var("tile", given.shape[-2]), Var("lane", run.width)
        terms = Terms(self.dtype, lane)
        at, corner = self._tile(start + index(tile))
        at[windows.channel] = run.at(number, index(lane))
        at |= {within: Index() for _, within in windows.along}
        (down, _), (across, _) = windows.along
        rows, places = (
            [_inside(first + n, v.extent + 1) for n in range(4)]
            for (v, _), first in zip(windows.along, corner, strict=True)
        )
        square = [[terms.element(windows.x, {**at, down: row, across: place}) for place in places] for row in rows]
        for place, value in enumerate(both_ways(terms, of_input, square)):
            terms.stmts.append(given.store((Index((), place), index(tile), index(lane)), value))
        return (Loop("serial", tile, self._in_lanes(lane, terms)),)

    def _products(
        self, made: Element, x: Element, other: Element, sizes: tuple[int, int, int], goes_on: bool = False
    ) -> tuple[Stmt, ...]:
        """For each place, rows by terms times terms by lanes; ``goes_on``: added to what is there."""
        rows, terms, width = sizes
        height, _ = tile_size(rows, width, self.lanes, self.machine.registers)
        place = Var("place", PLACES)
        body: list[Stmt] = []
        for count, first, size in _cut(rows, height):
            step, unit, lane, term = Var("step", count), Var("unit", size), Var("lane", width), Var("term", terms)
            at = index(place), index(step) * size + first + index(unit), index(lane)
            result = made(*at)
            total = Acc("total", "fma", self.dtype, result if goes_on else Const(0.0, self.dtype))
            update = Update(total.name, (x(at[0], at[1], index(term)), other(at[0], index(term), at[2])))
            summed = Accumulate((total,), (Loop("serial", term, (update,)),))
            value = Read(total.name, self.dtype, frozenset((unit, lane)))
            store = Store(result.buffer, result.offset, value)
            micro = (Loop("tile", unit, (Loop("vector", lane, (summed, store)),)),)
            body.append(Loop("serial", step, self._own(micro)))
        return (Loop("serial", place, tuple(body)),)


class _Convolution(_Form):
    """The weights transformed, then blocks of tiles."""

    def stmts(self) -> tuple[Stmt, ...]:
        channels = self.windows.channel.extent
        weights = [
            self._matrices("weights", columns.count, PLACES, channels, columns.width) for columns in self.columns
        ]
        both = list(zip(self.columns, weights, strict=True))
        height, _ = tile_size(self.tiles, self.width, self.lanes, self.machine.registers)
        tile_bytes = PLACES * (channels + self.width) * self.dtype.itemsize
        fitting = min(self.machine.l2_bytes // 2 // tile_bytes, self.tiles // WANTED_BLOCKS)
        blocks = []
        for count, first, tiles in _cut(self.tiles, max(fitting // height, 1) * height):
            block = Var("block", count)
            start = index(block) * tiles if count > 1 else Index((), first)
            blocks.append(Loop("serial", block, self._block(both, start, tiles)))
        transformed = (s for columns, kept in both for s in self._weights(columns, kept))
        return (*transformed, *one_after_another(self.kind, blocks))

    def _weights(self, columns: _Run, kept: _Matrices) -> tuple[Stmt, ...]:
        windows = self.windows
        column, lane = Var("column", columns.count), Var("lane", columns.width)
        channel = Var("channel", windows.channel.extent)
        terms = Terms(self.dtype, lane)
        at = {windows.channel: index(channel), windows.filter: columns.at(index(column), index(lane))}
        (_, down), (_, across) = windows.along
        square = [
            [terms.element(windows.other, {**at, down: Index((), i), across: Index((), j)}) for j in range(3)]
            for i in range(3)
        ]
        for place, value in enumerate(both_ways(terms, of_weights, square)):
            terms.stmts.append(kept.store((index(column), Index((), place), index(channel), index(lane)), value))
        body = self._in_lanes(lane, terms)
        return (Local(kept.buffer), *shared_out(sharing(kept.buffer.size, PARALLEL_WORK), [column, channel], body))

    def _block(self, weights: Sequence[tuple[_Run, _Matrices]], start: Index, tiles: int) -> tuple[Stmt, ...]:
        """A number of tiles from ``start``."""
        channels = self.windows.channel.extent
        given = self._matrices("tiles", PLACES, tiles, channels)
        body: list[Stmt] = [Local(given.buffer), *self._inputs(given, _Run(1, 0, channels), Index(), start)]
        for columns, kept in weights:
            made = self._matrices("products", PLACES, tiles, columns.width)
            column = Var("column", columns.count)
            of_column = partial(kept.load, index(column))
            products = self._products(made.load, given.load, of_column, (tiles, channels, columns.width))
            results = self._results(made, columns, index(column), start)
            body += [Local(made.buffer), Loop("serial", column, (*products, *results))]
        return tuple(body)

    def _results(self, made: _Matrices, columns: _Run, column: Index, start: Index) -> tuple[Stmt, ...]:
        _, tiles, width = made.shape
        tile, lane = Var("tile", tiles), Var("lane", width)
        terms = Terms(self.dtype, lane)
        at, corner = self._tile(start + index(tile))
        at[self.windows.filter] = columns.at(column, index(lane))
        square = _square(terms.let(made.load(Index((), n), index(tile), index(lane))) for n in range(PLACES))
        for n, value in enumerate(both_ways(terms, to_results, square)):
            place = {v: first + i for (v, _), first, i in zip(self.windows.along, corner, divmod(n, 2), strict=True)}
            after = Copier({**at, **place}, f"_{n}").stmts((Let(ACCUMULATOR, value), *self.nest.after))
            exists = both(*(in_range(i, v.extent) for v, i in place.items()))
            terms.stmts.extend((If(exists, after),) if exists else after)
        return (Loop("serial", tile, self._in_lanes(lane, terms)),)


class _WeightGradient(_Form):
    """Parts of all tiles summed, each in blocks, then their totals added and transformed back."""

    def __init__(self, nest: BilinearNest, windows: Windows, machine: Machine) -> None:
        super().__init__(nest, windows, machine)
        channels = windows.channel.extent
        weights = channels * windows.filter.extent
        self.runs = [_Run(*cut) for cut in _cut(channels, piece(channels, RUN_CHANNELS))]
        wanted = max(min(WANTED_BLOCKS, PARTS_WEIGHTS // weights, self.tiles // PART_TILES), 1)
        self.parts = list(_cut(self.tiles, -(-self.tiles // piece(self.tiles, wanted))))
        self.copying: tuple[Stmt, ...] = ()
        self.given = windows.other
        if windows.other.stride(windows.filter) != 1:
            names = [*(v for v in nest.reduce if windows.other.depends(v)), windows.filter]
            self.copying, self.given = copied(windows.other, names, self.dtype, PARALLEL_WORK)

    def stmts(self) -> tuple[Stmt, ...]:
        parts = sum(count for count, _, _ in self.parts)
        memory: list[Stmt] = []
        sums: list[Loop] = []
        results: list[Stmt] = []
        for run, columns in product(self.runs, self.columns):
            shape = (run.count, columns.count, parts, PLACES, run.width, columns.width)
            totals = self._matrices("totals", *shape)
            memory.append(Local(totals.buffer))
            done = 0
            for count, first, tiles in self.parts:
                block = Var("block", run.count * columns.count * count)
                at = index(block) if block.extent > 1 else Index()
                number, column, part = unravel(at, (run.count, columns.count, count))
                body = self._part(totals, run, columns, (number, column, part + done), part * tiles + first, tiles)
                sums.append(Loop("serial", block, body))
                done += count
            results += self._results(totals, run, columns)
        return (*self.copying, *memory, *one_after_another(self.kind, sums), *results)

    def _part(
        self, totals: _Matrices, run: _Run, columns: _Run, at: tuple[Index, Index, Index], start: Index, tiles: int
    ) -> tuple[Stmt, ...]:
        """The sums over a number of tiles from ``start``, of a run of channels and a column of filters."""
        number, column, _ = at
        rows, width = run.width, columns.width
        lane = Var("lane", PLACES * (rows + 1) * width)
        first = totals.load(*at, Index(), Index(), Index()).offset
        zero = Store(totals.buffer, first + index(lane), Const(0.0, self.dtype))
        body = list(strip(lane, 4 * self.lanes, [zero]))
        fitting = max(self.machine.l2_bytes // 2 // (PLACES * (rows + width) * self.dtype.itemsize), 1)
        for count, begin, length in _cut(tiles, piece(tiles, fitting)):
            chunk = Var("chunk", count)
            here = start + index(chunk) * length + begin
            seen = self._matrices("tiles", PLACES, length, rows)
            given = self._matrices("gradients", PLACES, length, width)
            products = self._products(
                partial(totals.load, *at), partial(_transposed, seen), given.load, (rows, length, width), goes_on=True
            )
            stmts = (*self._inputs(seen, run, number, here), *self._gradients(given, columns, column, here), *products)
            body.append(Loop("serial", chunk, (Local(seen.buffer), Local(given.buffer), *stmts)))
        return tuple(body)

    def _gradients(self, given: _Matrices, columns: _Run, column: Index, start: Index) -> tuple[Stmt, ...]:
        """Tiles of the result's gradient from ``start`` on; zero behind the border."""
        _, tiles, width = given.shape
        tile, lane = Var("tile", tiles), Var("lane", width)
        terms = Terms(self.dtype, lane)
        at, corner = self._tile(start + index(tile))
        at[self.windows.filter] = columns.at(column, index(lane))
        square: list[list[Expr]] = [[], []]
        for i, j in product(range(2), repeat=2):
            place = {v: first + n for (v, _), first, n in zip(self.windows.along, corner, (i, j), strict=True)}
            exists = both(*(in_range(n, v.extent) for v, n in place.items()))
            inside = {v: _inside(n, v.extent - 1) for v, n in place.items()}
            square[i].append(terms.element(self.given, {**at, **inside}, exists))
        for n, value in enumerate(both_ways(terms, of_results, square)):
            terms.stmts.append(given.store((Index((), n), index(tile), index(lane)), value))
        return (Loop("serial", tile, self._in_lanes(lane, terms)),)

    def _results(self, totals: _Matrices, run: _Run, columns: _Run) -> tuple[Stmt, ...]:
        """The totals of all parts, added, and what they give."""
        windows = self.windows
        number, column, channel = Var("run", run.count), Var("column", columns.count), Var("channel", run.width)
        part, lane = Var("part", totals.shape[2]), Var("lane", columns.width)
        terms = Terms(self.dtype, lane)
        names = [f"m{n}" for n in range(PLACES)]
        at = index(number), index(column), index(part)
        updates = (
            Update(name, (totals.load(*at, Index((), n), index(channel), index(lane)),)) for n, name in enumerate(names)
        )
        accs = tuple(Acc(name, "add", self.dtype, Const(0.0, self.dtype)) for name in names)
        terms.stmts.append(Accumulate(accs, (Loop("serial", part, tuple(updates)),)))
        square = _square(map(terms.read, names))
        place = {windows.channel: run.at(index(number), index(channel))}
        place[windows.filter] = columns.at(index(column), index(lane))
        for n, value in enumerate(both_ways(terms, to_weights, square)):
            within = {k: Index((), i) for (_, k), i in zip(windows.along, divmod(n, 3), strict=True)}
            terms.stmts.extend(Copier({**place, **within}, f"_{n}").stmts((Let(ACCUMULATOR, value), *self.nest.after)))
        kind = sharing(totals.buffer.size, PARALLEL_WORK)
        return shared_out(kind, [number, column, channel], self._in_lanes(lane, terms))


def _square(values: Iterable[Expr]) -> list[list[Expr]]:
    listed = list(values)
    return [listed[n : n + 4] for n in range(0, PLACES, 4)]


def _transposed(matrices: _Matrices, place: Index, row: Index, column: Index) -> Load:
    return matrices.load(place, column, row)

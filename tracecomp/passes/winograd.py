"""Convolutions by small windows from fewer products than window by window, such as F(2x2, 3x3): 16 instead of 36.

Tiles of what two neighbouring results along each axis see, and the weights, are transformed and multiplied place by
place: as many products of matrices, tiles by channels times channels by filters. What they give is transformed back
(``tile_transforms.py``; Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016). A block of tiles
stays in cache from the first transformation to the last. Whether a convolution is computed so depends on its sizes
alone, and every sum has one order, whatever the blocks and threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product
from math import gcd, prod

from tracecomp.ir.index import Index, Var, computed, index, linear, unravel
from tracecomp.ir.loops import (
    Acc,
    Accumulate,
    Buffer,
    Call,
    Const,
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
from tracecomp.ir.types import float32, float64, int64
from tracecomp.passes.bilinear import ACCUMULATOR, BilinearNest, Operand, product_of
from tracecomp.passes.machine import Machine
from tracecomp.passes.rename import Copier
from tracecomp.passes.schedule import sharing
from tracecomp.passes.schedule_bilinear import PARALLEL_WORK
from tracecomp.passes.strips import one_after_another, positions, shared_out, strip
from tracecomp.passes.tile_plan import tile_size
from tracecomp.passes.tile_transforms import Form, Terms, along_each, form_of

MOST_PLACES = 64
LEAST_SPEED = 1.1
TRANSFORMING = 5
TRANSFORMING_WEIGHTS = 20
"""What transforming an element costs, in multiply-adds; weights come from further away than tiles."""
WANTED_BLOCKS = 8


@dataclass(frozen=True)
class Sizes:
    """``out`` results along one axis, of ``window`` places each, ``dilation`` apart, moving by ``stride``."""

    out: int
    window: int
    stride: int
    dilation: int

    @property
    def form(self) -> Form | None:
        return form_of(self.window, self.stride)

    @property
    def pairs(self) -> int:
        """Pairs of results for one remainder of the place modulo the dilation, whose windows share elements."""
        return -(-self.out // (2 * self.dilation))


def speed(channels: int, filters: int, images: int, axes: Sequence[Sizes]) -> float:
    """About how many times as fast as window by window this form is; 1 where it does not pay."""
    forms = [axis.form for axis in axes if axis.form]
    places = prod(form.places for form in forms)
    pairs = prod(axis.pairs * axis.dilation for axis in axes)
    if len(forms) < len(axes) or places > MOST_PLACES or 0 in (channels, filters, images * pairs):
        return 1.0
    transforming = TRANSFORMING * (1 / channels + 1 / filters) + TRANSFORMING_WEIGHTS / (images * pairs)
    products = pairs * places * (1 + transforming)
    estimate = prod(axis.out * axis.window for axis in axes) / products
    return estimate if estimate >= LEAST_SPEED else 1.0


@dataclass(frozen=True)
class Axis:
    """An axis along which windows move: the result's place, the place in a window.

    ``dilation`` steps of the one come to what ``stride`` steps of the other come to.
    """

    place: Var
    within: Var
    stride: int
    dilation: int

    @property
    def sizes(self) -> Sizes:
        return Sizes(self.place.extent, self.within.extent, self.stride, self.dilation)

    def seen(self, first: Index, form: Form) -> list[dict[Var, Index]]:
        """Where what the result at ``first`` and the next one see is read, in order."""
        found = []
        for n in range(form.seen):
            later = n >= self.within.extent
            place = _up_to(first + self.dilation * later, self.place.extent - 1)
            found.append({self.place: place, self.within: Index((), n - self.stride * later)})
        return found


@dataclass(frozen=True)
class Windows:
    """The variables of a convolution by small windows.

    ``x`` moves along the axes and over ``images``, ``w`` over the windows and ``filter``, both over ``groups`` and
    ``channel``.
    """

    images: list[Var]
    groups: list[Var]
    axes: list[Axis]
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
    sizes = [axis.sizes for axis in found.axes]
    pays = speed(found.channel.extent, found.filter.extent, product_of(found.images), sizes) > 1
    return found if pays else None


def _windows(nest: BilinearNest, x: Operand, w: Operand) -> Windows | None:
    groups, filters = ([v for v in nest.out if w.depends(v) and x.depends(v) == shared] for shared in (True, False))
    others = [v for v in nest.out if not w.depends(v)]
    axes = [axis for p in others for k in nest.reduce if w.depends(k) for axis in _axis(x, p, k)]
    moved = [v for axis in axes for v in (axis.place, axis.within)]
    channels = [v for v in nest.reduce if v not in moved]
    if not axes or len(set(moved)) != len(moved) or len(filters) != 1 or len(channels) != 1:
        return None
    images = [v for v in others if v not in moved]
    return Windows(images, groups, axes, filters[0], channels[0], x, w)


def _axis(x: Operand, place: Var, within: Var) -> list[Axis]:
    """The axis of the two, if windows move along it and overlap."""
    one, other = x.stride(place), x.stride(within)
    if not one or not other:
        return []
    step, apart = (n // gcd(one, other) for n in (one, other))
    if not (0 < step < within.extent and 0 < apart < place.extent):
        return []
    moved = [Copier({v: index(v) + n}) for v, n in ((place, apart), (within, step))]
    seen, also = ((copier.stmts(x.stmts), copier.expr(x.expr)) for copier in moved)
    return [Axis(place, within, step, apart)] if seen == also else []


def _up_to(at: Index, last: int) -> Index:
    """``at``, or ``last``, where a tile ends behind it."""
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
        self.forms = [form for axis in windows.axes if (form := axis.sizes.form)]
        self.places = prod(form.places for form in self.forms)
        sides = [(axis.dilation, axis.sizes.pairs) for axis in windows.axes]
        self.shape = (*(v.extent for v in windows.images), *chain(*sides))
        self.groups = product_of(windows.groups)
        self.channels, filters = windows.channel.extent, windows.filter.extent
        width = min(4 * self.lanes, filters)
        self.columns = [
            _Columns(count, first, length, self._buffer(f"weights{first}", count, length))
            for count, first, length in _cut(filters, width)
        ]
        tiles = prod(self.shape)
        self.height, _ = tile_size(tiles, width, self.lanes, machine.registers)
        tile_bytes = self.places * (self.channels + width) * self.dtype.itemsize
        fitting = min(machine.l2_bytes // 2 // tile_bytes, tiles * self.groups // WANTED_BLOCKS)
        self.block = max(fitting // self.height, 1) * self.height
        self.copies = 0

    def _own(self, body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        """The statements with names of their own."""
        self.copies += 1
        return Copier({}, f"_{self.copies}").stmts(body)

    def _buffer(self, name: str, count: int, width: int) -> Buffer:
        return Buffer(name, self.dtype, self.groups * count * self.places * self.channels * width)

    def stmts(self) -> tuple[Stmt, ...]:
        blocks = []
        for count, first, tiles in _cut(prod(self.shape), self.block):
            block = Var("block", self.groups * count)
            group, at = (index(block) // count, index(block) % count) if count > 1 else (index(block), Index())
            blocks.append(Loop("serial", block, self._block(group, at * tiles + first, tiles)))
        weights = tuple(s for columns in self.columns for s in self._weights(columns))
        return (*weights, *one_after_another(sharing(self.nest.work, PARALLEL_WORK), blocks))

    def _weights(self, columns: _Columns) -> tuple[Stmt, ...]:
        windows = self.windows
        group, column = Var("group", self.groups), Var("column", columns.count)
        channel, lane = Var("channel", self.channels), Var("lane", columns.width)
        terms = Terms(self.dtype, lane)
        at = positions(windows.groups, index(group))
        at |= {windows.channel: index(channel), windows.filter: self._filter(columns, column, lane)}
        within = [axis.within for axis in windows.axes]
        square = [
            terms.element(windows.w, {**at, **dict(zip(within, (Index((), k) for k in place), strict=True))})
            for place in product(*(range(v.extent) for v in within))
        ]
        transforms = [(v.extent, form.of_weights) for v, form in zip(within, self.forms, strict=True)]
        for place, value in enumerate(along_each(terms, transforms, square)):
            offset = self._weight(columns, index(group), column, Index((), place), index(channel), lane)
            terms.stmts.append(Store(columns.weights, offset, value))
        body = self._own(strip(lane, self.lanes, terms.stmts))
        kind = sharing(columns.weights.size, PARALLEL_WORK)
        return (Local(columns.weights), *shared_out(kind, [group, column, channel], body))

    def _filter(self, columns: _Columns, column: Var, lane: Var) -> Index:
        return index(column) * columns.width + columns.first + index(lane)

    def _weight(
        self, columns: _Columns, group: Index, column: Var, place: Index, channel: Index, lane: Var
    ) -> Index:
        shape = (self.groups, columns.count, self.places, self.channels, columns.width)
        return linear((group, index(column), place, channel, index(lane)), shape)

    def _block(self, group: Index, start: Index, tiles: int) -> tuple[Stmt, ...]:
        """A number of tiles of a group from ``start``."""
        given = Buffer(f"tiles{tiles}", self.dtype, self.places * tiles * self.channels)
        body: list[Stmt] = [Local(given), *self._inputs(given, group, start, tiles)]
        for columns in self.columns:
            made = Buffer(f"products{tiles}_{columns.first}", self.dtype, self.places * tiles * columns.width)
            column = Var("column", columns.count)
            run = (
                *self._products(given, made, columns, group, column, tiles),
                *self._results(made, columns, group, column, start, tiles),
            )
            body += [Local(made), Loop("serial", column, run)]
        return tuple(body)

    def _corner(self, group: Index, tile: Index) -> tuple[dict[Var, Index], list[Index]]:
        """The group and image of a tile, and where its first result is along each axis."""
        windows = self.windows
        at = unravel(tile, self.shape)
        images, sides = at[: len(windows.images)], at[len(windows.images) :]
        pairs = zip(windows.axes, sides[::2], sides[1::2], strict=True)
        first = [pair * (2 * axis.dilation) + remainder for axis, remainder, pair in pairs]
        return positions(windows.groups, group) | dict(zip(windows.images, images, strict=True)), first

    def _inputs(self, given: Buffer, group: Index, start: Index, tiles: int) -> tuple[Stmt, ...]:
        windows = self.windows
        tile, lane = Var("tile", tiles), Var("lane", self.channels)
        terms = Terms(self.dtype, lane)
        at, first = self._corner(group, start + index(tile))
        at[windows.channel] = index(lane)
        seen = [axis.seen(n, form) for axis, n, form in zip(windows.axes, first, self.forms, strict=True)]
        square = [terms.element(windows.x, at | dict(chain(*(p.items() for p in places)))) for places in product(*seen)]
        transforms = [(form.seen, form.of_input) for form in self.forms]
        for place, value in enumerate(along_each(terms, transforms, square)):
            offset = linear((Index((), place), index(tile), index(lane)), (self.places, tiles, self.channels))
            terms.stmts.append(Store(given, offset, value))
        return (Loop("serial", tile, self._own(strip(lane, self.lanes, terms.stmts))),)

    def _products(
        self, given: Buffer, made: Buffer, columns: _Columns, group: Index, column: Var, tiles: int
    ) -> tuple[Stmt, ...]:
        """For each place, tiles by channels times channels by filters."""
        place = Var("place", self.places)
        body: list[Stmt] = []
        for count, first, height in _cut(tiles, self.height):
            step, unit, lane = Var("step", count), Var("unit", height), Var("lane", columns.width)
            channel = Var("channel", self.channels)
            tile = index(step) * height + first + index(unit)
            name = f"c_{made.name}_{first}"
            x = Load(given, linear((index(place), tile, index(channel)), (self.places, tiles, self.channels)))
            w = Load(columns.weights, self._weight(columns, group, column, index(place), index(channel), lane))
            total = Acc(name, "fma", self.dtype, Const(0.0, self.dtype))
            summed = Accumulate((total,), (Loop("serial", channel, (Update(name, (x, w)),)),))
            value = Read(name, self.dtype, frozenset((unit, lane)))
            offset = linear((index(place), tile, index(lane)), (self.places, tiles, columns.width))
            micro = (Loop("tile", unit, (Loop("vector", lane, (summed, Store(made, offset, value))),)),)
            body.append(Loop("serial", step, micro))
        return (Loop("serial", place, tuple(body)),)

    def _results(
        self, made: Buffer, columns: _Columns, group: Index, column: Var, start: Index, tiles: int
    ) -> tuple[Stmt, ...]:
        windows = self.windows
        tile, lane = Var("tile", tiles), Var("lane", columns.width)
        terms = Terms(self.dtype, lane)
        at, first = self._corner(group, start + index(tile))
        at[windows.filter] = self._filter(columns, column, lane)
        shape = (self.places, tiles, columns.width)
        products = [
            terms.let(Load(made, linear((Index((), n), index(tile), index(lane)), shape))) for n in range(self.places)
        ]
        transforms = [(form.places, form.of_products) for form in self.forms]
        results = along_each(terms, transforms, products)
        for n, later in enumerate(product(range(2), repeat=len(first))):
            steps = zip(windows.axes, first, later, strict=True)
            place = {axis.place: at_first + axis.dilation * second for axis, at_first, second in steps}
            after = Copier({**at, **place}, f"_{n}").stmts((Let(ACCUMULATOR, results[n]), *self.nest.after))
            exists = both(*(in_range(i, v.extent) for v, i in place.items()))
            terms.stmts.extend((If(exists, after),) if exists else after)
        return (Loop("serial", tile, self._own(strip(lane, self.lanes, terms.stmts))),)

"""Common parts of Winograd convolutions and weight gradients: tiles of input, products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, product
from math import prod

from tracecomp.ir.index import Index, Var, index, linear, unravel
from tracecomp.ir.loop_copy import Copier
from tracecomp.ir.loops import Acc, Accumulate, Buffer, Const, Expr, Load, Loop, Read, Stmt, Store, Update
from tracecomp.ir.pieces import Pieces, pieces
from tracecomp.ir.types import DType
from tracecomp.passes.contraction.tile_choice import tile_size
from tracecomp.passes.cost.parallel import parallel_kind_of_products
from tracecomp.passes.nests.contraction_nest import BilinearNest, product_of
from tracecomp.passes.schedule.records import Chooser
from tracecomp.passes.schedule.tiling import positions, strip
from tracecomp.passes.winograd.selection import Windows
from tracecomp.passes.winograd.transforms import Terms, along_each


@dataclass(frozen=True)
class Matrices:
    """Memory for values of ``shape``, of which the last three axes are positions, rows and columns.

    One row between positions is unused: at a power-of-two distance, the positions of one element would share few cache
    lines.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]

    @property
    def _kept(self) -> tuple[int, ...]:
        *outer, rows, columns = self.shape
        # One row more than needed: see the docstring.
        return (*outer, rows + 1, columns)

    @property
    def buffer(self) -> Buffer:
        return Buffer(self.name, self.dtype, prod(self._kept))

    def load(self, *position: Index) -> Load:
        return Load(self.buffer, linear(position, self._kept))

    def store(self, position: Sequence[Index], value: Expr) -> Store:
        return Store(self.buffer, linear(position, self._kept), value)


Element = Callable[[Index, Index, Index], Load]


class TileProducts:
    """The sizes of tiles and products, and the loops that compute them."""

    def __init__(self, nest: BilinearNest, windows: Windows, chooser: Chooser) -> None:
        self.nest, self.windows, self.machine = nest, windows, chooser.machine
        self.dtype = nest.acc.dtype
        self.lanes = self.machine.lanes(self.dtype.itemsize)
        self.forms = [axis.form for axis in windows.axes]
        self.places = prod(form.places for form in self.forms)
        sides = [(axis.dilation, axis.sizes.pairs) for axis in windows.axes]
        self.shape = (*(v.extent for v in windows.images), *chain(*sides))
        self.tiles = prod(self.shape)
        self.groups = product_of(windows.groups)
        self.channels = windows.channel.extent
        self.copies = 0

    def wide(self, extent: int) -> int:
        """Best width of a column of ``extent`` results: register tiles of products have rows times four vectors."""
        return min(4 * self.lanes, extent)

    def parallel_kind(self, work: float) -> str:
        return parallel_kind_of_products(work, self.machine)

    def _own(self, body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        """Return the statements with unique names."""
        # One kernel contains the statements of several tiles.
        self.copies += 1
        return Copier({}, f"_{self.copies}").stmts(body)

    def matrices(self, stem: str, *shape: int) -> Matrices:
        self.copies += 1
        return Matrices(f"{stem}{self.copies}", self.dtype, shape)

    def in_lanes(self, lane: Var, terms: Terms) -> tuple[Stmt, ...]:
        return self._own(strip(lane, self.lanes, terms.stmts))

    def corner(self, group: Index, tile: Index) -> tuple[dict[Var, Index], list[Index]]:
        """The group and image of a tile, and where its first result is along each axis."""
        windows = self.windows
        at = unravel(tile, self.shape)
        # Row-major: images, then for each axis the remainder modulo the dilation and the pair.
        images, sides = at[: len(windows.images)], at[len(windows.images) :]
        pairs = zip(windows.axes, sides[::2], sides[1::2], strict=True)
        # A pair consists of two results of one remainder: its windows share all elements but the first and the last.
        first = [pair * (2 * axis.dilation) + remainder for axis, remainder, pair in pairs]
        return positions(windows.groups, group) | dict(zip(windows.images, images, strict=True)), first

    def results_at(self, first: Sequence[Index]) -> list[dict[Var, Index]]:
        """The positions of a tile's results."""
        # The second result is one dilated step further.
        pairs = [(at, at + axis.dilation) for axis, at in zip(self.windows.axes, first, strict=True)]
        names = [axis.place for axis in self.windows.axes]
        return [dict(zip(names, place, strict=True)) for place in product(*pairs)]

    def weights_at(self) -> list[dict[Var, Index]]:
        """The positions of a window."""
        names = [axis.within for axis in self.windows.axes]
        return [
            dict(zip(names, (Index((), k) for k in place), strict=True))
            for place in product(*(range(v.extent) for v in names))
        ]

    def inputs(self, given: Matrices, group: Index, start: Index, run: Pieces, number: Index) -> tuple[Stmt, ...]:
        """Transform tiles of a group's input from ``start`` on, for the channels of a run."""
        windows = self.windows
        tile, lane = Var("tile", given.shape[-2]), Var("lane", run.length)
        terms = Terms(self.dtype, lane)
        at, first = self.corner(group, start + index(tile))
        at[windows.channel] = run.start(number) + index(lane)
        # If a tile reads outside the border, ``seen`` repeats the last position, so that no load leaves the image.
        seen = [axis.seen(n, form) for axis, n, form in zip(windows.axes, first, self.forms, strict=True)]
        square = [terms.element(windows.x, at | dict(chain(*(p.items() for p in places)))) for places in product(*seen)]
        transforms = [(form.seen, form.of_input) for form in self.forms]
        for place, value in enumerate(along_each(terms, transforms, square)):
            terms.stmts.append(given.store((Index((), place), index(tile), index(lane)), value))
        return (Loop("serial", tile, self.in_lanes(lane, terms)),)

    def products(
        self, made: Element, x: Element, other: Element, sizes: tuple[int, int, int], goes_on: bool = False
    ) -> tuple[Stmt, ...]:
        """Multiply, for each position, rows by terms with terms by lanes; ``goes_on``: add to the existing totals."""
        rows, terms, width = sizes
        # Register tiles of an ordinary matrix product. The sum over channels is in order, so each position is one sum.
        height, _ = tile_size(rows, width, self.lanes, self.machine.registers)
        place = Var("place", self.places)
        body: list[Stmt] = []
        for some in pieces(rows, height):
            step, unit = Var("step", some.count), Var("unit", some.length)
            lane, term = Var("lane", width), Var("term", terms)
            at = index(place), some.start(index(step)) + index(unit), index(lane)
            result = made(*at)
            # Gradients continue from the totals of the previous blocks; forward products start from zero.
            total = Acc("total", "fma", self.dtype, result if goes_on else Const(0.0, self.dtype))
            update = Update(total.name, (x(at[0], at[1], index(term)), other(at[0], index(term), at[2])))
            summed = Accumulate((total,), (Loop("serial", term, (update,)),))
            value = Read(total.name, self.dtype, frozenset((unit, lane)))
            store = Store(result.buffer, result.offset, value)
            micro = (Loop("tile", unit, (Loop("vector", lane, (summed, store)),)),)
            body.append(Loop("serial", step, self._own(micro)))
        return (Loop("serial", place, tuple(body)),)

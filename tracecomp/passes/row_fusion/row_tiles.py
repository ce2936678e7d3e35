"""Nests restricted to a block of the rows that several kernels have in common.

Kernels that compute and read each other's values row by row can alternate on a block of rows. This module turns a nest
for all rows into the nest for one block by replacing the variables that number rows. Values that the kernels pass to
each other must be within the block, element by element; otherwise ``Misaligned`` is raised. A contraction that sums
over rows adds a block's terms to totals, in the order of the whole sum. Convolutions by transformed tiles have separate
blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tracecomp.ir.graph import Value
from tracecomp.ir.index import Index, Var, index, linear, unravel
from tracecomp.ir.loops import Buffer, Const, Let, Load, Stmt, Store
from tracecomp.passes.fusion.groups import Group, Partition
from tracecomp.passes.nests.contraction_nest import ACCUMULATOR, BilinearNest, Operand, without_ones
from tracecomp.passes.nests.loop_nest import Nest
from tracecomp.passes.nests.scalar_exprs import Params
from tracecomp.passes.nests.store import Nests, taken
from tracecomp.passes.winograd.selection import windows_of


class Misaligned(Exception):
    """Raised for a kernel that does not run row by row."""


@dataclass(frozen=True)
class Rows:
    """Rows numbered by ``outer`` and a position below ``count``; a block is ``height`` of them from position
    ``first``."""

    outer: Var
    count: int
    first: Index
    height: int

    @property
    def total(self) -> int:
        return self.outer.extent * self.count

    @property
    # With extent 1 it is always 0 and needs no variable.
    def place(self) -> Index:
        """The value of ``outer``."""
        return index(self.outer) if self.outer.extent > 1 else Index()

    @property
    def base(self) -> Index:
        """The number of the block's first row."""
        return self.place * self.count + self.first

    def cut(self, height: int) -> list[Rows]:
        """Blocks of ``height`` rows, by their number ``part``, and the last block if it is lower."""
        whole, rest = divmod(self.count, height)
        blocks = [Rows(self.outer, self.count, index(Var("part", whole)) * height, height)]
        return [*blocks, Rows(self.outer, self.count, Index((), whole * height), rest)] if rest else blocks

    @property
    def around(self) -> tuple[Var, ...]:
        """The variables that number the blocks."""
        # ``outer`` and the block's number: offsets inside a block must not depend on them.
        return (self.outer, *sorted(self.first.vars(), key=lambda v: v.name))


@dataclass(frozen=True)
class Summed:
    """A contraction that sums over rows: ``start`` clears the totals, ``block`` adds, ``finish`` stores the results."""

    totals: Buffer
    start: Nest
    block: BilinearNest
    finish: Nest


class RowBlock:
    """Restrict nests to ``rows``. ``local`` maps values that are computed and read in the block to memory for a block.

    ``made`` are all values that the kernels compute row by row; reads of them must be within the block. Those of
    ``perhaps`` are checked: ``apart`` are the ones that are not computed row by row.
    """

    def __init__(
        self,
        rows: Rows,
        nests: Nests,
        params: Params,
        made: Sequence[Value],
        local: Mapping[Value, Buffer],
        perhaps: Sequence[Value] = (),
    ) -> None:
        self.rows = rows
        self.nests = nests
        self.params = params
        self.buffers: dict[Buffer, Buffer] = {}
        self.made = {params.of(v): v for v in (*made, *perhaps) if v not in params.slices}
        self.local = local
        self.perhaps = perhaps
        # A slice is interleaved with other values, so its rows are not dense.
        self.apart = {v for v in perhaps if v in params.slices}

    def nest(self, group: Group, partition: Partition) -> Nest | BilinearNest | Summed:
        """A group's nest for the block."""
        if group.kind != "bilinear":
            loops = self.nests.loops(group, partition)
            self.buffers = taken(loops, self.params)
            return replace(self._loops(loops), params=self.params)
        nest = self.nests.contraction(group, partition)
        self.buffers = taken(nest, self.params)
        # Tiles of two by two results would cross the block's border.
        if windows_of(without_ones(nest)):
            raise Misaligned
        nest = replace(nest, lhs=self._placed(nest.lhs), rhs=self._placed(nest.rhs), params=self.params)
        labels = self._labels(nest)
        # The labels are in the result, or else among the summed variables.
        if labels[-1] in nest.out:
            return self._bilinear(nest, labels)
        return self._summed(nest, labels)

    def _loops(self, nest: Nest) -> Nest:
        """A nest whose first row variable steps through whole rows."""
        # The first variable has to step through whole rows; otherwise a block would end within one.
        if not nest.outer or nest.outer[0].extent % self.rows.total:
            raise Misaligned
        first, *others = nest.outer
        each = first.extent // self.rows.total
        own = Var(first.name, self.rows.height * each)
        return nest.mapped({first: self.rows.base * each + index(own)}, [own, *others], nest.reduced, self._move)

    def _bilinear(self, nest: BilinearNest, labels: list[Var]) -> BilinearNest:
        """A contraction whose result has the rows."""
        if any(v not in nest.out for v in labels):
            raise Misaligned
        own, mapping = self._numbered(labels)
        # Outer labels are fixed by the block, the last one covers its rows.
        out = [own if v == labels[-1] else v for v in nest.out if v not in labels[:-1]]
        # The block's variables are around the nest: packing must not depend on them.
        return replace(nest.mapped(mapping, out, nest.reduce, self._move), outside=self.rows.around)

    def _summed(self, nest: BilinearNest, labels: list[Var]) -> Summed:
        """Restrict a contraction that sums over the rows of one value of ``outer``, outermost."""
        last = labels[-1]
        one_outer = last.extent == self.rows.count and all(v in nest.out for v in labels[:-1])
        # Outermost: a block then adds its terms to each total after those of the blocks before, in the order of the
        # whole sum.
        if nest.reduce[0] != last or not one_outer or nest.plain is None:
            raise Misaligned
        own, mapping = self._numbered(labels)
        out = [v for v in nest.out if v not in labels]
        at = linear([index(v) for v in out], [v.extent for v in out])
        totals = Buffer("totals", nest.acc.dtype, at.bounds[1] + 1 if at.bounds else 0)
        block = nest.mapped(mapping, out, [own, *nest.reduce[1:]], self._move)
        # Totals as the accumulator, so the epilogue runs unchanged after the last block.
        after: list[Stmt] = [Let(ACCUMULATOR, Load(totals, at)), *block.epilogue]
        finish = Nest(out, [], [after], self.params, 1, [])
        place = Var("i", totals.size)
        start = Nest([place], [], [[Store(totals, index(place), Const(0.0, totals.dtype))]], self.params, 1, [])
        block = replace(
            block, epilogue=[Store(totals, at, block.acc)], start=Load(totals, at), outside=self.rows.around
        )
        return Summed(totals, start, block, finish)

    def _numbered(self, labels: list[Var]) -> tuple[Var, dict[Var, Index]]:
        """Return the variable of the rows in the block, and the replacements of the ``labels`` that number all rows."""
        *outer, last = labels
        own = Var(last.name, self.rows.height)
        # The last label may number several outer positions times the rows of each.
        ratio = last.extent // self.rows.count
        place = self.rows.place
        mapping = dict(zip(outer, unravel(place // ratio, tuple(v.extent for v in outer)), strict=True))
        mapping[last] = (place % ratio) * self.rows.count + self.rows.first + index(own)
        return own, mapping

    def _placed(self, operand: Operand) -> Operand:
        load = operand.load
        return replace(operand, inside=load is not None and self.buffers[load.buffer] in self.made)

    def _labels(self, nest: BilinearNest) -> list[Var]:
        """The labels that together number the rows, outermost first."""
        # Results first; a read of another kernel's value takes precedence, as blocks consist of its rows.
        offset = linear([index(v) for v in nest.out], [v.extent for v in nest.out])
        width = offset.bounds[1] // self.rows.total + 1 if offset.bounds else 0
        for operand in (nest.lhs, nest.rhs):
            if operand.inside and operand.load is not None:
                offset = operand.load.offset
                width = self.made[self.buffers[operand.load.buffer]].type.numel // self.rows.total
        return _labels_of(offset, width, self.rows)

    def _move(self, buffer: Buffer, offset: Index) -> tuple[Buffer, Index]:
        """Redirect an access to a kernel's buffer, if its value is kept per block."""
        buffer = self.buffers.get(buffer, buffer)
        value = self.made.get(buffer)
        if value is None:
            return buffer, offset
        own = self._in_block(value, offset)
        if own is None and value not in self.perhaps:
            raise Misaligned
        # A value that is not row by row may still be stored, if no kernel inside reads it.
        if own is None:
            self.apart.add(value)
        return (self.local[value], own) if own is not None and value in self.local else (buffer, offset)

    def _in_block(self, value: Value, offset: Index) -> Index | None:
        """Return the offset from the block's first element; None if it may be outside."""
        # Legality from indices alone: the offset minus that of the block's first row must not depend on the block's
        # number, and must be below a block's size. Then every block accesses the same elements of its memory.
        width, rest = divmod(value.type.numel, self.rows.total)
        own = offset - self.rows.base * width
        bounds = own.bounds
        varies = own.vars() & set(self.rows.around)
        if rest or varies or bounds is None or bounds[0] < 0 or bounds[1] >= width * self.rows.height:
            return None
        return own


def _labels_of(offset: Index, width: int, rows: Rows) -> list[Var]:
    """The variables of ``offset`` that step through whole rows of ``width`` elements."""
    # Variables that step by a row or more, in order of their steps.
    terms = [(c, v) for v, c in offset.terms if isinstance(v, Var) and c >= width and v.extent > 1]
    labels = [v for _, v in sorted(terms, key=lambda t: -t[0])]
    steps = linear([index(v) for v in labels], [v.extent for v in labels]) * width
    inner = offset - steps
    total = steps.bounds[1] // width + 1 if steps.bounds else 0
    # They must number exactly the rows there are, and the last one has to be cut at whole outer positions.
    if not width or not labels or total != rows.total or labels[-1].extent % rows.count:
        raise Misaligned
    # The remainder must stay within a row, and not vary with the labels.
    if inner.vars() & set(labels) or inner.bounds is None or inner.bounds[1] >= width:
        raise Misaligned
    return labels

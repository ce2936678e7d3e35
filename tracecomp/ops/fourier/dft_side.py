"""Transforms in parallel: every lane of a vector is one of them, and nothing moves between lanes."""

from __future__ import annotations

from tracecomp.ir.index import Index, index
from tracecomp.ir.loops import Buffer, Load, Loop, Stmt, Store
from tracecomp.ir.pieces import pieces
from tracecomp.ops.fourier.butterflies import Complex, Writer
from tracecomp.ops.fourier.dft_passes import Scratch, Sink, Source, Transform, at, locals_of, over
from tracecomp.ops.statements import vectors

TILE = 16
"""Rows that are lanes of one vector: one register of 16 float32."""


class Side(Transform):
    """Lanes are the inner axes, or, if there are none, rows, which are transposed on input and output."""

    def statements(self) -> list[Stmt]:
        lanes = self.plan.lanes
        block = self.names.var(lanes.count * (self.rows if self.inner > 1 else 1))
        second = self.plan.second
        scratch = self.scratch(self.plan.points + (1 if second is None else self.plan.first.points), lanes.width)
        start = lanes.start(at(block) % lanes.count)
        row = at(block) // lanes.count
        body = self._columns(row, start, scratch) if self.inner > 1 else self._rows(start, scratch)
        return [Loop("parallel", block, (*locals_of(scratch), *body))]

    def _columns(self, row: Index, start: Index, scratch: tuple[Scratch, Scratch]) -> list[Stmt]:
        n, inner = self.plan.points, self.inner
        size = n if self.form == "c2c" else n + 1  # points of the complex end

        def place(j: Index, lane: Index, size: int) -> Index:
            return (row * size + j) * inner + start + lane

        def pairs(j: Index, lane: Index) -> Complex:
            return self.pairs(place(j, lane, size))

        def store_pairs(w: Writer, j: Index, lane: Index, value: Complex) -> None:
            self.store_pairs(w, place(j, lane, size), value)

        def rows(j: Index, lane: Index) -> Complex:
            return Load(self.ins[0], place(j * 2, lane, 2 * n)), Load(self.ins[0], place(j * 2 + 1, lane, 2 * n))

        def store_rows(w: Writer, j: Index, lane: Index, value: Complex) -> None:
            w.stmts += [Store(self.outs[0], place(j * 2 + part, lane, 2 * n), value[part]) for part in range(2)]

        width = self.plan.lanes.width
        if self.form == "c2c":
            return self._transformed(width, scratch, self.given(pairs), self.result(store_pairs))
        if self.form == "c2r":
            stmts = self._transformed(width, scratch[::-1], self.given(scratch[0].read), self.result(store_rows))
            return [*self._split(width, pairs, scratch[0].write), *stmts]
        found = scratch[(self._turns() + 1) % 2]
        return [*self._transformed(width, scratch, rows, found.write), *self._join(found, store_pairs)]

    def _turns(self) -> int:
        """How often elements are read from memory: after the first pass from alternating scratch memory."""
        return len(self.plan.first.radices) if self.plan.second is None else 2

    def _transformed(self, width: int, scratch: tuple[Scratch, Scratch], source: Source, sink: Sink) -> list[Stmt]:
        """Transforms of ``width`` lanes: passes over all points, or two stages as in ``dft_stages.py``."""
        first, second, names = self.plan.first, self.plan.second, self.names
        if second is None:
            return self.passes(first, width, scratch, source, sink)
        between, n1, n2 = scratch[0], first.points, second.points
        pitch = n2 + 1  # a power of two would map a column to one cache set
        column, row = names.var(n2), names.var(n1)
        one, two = self.scratch(n1, width), self.scratch(n2, width)

        def turned(w: Writer, k: Index, lane: Index, value: Complex) -> None:
            root = at(column) * (2 * n1) + k * 2 + self.plan.twiddles
            times = w.times(value, w.pair((Load(self.table, root), Load(self.table, root + 1))))
            between.write(w, k * pitch + at(column), lane, times)

        def found(w: Writer, k: Index, lane: Index, value: Complex) -> None:
            sink(w, at(row) + k * n1, lane, value)

        down = self.passes(first, width, one, lambda j, lane: source(j * n2 + at(column), lane), turned)
        along = self.passes(second, width, two, lambda j, lane: between.read(at(row) * pitch + j, lane), found)
        loops = (Loop("serial", column, tuple(down)), Loop("serial", row, tuple(along)))
        return [*locals_of(one), *locals_of(two), *loops]

    def _rows(self, start: Index, scratch: tuple[Scratch, Scratch]) -> list[Stmt]:
        width = self.plan.lanes.width
        given, other = scratch
        stmts = [s for part, x in enumerate(self.ins) for s in self._turned(given, x, part, len(self.ins), start)]
        if self.form == "c2r":
            stmts += self._split(width, given.read, other.write)
            given, other = other, given
        found = (given, other)[self._turns() % 2]
        write = found.write if self.form == "r2c" else self.result(found.write)
        stmts += self._transformed(width, (other, given), self.given(given.read), write)
        if self.form == "r2c":
            joined = given if found is other else other
            stmts += self._join(found, joined.write)
            found = joined
        back = (self._turned_back(found, out, part, len(self.outs), start) for part, out in enumerate(self.outs))
        return [*stmts, *(s for part in back for s in part)]

    def _turned(self, to: Scratch, x: Buffer, first: int, step: int, start: Index) -> list[Stmt]:
        """Load the numbers of each row of ``x`` as vectors over rows: ``step`` apart, from vector ``first`` on."""
        count = x.size // self.rows

        def body(i: Index) -> list[Stmt]:
            row = self.names.var(to.width)
            value = Load(x, (start + index(row)) * count + i)
            return [Loop("tile", row, (Store(to.buffer, (i * step + first) * to.width + index(row), value),))]

        return vectors(self.names, count, body, chunk=TILE)

    def _turned_back(self, given: Scratch, out: Buffer, first: int, step: int, start: Index) -> list[Stmt]:
        """Store vectors over rows to the rows of ``out``."""
        count = out.size // self.rows
        if given.width == 1:
            return vectors(
                self.names, count, lambda i: [Store(out, start * count + i, Load(given.buffer, i * step + first))]
            )
        found: list[Stmt] = []
        for p in pieces(count, TILE):
            block, i, lane = self.names.var(p.count), self.names.var(p.length), self.names.var(given.width)
            number = p.start(at(block)) + index(i)
            value = Load(given.buffer, (number * step + first) * given.width + index(lane))
            store = Store(out, (start + index(lane)) * count + number, value)
            found.append(Loop("serial", block, (Loop("tile", i, (over(lane, [store]),)),)))
        return found

    def _join(self, given: Scratch, sink: Sink) -> list[Stmt]:
        """Half spectra from the transforms of even elements plus i times odd ones."""
        n, width = self.plan.points, given.width
        one, lane, k = self.names.var(width), self.names.var(width), self.names.var(n + 1)
        around, w = Writer(self.names), Writer(self.names)
        given.write(around, Index((), n), index(one), given.read(Index(), index(one)))
        a, b = (w.pair(given.read(place, index(lane))) for place in (index(k), n - index(k)))
        sink(w, index(k), index(lane), self.joined(w, a, b, index(k)))
        return [over(one, around.stmts), Loop("serial", k, (over(lane, w.stmts),))]

    def _split(self, width: int, source: Source, sink: Sink) -> list[Stmt]:
        """Recover the spectrum of even elements plus i times odd ones from half spectra."""
        n = self.plan.points
        one, lane, k = self.names.var(width), self.names.var(width), self.names.var(n - 1)
        ends, w = Writer(self.names), Writer(self.names)
        first, last = source(Index(), index(one)), source(Index((), n), index(one))
        sink(ends, Index(), index(one), self.split_ends(ends, first, last))
        place = at(k) + 1
        sink(w, place, index(lane), self.split(w, source(place, index(lane)), source(n - place, index(lane)), place))
        return [over(one, ends.stmts), Loop("serial", k, (over(lane, w.stmts),))]

"""The transform of one long row in two stages of columns, with a transposition between them."""

from __future__ import annotations

from collections.abc import Callable

from tracecomp.ir.index import Index, index
from tracecomp.ir.loops import Buffer, Load, Local, Loop, Stmt, Store
from tracecomp.ops.fourier.butterflies import Complex, Writer
from tracecomp.ops.fourier.dft_passes import Transform, at, locals_of, over
from tracecomp.ops.fourier.dft_plan import Blocks, Columns

Step = tuple[int, Callable[[Index, Index, Index], list[Stmt]]]
"""Number of blocks in a step of a row, and the statements for (row, slot of its scratch memory, block)."""

LONG, FEW_ROWS = 1 << 13, 8
"""Points above which threads share each of fewer rows than this; otherwise they share the rows."""


class Stages(Transform):
    """Two stages, ``points = n1 * n2``: element ``j1 * n2 + j2`` of the operand, element ``k1 + n1 * k2`` of the
    result.

    Columns of n1 elements have lanes over j2, those of n2 elements over k1. Results of the first stage are in
    ``between``, block by block, and are transposed for the second stage. ``whole`` has the transform of a row's even
    elements plus i times its odd ones.
    """

    def statements(self) -> list[Stmt]:
        shared = self.rows < FEW_ROWS and self.plan.points >= LONG
        slots = self.rows if shared else 1
        lanes, dtype = self.plan.lanes, self.dtype
        size = 2 * self.plan.first.points * lanes.count * lanes.width
        self.between = Buffer(self.names.let(), dtype, slots * size)
        self.whole = Buffer(self.names.let(), dtype, slots * 2 * (self.plan.points + 1))
        local = [Local(self.between), *([] if self.form == "c2c" else [Local(self.whole)])]
        if shared:
            return [*local, *(self._shared(*step) for step in self._steps())]
        row = self.names.var(self.rows)
        found: list[Stmt] = list(local)
        for count, body in self._steps():
            block = self.names.var(count)
            found.append(Loop("serial", block, tuple(body(at(row), Index(), at(block)))))
        return [Loop("parallel", row, tuple(found))]

    def _shared(self, count: int, body: Callable[[Index, Index, Index], list[Stmt]]) -> Stmt:
        both = self.names.var(self.rows * count)
        row = at(both) // count
        return Loop("parallel", both, tuple(body(row, row, at(both) % count)))

    def _steps(self) -> list[Step]:
        second = self.plan.second
        assert second is not None
        kept = Blocks(self.plan.first.points, min(self.plan.first.points, self.most))
        steps: list[Step] = [
            (self.plan.lanes.count, self._first),
            (kept.count, lambda row, slot, block: self._second(second, kept, row, slot, block)),
        ]
        points = self.plan.points
        if self.form == "r2c":
            pieces = Blocks(points + 1, min(points + 1, self.most))
            join: Step = (pieces.count, lambda row, slot, block: self._join(pieces, row, slot, block))
            return [*steps, (1, self._around), join]
        if self.form == "c2r":
            inside = Blocks(points - 1, min(points - 1, self.most))
            split: Step = (inside.count, lambda row, slot, block: self._split(inside, row, slot, block))
            return [(1, self._ends), split, *steps]
        return steps

    def _between(self, slot: Index, block: Index, k: Index, part: int, lane: Index) -> Index:
        lanes = self.plan.lanes
        return (((slot * lanes.count + block) * self.plan.first.points + k) * 2 + part) * lanes.width + lane

    def _whole(self, slot: Index, k: Index) -> tuple[Index, Index]:
        start = slot * 2 * (self.plan.points + 1) + k
        return start, start + self.plan.points + 1

    def _in_whole(self, slot: Index, k: Index) -> Complex:
        re, im = self._whole(slot, k)
        return Load(self.whole, re), Load(self.whole, im)

    def _to_whole(self, w: Writer, slot: Index, k: Index, value: Complex) -> None:
        w.stmts += [Store(self.whole, place, part) for place, part in zip(self._whole(slot, k), value, strict=True)]

    # ---- stages

    def _first(self, row: Index, slot: Index, block: Index) -> list[Stmt]:
        """Columns of a block of lanes, times the roots between the stages."""
        first, lanes = self.plan.first, self.plan.lanes
        n, n2, start = self.plan.points, lanes.extent, lanes.start(block)

        def source(j: Index, lane: Index) -> Complex:
            place = j * n2 + start + lane
            return self._in_whole(slot, place) if self.form == "c2r" else self.pairs(row * n + place)

        def sink(w: Writer, k: Index, lane: Index, value: Complex) -> None:
            re, im = (self._between(Index(), block, k, part, lane) + self.plan.twiddles for part in range(2))
            found = w.times(value, w.pair((Load(self.table, re), Load(self.table, im))))
            w.stmts += [Store(self.between, self._between(slot, block, k, p, lane), found[p]) for p in range(2)]

        scratch = self.scratch(first.points, lanes.width)
        return [*locals_of(scratch), *self.passes(first, lanes.width, scratch, self.given(source), sink)]

    def _second(self, second: Columns, kept: Blocks, row: Index, slot: Index, block: Index) -> list[Stmt]:
        n, n1, start, lanes = self.plan.points, self.plan.first.points, kept.start(block), self.plan.lanes
        given, other = self.scratch(second.points, kept.width)
        number, k, lane = self.names.var(lanes.count), self.names.var(kept.width), self.names.var(lanes.width)
        turned = [
            Store(given.buffer, given.place(lanes.start(at(number)) + index(lane), part, index(k)),
                  Load(self.between, self._between(slot, at(number), start + index(k), part, index(lane))))
            for part in range(2)
        ]  # fmt: skip

        def sink(w: Writer, j: Index, lane: Index, value: Complex) -> None:
            place = start + lane + j * n1
            if self.form == "r2c":
                self._to_whole(w, slot, place, value)
            else:
                self.store_pairs(w, row * n + place, value)

        write = sink if self.form == "r2c" else self.result(sink)
        turn = Loop("serial", number, (Loop("tile", k, (over(lane, turned),)),))
        return [*locals_of((given, other)), turn, *self.passes(second, kept.width, (other, given), given.read, write)]

    # ---- half spectra

    def _around(self, row: Index, slot: Index, block: Index) -> list[Stmt]:
        """Frequency n, which is frequency 0."""
        w = Writer(self.names)
        self._to_whole(w, slot, Index((), self.plan.points), self._in_whole(slot, Index()))
        return w.stmts

    def _join(self, pieces: Blocks, row: Index, slot: Index, block: Index) -> list[Stmt]:
        w, lane, n = Writer(self.names), self.names.var(pieces.width), self.plan.points
        k = pieces.start(block) + index(lane)
        a, b = (w.pair(self._in_whole(slot, place)) for place in (k, n - k))
        self.store_pairs(w, row * (n + 1) + k, self.joined(w, a, b, k))
        return [over(lane, w.stmts)]

    def _ends(self, row: Index, slot: Index, block: Index) -> list[Stmt]:
        w, n = Writer(self.names), self.plan.points
        first, last = self.pairs(row * (n + 1)), self.pairs(row * (n + 1) + n)
        self._to_whole(w, slot, Index(), self.split_ends(w, first, last))
        return w.stmts

    def _split(self, pieces: Blocks, row: Index, slot: Index, block: Index) -> list[Stmt]:
        w, lane, n = Writer(self.names), self.names.var(pieces.width), self.plan.points
        k = pieces.start(block) + index(lane) + 1
        a, b = self.pairs(row * (n + 1) + k), self.pairs(row * (n + 1) + n - k)
        self._to_whole(w, slot, k, self.split(w, a, b, k))
        return [over(lane, w.stmts)]

"""Building blocks of the loops of every transform: passes of butterflies over vectors, and half spectra.

Vectors of complex numbers between passes are in scratch memory, real and imaginary parts alternating. All loops are
written for the forward transform; the backward one swaps the parts on both ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tracecomp.ir.immutable import immutable
from tracecomp.ir.index import Index, Var, index
from tracecomp.ir.loops import Buffer, Const, IndexValue, Load, Local, Loop, Stmt, Store
from tracecomp.ir.scalars import call
from tracecomp.ir.types import int64
from tracecomp.ops.fourier.butterflies import Complex, Writer, butterfly
from tracecomp.ops.fourier.dft_plan import VECTOR, Columns, Plan
from tracecomp.ops.statements import Names

Source = Callable[[Index, Index], Complex]
"""The element at (position, lane)."""

Sink = Callable[[Writer, Index, Index, Complex], None]
"""Stores the element at (position, lane)."""


@immutable
class Scratch:
    """Complex vectors of ``width`` lanes: part ``p`` of vector ``j`` is row ``2 * j + p`` of ``buffer``."""

    buffer: Buffer
    width: int

    def place(self, j: Index, part: int, lane: Index) -> Index:
        return (j * 2 + part) * self.width + lane

    def read(self, j: Index, lane: Index) -> Complex:
        return Load(self.buffer, self.place(j, 0, lane)), Load(self.buffer, self.place(j, 1, lane))

    def write(self, w: Writer, j: Index, lane: Index, value: Complex) -> None:
        w.stmts += [Store(self.buffer, self.place(j, part, lane), value[part]) for part in range(2)]


class Transform:
    """One transform of (rows, points, inner), with roots from ``table``; see ``ops/fourier/dft.py``.

    ``ins`` and ``outs`` are one buffer each, or two if real and imaginary parts are separate.
    """

    def __init__(
        self, plan: Plan, ins: Sequence[Buffer], table: Buffer, outs: Sequence[Buffer], rows: int, inner: int,
        form: str, forward: bool, scale: float,
    ) -> None:  # fmt: skip
        self.names = Names()
        self.plan, self.ins, self.table, self.outs = plan, ins, table, outs
        self.rows, self.inner, self.form, self.forward, self.scale = rows, inner, form, forward, scale
        self.dtype = table.dtype
        self.most = VECTOR // self.dtype.itemsize

    def scratch(self, points: int, width: int) -> tuple[Scratch, Scratch]:
        """Memory for all vectors before and after a pass."""
        one, two = (Buffer(self.names.let(), self.dtype, 2 * points * width) for _ in range(2))
        return Scratch(one, width), Scratch(two, width)

    # ---- the ends

    def pairs(self, start: Index) -> Complex:
        """The operand's complex number ``start``."""
        if len(self.ins) == 2:
            return Load(self.ins[0], start), Load(self.ins[1], start)
        return Load(self.ins[0], start * 2), Load(self.ins[0], start * 2 + 1)

    def store_pairs(self, w: Writer, start: Index, value: Complex) -> None:
        """``value`` as the result's complex number ``start``."""
        if len(self.outs) == 2:
            w.stmts += [Store(out, start, part) for out, part in zip(self.outs, value, strict=True)]
            return
        part = self.names.var(2)
        chosen = call("select", call("eq", IndexValue(index(part)), Const(0, int64)), *value)
        w.stmts.append(Loop("tile", part, (Store(self.outs[0], start * 2 + index(part), chosen),)))

    def given(self, source: Source) -> Source:
        """``source`` in the form that the forward transform reads."""
        return source if self.forward else lambda j, lane: source(j, lane)[::-1]

    def result(self, sink: Sink) -> Sink:
        """``sink`` for the results of the forward transform."""

        def store(w: Writer, j: Index, lane: Index, value: Complex) -> None:
            sink(w, j, lane, w.scaled(value if self.forward else value[::-1], self.scale))

        return store

    # ---- passes

    def passes(self, c: Columns, width: int, scratch: Sequence[Scratch], source: Source, sink: Sink) -> list[Stmt]:
        """Transforms of ``width`` lanes, in parallel: passes alternate between the two ``scratch`` buffers."""
        done, found = 1, []
        for n, (radix, table) in enumerate(zip(c.radices, c.at, strict=True)):
            rest = c.points // (done * radix)
            to = scratch[n % 2].write if n + 1 < len(c.radices) else sink
            found.append(self._pass(radix, done, rest, table, width, source, to))
            source, done = scratch[n % 2].read, done * radix
        return found

    def _pass(self, radix: int, done: int, rest: int, table: int, width: int, source: Source, sink: Sink) -> Stmt:
        """Butterflies of elements ``done * rest`` apart, with results ``done`` apart."""
        w, names = Writer(self.names), self.names
        q, p, lane = names.var(done), names.var(rest), names.var(width)
        read, write = at(q) + at(p) * done, at(q) + at(p) * (done * radix)
        xs = [source(read + j * done * rest, index(lane)) for j in range(radix)]
        for k, y in enumerate(butterfly(w, [*map(w.pair, xs)])):
            if k and rest > 1:
                root = at(p) * (2 * (radix - 1)) + (table + 2 * (k - 1))
                y = w.times(y, w.pair((Load(self.table, root), Load(self.table, root + 1))))
            sink(w, write + k * done, index(lane), y)
        return Loop("serial", q, (Loop("serial", p, (Loop("vector", lane, tuple(w.stmts)),)),))

    # ---- half spectra

    def joined(self, w: Writer, a: Complex, b: Complex, k: Index) -> Complex:
        """Frequency ``k`` of a real row, from those of its even elements plus i times its odd ones.

        ``a`` is frequency k of these, ``b`` frequency n - k: ``(a + conj(b) - i * root * (a - conj(b))) / 2``.
        """
        cos, sin = self._half_root(w, k)
        even = w.op("add", a[0], b[0]), w.op("sub", a[1], b[1])
        odd = w.op("sub", a[0], b[0]), w.op("add", a[1], b[1])
        re = w.op("fma", sin, odd[0], call("fma", cos, odd[1], even[0]))
        im = w.op("fma", sin, odd[1], call("fma", call("neg", cos), odd[0], even[1]))
        return w.scaled((re, im), self.scale / 2)

    def split(self, w: Writer, a: Complex, b: Complex, k: Index) -> Complex:
        """The reverse of ``joined``, twice as large: ``a + conj(b) + i * conj(root) * (a - conj(b))``."""
        cos, sin = self._half_root(w, k)
        a, b = w.pair(a), w.pair(b)
        even = w.op("add", a[0], b[0]), w.op("sub", a[1], b[1])
        odd = w.op("sub", a[0], b[0]), w.op("add", a[1], b[1])
        re = w.op("fma", sin, odd[0], call("fma", call("neg", cos), odd[1], even[0]))
        return re, w.op("fma", sin, odd[1], call("fma", cos, odd[0], even[1]))

    def split_ends(self, w: Writer, first: Complex, last: Complex) -> Complex:
        """``split`` of frequency 0, of which only real parts count."""
        a, b = w.let(first[0]), w.let(last[0])
        return w.op("add", a, b), w.op("sub", a, b)

    def _half_root(self, w: Writer, k: Index) -> Complex:
        place = k + self.plan.halves
        return w.pair((Load(self.table, place), Load(self.table, place + self.plan.points + 1)))


def at(var: Var) -> Index:
    """The value of a loop variable, a constant if its extent is 1."""
    return index(var) if var.extent > 1 else Index()


def over(lane: Var, body: Sequence[Stmt]) -> Loop:
    return Loop("vector", lane, tuple(body))


def locals_of(scratch: Sequence[Scratch]) -> list[Stmt]:
    return [Local(s.buffer) for s in scratch]

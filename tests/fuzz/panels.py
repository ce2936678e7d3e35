"""Random loop programs with what schedules of large memory are made of: ``python -m tests.fuzz.panels --minutes 60``.

Tiles are stored or loaded transposed, and memory is changed in place. Panels begin at lines of memory; a computed
position keeps them inside, so that neighbours write some elements twice. There are remainders, prefetches and stores
past the caches. The nests of ``loop_programs`` run, too.
"""

from __future__ import annotations

from tests.fuzz import loop_programs
from tests.fuzz.command import by_command
from tracecomp.ir.index import Index, Var, computed, index
from tracecomp.ir.loops import (
    Buffer,
    Call,
    Const,
    Expr,
    If,
    IndexValue,
    Let,
    Load,
    Loop,
    Prefetch,
    Read,
    Stmt,
    Store,
    ToLine,
    cast,
)
from tracecomp.ir.scalars import call
from tracecomp.ir.types import DType, bool_, int64

EXACT = {"float": ("neg", "abs", "floor", "sqrt", "add", "mul"), "int": ("neg", "abs", "not", "add", "mul", "xor")}
LINES = 16
"""Elements between the starts of panels, as many as a line of float32 has."""


class Maker(loop_programs.Maker):
    """Nests of panels among the others."""

    def nest(self) -> Stmt:
        """Return a nest of panels, one that changes memory in place, or one of ``loop_programs``."""
        if self.chance(0.75):
            return self.panels()
        return self.in_place() if self.chance(0.6) else super().nest()

    def in_place(self) -> Stmt:
        """Statements that read what they and those before have written, at the same place or at others.

        All elements of one statement come before the next, in whichever order machine code makes them.
        """
        dtype, source = self.dtype(), self.pick(self.inputs)
        blocks, tile = self.var(int(self.rng.integers(1, 4))), self.var(self.pick((1, 2, 3, 4, 8)))
        lanes = self.var(self.pick((3, 8, 16, 17, 32, 48)))
        fill = self.var(tile.extent * lanes.extent + 8)
        base, over = index(blocks) * fill.extent, [blocks, tile, lanes]
        out = Buffer(f"y{len(self.outputs)}", dtype, blocks.extent * fill.extent)
        self.outputs.append(out)
        first = cast(Load(source, index(fill) + index(blocks)), dtype)
        ways = (index(tile) * lanes.extent + index(lanes), index(lanes) * tile.extent + index(tile))
        same, known = self.pick(ways), list[Stmt]()
        for _ in range(int(self.rng.integers(1, 4))):
            read = same if self.chance(0.6) else self.pick(ways) + int(self.rng.integers(9))
            value: Expr = Load(out, base + read)
            if self.chance(0.5):
                name = self.name("t")
                known.append(Let(name, self.changed(value)))
                value = Read(name, dtype, frozenset(over))
            other = cast(Load(source, self.place(over)), dtype)
            known.append(Store(out, base + same, call(self.pick(("add", "sub", "mul")), value, other)))
        body = tuple(known)
        for kind, v in ("vector", lanes), ("tile", tile):
            body = (Loop(kind, v, body),)
        filled = Loop("vector", fill, (Store(out, base + index(fill), first),))
        return Loop(self.pick(("parallel", "serial")), blocks, (filled, *body))

    def panels(self) -> Stmt:
        """Rows and columns of a matrix change places, panel by panel; each element is made of one that is read."""
        source = self.pick(self.inputs)
        rows, lanes = self.var(self.pick((2, 3, 4, 7, 8, 16))), self.var(self.pick((2, 3, 4, 8, 15, 16, 17, 32)))
        blocks, steps = self.var(int(self.rng.integers(1, 4))), self.var(int(self.rng.integers(1, 5)))
        height = rows.extent * blocks.extent
        last = min(int(self.rng.integers(1, 40)), loop_programs.SIZE // height - lanes.extent)
        width = last + lanes.extent
        start, prefetched = self.start(source, steps, blocks, last), self.chance(0.5)
        column = start + index(lanes)
        row = index(blocks) * rows.extent + index(rows)
        if self.chance(0.15):  # contiguous along the tile where it is read, along the lanes where it is stored
            read, written = column * height + row, row * width + column
        else:
            read, written = row * width + column, column * height + row
        name = self.name("t")
        stem = Read(name, source.dtype, frozenset({rows, lanes, steps, blocks}))
        out = Buffer(f"y{len(self.outputs)}", source.dtype, width * height)
        self.outputs.append(out)
        where = Call("ge", (IndexValue(row), Const(1, int64)), bool_) if self.chance(0.1) else None
        store = Store(out, written, self.changed(stem), where, self.pick(("", "", "always", "alone")))
        body: list[Stmt] = [Let(name, Load(source, read)), store]
        order = [("vector", lanes), ("tile", rows)]
        for kind, v in order if self.chance(0.3) else order[::-1]:
            body = [Loop(kind, v, tuple(body))]
        if prefetched:
            ahead = index(steps) * LINES + index(blocks) * self.pick((1, width)) + self.pick((0, 16, 4000))
            body = [*(Prefetch(source, ahead + n * LINES) for n in range(2)), *body]
        body = [Loop("serial", steps, tuple(body))]
        if self.chance(0.4):
            body = [If(Call("lt", (IndexValue(index(blocks)), Const(blocks.extent, int64)), bool_), tuple(body))]
        return Loop(self.pick(("parallel", "opportunistic", "serial")), blocks, tuple(body))

    def start(self, source: Buffer, steps: Var, blocks: Var, last: int) -> Index:
        """The column where a panel begins, from 0 to ``last``."""
        at = index(steps) * self.pick((1, 3, LINES))
        if self.chance(0.3):
            at = at + index(blocks) // 2 * self.pick((1, 5))
        if self.chance(0.7):
            lines = call("sub", ToLine(source), Const(self.pick((0, 3)), int64))
            at = at + computed(lines) % self.pick((8, 16)) - LINES
        held: Expr = Call("max", (IndexValue(at), Const(0, int64)), int64)
        return computed(Call("min", (held, Const(last, int64)), int64), (0, last))

    def changed(self, x: Expr) -> Expr:
        """Some operations of ``x`` and constants."""
        for _ in range(int(self.rng.integers(3))):
            op = self.pick(EXACT["float" if x.dtype.kind == "float" else "int"])
            x = call(op, x, self.constant(x.dtype)) if loop_programs.ARITY.get(op, 2) == 2 else call(op, x)
        return x

    def constant(self, dtype: DType) -> Const:
        return Const(self.pick((1, -1, 3)) if dtype.kind == "int" else self.pick((1.0, -2.5, 0.1)), dtype)


def difference(seed: int, nests: int = 4) -> str | None:
    """Return the difference between native code and the loop interpreter; None if they agree."""
    return loop_programs.difference(seed, nests=nests, make=Maker)


def main() -> int:
    return by_command(__doc__ or "", "programs of one nest", lambda seed: difference(seed, nests=1))


if __name__ == "__main__":
    raise SystemExit(main())

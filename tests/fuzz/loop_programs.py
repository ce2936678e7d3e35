"""Random loop programs through code generation, against the loop interpreter:
``python -m tests.fuzz.loop_programs --minutes 60 --seed 0``.

A program is a kernel of one nest or several, each with separate outputs. Nests have parallel, serial, tile and vector
loops, masked loads and stores, lets, accumulators with and without lanes, and scratch memory. Operations round exactly,
so results have equal bits, on one thread and on two, for registers of every width.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tests.codegen.programs import program
from tests.codegen.running import same_bits
from tests.fuzz.command import by_command
from tracecomp.ir.index import Index, Var, index
from tracecomp.ir.loop_interp import interpret_program
from tracecomp.ir.loop_printer import print_program
from tracecomp.ir.loop_verify import verify_program
from tracecomp.ir.loops import (
    LINE,
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
    cast,
)
from tracecomp.ir.program import Kernel, Program
from tracecomp.ir.scalars import call
from tracecomp.ir.types import DType, bool_, float32, float64, int32, int64
from tracecomp.runtime.executable import Executable

SIZE = 2048
"""Elements of every input; indices stay below."""

SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3e38], np.float32)
MARGIN = 4096
"""Bytes before and behind every output that nothing may change."""

VECTORS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 64)
FLOATS = (
    "add", "sub", "mul", "div", "largest", "least", "copysign", "fma", "neg", "abs", "floor", "ceil", "trunc", "sqrt",
)  # fmt: skip
INTS = ("add", "sub", "mul", "max", "min", "and", "or", "xor", "neg", "abs", "not")
ARITY = {"fma": 3} | dict.fromkeys(("neg", "abs", "floor", "ceil", "trunc", "sqrt", "not"), 1)
EXTREMES = {"largest": "max", "least": "min"}
"""For numbers without sign: docs/numerics.md leaves open which of two equal zeros ``max`` and ``min`` return."""

SUMS = {"float": ("add", "mul", "max", "min", "fma"), "int": ("add", "mul", "max", "min", "and", "or")}


class Maker:
    """Makes one kernel of so many nests from a seed."""

    def __init__(self, seed: int, nests: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.inputs = [Buffer(f"x{n}", t, SIZE) for n, t in enumerate((float32, float64, int32, int64))]
        self.outputs: list[Buffer] = []
        self.names = 0
        body = tuple(self.nest() for _ in range(nests))
        params = (*self.inputs, *self.outputs)
        writes = frozenset(b.name for b in self.outputs)
        self.program = program(Kernel(f"random{seed}", params, writes, body), len(self.inputs))

    def pick(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def var(self, extent: int) -> Var:
        return Var(self.name("i"), extent)

    # ---- expressions

    def place(self, over: list[Var], size: int = SIZE) -> Index:
        """Somewhere in memory of ``size`` elements that depends on loop variables."""
        result, room = Index(), size - 1
        for v in self.rng.permutation(len(over)):
            var = over[int(v)]
            most = room // max(var.extent - 1, 1)
            factor = int(self.pick((0, 1, 1, 1, 2, 3, 5, 17, 64)))
            if 0 < factor <= most:
                result = result + index(var) * factor
                room -= factor * (var.extent - 1)
        return result + int(self.rng.integers(room + 1))

    def condition(self, over: list[Var], depth: int) -> Expr:
        if over and self.chance(0.5):
            var = self.pick(over)
            limit = Const(int(self.rng.integers(var.extent + 1)), int64)
            return Call(self.pick(("lt", "ge", "ne")), (IndexValue(index(var)), limit), bool_)
        dtype = self.pick((float32, int64))
        args = tuple(self.expr(dtype, over, depth - 1) for _ in range(2))
        return Call(self.pick(("lt", "le", "eq", "ne", "gt", "ge")), args, bool_)

    def expr(self, dtype: DType, over: list[Var], depth: int, known: tuple[Read, ...] = ()) -> Expr:
        if depth <= 0 or self.chance(0.15):
            return self.leaf(dtype, over, known)
        if self.chance(0.15):
            a, b = (self.expr(dtype, over, depth - 1, known) for _ in range(2))
            return Call("select", (self.condition(over, depth - 1), a, b), dtype)
        if self.chance(0.1):
            narrow = {float64: (float32, int32), float32: (int32, float64), int64: (int32,), int32: (int64,)}
            return cast(self.expr(self.pick(narrow[dtype]), over, depth - 1, known), dtype)
        op = self.pick(FLOATS if dtype.kind == "float" else INTS)
        if op == "fma" and dtype is float64:  # the interpreter's is exact within bounds only, see ir.special
            op = "mul"
        args = [self.expr(dtype, over, depth - 1, known) for _ in range(ARITY.get(op, 2))]
        if op in EXTREMES:
            return call(EXTREMES[op], *(call("abs", a) for a in args))
        if (
            op == "copysign"
        ):  # a NaN's sign means nothing (docs/numerics.md): processors and numpy choose it differently
            args[1] = call("select", call("isnan", args[1]), Const(1.0, dtype), args[1])
        return call(op, *args)

    def leaf(self, dtype: DType, over: list[Var], known: tuple[Read, ...]) -> Expr:
        fitting = [k for k in known if k.dtype is dtype]
        if fitting and self.chance(0.5):
            return self.pick(fitting)
        if self.chance(0.15):
            number = self.pick((0, 1, -1, 3)) if dtype.kind == "int" else self.pick((0.0, -0.0, 1.0, -2.5, 1e30))
            return Const(number, dtype)
        if over and self.chance(0.1):
            return cast(IndexValue(self.place(over)), dtype)
        buffer = next(b for b in self.inputs if b.dtype is dtype)
        if over and self.chance(0.15):
            return Load(buffer, self.place(over), self.condition(over, 0))
        return Load(buffer, self.place(over))

    # ---- statements

    def nest(self) -> Stmt:
        """Loops around one of several bodies."""
        outer = [
            (self.pick(("parallel", "parallel", "opportunistic", "serial")), self.var(int(self.rng.integers(1, 6))))
        ]
        if self.chance(0.4):
            outer.append(("serial", self.var(int(self.rng.integers(1, 4)))))
        if self.chance(0.5):
            outer.append(("tile", self.var(int(self.rng.integers(1, 5)))))
        kinds = (self.elementwise, self.elementwise, self.reduced, self.rows, self.scratch)
        body = self.pick(kinds)([v for _, v in outer])
        for kind, v in reversed(outer):
            body = [Loop(kind, v, tuple(body))]
        return body[0]

    def output(self, over: list[Var], dtype: DType) -> tuple[Buffer, Index]:
        """An output with a place for every step of the loops."""
        flat, size = Index(), 1
        for v in over:
            flat, size = flat * v.extent + index(v), size * v.extent
        extra = int(self.rng.integers(3))
        self.outputs.append(Buffer(f"y{len(self.outputs)}", dtype, size + extra))
        return self.outputs[-1], flat + int(self.rng.integers(extra + 1))

    def dtype(self) -> DType:
        return self.pick((float32, float32, float64, int32, int64))

    def elementwise(self, over: list[Var]) -> list[Stmt]:
        v = self.var(self.pick(VECTORS))
        over, dtype = [*over, v], self.dtype()
        known: tuple[Read, ...] = ()
        body: list[Stmt] = []
        for _ in range(int(self.rng.integers(3))):
            kind, name = self.dtype(), self.name("t")
            body.append(Let(name, self.expr(kind, over, 2, known)))
            known = (*known, Read(name, kind, frozenset(over)))
        out, place = self.output(over, dtype)
        where = self.condition(over, 1) if self.chance(0.2) else None
        body.append(Store(out, place, self.expr(dtype, over, 3, known), where))
        if self.chance(0.15):
            body = [If(Call("ge", (IndexValue(index(over[0])), Const(1, int64)), bool_), tuple(body))]
        return [Loop("vector", v, tuple(body))]

    def sums(self, over: list[Var]) -> tuple[Stmt, tuple[Read, ...]]:
        """Accumulators over a serial loop, a vector loop, or both."""
        accs, updates = [], []
        lanes = self.pick((1, 1, 4, 16, 64))
        inner = [self.var(int(self.rng.integers(1, 8)))]
        if lanes > 1:
            inner.append(self.var(self.pick((lanes, lanes, max(lanes - 3, 1), 5))))
        for _ in range(int(self.rng.integers(1, 3))):
            dtype = self.dtype()
            op, name = self.pick(SUMS[dtype.kind]), self.name("a")
            op = "add" if op == "fma" and dtype is float64 else op
            extreme = op in ("max", "min")
            starts = (0, 1) if dtype.kind == "int" else (0.0, 1.0) if extreme else (0.0, -0.0, 1.0)
            start = Const(self.pick(starts), dtype)
            accs.append(Acc(name, op, dtype, start, lanes))
            args = tuple(self.expr(dtype, [*over, *inner], 2) for _ in range(2 if op == "fma" else 1))
            updates.append(Update(name, tuple(call("abs", a) for a in args) if extreme else args))
        body: tuple[Stmt, ...] = tuple(updates)
        for v in reversed(inner):
            body = (Loop("vector" if v is inner[-1] and lanes > 1 else "serial", v, body),)
        return Accumulate(tuple(accs), body), tuple(Read(a.name, a.dtype, frozenset(over)) for a in accs)

    def reduced(self, over: list[Var]) -> list[Stmt]:
        loop, totals = self.sums(over)
        stores = []
        for total in totals:
            out, place = self.output(over, total.dtype)
            stores.append(Store(out, place, total))
        return [loop, *stores]

    def rows(self, over: list[Var]) -> list[Stmt]:
        """A reduction, and elements that read its total."""
        loop, totals = self.sums(over)
        v, dtype = self.var(self.pick(VECTORS)), self.dtype()
        out, place = self.output([*over, v], dtype)
        return [loop, Loop("vector", v, (Store(out, place, self.expr(dtype, [*over, v], 3, totals)),))]

    def scratch(self, over: list[Var]) -> list[Stmt]:
        """Add writes to scratch memory of the iteration, which later lines read."""
        v, w, dtype = self.var(self.pick(VECTORS)), self.var(self.pick(VECTORS)), self.dtype()
        kept = Buffer(self.name("kept"), dtype, v.extent * 4)
        fill = [Store(kept, index(v) + n * v.extent, self.expr(dtype, [*over, v], 2)) for n in range(4)]
        out, place = self.output([*over, w], dtype)
        other = self.expr(dtype, [*over, w], 2)
        value = call(self.pick(("add", "sub", "mul")), Load(kept, self.place([w], kept.size)), other)
        return [Local(kept), Loop("vector", v, tuple(fill)), Loop("vector", w, (Store(out, place, value),))]


def arrays_for(made: Program, seed: int) -> list[Any]:
    """Numbers for the inputs, special ones among them."""
    rng = np.random.default_rng(seed)
    floats: list[Any] = [rng.standard_normal(SIZE).astype(np.float32), rng.standard_normal(SIZE)]
    for a in floats:
        a[rng.random(SIZE) < 0.1] = rng.choice(SPECIAL)
    ints = [rng.integers(-(2**b), 2**b, SIZE).astype(t) for b, t in ((30, np.int32), (62, np.int64))]
    return [*floats, *ints]


def difference(seed: int, checked: bool = False, nests: int = 6, make: type[Maker] = Maker) -> str | None:
    """Return the difference between native code and the loop interpreter; None if they agree."""
    maker = make(seed, nests)
    verify_program(maker.program)
    given = arrays_for(maker.program, seed)
    wanted = [np.zeros(b.size, b.dtype.numpy) for b in maker.outputs]
    with np.errstate(all="ignore"):
        interpret_program(maker.program, given, wanted)
    executable = Executable(replace(maker.program, checked=checked))
    for threads in (1, 2):
        whole = [_begun(b.size * b.dtype.itemsize + 2 * MARGIN) for b in maker.outputs]
        found = [w[MARGIN:-MARGIN].view(b.dtype.numpy) for w, b in zip(whole, maker.outputs, strict=True)]
        for f in found:
            f[:] = 0
        executable.run(given, found, threads=threads)
        for b, w in zip(maker.outputs, whole, strict=True):
            if (w[:MARGIN] != 0xA5).any() or (w[-MARGIN:] != 0xA5).any():
                return f"seed {seed}, {threads} threads: writes beside {b.name}\n{print_program(maker.program)}"
        for b, want, got in zip(maker.outputs, wanted, found, strict=True):
            if not same_bits(want, got):
                at = next(n for n in range(b.size) if not same_bits(want[n : n + 1], got[n : n + 1]))
                text = f"{b.name}[{at}] is {got[at]!r}, not {want[at]!r}"
                return f"seed {seed}, {threads} threads: {text}\n{print_program(maker.program)}"
    return None


def _begun(nbytes: int) -> Any:
    """Return memory that begins a line, as stores past the caches require."""
    memory = np.full(nbytes + LINE, 0xA5, np.uint8)
    start = -memory.ctypes.data % LINE
    return memory[start : start + nbytes]


def main() -> int:
    return by_command(__doc__ or "", "programs of one nest", lambda seed: difference(seed, nests=1))


if __name__ == "__main__":
    raise SystemExit(main())

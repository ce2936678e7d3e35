"""The verifier of the loop IR: all problems of a kernel are reported at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from tracecomp.base.errors import VerifyError
from tracecomp.ir.index import Computed, Index, Var
from tracecomp.ir.loops import (
    SHARED,
    Acc,
    Accumulate,
    Buffer,
    Call,
    Check,
    Const,
    Expr,
    If,
    IndexValue,
    Let,
    Load,
    Local,
    Loop,
    Prefetch,
    Read,
    Stmt,
    Store,
    ToLine,
    Update,
    walk,
)
from tracecomp.ir.program import Kernel, Program, RepeatStep, Step, call_steps
from tracecomp.ir.scalars import SCALARS
from tracecomp.ir.types import DType, bool_

_ACCUMULATOR_OPS = {"add": 1, "mul": 1, "fma": 2, "max": 1, "min": 1, "and": 1, "or": 1, "set": 1}
_LOOP_KINDS = ("serial", *SHARED, "tile", "vector")


@dataclass(slots=True)
class _Context:
    """Visible names at a statement."""

    loops: dict[Var, str]
    buffers: dict[str, Buffer]
    names: dict[str, DType]
    accumulators: dict[str, Acc]
    guarded: bool = False


@dataclass(slots=True)
class _Verifier:
    kernel: Kernel
    problems: list[str] = field(default_factory=list)
    bound: set[str] = field(default_factory=set)
    checked: set[int] = field(default_factory=set)

    def report(self, text: str) -> None:
        self.problems.append(text)

    def bind(self, name: str) -> None:
        if name in self.bound:
            self.report(f"{name} is bound twice")
        self.bound.add(name)

    def body(self, body: tuple[Stmt, ...], c: _Context) -> None:
        """Check statements in order; names bound in a body are not visible after it."""
        c = _Context(dict(c.loops), dict(c.buffers), dict(c.names), dict(c.accumulators), c.guarded)
        for stmt in body:
            self.stmt(stmt, c)

    def stmt(self, s: Stmt, c: _Context) -> None:
        self.checked.clear()
        match s:
            case Loop():
                self._loop(s, c)
            case Let():
                self.bind(s.name)
                self.expr(s.value, c)
                c.names[s.name] = s.value.dtype
            case Store():
                self._store(s, c)
            case Accumulate():
                self._accumulate(s, c)
            case Update():
                self._update(s, c)
            case Local():
                c.buffers[s.buffer.name] = s.buffer
            case If():
                self._condition(s.condition, c)
                inner = _Context(c.loops, c.buffers, c.names, c.accumulators, True)
                self.body(s.body, inner)
            case Check():
                self._condition(s.condition, c)
                if s.detail is not None:
                    self.expr(s.detail, c)
                c.guarded = True
            case Prefetch():
                self._access(s.buffer, s.offset, True, c)
                if any(c.loops.get(v) in ("tile", "vector") for v in s.offset.vars()):
                    self.report(f"prefetch of {s.buffer.name}[{s.offset}] varies over a tile or vector loop")

    def _loop(self, s: Loop, c: _Context) -> None:
        if s.kind not in _LOOP_KINDS:
            self.report(f"unknown loop kind {s.kind}")
        if s.var in c.loops:
            self.report(f"loop variable {s.var.name} is already in use")
        if s.kind == "vector" and "vector" in c.loops.values():
            self.report(f"vector loop {s.var.name} is nested in another")
        never_runs = s.var.extent <= 0
        inner = _Context({**c.loops, s.var: s.kind}, c.buffers, c.names, c.accumulators, c.guarded or never_runs)
        self.body(s.body, inner)

    def _store(self, s: Store, c: _Context) -> None:
        self.expr(s.value, c)
        if s.value.dtype is not s.buffer.dtype:
            self.report(f"store of {s.value.dtype.short} to {s.buffer.name}: {s.buffer.dtype.short}")
        if s.where:
            self._condition(s.where, c)
        self._access(s.buffer, s.offset, s.where is not None, c)
        if s.buffer.name not in self.kernel.writes and any(p.name == s.buffer.name for p in self.kernel.params):
            self.report(f"store to {s.buffer.name}, which is not among the written parameters")

    def _accumulate(self, s: Accumulate, c: _Context) -> None:
        for acc in s.accs:
            self.bind(acc.name)
            self.expr(acc.init, c)
            if acc.op not in _ACCUMULATOR_OPS:
                self.report(f"accumulator {acc.name} has unknown op {acc.op}")
            if acc.init.dtype is not acc.dtype:
                self.report(f"accumulator {acc.name}: {acc.dtype.short} starts from {acc.init.dtype.short}")
            if acc.lanes < 1 or acc.lanes & (acc.lanes - 1):
                self.report(f"accumulator {acc.name} has {acc.lanes} lanes, which is not a power of two")
        live = {a.name: a for a in s.accs}
        names = {**c.names, **{a.name: a.dtype for a in s.accs if a.lanes == 1}}
        self.body(s.body, _Context(c.loops, c.buffers, names, {**c.accumulators, **live}, c.guarded))
        c.names.update({a.name: a.dtype for a in s.accs})

    def _update(self, s: Update, c: _Context) -> None:
        acc = c.accumulators.get(s.name)
        if acc is None:
            self.report(f"update of {s.name} outside its accumulate")
            return
        if len(s.args) != _ACCUMULATOR_OPS.get(acc.op, len(s.args)):
            self.report(f"update of {s.name} ({acc.op}) with {len(s.args)} operands")
        for a in s.args:
            self.expr(a, c)
            if a.dtype is not acc.dtype:
                self.report(f"update of {s.name}: {acc.dtype.short} with {a.dtype.short}")

    # ---- expressions

    def _condition(self, expr: Expr, c: _Context) -> None:
        self.expr(expr, c)
        if expr.dtype is not bool_:
            self.report(f"a condition has type {expr.dtype.short}")

    def expr(self, expr: Expr, c: _Context) -> None:
        if id(expr) in self.checked:
            return
        self.checked.add(id(expr))
        match expr:
            case Load():
                if expr.where:
                    self._condition(expr.where, c)
                self._access(expr.buffer, expr.offset, expr.where is not None, c)
            case IndexValue():
                self.index(expr.index, c)
            case Read():
                known = c.names.get(expr.name)
                if known is not expr.dtype:
                    self.report(f"{expr.name} is read as {expr.dtype.short}, but is {known and known.short}")
            case Call():
                for a in expr.args:
                    self.expr(a, c)
                self._call(expr)
            case ToLine():
                self._declared(expr.buffer, c)
            case Const():
                pass

    def _call(self, x: Call) -> None:
        if x.op in ("cast", "bitcast"):
            if len(x.args) != 1 or (x.op == "bitcast" and x.args[0].dtype.itemsize != x.dtype.itemsize):
                self.report(f"{x.op} of {[a.dtype.short for a in x.args]} to {x.dtype.short}")
            return
        rule = SCALARS.get(x.op)
        if rule is None or len(x.args) != rule.arity:
            self.report(f"{x.op} is not a scalar operation of {len(x.args)} operands")
            return
        types = [a.dtype for a in x.args]
        result = bool_ if rule.result == "bool" else types[-1]
        expected = [bool_, types[-1], types[-1]] if x.op == "select" else [types[-1]] * len(types)
        if types != expected or x.dtype is not result:
            self.report(f"{x.op} of {[t.short for t in types]} gives {x.dtype.short}")

    def index(self, i: Index, c: _Context) -> None:
        for atom, _ in i.terms:
            if isinstance(atom, Var):
                if atom not in c.loops:
                    self.report(f"loop variable {atom.name} < {atom.extent} is not in scope")
            elif isinstance(atom, Computed):
                self.expr(atom.expr, c)
                if atom.expr.dtype.kind == "float":
                    self.report(f"index [{atom.expr.dtype.short}] is not an integer")
            else:
                self.index(atom.index, c)

    def _access(self, buffer: Buffer, offset: Index, guarded: bool, c: _Context) -> None:
        self.index(offset, c)
        self._declared(buffer, c)
        bounds = offset.bounds
        inside = bounds is not None and bounds[0] >= 0 and bounds[1] < buffer.size
        if not inside and not guarded and not c.guarded:
            self.report(f"{buffer.name}[{offset}] may be {bounds or 'anything'}, size {buffer.size}")

    def _declared(self, buffer: Buffer, c: _Context) -> None:
        if c.buffers.get(buffer.name) != buffer:
            self.report(f"{buffer.name}: {buffer.dtype.short}[{buffer.size}] is not declared here")


def kernel_problems(kernel: Kernel) -> list[str]:
    """Return descriptions of all problems of ``kernel``."""
    verifier = _Verifier(kernel)
    params = {p.name: p for p in kernel.params}
    if len(params) != len(kernel.params):
        verifier.report("two parameters have one name")
    local = {s.buffer.name for s in walk(kernel.body) if isinstance(s, Local)}
    for name in local & params.keys():
        verifier.report(f"local {name} has the name of a parameter")
    verifier.body(kernel.body, _Context({}, params, {}, {}))
    return verifier.problems


def verify_program(program: Program) -> None:
    """VerifyError with all problems of all kernels and of their memory."""
    problems: list[str] = []
    for call in call_steps(_running(program.steps)):
        kernel = call.kernel
        problems += [f"kernel {kernel.name}: {p}" for p in kernel_problems(kernel)]
        if len(call.args) != len(kernel.params):
            problems.append(f"kernel {kernel.name} is called with {len(call.args)} of {len(kernel.params)} buffers")
        for param, ref in zip(kernel.params, call.args, strict=False):
            low, high = ref.offset.bounds or (0, ref.slot.nbytes)
            if low < 0 or high + param.size * param.dtype.itemsize > ref.slot.nbytes:
                problems.append(f"kernel {kernel.name}: {param.name} does not fit into slot {ref.slot.name}")
            if ref.slot.space == "arena" and ref.slot.position + ref.slot.nbytes > program.arena_bytes:
                problems.append(f"slot {ref.slot.name} ends beyond the arena")
    if problems:
        raise VerifyError("\n".join(dict.fromkeys(problems)))


def _running(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Drop repeats that run zero times."""
    return tuple(s for s in steps if not (isinstance(s, RepeatStep) and s.var.extent == 0))


__all__ = ["kernel_problems", "verify_program"]

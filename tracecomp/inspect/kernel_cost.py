"""Resources that one run of a kernel needs, counted from its loops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field, replace
from math import prod

from tracecomp.ir.index import Index, Var
from tracecomp.ir.loops import (
    LINE,
    SHARED,
    Acc,
    Accumulate,
    Buffer,
    Call,
    Expr,
    Load,
    Loop,
    Stmt,
    Store,
    Update,
    children,
    operands,
    roots,
)
from tracecomp.ir.program import Kernel
from tracecomp.passes.cost.machine import Machine
from tracecomp.passes.cost.scalar_cost import expr_cost
from tracecomp.passes.cost.work import runs

_DIVIDES = frozenset(("div", "sqrt", "mod", "fmod", "floordiv"))

_IN_FLIGHT = 64
"""Operations in a processor's window: shorter sums overlap with the next ones."""

_FEW_ROUNDS = 32
"""Most rounds of a loop whose start and end show in its time."""


@dataclass
class KernelCost:
    """Counts of scalar elements, and bytes, of one run.

    ``arithmetic``: multiply-adds and other simple operations. ``functions``: the time of math functions in vector
    additions. ``gathered``: vector elements at run-time positions; ``misses``: those expected in no near cache.
    ``strided``: vector elements loaded or stored at a constant distance, as a transpose has them. ``short_loops``: how
    often an innermost loop of few rounds starts; ``rounds``: of all these together. ``memory``: bytes of each buffer
    that are read or written. ``vectors``: vector operations on ``elements``, each of up to ``width``. ``waits``: length
    of the longest chain of dependent operations. ``outer``: iterations of the longest outermost loop; ``shared``: of
    the longest one that threads share; ``wakes``: a loop wakes threads for it, in contrast to using those awake.
    """

    width: int = 1
    arithmetic: float = 0.0
    divisions: float = 0.0
    functions: float = 0.0
    gathered: float = 0.0
    strided: float = 0.0
    short_loops: float = 0.0
    rounds: float = 0.0
    loaded_bytes: float = 0.0
    misses: float = 0.0
    waits: float = 0.0
    vectors: float = 0.0
    elements: float = 0.0
    outer: int = 1
    shared: int = 0
    wakes: bool = False
    names: set[str] = field(default_factory=set)
    memory: dict[str, float] = field(default_factory=dict)

    @property
    def lanes_used(self) -> float:
        """The share of lanes that hold elements."""
        return self.elements / (self.vectors * self.width) if self.vectors else 1.0


def cost_of(kernel: Kernel, machine: Machine) -> KernelCost:
    """Counted for ``machine``, which determines registers and second cache."""
    loops = [s for s in kernel.body if isinstance(s, Loop)]
    found = KernelCost(
        width=max(machine.lanes(_lane_bytes(kernel)), 1),
        outer=max((s.var.extent for s in loops), default=1),
        shared=max((s.var.extent for s in loops if s.kind in SHARED), default=0),
        wakes=any(s.kind == "parallel" for s in loops),
    )
    _Count(found, machine, {p.name for p in kernel.params}).body(kernel.body, _Around())
    return found


def _lane_bytes(kernel: Kernel) -> int:
    """The element size that determines the number of lanes: at least four bytes."""
    return max([max(p.dtype.itemsize, 4) for p in kernel.params if p.dtype.is_floating_point], default=4)


@dataclass(frozen=True)
class _Around:
    """The loops around a statement: how often it runs, in how many lanes, in how many unrolled copies.

    ``together`` are the variables of its vector and tile loops: an expression that does not depend on one of these is
    evaluated once for all of its values.
    """

    times: float = 1.0
    lanes: int = 1
    vector: Var | None = None
    copies: int = 1
    together: tuple[Var, ...] = ()

    def of(self, variables: Iterable[Var]) -> _Around:
        """The context of an expression of these variables."""
        known = {*variables}
        once = [v.extent for v in self.together if v not in known]
        lanes = self.lanes if self.vector in known else 1
        return replace(self, times=self.times / prod(once), lanes=lanes, vector=self.vector if lanes > 1 else None)


class _Count:
    def __init__(self, found: KernelCost, machine: Machine, params: Set[str]) -> None:
        self.found = found
        self.machine = machine
        self.params = params

    def body(self, body: Iterable[Stmt], around: _Around) -> None:
        for stmt in body:
            self._own(stmt, around)
            if isinstance(stmt, Loop):
                self._starts(stmt, around)
                for inside, part in self._rounds(stmt, around):
                    self.body(part, inside)
            elif isinstance(stmt, Accumulate):
                self.found.waits += max(self._waits(a, around, stmt.body, around) for a in stmt.accs)
                self.body(stmt.body, around)
            else:
                self.body(children(stmt), around)

    def _starts(self, loop: Loop, around: _Around) -> None:
        """Count a loop that the processor leaves before its work has hidden how the loop begins and ends."""
        one_after_another = loop.kind not in ("vector", "tile") and 1 < loop.var.extent <= _FEW_ROUNDS
        if one_after_another and not _has_branching_loop(loop.body):
            starts = around.times / prod(v.extent for v in around.together)
            self.found.short_loops += starts
            self.found.rounds += starts * loop.var.extent

    def _rounds(self, loop: Loop, around: _Around) -> Iterator[tuple[_Around, tuple[Stmt, ...]]]:
        var, times = loop.var, around.times * loop.var.extent
        if loop.kind == "vector":
            inside = replace(around, times=times, lanes=var.extent, vector=var)
            yield replace(inside, together=(*around.together, var)), loop.body
        elif loop.kind == "tile":
            inside = replace(around, times=times, copies=around.copies * var.extent)
            yield replace(inside, together=(*around.together, var)), loop.body
        else:
            for count, part in runs(var, loop.body):
                yield replace(around, times=around.times * count), part

    def _waits(self, acc: Acc, outside: _Around, body: Iterable[Stmt], around: _Around) -> float:
        """The number of dependent updates of an accumulator declared ``outside``."""
        found = 0.0
        for stmt in body:
            if isinstance(stmt, Update) and stmt.name == acc.name:
                terms = around.times / outside.times / acc.lanes
                found += outside.times / (outside.copies * outside.lanes) * terms if terms >= _IN_FLIGHT else 0.0
            elif isinstance(stmt, Loop):
                found += sum(self._waits(acc, outside, part, inside) for inside, part in self._rounds(stmt, around))
            else:
                found += self._waits(acc, outside, children(stmt), around)
        return found

    def _own(self, stmt: Stmt, around: _Around) -> None:
        """Count the statement's own expressions, repeated ones once."""
        for x in _distinct(roots(stmt)):
            if isinstance(x, Call):
                self._call(x, around.of(x.vars()))
            elif isinstance(x, Load):
                self._load(x, around.of(x.vars()))
        if isinstance(stmt, Update):
            self._vectors(around, 1.0)
            self.found.arithmetic += around.times
        elif isinstance(stmt, Store):
            # A transpose may read along rows and store along columns instead.
            if around.vector is not None and stmt.offset.coefficient(around.vector) not in (1, -1):
                self.found.strided += around.times
            self._place(stmt.buffer, stmt.offset, around)

    def _call(self, x: Call, around: _Around) -> None:
        found, own = self.found, expr_cost(x) - sum(map(expr_cost, x.args))
        self._vectors(around, own)
        if x.op in _DIVIDES and x.dtype.is_floating_point:
            found.divisions += around.times
        elif own > 1.0:
            found.functions += around.times * own
            found.names.add(x.op)
        else:
            found.arithmetic += around.times

    def _vectors(self, around: _Around, weight: float) -> None:
        self.found.vectors += weight * around.times / around.lanes * -(-around.lanes // self.found.width)
        self.found.elements += weight * around.times

    def _load(self, x: Load, around: _Around) -> None:
        size = x.buffer.dtype.itemsize
        self.found.loaded_bytes += size * around.times
        if around.vector is not None and x.offset.coefficient(around.vector) not in (1, -1):
            if x.offset.is_computed:
                self.found.gathered += around.times
            else:
                self.found.strided += around.times
        self._place(x.buffer, x.offset, around)

    def _place(self, buffer: Buffer, offset: Index, around: _Around) -> None:
        """Count the memory of an access: at a run-time position, one line of memory each time."""
        size = buffer.dtype.itemsize
        whole = float(buffer.size * size)
        computed = offset.is_computed
        touched = min(whole, around.times * LINE) if computed else whole
        if buffer.name in self.params:
            memory = self.found.memory
            memory[buffer.name] = min(whole, max(memory.get(buffer.name, 0.0), touched))
        apart = around.vector is None or offset.coefficient(around.vector) != 1
        if computed and apart and whole > self.machine.l2_bytes:
            self.found.misses += around.times


def _has_branching_loop(body: Iterable[Stmt]) -> bool:
    return any(
        (isinstance(s, Loop) and s.kind not in ("vector", "tile")) or _has_branching_loop(children(s)) for s in body
    )


def _distinct(given: Iterable[Expr]) -> Iterator[Expr]:
    """Yield every subexpression once."""
    seen: set[int] = set()
    stack = list(given)
    while stack:
        x = stack.pop()
        if id(x) not in seen:
            seen.add(id(x))
            yield x
            stack.extend(operands(x))

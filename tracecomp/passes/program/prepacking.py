"""Prepacking: the part of a program that depends on frozen inputs alone, so that later calls reuse its results.

Frozen inputs keep their values from call to call until the caller says otherwise: the weights of a model that is not
being trained. The preparation consists of whole kernels, and top-level loops of kernels (panels packed for register
tiles, transformed weights). They read nothing else, and their results are not visible to the caller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from typing import TypeVar

from tracecomp.ir.graph import Graph, Value
from tracecomp.ir.loops import Check, If, Load, Local, Loop, Prefetch, Stmt, Store, children, expressions, walk
from tracecomp.ir.program import Kernel
from tracecomp.ir.types import TensorType
from tracecomp.passes.program.frame import Task

Other = TypeVar("Other")


def frozen_values(graph: Graph, inputs: Set[Value]) -> frozenset[Value]:
    """``inputs``, constants, and values that follow from them alone; none without ``inputs``."""
    # Without frozen inputs there is nothing to keep: constants alone are folded.
    if not inputs:
        return frozenset()
    frozen = set(inputs) | {i.value for i in graph.inputs if i.role == "constant"}
    for node in graph.live_nodes():
        if node.inputs and node.op.kind != "control" and all(v in frozen for v in node.inputs):
            frozen.update(node.outputs)
    return frozenset(frozen)


def prepared(
    tasks: Sequence[Task | Other], frozen: Set[Value], seen: Set[Value]
) -> tuple[list[Task], list[Task | Other]]:
    """Return the tasks that prepare, and those that run in every call; the caller sees the values in ``seen``."""
    # Operands of a moved task have to be frozen, or results of other moved tasks.
    known = set(frozen)
    writers = Counter(v for t in tasks if isinstance(t, Task) for v in _written(t))
    # Memory that two tasks write has another value in the second call.
    shared = seen | {v for v, count in writers.items() if count > 1}
    first: list[Task] = []
    rest: list[Task | Other] = []
    for task in tasks:
        moved = _moved(task, known, shared) if isinstance(task, Task) else set()
        if isinstance(task, Task) and moved:
            # A part of a kernel may move: weights are packed at the top of a contraction's kernel.
            now, later = _cut(task, moved)
            first.append(now)
            known |= _written(now)
            rest.extend(later)
        else:
            rest.append(task)
    return first, rest


def _written(task: Task) -> set[Value]:
    return {v for p, v in zip(task.kernel.params, task.values, strict=True) if p.name in task.kernel.writes}


class _Names:
    """The buffers that a top-level statement stores to, reads, or declares, without those local to it."""

    def __init__(self, stmt: Stmt) -> None:
        every = [*walk((stmt,))]
        # A buffer declared inside a statement is local to it.
        inner = {s.buffer.name for s in walk(children(stmt)) if isinstance(s, Local)}
        self.stored = {s.buffer.name for s in every if isinstance(s, Store)} - inner
        self.read = {x.buffer.name for x in expressions(every) if isinstance(x, Load)} - inner
        self.wanted = {s.buffer.name for s in every if isinstance(s, Prefetch)} | self.stored | self.read
        self.declared = {stmt.buffer.name} if isinstance(stmt, Local) else set()
        self.fails = any(isinstance(s, Check) for s in every)


def _moved(task: Task, frozen: Set[Value], shared: Set[Value]) -> set[int]:
    """Positions of statements that read only frozen values or each other's results, into buffers that others do not
    store to."""
    kernel, body = task.kernel, task.kernel.body
    # A check or a binding at the top affects all later statements: such a kernel stays whole.
    if any(not isinstance(s, Loop | If | Local) for s in body) or not any(v in frozen for v in task.values):
        return set()
    values = dict(zip((p.name for p in kernel.params), task.values, strict=True))
    names = [_Names(s) for s in body]
    # Not written by the kernel itself either.
    read = {name for name, v in values.items() if v in frozen and name not in kernel.writes}
    own = {name for name in kernel.writes if values[name] not in shared}.union(*(n.declared for n in names))
    moved = {n for n, s in enumerate(names) if not s.fails}
    while True:
        # A fixed point from above: a statement stays if it reads a result of, or shares a buffer with, one that stays.
        free = own.difference(*(s.stored for n, s in enumerate(names) if n not in moved))
        kept = {n for n in moved if names[n].stored | names[n].declared <= free and names[n].read <= read | free}
        if kept == moved:
            return moved if any(names[n].stored for n in moved) else set()
        moved = kept


def _cut(task: Task, moved: Set[int]) -> tuple[Task, list[Task]]:
    """Return the task that runs the ``moved`` statements, and the remaining one, if any; they share scratch memory."""
    kernel = task.kernel
    values = dict(zip((p.name for p in kernel.params), task.values, strict=True))
    buffers = {p.name: p for p in kernel.params}
    for n in sorted(moved):
        s = kernel.body[n]
        if isinstance(s, Local):
            buffers[s.buffer.name] = s.buffer
            values[s.buffer.name] = Value(None, -1, TensorType(s.buffer.dtype, (s.buffer.size,)))

    def part(name: str, body: Sequence[Stmt]) -> Task:
        names = [_Names(s) for s in body]
        wanted: set[str] = set().union(*(n.wanted for n in names))
        stored: set[str] = set().union(*(n.stored for n in names))
        used = tuple(b for b in buffers.values() if b.name in wanted)
        writes = frozenset(b.name for b in used if b.name in stored)
        return Task(Kernel(name, used, writes, tuple(body)), tuple(values[b.name] for b in used), task.nodes)

    # Local memory that both parts use becomes a value that one passes to the other.
    first = [s for n, s in enumerate(kernel.body) if n in moved and not isinstance(s, Local)]
    later = [s for n, s in enumerate(kernel.body) if n not in moved]
    return part(f"prepare_{kernel.name}", first), [part(kernel.name, later)] if later else []

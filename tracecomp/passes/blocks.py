"""Blocks of work as one numbered loop, which threads share."""

from __future__ import annotations

from tracecomp.ir.index import Index, Var, computed, index
from tracecomp.ir.loops import If, IndexValue, Loop, Stmt, in_range
from tracecomp.passes.rename import Copier
from tracecomp.passes.strips import loops

PARALLEL_WORK = 1 << 22  # multiply-adds, 80 us: see schedule.PARALLEL_WORK


def one_after_another(kind: str, parts: list[Loop]) -> tuple[Stmt, ...]:
    """The iterations of all loops; where threads share them, as one loop, so that they meet once."""
    if kind == "serial":
        return tuple(s for part in parts for s in loops(kind, [part.var] if part.var.extent > 1 else [], part.body))
    block = Var("block", sum(part.var.extent for part in parts))
    body: list[Stmt] = []
    first = 0
    for part in parts:
        count = part.var.extent
        own = index(block) - first
        condition = in_range(own, count)
        if condition:
            own = computed(IndexValue(own), (0, count - 1))
        stmts = Copier({part.var: own if count > 1 else Index()}).stmts(part.body)
        body.extend((If(condition, stmts),) if condition else stmts)
        first += count
    return (Loop(kind, block, tuple(body)),) if block.extent > 1 else tuple(body)

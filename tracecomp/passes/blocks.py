"""Blocks of work as one numbered loop, which threads share."""

from __future__ import annotations

from tracecomp.ir.index import Index, Var, computed, index, unravel
from tracecomp.ir.loops import If, IndexValue, Loop, Stmt, in_range
from tracecomp.passes.bilinear import product_of
from tracecomp.passes.rename import Copier
from tracecomp.passes.schedule import loops, sharing

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


def positions(names: list[Var], at: Index) -> dict[Var, Index]:
    """The values of ``names`` at flat position ``at``."""
    return dict(zip(names, unravel(at, tuple(v.extent for v in names)), strict=True))


def shared_out(names: list[Var], body: tuple[Stmt, ...], work: int) -> tuple[Stmt, ...]:
    """Loops over ``names`` as one loop that threads share, when there is enough to do."""
    total = product_of(names)
    shared = sharing(work, PARALLEL_WORK)
    if shared == "serial" or total < 2:
        return loops("serial", names, body)
    block = Var("block", total)
    return (Loop(shared, block, Copier(positions(names, index(block))).stmts(body)),)

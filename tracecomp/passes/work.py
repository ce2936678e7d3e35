"""How much a loop does, read off its statements: whether threads should share it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tracecomp.ir.loops import Check, Let, Loop, Stmt, Store, Update, children
from tracecomp.passes import schedule
from tracecomp.passes.cost import expr_cost


def shared_where_it_pays(body: Iterable[Stmt]) -> tuple[Stmt, ...]:
    """The statements with parallel loops made serial that do too little for other threads to help."""
    return tuple(
        replace(s, kind="serial") if isinstance(s, Loop) and s.kind == "parallel" and not _pays(s) else s for s in body
    )


def _pays(loop: Loop) -> bool:
    return sum(_work((loop,), 1)) >= schedule.PARALLEL_WORK


def _work(body: Iterable[Stmt], times: int) -> Iterator[float]:
    for stmt in body:
        match stmt:
            case Loop(_, var, inner):
                yield from _work(inner, times * var.extent)
            case Let(_, value) | Check(value):
                yield times * expr_cost(value)
            case Store(_, _, value):
                yield times * max(expr_cost(value), schedule.MOVING_COST)
            case Update(_, args):
                yield times * (1 + sum(map(expr_cost, args)))
            case _:
                yield from _work(children(stmt), times)

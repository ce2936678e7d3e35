"""How much loops do, read off their statements: whether threads should share them, and for profiles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tracecomp.ir.index import Var
from tracecomp.ir.loops import (
    Call,
    Check,
    Const,
    Expr,
    If,
    IndexValue,
    Let,
    Loop,
    Stmt,
    Store,
    Update,
    children,
)
from tracecomp.ir.scalars import SCALARS
from tracecomp.passes import schedule
from tracecomp.passes.cost import expr_cost


def shared_where_it_pays(body: Iterable[Stmt]) -> tuple[Stmt, ...]:
    """The statements with parallel loops made brief or serial that do too little for other threads to help."""
    return tuple(replace(s, kind=_kind(s)) if isinstance(s, Loop) and s.kind == "parallel" else s for s in body)


def _kind(loop: Loop) -> str:
    return schedule.sharing(sum(_work((loop,), 1)), schedule.PARALLEL_WORK)


def _work(body: Iterable[Stmt], times: int) -> Iterator[float]:
    for stmt in body:
        match stmt:
            case Loop(_, var, inner):
                for count, part in _runs(var, inner):
                    yield from _work(part, times * count)
            case Let(_, value) | Check(value):
                yield times * expr_cost(value)
            case Store(_, _, value):
                yield times * max(expr_cost(value), schedule.MOVING_COST)
            case Update(_, args):
                yield times * (1 + sum(map(expr_cost, args)))
            case _:
                yield from _work(children(stmt), times)


def _runs(var: Var, body: tuple[Stmt, ...]) -> Iterator[tuple[int, tuple[Stmt, ...]]]:
    """The parts of a loop's body and how often each runs: a condition on the variable alone holds for some values."""
    for stmt in body:
        held = _held(stmt.condition, var) if isinstance(stmt, If) else None
        yield var.extent if held is None else int(np.count_nonzero(held)), (stmt,)


def _held(x: Expr, var: Var) -> Any:
    """What an expression is for every value of a variable; None when it depends on more than that."""
    match x:
        case Const(value):
            return value
        case IndexValue(i) if all(atom == var for atom, _ in i.terms):
            return i.const + (i.coefficient(var) or 0) * np.arange(var.extent)
        case Call(op, args):
            values = [_held(a, var) for a in args]
            return None if any(v is None for v in values) else SCALARS[op].numpy(*values)
    return None


def operations(body: Iterable[Stmt]) -> int:
    """Scalar operations of a kernel: two for a multiply-add, one for any function."""
    total = 0
    for stmt in body:
        match stmt:
            case Loop(_, var, inner):
                total += sum(count * operations(part) for count, part in _runs(var, inner))
            case Let(_, value) | Check(value) | Store(_, _, value):
                total += _calls(value)
            case Update(_, args):
                total += len(args) + sum(map(_calls, args))
            case _:
                total += operations(children(stmt))
    return total


def _calls(expr: Expr) -> int:
    return 1 + sum(map(_calls, expr.args)) if isinstance(expr, Call) else 0

"""How much loops do, read off their statements: whether threads should share them, and for profiles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tracecomp.ir.index import Computed, FloorDiv, Index, Mod, Var
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

Array = np.ndarray[Any, Any]

MOST_VALUES = 1 << 20
"""Of a loop's variable, for which conditions are tried."""


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
    """The parts of a loop's body and how often each runs: conditions on the variable alone hold for some values."""
    if var.extent <= MOST_VALUES and any(isinstance(s, If) for s in body):
        yield from _runs_for(np.arange(var.extent), var, body)
    else:
        yield var.extent, body


def _runs_for(values: Array, var: Var, body: tuple[Stmt, ...]) -> Iterator[tuple[int, tuple[Stmt, ...]]]:
    for stmt in body:
        held = _held(stmt.condition, var, values) if isinstance(stmt, If) else None
        if held is None:
            yield len(values), (stmt,)
        else:
            yield from _runs_for(values[held], var, children(stmt))


def _held(x: Expr, var: Var, values: Array) -> Any:
    """What an expression is for values of a variable; None when it depends on more than that."""
    match x:
        case Const(value):
            return np.full(len(values), value)
        case IndexValue(i):
            return _place(i, var, values)
        case Call(op, args):
            found = [_held(a, var, values) for a in args]
            return None if any(v is None for v in found) else SCALARS[op].numpy(*found)
    return None


def _place(i: Index, var: Var, values: Array) -> Array | None:
    total = np.full(len(values), i.const)
    for atom, factor in i.terms:
        match atom:
            case FloorDiv(inner, divisor) | Mod(inner, divisor):
                place = _place(inner, var, values)
                found = None if place is None else place // divisor if isinstance(atom, FloorDiv) else place % divisor
            case Computed(expr):
                found = _held(expr, var, values)
            case _:
                found = values if atom == var else None
        if found is None:
            return None
        total = total + factor * found
    return total


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

"""Amount of work of loops, computed from their statements, for sharing among threads and for profiles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from tracecomp.base.errors import VerifyError
from tracecomp.ir.index import Var
from tracecomp.ir.loop_interp import Array, Scope
from tracecomp.ir.loops import Call, Check, Expr, If, Let, Loop, Stmt, Store, Update, children
from tracecomp.passes.cost.machine import Machine
from tracecomp.passes.cost.parallel import parallel_kind
from tracecomp.passes.cost.scalar_cost import MOVING_COST, expr_cost

MOST_VALUES = 1 << 20
"""Most values of loops' variables for which conditions are evaluated: 8 MB of numbers, some milliseconds."""
Values: TypeAlias = Mapping[Var, Array | None]
"""Variables of loops, and those of their values for which a statement runs; None: all."""


def shared_where_it_pays(body: Iterable[Stmt], machine: Machine) -> tuple[Stmt, ...]:
    """Return the statements, with parallel loops made opportunistic or serial if they have too little work to share."""
    return tuple(
        # Total over the statement, not per iteration: a short loop with a
        # long body is as worth sharing as the reverse.
        replace(s, kind=parallel_kind(sum(_work((s,), 1, {})), machine))
        if isinstance(s, Loop) and s.kind == "parallel"
        else s
        for s in body
    )


def _work(body: Iterable[Stmt], times: float, around: Values) -> Iterator[float]:
    for stmt in body:
        match stmt:
            case Loop(_, var, inner):
                for count, values, part in _parts(var, inner, around):
                    yield from _work(part, times * count, values)
            case Let(_, value) | Check(value):
                yield times * expr_cost(value)
            case Store(_, _, value):
                # A store that computes little still moves its line through memory, so the longer of the two counts.
                yield times * max(expr_cost(value), MOVING_COST)
            case Update(_, args):
                # One for the multiply-add itself, plus what its operands cost.
                yield times * (1 + sum(map(expr_cost, args)))
            case _:
                yield from _work(children(stmt), times, around)


def runs(var: Var, body: tuple[Stmt, ...]) -> Iterator[tuple[float, tuple[Stmt, ...]]]:
    """The parts of a loop's body and how often each runs: conditions on the variable alone hold for some values."""
    return ((count, part) for count, _, part in _parts(var, body, {}))


def _parts(var: Var, body: tuple[Stmt, ...], around: Values) -> Iterator[tuple[float, Values, tuple[Stmt, ...]]]:
    """The parts of a loop's body, how often each runs, and the values of variables for which it does."""
    # A condition on the loop's variable (peeled borders, triangles) makes parts of the body run less often. numpy
    # evaluates it for every value: an estimate of a half would hide a loop that hardly runs.
    if var.extent > MOST_VALUES:
        yield var.extent, around, body
    elif any(isinstance(s, If) for s in body):
        yield from _parts_for(np.arange(var.extent), var, body, around)
    else:
        yield var.extent, {**around, var: None}, body


def _parts_for(
    values: Array, var: Var, body: tuple[Stmt, ...], around: Values
) -> Iterator[tuple[float, Values, tuple[Stmt, ...]]]:
    for stmt in body:
        held = _held(stmt.condition, var, values, around) if isinstance(stmt, If) else None
        if held is None:
            yield len(values), {**around, var: values}, (stmt,)
        elif isinstance(held, float):
            for count, inside, part in _parts_for(values, var, children(stmt), around):
                yield held * count, inside, part
        else:
            # Nested conditions narrow the same values, so an element counts only where all of them hold.
            yield from _parts_for(values[held], var, children(stmt), around)


def _held(condition: Expr, var: Var, values: Array, around: Values) -> Array | float | None:
    """For which values of a variable a condition holds.

    If it reads variables of the loops ``around``, the part of all values for which it holds. None when it depends on
    anything else.
    """
    known = {var: values}
    while True:
        try:
            found = Scope(dict(known)).expr(condition)
        except KeyError as error:
            other = error.args[0]
            if other not in around or math.prod(a.size for a in known.values()) * other.extent > MOST_VALUES:
                return None
            here = around[other]
            here = np.arange(other.extent) if here is None else here
            known = {v: a[..., None] for v, a in known.items()} | {other: here}
        # The condition reads data: treat it as always true, which overestimates the work and at worst shares one loop
        # too many.
        except VerifyError:
            return None
        else:
            wide: Array = np.broadcast_to(found, np.broadcast_shapes(*[a.shape for a in known.values()]))
            return wide if len(known) == 1 else float(wide.mean()) if wide.size else 0.0


def operations(body: Iterable[Stmt]) -> int:
    """Scalar operations of a kernel: two for a multiply-add, one for any function."""
    return round(_operations(body, {}))


def _operations(body: Iterable[Stmt], around: Values) -> float:
    total = 0.0
    for stmt in body:
        match stmt:
            case Loop(_, var, inner):
                total += sum(n * _operations(part, values) for n, values, part in _parts(var, inner, around))
            case Let(_, value) | Check(value) | Store(_, _, value):
                total += _calls(value)
            case Update(_, args):
                total += len(args) + sum(map(_calls, args))
            case _:
                total += _operations(children(stmt), around)
    return total


def _calls(expr: Expr) -> int:
    return 1 + sum(map(_calls, expr.args)) if isinstance(expr, Call) else 0

"""Amount of work of loops, computed from their statements, for sharing among threads and for profiles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from tracecomp.base.errors import VerifyError
from tracecomp.ir.index import Var
from tracecomp.ir.loop_interp import Array, Scope
from tracecomp.ir.loops import Call, Check, Expr, If, Let, Loop, Stmt, Store, Update, children
from tracecomp.passes.cost.machine import Machine
from tracecomp.passes.cost.parallel import parallel_kind
from tracecomp.passes.cost.scalar_cost import MOVING_COST, expr_cost

MOST_VALUES = 1 << 20
"""Most values of a loop's variable for which conditions are evaluated: 8 MB of numbers, some milliseconds."""


def shared_where_it_pays(body: Iterable[Stmt], machine: Machine) -> tuple[Stmt, ...]:
    """Return the statements, with parallel loops made opportunistic or serial if they have too little work to share."""
    return tuple(
        # Total over the statement, not per iteration: a short loop with a
        # long body is as worth sharing as the reverse.
        replace(s, kind=parallel_kind(sum(_work((s,), 1)), machine))
        if isinstance(s, Loop) and s.kind == "parallel"
        else s
        for s in body
    )


def _work(body: Iterable[Stmt], times: int) -> Iterator[float]:
    for stmt in body:
        match stmt:
            case Loop(_, var, inner):
                for count, part in runs(var, inner):
                    yield from _work(part, times * count)
            case Let(_, value) | Check(value):
                yield times * expr_cost(value)
            case Store(_, _, value):
                # A store that computes little still moves its line through memory, so the longer of the two counts.
                yield times * max(expr_cost(value), MOVING_COST)
            case Update(_, args):
                # One for the multiply-add itself, plus what its operands cost.
                yield times * (1 + sum(map(expr_cost, args)))
            case _:
                yield from _work(children(stmt), times)


def runs(var: Var, body: tuple[Stmt, ...]) -> Iterator[tuple[int, tuple[Stmt, ...]]]:
    """The parts of a loop's body and how often each runs: conditions on the variable alone hold for some values."""
    # A condition on the loop's variable (peeled borders, triangles) makes parts of the body run less often. numpy
    # evaluates it for every value: an estimate of a half would hide a loop that hardly runs.
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
            # Nested conditions narrow the same values, so an element counts only where all of them hold.
            yield from _runs_for(values[held], var, children(stmt))


def _held(condition: Expr, var: Var, values: Array) -> Array | None:
    """For which values of a variable a condition holds; None when it depends on anything else."""
    try:
        found = Scope({var: values}).expr(condition)
    # The condition reads data or another loop's variable: treat it as always true, which overestimates the work and at
    # worst shares one loop too many.
    except (KeyError, VerifyError):
        return None
    return np.broadcast_to(found, values.shape)


def operations(body: Iterable[Stmt]) -> int:
    """Scalar operations of a kernel: two for a multiply-add, one for any function."""
    total = 0
    for stmt in body:
        match stmt:
            case Loop(_, var, inner):
                total += sum(count * operations(part) for count, part in runs(var, inner))
            case Let(_, value) | Check(value) | Store(_, _, value):
                total += _calls(value)
            case Update(_, args):
                total += len(args) + sum(map(_calls, args))
            case _:
                total += operations(children(stmt))
    return total


def _calls(expr: Expr) -> int:
    return 1 + sum(map(_calls, expr.args)) if isinstance(expr, Call) else 0

"""Operands that are not what memory holds (half precision, computed in float32), made once for all register tiles."""

from __future__ import annotations

from dataclasses import replace

from tracecomp.ir.index import index, linear
from tracecomp.ir.loops import Buffer, Let, Load, Local, Read, Stmt, Store
from tracecomp.passes.bilinear import BilinearNest, Operand, product_of
from tracecomp.passes.rename import Copier
from tracecomp.passes.schedule import sharing
from tracecomp.passes.strips import shared_out, strip
from tracecomp.passes.tile_plan import Plan, once_computed

LANES = 64


def computed_once(nest: BilinearNest, plan: Plan, work: int) -> tuple[tuple[Stmt, ...], BilinearNest]:
    """Statements that compute the operand of which tiles read single elements, and the nest that reads the copy.

    Elements from ``work`` on are worth waking threads for.
    """
    left = nest.moving(plan.vector) is nest.rhs
    still = nest.lhs if left else nest.rhs
    if nest.outside or still.inside or not once_computed(nest, still):
        return (), nest
    names = [v for v in (*nest.out, *nest.reduce) if still.depends(v)]
    copy = Buffer("computed", nest.acc.dtype, product_of(names))
    at = linear([index(v) for v in names], [v.extent for v in names])
    fast = next((v for v in names if still.stride(v) == 1), names[-1])
    body = strip(fast, LANES, Copier({}, "_computed").stmts((*still.stmts, Store(copy, at, still.expr))))
    computing = shared_out(sharing(copy.size, work), [v for v in names if v != fast], body)
    operand = Operand([Let("computed", Load(copy, at))], Read("computed", copy.dtype, frozenset(names)))
    return (Local(copy), *computing), replace(nest, lhs=operand) if left else replace(nest, rhs=operand)

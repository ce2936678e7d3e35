"""Copies of operands: of what memory does not hold yet (half precision, computed in float32), or holds in other order.

A copy is made once, for all register tiles.
"""

from __future__ import annotations

from dataclasses import replace

from tracecomp.ir.index import Var, index, linear
from tracecomp.ir.loops import Buffer, Let, Load, Local, Read, Stmt, Store
from tracecomp.ir.types import DType
from tracecomp.passes.bilinear import BilinearNest, Operand, product_of
from tracecomp.passes.rename import Copier
from tracecomp.passes.schedule import sharing
from tracecomp.passes.split_vars import merge_vars, merged
from tracecomp.passes.strips import shared_out, strip, tiles
from tracecomp.passes.tile_plan import Plan, once_computed

LANES = 64
BLOCK = 16


def computed_once(nest: BilinearNest, plan: Plan, work: int) -> tuple[tuple[Stmt, ...], BilinearNest]:
    """Statements that compute the operand of which tiles read single elements, and the nest that reads the copy.

    Elements from ``work`` on are worth waking threads for.
    """
    left = nest.moving(plan.vector) is nest.rhs
    still = nest.lhs if left else nest.rhs
    if nest.outside or still.inside or not once_computed(nest, still):
        return (), nest
    names = [v for v in (*nest.out, *nest.reduce) if still.depends(v)]
    computing, operand = copied(still, names, nest.acc.dtype, work)
    return computing, replace(nest, lhs=operand) if left else replace(nest, rhs=operand)


def copied(operand: Operand, names: list[Var], dtype: DType, work: int) -> tuple[tuple[Stmt, ...], Operand]:
    """Statements that copy an operand, the last of ``names`` innermost, and the copy; ``work``: see above."""
    copy = Buffer("computed", dtype, product_of(names))
    at = linear([index(v) for v in names], [v.extent for v in names])
    read = Operand([Let("computed", Load(copy, at))], Read("computed", dtype, frozenset(names)))
    body = Copier({}, "_computed").stmts((*operand.stmts, Store(copy, at, operand.expr)))
    *others, last = names
    joined = merge_vars(others, list(body))
    body, others = Copier(joined).stmts(body), merged(others, joined)
    kind = sharing(copy.size, work)
    loads = Operand(list(body[:-1]), operand.expr)
    fast = next((v for v in others if loads.stride(v) == 1), None)
    if fast is None:
        body = strip(last, LANES, body)
    else:
        others.remove(fast)
        body = tiles(last, BLOCK, strip(fast, BLOCK, body), "serial" if others else kind)
    return (Local(copy), *shared_out(kind, others, body)), read

"""Operands that are not what tiles should load, made once for all register tiles.

Half precision is computed in float32; vectors whose elements lie apart are turned, where no panel is packed.
"""

from __future__ import annotations

from dataclasses import replace

from tracecomp.ir.index import Var, index, linear
from tracecomp.ir.loops import Buffer, Let, Load, Local, Read, Stmt, Store
from tracecomp.passes.bilinear import BilinearNest, Operand, product_of
from tracecomp.passes.dot_form import NOMINAL_LANES
from tracecomp.passes.rename import Copier
from tracecomp.passes.schedule import sharing
from tracecomp.passes.split_vars import merge_vars, merged
from tracecomp.passes.strips import shared_out, strip, tiles
from tracecomp.passes.tile_plan import Plan, once_computed, once_turned

LANES = 64


def computed_once(nest: BilinearNest, plan: Plan, work: int) -> tuple[tuple[Stmt, ...], BilinearNest]:
    """Statements that copy operands of which tiles read single elements or vectors, and the nest that reads the copies.

    Elements from ``work`` on are worth waking threads for.
    """
    stmts: list[Stmt] = []
    read: list[Operand] = []
    for operand, name in ((nest.lhs, "computed_left"), (nest.rhs, "computed_right")):
        turned = once_turned(nest, operand, plan)
        computed = operand is not nest.moving(plan.vector) and once_computed(nest, operand)
        if operand.inside or any(map(operand.depends, nest.outside)) or not (turned or computed):
            read.append(operand)
        else:
            made, copy = _copied(nest, operand, name, plan.vector if turned else None, work)
            stmts.extend(made)
            read.append(copy)
    lhs, rhs = read
    return tuple(stmts), replace(nest, lhs=lhs, rhs=rhs)


def _copied(
    nest: BilinearNest, operand: Operand, name: str, lanes: Var | None, work: int
) -> tuple[tuple[Stmt, ...], Operand]:
    """Statements that copy an operand, with ``lanes`` side by side, and the copy."""
    names = sorted((v for v in (*nest.out, *nest.reduce) if operand.depends(v)), key=lambda v: v == lanes)
    copy = Buffer(name, nest.acc.dtype, product_of(names))
    at = linear([index(v) for v in names], [v.extent for v in names])
    body = Copier({}, f"_{name}").stmts((*operand.stmts, Store(copy, at, operand.expr)))
    joined = merge_vars([v for v in names if v != lanes], list(body))
    source = Operand(list(Copier(joined).stmts(body)), operand.expr)
    rest = merged(names, joined)
    fast = next((v for v in rest if source.stride(v) == 1), rest[-1])
    inner = strip(fast, LANES, source.stmts)
    if lanes is not None and lanes != fast:
        inner = tiles(lanes, NOMINAL_LANES, strip(fast, NOMINAL_LANES, source.stmts))
    outer = [v for v in rest if v not in (fast, lanes)]
    read = Operand([Let(name, Load(copy, at))], Read(name, copy.dtype, frozenset(names)))
    return (Local(copy), *shared_out(sharing(copy.size, work), outer, inner)), read

"""Copies of operands that are not what tiles should load, made once for all register tiles.

Half precision is computed in float32; vectors whose elements lie apart are turned, where no panel is packed; and so
are rows whose terms lie so far apart that they push each other out of the cache.
"""

from __future__ import annotations

from dataclasses import replace

from tracecomp.ir.index import Var, index, linear
from tracecomp.ir.loop_copy import Copier
from tracecomp.ir.loops import Buffer, Let, Load, Local, Read, Stmt, Store
from tracecomp.ir.types import DType
from tracecomp.passes.contraction.tile_choice import Plan, once_computed, once_turned
from tracecomp.passes.cost.machine import Machine
from tracecomp.passes.cost.parallel import parallel_kind_of_products
from tracecomp.passes.nests.contraction_nest import BilinearNest, Operand, product_of
from tracecomp.passes.nests.loop_vars import merge_vars, merged
from tracecomp.passes.schedule.tiling import shared_out, strip, tiles

LANES = 64
"""Elements that are copied at a time where memory is read and written in runs: four vectors of float32."""
BLOCK = 16
"""Elements of a square that is transposed in registers on the way."""


def computed_once(nest: BilinearNest, plan: Plan, machine: Machine) -> tuple[tuple[Stmt, ...], BilinearNest]:
    """Statements that copy operands of which tiles read single elements or vectors, and the nest that reads these."""
    stmts: list[Stmt] = []
    read: list[Operand] = []
    for operand, name in ((nest.lhs, "computed_left"), (nest.rhs, "computed_right")):
        turned = once_turned(nest, operand, plan, machine)
        computed = operand is not nest.moving(plan.vector) and once_computed(nest, operand, machine)
        if operand.inside or any(map(operand.depends, nest.outside)) or not (turned or computed):
            read.append(operand)
        else:
            names = [v for v in (*nest.out, *nest.reduce) if operand.depends(v)]
            names.sort(key=lambda v: turned and v == plan.vector)
            made, copy = copied(operand, name, names, nest.acc.dtype, machine)
            stmts.extend(made)
            read.append(copy)
    lhs, rhs = read
    return tuple(stmts), replace(nest, lhs=lhs, rhs=rhs)


def copied(
    operand: Operand, name: str, names: list[Var], dtype: DType, machine: Machine
) -> tuple[tuple[Stmt, ...], Operand]:
    """Statements that copy an operand, the last of ``names`` innermost, and the copy."""
    copy = Buffer(name, dtype, product_of(names))
    at = linear([index(v) for v in names], [v.extent for v in names])
    read = Operand([Let(name, Load(copy, at))], Read(name, dtype, frozenset(names)))
    body = Copier({}, f"_{name}").stmts((*operand.stmts, Store(copy, at, operand.expr)))
    *others, last = names
    joined = merge_vars(others, list(body))
    body, others = Copier(joined).stmts(body), merged(others, joined)
    kind = parallel_kind_of_products(copy.size, machine)
    source = Operand(list(body), operand.expr)
    fast = next((v for v in (last, *others) if source.stride(v) == 1), last)
    if fast is last:
        body = strip(last, LANES, body)
    else:
        others.remove(fast)
        body = tiles(last, BLOCK, strip(fast, BLOCK, body), "serial" if others else kind)
    return (Local(copy), *shared_out(kind, others, body)), read

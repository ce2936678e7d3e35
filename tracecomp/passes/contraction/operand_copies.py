"""Copies of operands in a form that tiles load fast, made once for all register tiles.

Half precision is converted to float32. Strided vectors are transposed where no panel is packed. Rows whose terms are so
far apart that they evict each other from the cache are made dense.
"""

from __future__ import annotations

from dataclasses import replace

from tracecomp.ir.index import Var, index, linear
from tracecomp.ir.loop_copy import Copier
from tracecomp.ir.loops import Buffer, Let, Load, Local, Read, Stmt, Store
from tracecomp.ir.types import DType
from tracecomp.passes.contraction.tile_schedule import TileSchedule
from tracecomp.passes.nests.contraction_nest import BilinearNest, Operand, product_of
from tracecomp.passes.nests.loop_vars import merge_vars, merged
from tracecomp.passes.schedule.tiling import shared_out, strip, tiles

COPY_NAMES = {"lhs": "computed_left", "rhs": "computed_right"}
"""The buffers of copies."""
LANES = 64
"""Elements that are copied at a time where memory is contiguous on both sides: four vectors of float32."""
BLOCK = 16
"""Side, in elements, of a block that is transposed in registers on the way."""


def with_copies(nest: BilinearNest, tiles: TileSchedule) -> tuple[tuple[Stmt, ...], BilinearNest]:
    """Statements that copy the operands that ``tiles`` names, and the nest that reads the copies."""
    stmts: list[Stmt] = []
    for side, kind in zip(tiles.copies, tiles.copy_threads, strict=True):
        operand = nest.lhs if side == "lhs" else nest.rhs
        made, copy = copied(operand, COPY_NAMES[side], copied_order(nest, operand, tiles), nest.acc.dtype, kind)
        nest = replace(nest, lhs=copy) if side == "lhs" else replace(nest, rhs=copy)
        stmts.extend(made)
    return tuple(stmts), nest


def copied_order(nest: BilinearNest, operand: Operand, tiles: TileSchedule) -> list[Var]:
    """The variables of a copy, outermost first: in the nest's order, with strided lanes last."""
    names = [v for v in (*nest.out, *nest.reduce) if operand.depends(v)]
    # Stable: all variables keep the nest's order, and the lanes go last, next to each other.
    return sorted(names, key=lambda v: v == tiles.vector and operand.stride(v) != 1)


def copied(operand: Operand, name: str, names: list[Var], dtype: DType, kind: str) -> tuple[tuple[Stmt, ...], Operand]:
    """Statements that copy an operand in loops of ``kind``, the last of ``names`` innermost, and the copy."""
    copy = Buffer(name, dtype, product_of(names))
    at = linear([index(v) for v in names], [v.extent for v in names])
    read = Operand([Let(name, Load(copy, at))], Read(name, dtype, frozenset(names)))
    # Names in the copy's statements get a suffix, as the operand's names occur again where tiles read it.
    body = Copier({}, f"_{name}").stmts((*operand.stmts, Store(copy, at, operand.expr)))
    *others, last = names
    # Merge loops along which source and copy have proportional strides.
    joined = merge_vars(others, list(body))
    body, others = Copier(joined).stmts(body), merged(others, joined)
    source = Operand(list(body), operand.expr)
    # The variable along which the source is dense: reading along it and storing along another is a blockwise transpose.
    fast = next((v for v in (last, *others) if source.stride(v) == 1), last)
    if fast is last:
        body = strip(last, LANES, body)
    else:
        others.remove(fast)
        body = tiles(last, BLOCK, strip(fast, BLOCK, body), "serial" if others else kind)
    return (Local(copy), *shared_out(kind, others, body)), read

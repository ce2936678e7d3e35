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
from tracecomp.passes.contraction.tile_schedule import TileSchedule
from tracecomp.passes.nests.contraction_nest import BilinearNest, Operand, product_of
from tracecomp.passes.nests.loop_vars import merge_vars, merged
from tracecomp.passes.schedule.tiling import shared_out, strip, tiles

COPY_NAMES = {"lhs": "computed_left", "rhs": "computed_right"}
"""The buffers of copies."""
LANES = 64
"""Elements that are copied at a time where memory is read and written in runs: four vectors of float32."""
BLOCK = 16
"""Elements of a square that is transposed in registers on the way."""


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
    """The variables of a copy, outermost first: as in the nest, but lanes that lie apart come together."""
    names = [v for v in (*nest.out, *nest.reduce) if operand.depends(v)]
    # Stable: all variables keep the nest's order, and the lanes go last, next to each other.
    return sorted(names, key=lambda v: v == tiles.vector and operand.stride(v) != 1)


def copied(operand: Operand, name: str, names: list[Var], dtype: DType, kind: str) -> tuple[tuple[Stmt, ...], Operand]:
    """Statements that copy an operand in loops of ``kind``, the last of ``names`` innermost, and the copy."""
    copy = Buffer(name, dtype, product_of(names))
    at = linear([index(v) for v in names], [v.extent for v in names])
    read = Operand([Let(name, Load(copy, at))], Read(name, dtype, frozenset(names)))
    # Names of the copy's own statements get a suffix, as the operand's appear again where tiles read.
    body = Copier({}, f"_{name}").stmts((*operand.stmts, Store(copy, at, operand.expr)))
    *others, last = names
    # Fewer loops where source and copy step alike.
    joined = merge_vars(others, list(body))
    body, others = Copier(joined).stmts(body), merged(others, joined)
    source = Operand(list(body), operand.expr)
    # The variable along which the source is dense: reading along it and
    # storing along another is a transpose by squares.
    fast = next((v for v in (last, *others) if source.stride(v) == 1), last)
    if fast is last:
        body = strip(last, LANES, body)
    else:
        others.remove(fast)
        body = tiles(last, BLOCK, strip(fast, BLOCK, body), "serial" if others else kind)
    return (Local(copy), *shared_out(kind, others, body)), read

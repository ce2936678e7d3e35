"""Scheduling contractions and convolutions: register tiles, or, for a single result, one sum."""

from __future__ import annotations

from tracecomp.ir.loops import Accumulate, Stmt
from tracecomp.passes.contraction.block_choice import tile_schedule
from tracecomp.passes.contraction.register_tiles import register_tiles
from tracecomp.passes.nests.contraction_nest import BilinearNest
from tracecomp.passes.schedule.records import Chooser
from tracecomp.passes.schedule.tiling import loops


def schedule_bilinear(nest: BilinearNest, chooser: Chooser) -> tuple[Stmt, ...]:
    """The loops of a contraction or convolution."""
    packing, body = schedule_parts(nest, chooser)
    return (*packing, *body)


def schedule_parts(nest: BilinearNest, chooser: Chooser) -> tuple[tuple[Stmt, ...], tuple[Stmt, ...]]:
    """Return the loops that pack an operand, for all values of the variables outside the nest, and the loops after
    them."""
    # No results: compute nothing.
    if any(v.extent == 0 for v in nest.out):
        return (), ()
    if not nest.out:
        return (), _one_result(nest)
    return register_tiles(nest, tile_schedule(nest, chooser))


def _one_result(nest: BilinearNest) -> tuple[Stmt, ...]:
    terms = loops("serial", nest.reduce, (*nest.lhs.stmts, *nest.rhs.stmts, nest.update()))
    return (Accumulate((nest.accumulator(),), terms), *nest.epilogue)

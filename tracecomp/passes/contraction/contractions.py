"""Scheduling contractions and convolutions: register tiles, or sums in lanes.

Which form is used depends on shapes and strides alone, never on the machine or on what is fused, as it decides the
order of the sum (``sums_in_lanes``).
"""

from __future__ import annotations

from tracecomp.ir.loops import Stmt
from tracecomp.passes.contraction.block_choice import tile_schedule
from tracecomp.passes.contraction.dot_products import dot_form, dot_schedule
from tracecomp.passes.contraction.register_tiles import register_tiles
from tracecomp.passes.contraction.tile_choice import sums_in_lanes
from tracecomp.passes.nests.contraction_nest import BilinearNest
from tracecomp.passes.schedule.records import Chooser


def schedule_bilinear(nest: BilinearNest, chooser: Chooser) -> tuple[Stmt, ...]:
    """The loops of a contraction or convolution."""
    packing, body = schedule_parts(nest, chooser)
    return (*packing, *body)


def schedule_parts(nest: BilinearNest, chooser: Chooser) -> tuple[tuple[Stmt, ...], tuple[Stmt, ...]]:
    """The loops that pack an operand, for all values of the variables outside the nest, and the loops that follow."""
    # No results, so nothing is computed.
    if any(v.extent == 0 for v in nest.out):
        return (), ()
    # The plain nest decides, so that an epilogue never changes the order of a sum.
    in_lanes = sums_in_lanes(nest.plain or nest) or not (nest.plain or nest).out
    if in_lanes or not nest.out:
        return (), dot_form(nest, dot_schedule(nest, in_lanes, chooser))
    return register_tiles(nest, tile_schedule(nest, chooser))

"""Pads that no kernel stores: the windows that slide over them load zeros where they leave the image.

That costs nothing where vectors lie along an axis of the image: a mask, the same for all rows, blots out what is
beside it, and which rows are above or below it is known when they are written out.
"""

from __future__ import annotations

from dataclasses import replace

from tracecomp.ir.graph import Graph, Value
from tracecomp.ir.op import Bilinear
from tracecomp.passes.bilinear import labelled_bilinear, product_of, tidied
from tracecomp.passes.evaluate import Params
from tracecomp.passes.groups import Group, Partition
from tracecomp.passes.inline import values_read, with_inlined
from tracecomp.passes.machine import Machine
from tracecomp.passes.tile_plan import plan_of, sums_in_lanes

MASKED_TERMS = 32
"""So many terms of a window are masked even where a loop over rows leaves their masks for each step to find."""


def with_masked_pads(partition: Partition, graph: Graph, machine: Machine) -> Partition:
    """The partition without the pads whose only reader can do so."""
    wanted = {o.value for o in graph.outputs}
    readers: dict[Value, list[Group]] = {}
    for group in partition.groups:
        for value in values_read(group, partition):
            readers.setdefault(value, []).append(group)
    for group in partition.groups:
        pad = group.nodes[0]
        if len(group.nodes) != 1 or pad.op.name != "pad" or any(pad.attrs["interior"]) or pad.outputs[0] in wanted:
            continue
        reading = readers.get(pad.outputs[0], [])
        tried = replace(partition, inlined=partition.inlined | {pad})
        if len(reading) == 1 and reading[0].kind == "bilinear" and _slides(reading[0], tried, machine):
            stored = {g: values for g, values in partition.stored.items() if g is not group}
            partition = replace(tried, groups=[g for g in partition.groups if g is not group], stored=stored)
    return partition


def _slides(group: Group, partition: Partition, machine: Machine) -> bool:
    """Whether the group's windows slide along vectors that nothing else reads."""
    root = next(n for n in group.nodes if isinstance(n.op.loop, Bilinear))
    if root.outputs[0].type.numel == 0:
        return False
    nest = tidied(labelled_bilinear(with_inlined(group, partition), partition.stored[group], Params(partition.opaque)))
    if not nest.out or sums_in_lanes(nest.plain or nest):
        return False
    plan = plan_of(nest, machine)
    moving = nest.moving(plan.vector)
    if not plan.window or plan.tile is None:
        return False
    known = plan.height == plan.tile.extent or product_of(plan.window) <= MASKED_TERMS
    return known and moving.depends(plan.tile) and nest.one_sided(plan.vector)

"""Implicit padding: pads that no kernel stores. Windows that leave the image load zeros there, or skip the terms.

If vectors run along an axis of the image, a mask, the same for all rows, sets elements outside the image to zero. Along
other axes, unrolled rows know which of their terms are padding, or a few conditions test it
(``passes/contraction/sliding_windows.py``).
"""

from __future__ import annotations

from dataclasses import replace

from tracecomp.ir.graph import Graph, Value
from tracecomp.ir.op import Bilinear
from tracecomp.passes.contraction.sliding_windows import written_out
from tracecomp.passes.contraction.tile_choice import tiles_of
from tracecomp.passes.cost.reference import REFERENCE
from tracecomp.passes.fusion.groups import Group, Partition
from tracecomp.passes.fusion.members import values_read
from tracecomp.passes.nests.contraction_nest import tidied
from tracecomp.passes.nests.store import Nests


def with_implicit_padding(partition: Partition, graph: Graph, nests: Nests) -> Partition:
    """Return the partition without the pads whose only reader can do so."""
    # An output has to be in memory.
    wanted = {o.value for o in graph.outputs}
    readers: dict[Value, list[Group]] = {}
    for group in partition.groups:
        for value in values_read(group, partition):
            readers.setdefault(value, []).append(group)
    for group in partition.groups:
        pad = group.nodes[0]
        # Interior padding separates elements, so reads through it divide positions; windows cannot load those as
        # vectors.
        if len(group.nodes) != 1 or pad.op.name != "pad" or any(pad.attrs["interior"]) or pad.outputs[0] in wanted:
            continue
        # The copy also transposes memory: without it every vector would be gathered.
        if _transposed(pad.inputs[0]):
            continue
        reading = readers.get(pad.outputs[0], [])
        # The pad as a rematerialized producer: the nest then shows which terms are padding.
        tried = replace(partition, rematerialized=partition.rematerialized | {pad})
        # One reader: several would each mask their loads, for which one copy is enough.
        if len(reading) == 1 and reading[0].kind == "bilinear" and _slides(reading[0], tried, nests):
            stored = {g: values for g, values in partition.stored.items() if g is not group}
            partition = replace(tried, groups=[g for g in partition.groups if g is not group], stored=stored)
    return partition


def _transposed(value: Value) -> bool:
    """Whether the value's copy moves another axis of memory to the end, so that vectors run along it."""
    node = value.node
    return node is not None and node.op.name == "permute" and node.attrs["dims"][-1] != value.ndim - 1


def _slides(group: Group, partition: Partition, nests: Nests) -> bool:
    """Whether the group's tile rows are unrolled, without the terms that are padding."""
    root = next(n for n in group.nodes if isinstance(n.op.loop, Bilinear))
    # An empty result has no tiles.
    if root.outputs[0].type.numel == 0:
        return False
    nest = tidied(nests.contraction(group, partition))
    if not nest.out:
        return False
    # The reference machine's tile, as skipping terms changes bits with infinite weights.
    tile = tiles_of(nest, REFERENCE).tile
    padded = [o for o in (nest.lhs, nest.rhs) if o.conditions]
    return tile is not None and any(o.depends(tile) for o in padded) and written_out(nest)

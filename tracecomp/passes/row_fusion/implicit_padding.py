"""Pads that no kernel stores: windows that leave the image load zeros there, or leave the terms out.

Where vectors lie along an axis of the image, a mask, the same for all rows, sets to zero what is beside the image.
Along other axes it is known which terms of a row are padding when rows are written out, or a few conditions tell
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
    """The partition without the pads whose only reader can do so."""
    # An output has to be in memory.
    wanted = {o.value for o in graph.outputs}
    readers: dict[Value, list[Group]] = {}
    for group in partition.groups:
        for value in values_read(group, partition):
            readers.setdefault(value, []).append(group)
    for group in partition.groups:
        pad = group.nodes[0]
        # Interior padding spreads elements, so reads through it divide positions; no window loads those as vectors.
        if len(group.nodes) != 1 or pad.op.name != "pad" or any(pad.attrs["interior"]) or pad.outputs[0] in wanted:
            continue
        # The copy turns memory on its way: without it every vector would be gathered.
        if _turned(pad.inputs[0]):
            continue
        reading = readers.get(pad.outputs[0], [])
        # The pad as a rematerialized producer: the nest then shows which terms are padding.
        tried = replace(partition, rematerialized=partition.rematerialized | {pad})
        # One reader: for several each would mask its loads, where one copy serves all.
        if len(reading) == 1 and reading[0].kind == "bilinear" and _slides(reading[0], tried, nests):
            stored = {g: values for g, values in partition.stored.items() if g is not group}
            partition = replace(tried, groups=[g for g in partition.groups if g is not group], stored=stored)
    return partition


def _turned(value: Value) -> bool:
    """Whether who copies the value moves another axis of memory to the end, so that vectors lie along it."""
    node = value.node
    return node is not None and node.op.name == "permute" and node.attrs["dims"][-1] != value.ndim - 1


def _slides(group: Group, partition: Partition, nests: Nests) -> bool:
    """Whether the group's rows of a tile are written out, without the terms that are padding."""
    root = next(n for n in group.nodes if isinstance(n.op.loop, Bilinear))
    # An empty result has no tiles to ask about.
    if root.outputs[0].type.numel == 0:
        return False
    nest = tidied(nests.contraction(group, partition))
    if not nest.out:
        return False
    # The reference machine's tile, as leaving terms out decides bits with infinite weights.
    tile = tiles_of(nest, REFERENCE).tile
    padded = [o for o in (nest.lhs, nest.rhs) if o.conditions]
    return tile is not None and any(o.depends(tile) for o in padded) and written_out(nest)

"""Concatenations without a kernel: the kernel that computes a part stores it within the whole.

This interleaves the phases of a strided convolution's gradient, or of a transposed convolution, as they are computed.
It also interleaves real and imaginary parts of complex results (`passes/schedule/interleave.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from math import prod

from tracecomp.ir.graph import Graph, Value
from tracecomp.passes.fusion.access import buffer_of, is_interleaving
from tracecomp.passes.fusion.groups import BufferSlice, Group, Partition
from tracecomp.passes.fusion.members import values_read

RUN_BYTES = 64
"""Parts whose runs are shorter than a vector would be stored element by element, unless one kernel interleaves them."""


def with_concats_in_place(partition: Partition, graph: Graph, aliases: Mapping[int, int]) -> Partition:
    """Return the partition without concatenations whose parts are all computed for them alone."""
    # The concatenation overwrites an input: its parts would be stored while other kernels may still read that input.
    outputs = {buffer_of(o.value) for o in graph.outputs}
    overwriting = {buffer_of(graph.outputs[o].value) for o in aliases}
    maker = {v: g for g in partition.groups for v in partition.stored[g]}
    # Reads are counted per buffer, so that two views of one part count as two readers.
    reads: dict[Value, int] = {}
    for group in partition.groups:
        for value in values_read(group, partition):
            reads[buffer_of(value)] = reads.get(buffer_of(value), 0) + 1
    found: list[dict[Value, BufferSlice]] = []
    for group in partition.groups:
        parts = _parts(group)
        if not parts or not overwriting.isdisjoint(partition.stored[group]):
            continue
        # A part with other readers, or one that is read back while it is computed, would be read with gaps between
        # runs.
        if all(v not in outputs and reads.get(v) == 1 and _stores_anywhere(maker.get(v)) for v in parts):
            found.append(parts)
    # An interleaving store writes whole vectors only if one kernel makes all
    # parts. Alone, each would write every n-th element.
    kept = [p for p in found if not _is_interleaved(p) or _interleaved_by_one(p, found, partition)]
    slices = {value: place for parts in kept for value, place in parts.items()}
    if not slices:
        return partition
    joined = {p.whole for p in slices.values()}
    groups = [g for g in partition.groups if joined.isdisjoint(partition.stored[g])]
    stored = {g: partition.stored[g] for g in groups}
    return replace(partition, groups=groups, stored=stored, slices=_outermost(slices))


def _parts(group: Group) -> dict[Value, BufferSlice]:
    """The parts of a concatenation, with their places; empty if the group is not a concatenation, or its runs are
    short."""
    # One node only: a concatenation that was fused with arithmetic already has a kernel that reads all parts once.
    node, whole = group.nodes[0], group.nodes[0].outputs[0]
    if node.op.name != "concat" or len(group.nodes) != 1:
        return {}
    axis, size = node.attrs["axis"], whole.dtype.itemsize
    found: dict[Value, BufferSlice] = {}
    inner, start = prod(whole.shape[axis + 1 :]), 0
    for value in node.inputs:
        run = value.shape[axis] * inner
        # Interleavings have runs of one element and are judged by _interleaved_by_one.
        if run * size < RUN_BYTES and not is_interleaving(node):
            return {}
        found[buffer_of(value)] = BufferSlice(whole, ((run, whole.shape[axis] * inner, start),))
        start += run
    # A value that is concatenated with itself would need two places at once.
    return found if len(found) == len(node.inputs) else {}


def _interleaved_by_one(
    parts: Mapping[Value, BufferSlice], found: list[dict[Value, BufferSlice]], partition: Partition
) -> bool:
    """Whether one kernel computes all parts, of one element each, and interleaves all its stores alike."""
    # All stores of the kernel have to interleave the same number of parts: a plain store would need the lanes of
    # another step.
    alike = {v for other in found if _is_interleaved(other) and len(other) == len(parts) for v in other}
    makers = [g for g in partition.groups if not parts.keys().isdisjoint(partition.stored[g])]
    return len(makers) == 1 and makers[0].kind == "loops" and alike.issuperset(partition.stored[makers[0]])


def _is_interleaved(parts: Mapping[Value, BufferSlice]) -> bool:
    return all(place.steps[0][0] == 1 for place in parts.values())


def _stores_anywhere(group: Group | None) -> bool:
    """Whether a kernel stores every element once, and does not read its own results."""
    # Later passes over the row read a reduction's result back, and need it dense.
    return group is not None and group.kind in ("loops", "bilinear") and not group.has_reduction


def _outermost(slices: Mapping[Value, BufferSlice]) -> dict[Value, BufferSlice]:
    """Return slices of outermost wholes only."""
    wholes: Set[Value] = {p.whole for p in slices.values()}
    found = {}
    for value, place in slices.items():
        # A part of a part is in the outermost whole: steps are applied from the inside out.
        while place.whole in slices:
            outer = slices[place.whole]
            place = BufferSlice(outer.whole, (*place.steps, *outer.steps))
        # A whole that became a part no longer has a separate buffer, so it is not the target of slices.
        if value not in wholes:
            found[value] = place
    return found

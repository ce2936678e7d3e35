"""What a group evaluates in its kernel besides its own nodes, and what it loads."""

from __future__ import annotations

from collections.abc import Iterator

from tracecomp.ir.graph import Node, Value
from tracecomp.passes.fusion.access import is_transparent
from tracecomp.passes.fusion.groups import Group, Partition


def with_rematerialized(group: Group, partition: Partition) -> Group:
    """The group with the cheap producers that it rematerializes instead of loading."""
    extra = [n for n in evaluated_inside(group, partition) if n in partition.rematerialized]
    if not extra:
        return group
    # Graph order again: a rematerialized producer may read another one.
    extra.sort(key=partition.order.__getitem__)
    # A copy of the group, as the partition's own goes on saying which nodes belong where.
    return Group(group.id, group.kind, [*extra, *group.nodes], group.domain, group.per_row | set(extra))


def values_read(group: Group, partition: Partition) -> set[Value]:
    """The values outside the group that its kernel loads."""
    inside = set(group.nodes)
    seen = [*group.nodes, *evaluated_inside(group, partition)]
    # What is evaluated here is not loaded, whoever it belongs to.
    reached = inside | set(seen)
    return {v for n in seen for v in n.inputs if v.node is None or v.node not in reached}


def evaluated_inside(group: Group, partition: Partition) -> Iterator[Node]:
    """Nodes outside the group evaluated in its kernel: views, constants, and rematerialized producers."""
    found: set[Node] = set(group.nodes)
    stack = list(group.nodes)
    while stack:
        for value in stack.pop().inputs:
            node = value.node
            if node is None or node in found:
                continue
            # Cheap producers are followed like views: both are evaluated where
            # they are read, and what they read is loaded here.
            if node in partition.rematerialized or is_transparent(node, partition.materialized_views):
                found.add(node)
                stack.append(node)
                yield node

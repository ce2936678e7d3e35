"""Nodes that a group evaluates in its kernel in addition to its own, and the values that it loads."""

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
    # Graph order: a rematerialized producer may read another.
    extra.sort(key=partition.order.__getitem__)
    # A copy, as the partition's group must keep its own nodes.
    return Group(group.id, group.kind, [*extra, *group.nodes], group.domain, group.per_row | set(extra))


def values_read(group: Group, partition: Partition) -> set[Value]:
    """The values outside the group that its kernel loads."""
    inside = set(group.nodes)
    seen = [*group.nodes, *evaluated_inside(group, partition)]
    # Nodes evaluated here are not loaded, whichever group contains them.
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

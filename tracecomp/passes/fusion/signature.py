"""Signatures of kernels: equal if the kernels differ only in the values they work on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tracecomp.ir.graph import Value
from tracecomp.passes.fusion.access import buffer_of
from tracecomp.passes.fusion.groups import Group, Partition
from tracecomp.passes.fusion.members import evaluated_inside


def signature(groups: Sequence[Group], partition: Partition, same: Mapping[Value, Value]) -> tuple[Any, list[Value]]:
    """Return a kernel's computation with its values numbered, and the values in that order."""
    values: dict[Value, int] = {}

    def number(value: Value) -> int:
        # Numbers in order of first use: two kernels are equal when their graphs are, whatever the names of values.
        return values.setdefault(value, len(values))

    described = [_described(g, partition, same, number) for g in groups]
    for value in list(values):
        number(buffer_of(value))
    storages = tuple(values[buffer_of(v)] for v in list(values))
    # The key includes which values share memory: a kernel that overwrites its operand has other loops.
    memory = tuple(number(same[v]) if v in same else -1 for v in list(values))
    slices = [(v, partition.slices[v]) for g in groups for v in partition.stored[g] if v in partition.slices]
    # Places within a larger buffer change offsets, so they belong to the key too.
    places = tuple((values[v], number(p.whole), p.steps) for v, p in slices)
    stored = tuple(tuple(values[v] for v in partition.stored[g]) for g in groups)
    return (tuple(described), storages, memory, stored, places), list(values)


def _described(
    group: Group, partition: Partition, same: Mapping[Value, Value], number: Callable[[Value], int]
) -> tuple[Any, ...]:
    rematerialized = sorted(evaluated_inside(group, partition), key=partition.order.__getitem__)
    nodes: list[Any] = []
    for node in (*rematerialized, *group.nodes):
        ins = tuple((number(v), v.type) for v in node.inputs)
        outs = tuple((number(v), number(same[v]) if v in same else -1) for v in node.outputs)
        inside = (node in group.per_row, node in partition.rematerialized, node in rematerialized)
        nodes.append((node.op.name, node.key, ins, outs, inside))
    return (group.kind, group.domain, tuple(nodes))

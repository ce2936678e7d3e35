"""Groups of nodes as loop kernels: one task per group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tracecomp.ir.graph import Node, Value, attrs_key
from tracecomp.ir.index import Var, index
from tracecomp.ir.loops import Load, Stmt, Store
from tracecomp.ir.op import Imperative
from tracecomp.ir.program import Kernel
from tracecomp.passes.bilinear import build_bilinear
from tracecomp.passes.evaluate import Params
from tracecomp.passes.groups import Group, Partition
from tracecomp.passes.machine import Machine
from tracecomp.passes.nest import build_nest
from tracecomp.passes.reads import looked_through, storage
from tracecomp.passes.schedule import schedule_nest, strip
from tracecomp.passes.schedule_bilinear import schedule_bilinear
from tracecomp.passes.work import shared_where_it_pays

COPY_CHUNK = 64


@dataclass
class Task:
    """One kernel call before memory is planned: the values of its parameters, in order."""

    kernel: Kernel
    values: tuple[Value, ...]
    nodes: tuple[Node, ...] = ()


class GroupLowerer:
    """Lowers groups; groups that differ only in which values they work on share one kernel."""

    def __init__(self, partition: Partition, same: Mapping[Value, Value], machine: Machine) -> None:
        self.partition = partition
        self.same = same
        self.machine = machine
        self.known: dict[Any, tuple[Kernel, list[int]]] = {}

    def task(self, group: Group) -> Task:
        key, values = group_shape(group, self.partition, self.same)
        if key not in self.known:
            task = lower_group(group, self.partition, Params(self.partition.opaque, self.same), self.machine)
            number = {v: n for n, v in enumerate(values)}
            self.known[key] = (task.kernel, [number[v] for v in task.values])
        kernel, places = self.known[key]
        return Task(kernel, tuple(values[n] for n in places), tuple(group.nodes))


def group_shape(group: Group, partition: Partition, same: Mapping[Value, Value]) -> tuple[Any, list[Value]]:
    """What a group computes with its values numbered, and the values in that order."""
    values: dict[Value, int] = {}

    def number(value: Value) -> int:
        return values.setdefault(value, len(values))

    looked_into = sorted(_looked_into(group, partition), key=partition.order.__getitem__)
    described: list[Any] = []
    for node in (*looked_into, *group.nodes):
        ins = tuple((number(v), v.type) for v in node.inputs)
        outs = tuple((number(v), number(same[v]) if v in same else -1) for v in node.outputs)
        inside = (node in group.rows, node in partition.inlined, node in looked_into)
        described.append((node.op.name, attrs_key(node.attrs), ins, outs, inside))
    for value in list(values):
        number(storage(value))
    storages = tuple(values[storage(v)] for v in list(values))
    memory = tuple(number(same[v]) if v in same else -1 for v in list(values))
    stored = tuple(values[v] for v in partition.stored[group])
    return (group.kind, group.domain, tuple(described), storages, memory, stored), list(values)


def lower_group(group: Group, partition: Partition, params: Params, machine: Machine) -> Task:
    """The kernel of one group."""
    stored = partition.stored[group]
    if group.kind == "imperative":
        body = _imperative(group.nodes[0], params)
    elif group.kind == "bilinear":
        body = schedule_bilinear(build_bilinear(with_inlined(group, partition), stored, params), machine)
    else:
        body = schedule_nest(build_nest(with_inlined(group, partition), stored, params), machine)
    return _task(_kernel_name(group.nodes), body, params, tuple(group.nodes))


def with_inlined(group: Group, partition: Partition) -> Group:
    """The group with the cheap producers that it evaluates again instead of loading."""
    extra = [n for n in _looked_into(group, partition) if n in partition.inlined]
    if not extra:
        return group
    extra.sort(key=partition.order.__getitem__)
    return Group(group.id, group.kind, [*extra, *group.nodes], group.domain, group.rows | set(extra))


def values_read(group: Group, partition: Partition) -> set[Value]:
    """The values outside the group that its kernel loads."""
    inside = set(group.nodes)
    seen = [*group.nodes, *_looked_into(group, partition)]
    reached = inside | set(seen)
    return {v for n in seen for v in n.inputs if v.node is None or v.node not in reached}


def _looked_into(group: Group, partition: Partition) -> Iterator[Node]:
    """Nodes outside the group evaluated in its kernel: views, constants, and inlined producers."""
    found: set[Node] = set(group.nodes)
    stack = list(group.nodes)
    while stack:
        for value in stack.pop().inputs:
            node = value.node
            if node is None or node in found:
                continue
            if node in partition.inlined or looked_through(node, partition.opaque):
                found.add(node)
                stack.append(node)
                yield node


def _imperative(node: Node, params: Params) -> tuple[Stmt, ...]:
    assert isinstance(node.op.loop, Imperative), node
    ins = [params.of(storage(v)) for v in node.inputs]
    outs = [params.written(v) for v in node.outputs]
    types = [v.type for v in node.inputs], [v.type for v in node.outputs]
    return shared_where_it_pays(node.op.loop.fn(ins, outs, *types, **node.attrs))


def _kernel_name(nodes: Iterable[Node]) -> str:
    names = [n.op.name for n in nodes]
    return "_".join(names if len(names) <= 4 else [*names[:3], f"{len(names) - 3}_more"])


def _task(name: str, body: tuple[Stmt, ...], params: Params, nodes: tuple[Node, ...]) -> Task:
    kernel = Kernel(name, tuple(params.buffers.values()), frozenset(params.writes), body)
    return Task(kernel, tuple(params.buffers), nodes)


def copy_task(source: Value, target: Value) -> Task:
    """A kernel that copies one value's memory."""
    params = Params(frozenset())
    p, q = params.of(source), params.written(target)
    var = Var("i", source.type.numel)
    return _task("copy", strip(var, COPY_CHUNK, [Store(q, index(var), Load(p, index(var)))]), params, ())

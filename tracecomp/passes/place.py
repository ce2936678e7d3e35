"""A program from an optimised graph: kernels in order, outputs in their memory, the rest in one arena."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tracecomp.ir.graph import Graph, Node, Value
from tracecomp.ir.index import index
from tracecomp.ir.loops import CallStep, Program, Ref, Slot
from tracecomp.passes.evaluate import Params
from tracecomp.passes.fuse import Fuser, Group, Partition
from tracecomp.passes.lower import Task, copy_task, lower_group, values_read, with_inlined
from tracecomp.passes.machine import Machine, host
from tracecomp.passes.memory import Lifetime, plan_arena
from tracecomp.passes.reads import Space, storage


@dataclass
class Lowered:
    """A program with what is worth knowing about how it came to be."""

    program: Program
    partition: Partition
    tasks: list[Task]


def lower(
    graph: Graph, aliases: Mapping[int, int] | None = None, fuse: bool = True, machine: Machine | None = None
) -> Lowered:
    """The program of an optimised graph.

    ``aliases[o] = i`` promises that at every call output ``o`` is the very memory of input ``i`` (a state updated in
    place); a kernel writes there directly when nothing reads the old contents later, else a copy at the end does.
    """
    partition = Fuser(graph, fuse).run()
    outputs = _Outputs(graph, partition, dict(aliases or {}))
    tasks = [lower_group(g, partition, Params(outputs.same), machine or host()) for g in partition.groups]
    tasks = [t for t in [*tasks, *outputs.copies()] if t.kernel.body]
    return Lowered(_program(graph, tasks, outputs.home), partition, tasks)


class _Outputs:
    """How each graph output gets its value: ``home`` (written there by its kernel) or a copy at the end."""

    def __init__(self, graph: Graph, partition: Partition, aliases: dict[int, int]) -> None:
        self.graph = graph
        self.partition = partition
        self.aliases = aliases
        self.home: dict[Value, int] = {}
        self.same: dict[Value, Value] = {}
        self.pending: list[tuple[Value, int]] = []
        self.reads = {g: values_read(g, partition) for g in partition.groups}
        self.producer = {v: g for g in partition.groups for v in partition.stored[g]}
        for position, output in enumerate(graph.outputs):
            self._settle(storage(output.value), position)

    def _settle(self, value: Value, position: int) -> None:
        group = self.producer.get(value)
        if group is None or value in self.home:
            self.pending.append((value, position))
        elif position not in self.aliases:
            self.home[value] = position
        elif self._may_overwrite(value, group, self.graph.inputs[self.aliases[position]].value):
            self.home[value] = position
            self.same[value] = self.graph.inputs[self.aliases[position]].value
        else:
            self.pending.append((value, position))

    def _may_overwrite(self, value: Value, group: Group, target: Value) -> bool:
        """Whether ``group`` may store ``value`` over ``target``: nobody reads ``target`` later or elsewhere."""
        at = self.partition.groups.index(group)
        if any(target in self.reads[g] for g in self.partition.groups[at + 1 :]):
            return False
        if any(storage(o.value) is target for o in self.graph.outputs):
            return False
        if target not in self.reads[group]:
            return True
        return not group.has_reduction and all(
            self._reads_in_place(n, target, value) for n in with_inlined(group, self.partition).nodes
        )

    def _reads_in_place(self, node: Node, target: Value, value: Value) -> bool:
        if node.op.kind in ("contraction", "convolution") or not hasattr(node.op.loop, "fn"):
            return not any(storage(v) is target or _reaches(v, target) for v in node.inputs)
        space = Space(node)
        reads = [r for r in space.reads if r.value is target]
        return all(r.offset == index(space.var) and space.numel == value.type.numel for r in reads)

    def copies(self) -> list[Task]:
        """Copies for outputs that no kernel writes, those over state last and from staged sources."""
        plain = [(v, p) for v, p in self.pending if p not in self.aliases]
        over = [(v, p) for v, p in self.pending if p in self.aliases]
        over = [(v, p) for v, p in over if v is not self.graph.inputs[self.aliases[p]].value]
        tasks = [copy_task(v, self._output_value(v, p)) for v, p in plain]
        staged: list[Task] = []
        for value, position in over:
            if value.node is None:
                stage = Value(None, -1, value.type)
                tasks.append(copy_task(value, stage))
                value = stage
            staged.append(copy_task(value, self._output_value(value, position)))
        return [*tasks, *staged]

    def _output_value(self, like: Value, position: int) -> Value:
        target = Value(None, -1, like.type)
        self.home[target] = position
        return target


def _reaches(value: Value, target: Value) -> bool:
    """Whether ``value`` is a view of ``target``."""
    if value is target:
        return True
    return value.node is not None and value.node.op.kind == "view" and _reaches(value.node.inputs[0], target)


def _program(graph: Graph, tasks: list[Task], home: dict[Value, int]) -> Program:
    inputs = tuple(Slot(i.name, "input", n, i.value.type.nbytes) for n, i in enumerate(graph.inputs))
    outputs = tuple(Slot(o.name, "output", n, o.value.type.nbytes) for n, o in enumerate(graph.outputs))
    slots: dict[Value, Slot] = {i.value: s for i, s in zip(graph.inputs, inputs, strict=True)}
    slots |= {v: outputs[n] for v, n in home.items() if v not in slots}
    offsets, size = plan_arena(_lifetimes(tasks, slots))
    for value, offset in offsets.items():
        slots[value] = Slot(f"t{len(slots)}", "arena", offset, value.type.nbytes)
    steps = tuple(CallStep(t.kernel, tuple(Ref(slots[v]) for v in t.values), _label(t, graph)) for t in tasks)
    return Program(graph.name, inputs, outputs, size, steps)


def _lifetimes(tasks: list[Task], slots: Mapping[Value, Slot]) -> list[Lifetime]:
    first: dict[Value, int] = {}
    last: dict[Value, int] = {}
    for n, task in enumerate(tasks):
        for value in task.values:
            if value not in slots:
                first.setdefault(value, n)
                last[value] = n
    return [Lifetime(v, v.type.nbytes, first[v], last[v]) for v in first]


def _label(task: Task, graph: Graph) -> str:
    """Operators of a kernel with their source lines, for profiles and index errors."""
    places = {str(graph.origin[n].source) for n in task.nodes if n in graph.origin and graph.origin[n].source}
    return task.kernel.name + (f" ({', '.join(sorted(places))})" if places else "")

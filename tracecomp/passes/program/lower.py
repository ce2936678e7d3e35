"""A program from an optimised graph: kernels in order, outputs in their memory, the rest in one arena.

A graph and the bodies of its control operators are *frames*. A frame is planned by itself: which kernels, and where
its temporary values lie in a block of memory. Emission then goes from the outside in, giving each frame the
places of its inputs and outputs and of its block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from tracecomp.ir.graph import Graph, Node, Value
from tracecomp.ir.index import Index, Var, index
from tracecomp.ir.program import CallStep, Kernel, Program, Ref, RepeatStep, Slot, Step, WhenStep, WhileStep
from tracecomp.ir.types import TensorType, bool_, uint8
from tracecomp.passes.cost.machine import Machine, host
from tracecomp.passes.fusion.access import storage
from tracecomp.passes.fusion.concat_in_place import with_joins
from tracecomp.passes.fusion.fuse import Fuser
from tracecomp.passes.fusion.groups import Group, Partition
from tracecomp.passes.program.arena import Lifetime, plan_arena
from tracecomp.passes.program.kernels import GroupLowerer, Task, copy_task
from tracecomp.passes.program.output_buffers import Outputs
from tracecomp.passes.program.prepacking import prepared, steady_values
from tracecomp.passes.row_fusion.implicit_padding import with_masked_pads
from tracecomp.passes.row_fusion.search import with_chains


@dataclass
class ControlTask:
    """A control node: its bodies as frames, and a block of memory for what they keep."""

    node: Node
    frames: list[Frame]
    block: Value
    values: tuple[Value, ...]


@dataclass
class Frame:
    """A planned graph: tasks in order, output positions of values, offsets in the frame's block of memory.

    ``preparation`` comes before all other tasks, where it has not been run before; ``flag`` is memory that tells.
    """

    graph: Graph
    partition: Partition
    tasks: list[Task | ControlTask]
    home: dict[Value, int]
    preparation: list[Task] = field(default_factory=list)
    flag: Value = field(default_factory=lambda: Value(None, -1, TensorType(bool_, ())))
    offsets: dict[Value, int] = field(default_factory=dict)
    nbytes: int = 0


@dataclass
class Lowered:
    """A program with what is worth knowing about how it came to be.

    ``constants`` are the arrays that the program takes after the graph's own inputs.
    """

    program: Program
    frame: Frame
    constants: list[Any]

    @property
    def partition(self) -> Partition:
        return self.frame.partition


def lower(
    graph: Graph,
    aliases: Mapping[int, int] | None = None,
    fuse: bool = True,
    machine: Machine | None = None,
    steady: Set[int] = frozenset(),
) -> Lowered:
    """The program of an optimised graph, whose control operators have optimised bodies.

    ``aliases[o] = i`` promises that at every call output ``o`` is the very memory of input ``i`` (a state updated in
    place); a kernel writes there directly when nothing reads the old contents later, else a copy at the end does.
    ``steady`` are the numbers of inputs whose values last, so that a call can use what an earlier one has prepared.
    """
    machine = machine or host()
    frame = _Planner(fuse, machine).frame(graph, aliases or {}, steady={graph.inputs[n].value for n in steady})
    return _Emitter(graph, frame, machine).lowered(aliases or {})


class _Planner:
    def __init__(self, fuse: bool, machine: Machine) -> None:
        self.fuse = fuse
        self.machine = machine

    def frame(
        self, graph: Graph, aliases: Mapping[int, int], within: bool = False, steady: Set[Value] = frozenset()
    ) -> Frame:
        """The frame of a graph, ``within`` another one if it is a body, whose results the other one reads.

        What depends on ``steady`` inputs alone is its preparation.
        """
        overwritten = frozenset(graph.inputs[i].value for i in aliases.values())
        partition = Fuser(graph, self.fuse, overwritten).run()
        if self.fuse:
            partition = with_masked_pads(partition, graph)
            partition = with_joins(partition, graph, aliases)
            partition = with_chains(partition, graph, aliases, self.machine)
        outputs = Outputs(graph, partition, aliases, self.machine, within)
        known = steady_values(graph, steady)
        lowerer = GroupLowerer(partition, outputs.same, self.machine, outputs.large(), known)
        tasks: list[Task | ControlTask] = [
            self._control(u.nodes[0]) if isinstance(u, Group) and u.kind == "control" else lowerer.task(u)
            for u in partition.units()
        ]
        tasks.extend(outputs.copies())
        tasks = [t for t in tasks if isinstance(t, ControlTask) or t.kernel.body]
        frame = Frame(graph, partition, tasks, outputs.home)
        inputs = {i.value for i in graph.inputs}
        frame.preparation, frame.tasks = prepared(tasks, known & inputs, inputs | set(outputs.home))
        frame.offsets, frame.nbytes = plan_arena(_lifetimes(frame))
        return frame

    def _control(self, node: Node) -> ControlTask:
        attrs = node.attrs
        if node.op.name == "cond":
            frames = [self._body(attrs["then"], 0), self._body(attrs["orelse"], 0)]
        elif node.op.name == "while_loop":
            frames = [self._body(attrs["test"], 0), self._body(attrs["body"], attrs["carries"])]
        else:
            frames = [self._body(attrs["body"], attrs["carries"])]
        flag = node.op.name == "while_loop"
        nbytes = max((f.nbytes for f in frames), default=0) + (64 if flag else 0)
        block = Value(None, -1, TensorType(uint8, (nbytes,)))
        values = (*map(storage, node.inputs), *node.outputs, block)
        return ControlTask(node, frames, block, tuple(dict.fromkeys(values)))

    def _body(self, body: Graph, carries: int) -> Frame:
        """A body whose first outputs replace its first inputs, which are carried in place."""
        return self.frame(body, {n: n for n in range(carries)}, within=True)


def _lifetimes(frame: Frame) -> list[Lifetime]:
    """Where values are first and last needed; what a preparation leaves to later calls, from the first to the last."""
    elsewhere = {i.value for i in frame.graph.inputs} | set(frame.home)
    first: dict[Value, int] = {}
    last: dict[Value, int] = {}
    start, tasks = len(frame.preparation), [*frame.preparation, *frame.tasks]
    for n, task in enumerate(tasks):
        for value in task.values:
            if value not in elsewhere:
                first.setdefault(value, n)
                last[value] = n
    if frame.preparation:
        first[frame.flag] = last[frame.flag] = start
    for value in first:
        if first[value] < start <= last[value] or value is frame.flag:
            first[value], last[value] = 0, len(tasks)
    return [Lifetime(v, v.type.nbytes, first[v], last[v]) for v in first]


class _Places:
    """Where the values of one frame lie."""

    def __init__(self, frame: Frame, inputs: Mapping[Value, Ref], outputs: Sequence[Ref], base: int) -> None:
        self.frame = frame
        self.inputs = inputs
        self.outputs = outputs
        self.base = base

    def of(self, value: Value) -> Ref:
        if value in self.inputs:
            return self.inputs[value]
        if value in self.frame.home:
            return self.outputs[self.frame.home[value]]
        return Ref(Slot("t", "arena", self.offset(value), value.type.nbytes))

    def offset(self, value: Value) -> int:
        return self.base + self.frame.offsets[value]


class _Emitter:
    """Emits the steps of a frame and of the frames inside it."""

    def __init__(self, graph: Graph, frame: Frame, machine: Machine) -> None:
        self.graph = graph
        self.frame = frame
        self.machine = machine
        self.constants: list[Any] = []
        self.constant_slots: list[Slot] = []
        self.kernels: dict[Kernel, Kernel] = {}
        self.numbered: dict[int, tuple[Kernel, Kernel]] = {}
        self.loops = 0

    def lowered(self, aliases: Mapping[int, int]) -> Lowered:
        """The program; an output that is an input's memory is the input's slot, so that their uses are ordered."""
        graph = self.graph
        inputs = [Slot(i.name, "input", n, i.value.type.nbytes) for n, i in enumerate(graph.inputs)]
        outputs = [
            inputs[aliases[n]] if n in aliases else Slot(o.name, "output", n, o.value.type.nbytes)
            for n, o in enumerate(graph.outputs)
        ]
        by_value = {i.value: Ref(s) for i, s in zip(graph.inputs, inputs, strict=True)}
        places = _Places(self.frame, by_value, [Ref(s) for s in outputs], 0)
        steps, prepared = self._steps(places), None
        if self.frame.preparation:
            prepared = Slot("prepared", "arena", places.offset(self.frame.flag), 1)
            first = tuple(self._call(t, places) for t in self.frame.preparation)
            steps = (WhenStep(Ref(prepared), (), first), *steps)
        slots = (*inputs, *self.constant_slots)
        program = Program(graph.name, slots, tuple(outputs), self.frame.nbytes, steps, prepared)
        return Lowered(program, self.frame, self.constants)

    def _steps(self, places: _Places) -> tuple[Step, ...]:
        steps: list[Step] = []
        for task in places.frame.tasks:
            if isinstance(task, ControlTask):
                steps.extend(self._control(task, places))
            else:
                steps.append(self._call(task, places))
        return tuple(steps)

    def _call(self, task: Task, places: _Places) -> CallStep:
        args = tuple(places.of(v) for v in task.values)
        return CallStep(self._numbered(task.kernel), args, _label(task, places.frame.graph))

    def _numbered(self, kernel: Kernel) -> Kernel:
        """The kernel under a name of its own; equal kernels are one."""
        if id(kernel) not in self.numbered:
            unnamed = replace(kernel, name="")
            if unnamed not in self.kernels:
                self.kernels[unnamed] = replace(kernel, name=f"k{len(self.kernels)}_{kernel.name}")
            self.numbered[id(kernel)] = kernel, self.kernels[unnamed]
        return self.numbered[id(kernel)][1]

    def _control(self, task: ControlTask, places: _Places) -> list[Step]:
        if task.node.op.name == "scan":
            return self._scan(task, places)
        if task.node.op.name == "cond":
            return self._cond(task, places)
        return self._while(task, places)

    def _scan(self, task: ControlTask, places: _Places) -> list[Step]:
        node, attrs = task.node, task.node.attrs
        carries, xs, length = attrs["carries"], attrs["xs"], attrs["length"]
        self.loops += 1
        var = Var(f"t{self.loops}", length)
        step = (index(var) * -1) + (length - 1) if attrs["reverse"] else index(var)
        operands = [places.of(storage(v)) for v in node.inputs]
        results = [places.of(v) for v in node.outputs]
        here = [*results[:carries], *operands[carries:]]
        for n in range(carries, carries + xs):
            here[n] = _element(operands[n], step, node.inputs[n].type.nbytes // max(length, 1))
        out = list(results)
        for n in range(carries, len(results)):
            out[n] = _element(results[n], step, node.outputs[n].type.nbytes // max(length, 1))
        inner = self._inner(task.frames[0], here, out, places.offset(task.block))
        return [*self._start(node, carries, places), RepeatStep(var, self._steps(inner))]

    def _cond(self, task: ControlTask, places: _Places) -> list[Step]:
        operands = [places.of(storage(v)) for v in task.node.inputs]
        results = [places.of(v) for v in task.node.outputs]
        base = places.offset(task.block)
        then, orelse = (self._steps(self._inner(f, operands[1:], results, base)) for f in task.frames)
        return [WhenStep(operands[0], then, orelse)]

    def _while(self, task: ControlTask, places: _Places) -> list[Step]:
        node, carries = task.node, task.node.attrs["carries"]
        operands = [places.of(storage(v)) for v in node.inputs]
        results = [places.of(v) for v in node.outputs]
        base = places.offset(task.block)
        flag = Ref(Slot("goes_on", "arena", base, 1))
        here = [*results[:carries], *operands[carries:]]
        test = self._steps(self._inner(task.frames[0], here, [flag], base + 64))
        body = self._steps(self._inner(task.frames[1], here, results, base + 64))
        return [*self._start(node, carries, places), WhileStep(test, flag, body)]

    def _start(self, node: Node, carries: int, places: _Places) -> list[Step]:
        """Copies of the first carries into the results, where they are carried."""
        pairs = zip(node.inputs[:carries], node.outputs[:carries], strict=True)
        tasks = [copy_task(storage(given), result, self.machine) for given, result in pairs if given.type.numel]
        return [self._call(t, places) for t in tasks]

    def _inner(self, frame: Frame, operands: list[Ref], results: list[Ref], base: int) -> _Places:
        """The places of a body: its open inputs are the operands in order, its constants join the program's."""
        inputs: dict[Value, Ref] = {}
        given = iter(operands)
        for i in frame.graph.inputs:
            inputs[i.value] = self._constant(i.name, i.data) if i.role == "constant" else next(given)
        return _Places(frame, inputs, results, base)

    def _constant(self, name: str, data: Any) -> Ref:
        slot = Slot(name, "input", len(self.graph.inputs) + len(self.constants), data.nbytes)
        self.constants.append(data)
        self.constant_slots.append(slot)
        return Ref(slot)


def _element(whole: Ref, step: Index, nbytes: int) -> Ref:
    """One element along the first axis of ``whole``, the one that ``step`` numbers."""
    return Ref(whole.slot, whole.offset + step * nbytes)


def _label(task: Task, graph: Graph) -> str:
    """Operators of a kernel with their source lines, for profiles and index errors."""
    places = {str(graph.origin[n].source) for n in task.nodes if n in graph.origin and graph.origin[n].source}
    return task.kernel.name + (f" ({', '.join(sorted(places))})" if places else "")

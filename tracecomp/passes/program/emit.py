"""Program assembly from planned frames, outermost first: each receives the places of its inputs, outputs and block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tracecomp.base import config
from tracecomp.base.errors import Source
from tracecomp.ir.graph import Graph, Node, Value
from tracecomp.ir.index import Index, Var, index
from tracecomp.ir.program import CallStep, Kernel, Program, Ref, RepeatStep, Slot, Step, WhenStep, WhileStep
from tracecomp.passes.fusion.access import buffer_of
from tracecomp.passes.program.frame import FLAG_BYTES, ControlTask, Frame, Task
from tracecomp.passes.program.kernels import copy_task, unset_task


def emitted(frame: Frame) -> Frame:
    """The outermost frame with its program, and the arrays that the program takes after the graph's own inputs."""
    emitter = _Emitter(frame)
    program = emitter.program()
    return replace(frame, program=program, constants=tuple(emitter.constants))


def _sources(frame: Frame) -> dict[object, Source]:
    """The lines of all nodes of a frame and of those inside it."""
    found: dict[object, Source] = {n: o.source for n, o in frame.graph.origin.items() if o.source is not None}
    for bodies in frame.bodies.values():
        for body in bodies:
            found.update(_sources(body))
    return found


class _Places:
    """Places of the values of one frame; ``numbers`` are those of all values in the arena."""

    def __init__(
        self, frame: Frame, inputs: Mapping[Value, Ref], outputs: Sequence[Ref], base: int, numbers: dict[Value, int]
    ) -> None:
        self.frame = frame
        self.inputs = inputs
        self.outputs = outputs
        self.base = base
        self.numbers = numbers

    def of(self, value: Value) -> Ref:
        if value in self.inputs:
            return self.inputs[value]
        # An output's memory is the caller's; a value stored there needs no place in the arena.
        if value in self.frame.outputs.home:
            return self.outputs[self.frame.outputs.home[value]]
        number = self.numbers.setdefault(value, len(self.numbers) + 1)
        return Ref(Slot("t", "arena", self.offset(value), value.type.nbytes, number))

    def offset(self, value: Value) -> int:
        return self.base + self.frame.offsets[value]


class _Emitter:
    """Emits the steps of a frame and of the frames inside it."""

    def __init__(self, frame: Frame) -> None:
        self.graph = frame.graph
        self.frame = frame
        self.machine = frame.machine
        self.constants: list[Any] = []
        self.constant_slots: list[Slot] = []
        self.kernels: dict[Kernel, Kernel] = {}
        self.numbered: dict[int, tuple[Kernel, Kernel]] = {}
        self.loops = 0
        self.numbers: dict[Value, int] = {}
        self.checked = config.current().check

    def program(self) -> Program:
        """The program; an output that is an input's memory is the input's slot, so that their uses are ordered."""
        # One slot for both, so that steps which use either are ordered.
        graph, aliases = self.graph, self.frame.aliases
        inputs = [Slot(i.name, "input", n, i.value.type.nbytes) for n, i in enumerate(graph.inputs)]
        outputs = [
            inputs[aliases[n]] if n in aliases else Slot(o.name, "output", n, o.value.type.nbytes)
            for n, o in enumerate(graph.outputs)
        ]
        by_value = {i.value: Ref(s) for i, s in zip(graph.inputs, inputs, strict=True)}
        places = _Places(self.frame, by_value, [Ref(s) for s in outputs], 0, self.numbers)
        begun: set[Value] = set()
        first = self._steps(self.frame.prepacking, places, begun)
        steps, prepared = self._steps(self.frame.tasks, places, begun), None
        if self.frame.prepacking:
            # The flag is in the arena next to the prepared values, so that both exist or neither.
            prepared = Slot("prepared", "arena", places.offset(self.frame.flag), 1)
            steps = (WhenStep(Ref(prepared), (), first), *steps)
        slots = (*inputs, *self.constant_slots)
        fast_math, sources = config.current().fast_math, _sources(self.frame)
        nbytes = self.frame.nbytes
        return Program(graph.name, slots, tuple(outputs), nbytes, steps, prepared, fast_math, self.checked, sources)

    def _steps(self, tasks: Sequence[Task | ControlTask], places: _Places, begun: set[Value]) -> tuple[Step, ...]:
        """The steps of ``tasks``. ``begun`` are the values that tasks before them have used."""
        steps: list[Step] = []
        for task in tasks:
            if self.checked:
                steps.extend(self._unset(v, task, places) for v in task.values if self._begins(v, task, places, begun))
            if isinstance(task, ControlTask):
                steps.extend(self._control(task, places))
            else:
                steps.append(self._call(task, places))
        return tuple(steps)

    def _inner_steps(self, places: _Places) -> tuple[Step, ...]:
        return self._steps(places.frame.tasks, places, set())

    def _begins(self, value: Value, task: Task | ControlTask, places: _Places, begun: set[Value]) -> bool:
        """Whether the lifetime of ``value`` in the arena begins with ``task``; records the fact."""
        new = value in places.frame.offsets and value not in begun
        begun.add(value)
        return new and value.type.numel > 0 and not (isinstance(task, ControlTask) and value is task.block)

    def _unset(self, value: Value, task: Task | ControlTask, places: _Places) -> CallStep:
        """Fill the memory of ``value`` with a marker, to detect reads before the first store."""
        nodes = (task.node,) if isinstance(task, ControlTask) else task.nodes
        call = self._call(unset_task(value, nodes, self.machine), places)
        return replace(call, args=tuple(replace(r, slot=replace(r.slot, lifetime=0)) for r in call.args))

    def _call(self, task: Task, places: _Places) -> CallStep:
        args = tuple(places.of(v) for v in task.values)
        return CallStep(self._numbered(task.kernel), args, _label(task, places.frame.graph), task.nodes)

    def _numbered(self, kernel: Kernel) -> Kernel:
        """Give the kernel a unique name; equal kernels share one."""
        if id(kernel) not in self.numbered:
            unnamed = replace(kernel, name="")
            if unnamed not in self.kernels:
                # Numbers make names unique; equal kernels have one.
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
        # Nested loops have distinct variables.
        self.loops += 1
        var = Var(f"t{self.loops}", length)
        step = (index(var) * -1) + (length - 1) if attrs["reverse"] else index(var)
        operands = [places.of(buffer_of(v)) for v in node.inputs]
        results = [places.of(v) for v in node.outputs]
        # Carries and results share memory: each step overwrites them, which the body's aliases permit.
        here = [*results[:carries], *operands[carries:]]
        for n in range(carries, carries + xs):
            # One element of the stacked operands and results per step.
            here[n] = _element(operands[n], step, node.inputs[n].type.nbytes // max(length, 1))
        out = list(results)
        for n in range(carries, len(results)):
            out[n] = _element(results[n], step, node.outputs[n].type.nbytes // max(length, 1))
        inner = self._inner(places.frame.bodies[node][0], here, out, places.offset(task.block))
        return [*self._start(node, carries, places), RepeatStep(var, self._inner_steps(inner))]

    def _cond(self, task: ControlTask, places: _Places) -> list[Step]:
        operands = [places.of(buffer_of(v)) for v in task.node.inputs]
        results = [places.of(v) for v in task.node.outputs]
        # Branches share one block of memory: only one of them runs.
        base = places.offset(task.block)
        bodies = places.frame.bodies[task.node]
        then, orelse = (self._inner_steps(self._inner(f, operands[1:], results, base)) for f in bodies)
        return [WhenStep(operands[0], then, orelse)]

    def _while(self, task: ControlTask, places: _Places) -> list[Step]:
        node, carries = task.node, task.node.attrs["carries"]
        operands = [places.of(buffer_of(v)) for v in node.inputs]
        results = [places.of(v) for v in node.outputs]
        base = places.offset(task.block)
        # The flag is at the beginning of the block, before test and body.
        flag = Ref(Slot("goes_on", "arena", base, 1))
        here = [*results[:carries], *operands[carries:]]
        test, body = places.frame.bodies[node]
        tested = self._inner_steps(self._inner(test, here, [flag], base + FLAG_BYTES))
        steps = self._inner_steps(self._inner(body, here, results, base + FLAG_BYTES))
        return [*self._start(node, carries, places), WhileStep(tested, flag, steps)]

    def _start(self, node: Node, carries: int, places: _Places) -> list[Step]:
        """Copy the first carries into the results that carry them."""
        # The initial carries are copied, as the caller's memory must not change.
        pairs = zip(node.inputs[:carries], node.outputs[:carries], strict=True)
        tasks = [copy_task(buffer_of(given), result, self.machine) for given, result in pairs if given.type.numel]
        return [self._call(t, places) for t in tasks]

    def _inner(self, frame: Frame, operands: list[Ref], results: list[Ref], base: int) -> _Places:
        """The places of a body: its open inputs are the operands in order, its constants join the program's."""
        inputs: dict[Value, Ref] = {}
        given = iter(operands)
        for i in frame.graph.inputs:
            inputs[i.value] = self._constant(i.name, i.data) if i.role == "constant" else next(given)
        return _Places(frame, inputs, results, base, self.numbers)

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
    # By source line, once each and sorted, so that a label is the same in every process.
    places = {str(graph.origin[n].source) for n in task.nodes if n in graph.origin and graph.origin[n].source}
    return task.kernel.name + (f" ({', '.join(sorted(places))})" if places else "")

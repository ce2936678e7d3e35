"""Invariants of a frame after each lowering step; all violations are reported at once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tracecomp.base.errors import VerifyError
from tracecomp.ir.graph import Value
from tracecomp.ir.loop_verify import kernel_problems, verify_program
from tracecomp.ir.loops import Load, Store, expressions, walk
from tracecomp.passes.fusion.access import buffer_of
from tracecomp.passes.fusion.groups import Group
from tracecomp.passes.fusion.members import values_read
from tracecomp.passes.program.frame import ControlTask, Frame, Task


def verify_frame(frame: Frame) -> None:
    """VerifyError if the plan of a frame, or of one inside it, breaks a rule."""
    problems = list(_problems(frame))
    if problems:
        raise VerifyError("\n".join(problems))
    if frame.program is not None:
        verify_program(frame.program)


def _problems(frame: Frame) -> Iterator[str]:
    for bodies in frame.bodies.values():
        for body in bodies:
            yield from _problems(body)
    if frame.partition.groups:
        yield from _order(frame)
        yield from _row_fusions(frame)
    if frame.tasks:
        yield from _outputs(frame)
        yield from _overwriting(frame)
        yield from _prepared(frame)
        for task in (*frame.prepacking, *frame.tasks):
            if isinstance(task, Task):
                yield from kernel_problems(task.kernel)
    if frame.offsets:
        yield from _memory(frame)


def _order(frame: Frame) -> Iterator[str]:
    """Kernels read inputs and results of earlier ones."""
    partition = frame.partition
    known = {i.value for i in frame.graph.inputs}
    for number, group in enumerate(partition.groups):
        missing = {buffer_of(v) for v in values_read(group, partition)} - known
        yield from (f"kernel {number} reads {v.type} of {_maker(v)}, which no earlier kernel stored" for v in missing)
        known |= {buffer_of(v) for v in partition.stored[group]}
        # A part stored within a whole makes the whole available, too.
        known |= {partition.memory(v) for v in partition.stored[group]}
    missing = {buffer_of(o.value) for o in frame.graph.outputs} - known
    yield from (f"no kernel stores the output {v.type} of {_maker(v)}" for v in missing)


def _maker(value: Value) -> str:
    return value.node.op.name if value.node else "an input"


def _row_fusions(frame: Frame) -> Iterator[str]:
    """Fused kernels are neighbours; no other kernel reads the values that they keep per block."""
    partition = frame.partition
    place = {g: n for n, g in enumerate(partition.groups)}
    for fused in partition.row_fusions:
        if any(place[b] != place[a] + 1 for a, b in pairwise(fused.groups)):
            yield f"row fusion of kernel {place[fused.groups[0]]}: its kernels are not adjacent"
        for group in partition.groups:
            if group not in fused.groups and not values_read(group, partition).isdisjoint(
                # Another kernel may also store a value that the fusion keeps per block (rematerialization); then it is
                # read from there.
                v
                for v in fused.block_values
                if not _stored_elsewhere(v, frame, fused.groups)
            ):
                yield f"kernel {place[group]} reads a value that row fusion keeps in a block"


def _stored_elsewhere(value: Value, frame: Frame, groups: tuple[object, ...]) -> bool:
    stored = frame.partition.stored
    return any(value in stored[g] for g in frame.partition.groups if g not in groups)


def _outputs(frame: Frame) -> Iterator[str]:
    """Every output has the memory of its position, or is the input that aliases it."""
    positions = set(frame.outputs.home.values())
    for position, output in enumerate(frame.graph.outputs):
        own = position in frame.aliases and buffer_of(output.value) is frame.graph.inputs[frame.aliases[position]].value
        if position not in positions and not own and output.value.type.numel:
            yield f"no kernel writes output {position}"


def _overwriting(frame: Frame) -> Iterator[str]:
    """The old contents of an input are not read after a result has been stored over it.

    Kernels that store a result over an input have the input among their values, and so have the readers of that result.
    The graph tells which contents a kernel reads.
    """
    over: dict[Value, str] = {}  # the kernel that has stored over an input
    for task, reads in _with_old_reads(frame):
        for target in reads & over.keys():
            yield f"kernel {task.kernel.name} reads an input that {over[target]} has stored over"
        for target in _inputs_stored(frame, task):
            if target in reads:
                yield from _own_operands(task, target)
            over.setdefault(target, task.kernel.name)


def _with_old_reads(frame: Frame) -> Iterator[tuple[Task, set[Value]]]:
    """The tasks in order, and the inputs whose old contents each reads."""
    partition, copies = frame.partition, iter(frame.outputs.copies)
    groups = {n: g for g in partition.groups for n in g.nodes}
    made = {p: buffer_of(o.value) for p, o in enumerate(frame.graph.outputs)}
    for task in frame.tasks:
        if not isinstance(task, Task):
            continue
        if task.nodes:
            own = dict.fromkeys(groups[n] for n in task.nodes if n in groups)
            yield task, {buffer_of(v) for g in own for v in (*values_read(g, partition), *_operands(g))}
            continue
        copy = next((c for c in copies if c.source in task.values and c.target in task.values), None)
        if copy is not None:
            # A copy to no output holds an input for a later copy. Else the graph tells if the source is a result that
            # was stored over the input.
            position = frame.outputs.home.get(copy.target)
            yield task, {copy.source} if position is None else {copy.source} & {made[position]}


def _operands(group: Group) -> tuple[Value, ...]:
    return group.nodes[0].inputs if group.kind in ("imperative", "control") else ()


def _inputs_stored(frame: Frame, task: Task) -> set[Value]:
    """The inputs that a kernel stores over: as such, or as the memory of an output."""
    home, inputs = frame.outputs.home, frame.graph.inputs
    places = {home[v] for v in _stored(task) if v in home} & frame.aliases.keys()
    return _stored(task) & frame.overwritten | {inputs[frame.aliases[p]].value for p in places}


def _own_operands(task: Task, target: Value) -> Iterator[str]:
    """A kernel that overwrites its operand reads each element where it stores it."""
    names = dict(zip((p.name for p in task.kernel.params), task.values, strict=True))
    every = [*walk(task.kernel.body)]
    loads = {x.offset for x in expressions(every) if isinstance(x, Load) and names.get(x.buffer.name) is target}
    stores = {s.offset for s in every if isinstance(s, Store) and names.get(s.buffer.name) is target}
    if loads and stores and not loads <= stores and not any(n.op.kind in ("scatter", "control") for n in task.nodes):
        yield f"kernel {task.kernel.name} stores over an input that it reads at other places"


def _stored(task: Task) -> set[Value]:
    pairs = zip(task.kernel.params, task.values, strict=True)
    return {v for p, v in pairs if p.name in task.kernel.writes}


def _loaded(task: Task) -> set[Value]:
    loaded = {x.buffer.name for x in expressions(walk(task.kernel.body)) if isinstance(x, Load)}
    return {v for p, v in zip(task.kernel.params, task.values, strict=True) if p.name in loaded}


def _prepared(frame: Frame) -> Iterator[str]:
    """Prepacked values follow from frozen inputs, and no other kernel stores them."""
    known = set(frame.frozen) | {i.value for i in frame.graph.inputs if i.role == "constant"}
    made: set[Value] = set()
    for task in frame.prepacking:
        missing = _loaded(task) - known - _stored(task)
        yield from (f"prepacking {task.kernel.name} reads {v.type} of {_maker(v)}, which calls change" for v in missing)
        made |= _stored(task)
        known |= made
    for later in frame.tasks:
        if isinstance(later, Task) and not made.isdisjoint(_stored(later)):
            yield f"kernel {later.kernel.name} overwrites a prepacked value"


def _memory(frame: Frame) -> Iterator[str]:
    """Values that are alive together do not overlap, and are within the frame's block."""
    sizes = {v: v.type.nbytes for v in frame.offsets}
    first: dict[Value, int] = {}
    last: dict[Value, int] = {}
    tasks: list[Task | ControlTask] = [*frame.prepacking, *frame.tasks]
    for number, each in enumerate(tasks):
        for value in each.values:
            first.setdefault(value, number)
            last[value] = number
    for value, number in first.items():
        if number < len(frame.prepacking) <= last[value]:  # later calls read it
            first[value], last[value] = 0, len(tasks)
    placed = sorted(((frame.offsets[v], v) for v in frame.offsets if v in first and sizes[v]), key=lambda p: p[0])
    alive: list[tuple[int, Value]] = []
    for start, value in placed:
        alive = [(end, v) for end, v in alive if end > start]
        for _, other in alive:
            if first[value] <= last[other] and first[other] <= last[value]:
                yield f"{value.type} of {_maker(value)} and {other.type} of {_maker(other)} overlap at {start}"
        alive.append((start + sizes[value], value))
    if any(start + sizes[v] > frame.nbytes for v, start in frame.offsets.items()):
        yield "a value ends beyond the frame's block"

"""The lowering steps, from an optimised graph to a program: each fills in a part of the frame (``program/frame.py``).

``passes/pipeline.py`` lists them in order. The modules that a step calls make its decisions.
"""

from __future__ import annotations

from dataclasses import replace

from tracecomp.base import progress
from tracecomp.base.errors import note_place
from tracecomp.ir.graph import Node, Value
from tracecomp.ir.types import TensorType, uint8
from tracecomp.passes.fusion.access import buffer_of
from tracecomp.passes.fusion.concat_in_place import with_concats_in_place
from tracecomp.passes.fusion.fuse import Fuser
from tracecomp.passes.fusion.groups import Group, RowFusion
from tracecomp.passes.program import emit
from tracecomp.passes.program.arena import Lifetime, apart, plan_arena
from tracecomp.passes.program.frame import FLAG_BYTES, ControlTask, Frame, Task, everywhere
from tracecomp.passes.program.kernels import GroupLowerer, copy_task
from tracecomp.passes.program.output_buffers import output_buffers
from tracecomp.passes.program.prepacking import prepared
from tracecomp.passes.row_fusion.implicit_padding import with_implicit_padding
from tracecomp.passes.row_fusion.search import with_row_fusions
from tracecomp.passes.steps import Log


@everywhere
def fuse(frame: Frame, log: Log) -> Frame:
    """Group nodes into kernels."""
    partition = Fuser(frame.graph, True, frame.overwritten).run()
    for decision in partition.decisions:
        log.hits["fused" if decision.fused else "not fused"] += 1
    log.hits["computed again"] += len(partition.rematerialized)
    return replace(frame, partition=partition)


@everywhere
def one_kernel_per_node(frame: Frame, log: Log) -> Frame:
    """Replacement for fusion when it is skipped."""
    return replace(frame, partition=Fuser(frame.graph, False, frame.overwritten).run())


@everywhere
def pad_implicitly(frame: Frame, log: Log) -> Frame:
    """Make padding implicit: contractions read operands as if they were padded."""
    partition = with_implicit_padding(frame.partition, frame.graph, frame.nests)
    log.hits["pads"] += len(frame.partition.groups) - len(partition.groups)
    return replace(frame, partition=partition)


@everywhere
def concat_in_place(frame: Frame, log: Log) -> Frame:
    """Store parts of concatenations within the whole."""
    partition = with_concats_in_place(frame.partition, frame.graph, frame.aliases)
    log.hits["parts"] += len(partition.slices)
    return replace(frame, partition=partition)


@everywhere
def fuse_rows(frame: Frame, log: Log) -> Frame:
    """Combine kernels with the same rows into one loop over blocks of rows."""
    partition = with_row_fusions(frame.partition, frame.graph, frame.aliases, frame.machine, frame.nests)
    log.hits["loops over blocks of rows"] += len(partition.row_fusions)
    return replace(frame, partition=partition)


@everywhere
def place_outputs(frame: Frame, log: Log) -> Frame:
    """Choose the outputs that kernels write in place; the others are copied."""
    outputs = output_buffers(frame.graph, frame.partition, frame.aliases, frame.machine, frame.within)
    log.hits["written in place"] += len(frame.graph.outputs) - len(outputs.copies)
    log.hits["copies"] += len(outputs.copies)
    return replace(frame, outputs=outputs)


@everywhere
def make_kernels(frame: Frame, log: Log) -> Frame:
    """Build loops for every group, and calls of them in order."""
    outputs = frame.outputs
    lowerer = GroupLowerer(frame.partition, frame.nests, outputs, frame.machine, frame.frozen, frame.given)
    tasks: list[Task | ControlTask] = []
    units = list(frame.partition.units())
    progress.expect(len(units))
    for unit in units:
        groups = unit.groups if isinstance(unit, RowFusion) else (unit,)
        try:
            control = isinstance(unit, Group) and unit.kind == "control"
            tasks.append(_control(groups[0].nodes[0]) if control else lowerer.task(unit))
        except Exception as error:  # an error in a schedule
            nodes = [n for g in groups for n in g.nodes]
            sources = [frame.graph.origin[n].source for n in nodes if n in frame.graph.origin]
            note_place(error, f"kernel of {', '.join(dict.fromkeys(n.op.name for n in nodes))}", sources)
            raise
        progress.advance(groups[0].nodes[0].op.name)
    tasks.extend(copy_task(c.source, c.target, frame.machine, c.large) for c in outputs.copies)
    # All kernels of the frame are built.
    frame.nests.forget()
    log.hits["kernels"] += len(lowerer.known)
    # Kernels of empty values have no loops, and are not called.
    return replace(frame, tasks=tuple(t for t in tasks if isinstance(t, ControlTask) or t.kernel.body))


def _control(node: Node) -> ControlTask:
    """The task of a control node; the arena determines the size of its block."""
    block = Value(None, -1, TensorType(uint8, (0,)))
    values = (*map(buffer_of, node.inputs), *node.outputs, block)
    return ControlTask(node, block, tuple(dict.fromkeys(values)))


@everywhere
def prepack(frame: Frame, log: Log) -> Frame:
    """Move tasks that depend on frozen inputs alone to the front, where later calls skip them."""
    inputs = {i.value for i in frame.graph.inputs}
    # Only inputs: the kernels determine which values follow from them.
    first, rest = prepared(frame.tasks, frame.frozen & inputs, inputs | set(frame.outputs.home))
    # Callers detect the preparation by its frozen inputs: one of constants alone would never run.
    lasting = {i.value for i in frame.graph.inputs if i.role != "constant"} & frame.frozen
    if not any(v in lasting for task in first for v in task.values):
        return frame
    log.hits["calls"] += len(first)
    return replace(frame, prepacking=tuple(first), tasks=tuple(rest))


@everywhere
def plan_memory(frame: Frame, log: Log) -> Frame:
    """Place temporary values in one block; those that are never alive together share memory."""
    offsets, nbytes = plan_arena(lifetimes(frame))
    return replace(frame, offsets=offsets, nbytes=nbytes)


@everywhere
def own_memory(frame: Frame, log: Log) -> Frame:
    """Replacement for planning when it is skipped: every temporary value has separate memory."""
    offsets, nbytes = apart(lifetimes(frame))
    return replace(frame, offsets=offsets, nbytes=nbytes)


def lifetimes(frame: Frame) -> list[Lifetime]:
    """Return the first and last use of values; prepacked values live from the first to the last task."""
    # The caller's memory has no place in the arena.
    elsewhere = {i.value for i in frame.graph.inputs} | set(frame.outputs.home)
    first: dict[Value, int] = {}
    last: dict[Value, int] = {}
    nbytes: dict[Value, int] = {}
    start, tasks = len(frame.prepacking), [*frame.prepacking, *frame.tasks]
    for n, task in enumerate(tasks):
        for value in task.values:
            if value not in elsewhere:
                first.setdefault(value, n)
                last[value] = n
                nbytes[value] = value.type.nbytes
        if isinstance(task, ControlTask):
            nbytes[task.block] = _block_bytes(task.node, frame.bodies[task.node])
    if frame.prepacking:
        # Read by every call, so it is alive throughout.
        first[frame.flag] = last[frame.flag] = start
        nbytes[frame.flag] = 1
    for value in first:
        # Prepacked and used later: later calls need it, so its memory is never reused.
        if first[value] < start <= last[value] or value is frame.flag:
            first[value], last[value] = 0, len(tasks)
    return [Lifetime(v, nbytes[v], first[v], last[v]) for v in first]


def _block_bytes(node: Node, bodies: tuple[Frame, ...]) -> int:
    """Bodies run one at a time, so they share a block; a loop's flag is before the values of its test and body."""
    return max(f.nbytes for f in bodies) + (FLAG_BYTES if node.op.name == "while_loop" else 0)


def make_program(frame: Frame, log: Log) -> Frame:
    """Emit calls with their places in memory."""
    return emit.emitted(frame)

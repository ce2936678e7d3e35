"""What must hold of a frame after each lowering step; all that is wrong is reported at once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tracecomp.base.errors import VerifyError
from tracecomp.ir.graph import Value
from tracecomp.ir.loop_verify import kernel_problems, verify_program
from tracecomp.passes.fusion.access import buffer_of
from tracecomp.passes.fusion.members import values_read
from tracecomp.passes.program.frame import Frame, Task


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
        for task in (*frame.prepacking, *frame.tasks):
            if isinstance(task, Task):
                yield from kernel_problems(task.kernel)
    if frame.offsets:
        yield from _memory(frame)


def _order(frame: Frame) -> Iterator[str]:
    """Kernels read inputs and what earlier ones have stored."""
    partition = frame.partition
    known = {i.value for i in frame.graph.inputs}
    for number, group in enumerate(partition.groups):
        missing = {buffer_of(v) for v in values_read(group, partition)} - known
        yield from (f"kernel {number} reads {v.type} of {_maker(v)}, which nobody has stored before" for v in missing)
        known |= {buffer_of(v) for v in partition.stored[group]}
        # A part that is stored within a whole makes the whole known, too.
        known |= {partition.memory(v) for v in partition.stored[group]}
    missing = {buffer_of(o.value) for o in frame.graph.outputs} - known
    yield from (f"no kernel stores the output {v.type} of {_maker(v)}" for v in missing)


def _maker(value: Value) -> str:
    return value.node.op.name if value.node else "an input"


def _row_fusions(frame: Frame) -> Iterator[str]:
    """Fused kernels are neighbours; what they keep for a block at a time, no other kernel reads."""
    partition = frame.partition
    place = {g: n for n, g in enumerate(partition.groups)}
    for fused in partition.row_fusions:
        if any(place[b] != place[a] + 1 for a, b in pairwise(fused.groups)):
            yield f"row fusion of kernel {place[fused.groups[0]]}: its kernels are no neighbours"
        for group in partition.groups:
            if group not in fused.groups and not values_read(group, partition).isdisjoint(
                # What the fusion keeps for a block may be stored by another kernel, too
                # (rematerialization); then it is read from there.
                v
                for v in fused.block_values
                if not _stored_elsewhere(v, frame, fused.groups)
            ):
                yield f"kernel {place[group]} reads what row fusion keeps in a block"


def _stored_elsewhere(value: Value, frame: Frame, groups: tuple[object, ...]) -> bool:
    stored = frame.partition.stored
    return any(value in stored[g] for g in frame.partition.groups if g not in groups)


def _outputs(frame: Frame) -> Iterator[str]:
    """Every output has its position's memory, or is the input whose memory that is."""
    positions = set(frame.outputs.home.values())
    for position, output in enumerate(frame.graph.outputs):
        own = position in frame.aliases and buffer_of(output.value) is frame.graph.inputs[frame.aliases[position]].value
        if position not in positions and not own and output.value.type.numel:
            yield f"nothing writes output {position}"


def _memory(frame: Frame) -> Iterator[str]:
    """What a call reads and writes together does not overlap."""
    sizes = {v: v.type.nbytes for v in frame.offsets}
    for task in (*frame.prepacking, *frame.tasks):
        # Values of one call are alive together, whatever their lifetimes say: sorted by place, neighbours suffice.
        spans = sorted((frame.offsets[v], frame.offsets[v] + sizes[v]) for v in set(task.values) if v in sizes)
        yield from (f"a call's operands overlap at {b[0]}" for a, b in pairwise(spans) if a[1] > b[0])
    if any(start + sizes[v] > frame.nbytes for v, start in frame.offsets.items()):
        yield "a value ends beyond the frame's block"

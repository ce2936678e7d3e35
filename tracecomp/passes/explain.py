"""Text about passes and partitions: the decisions and reasons, the contents of each kernel, and refused fusions."""

from __future__ import annotations

from collections.abc import Iterator

from tracecomp.ir.graph import Graph, Node
from tracecomp.ir.program import Program, call_steps
from tracecomp.passes.fusion.groups import Partition, RowFusion
from tracecomp.passes.program.frame import Frame


def describe_partition(partition: Partition) -> str:
    """Kernels in order with their nodes, row fusions, then every fusion that was refused and why."""
    lines: list[str] = []
    # Values kept for one block are printed as in cache.
    block_values = {(g, v.node) for c in partition.row_fusions for g in c.groups for v in c.block_values}
    for number, group in enumerate(partition.groups):
        runs = " x ".join(f"{n}{' (reduced)' if r else ''}" for n, r in group.domain.runs) or "one element"
        lines.append(f"kernel {number}: {group.kind} over {runs}")
        stored = {v.node for v in partition.stored[group]}
        for node in group.nodes:
            where = "" if node not in stored else " -> cache" if (group, node) in block_values else " -> memory"
            if any(v in partition.slices for v in node.outputs):
                where = " -> part of memory"
            lines.append(f"  {_describe(node)}{where}")
    lines.extend(line for fused in partition.row_fusions for line in _row_fusion(fused, partition))
    refused = [d for d in partition.decisions if not d.fused]
    if refused:
        lines.append("not fused:")
        lines.extend(f"  {_describe(d.producer)} into {_describe(d.consumer)}: {d.reason}" for d in refused)
    if partition.rematerialized:
        lines.append("recomputed by each reader instead of stored:")
        lines.extend(f"  {_describe(n)}" for n in partition.rematerialized)
    return "\n".join(lines) + "\n"


def _row_fusion(fused: RowFusion, partition: Partition) -> Iterator[str]:
    first = partition.groups.index(fused.groups[0])
    numbers = f"kernels {first} to {first + len(fused.groups) - 1}"
    rows = f"{fused.outer} x {fused.count}" if fused.outer > 1 else str(fused.count)
    nbytes = sum(v.type.nbytes for v in fused.block_values)
    blocks = f"blocks of {fused.height} of {rows} rows"
    yield f"{numbers} are one loop over {blocks}, which keeps {nbytes} bytes out of memory"


def _describe(node: Node) -> str:
    return f"{node.op.name} {', '.join(str(v.type) for v in node.outputs)}"


def describe_schedules(program: Program) -> str:
    """How the loops of every kernel run (``passes/schedule/records.py``)."""
    kernels = {step.kernel.name: step.kernel for step in call_steps(program.steps)}
    lines = ["schedules:"]
    for name, kernel in kernels.items():
        lines.append(f"  {name}")
        lines.extend(f"    {line}" for text in kernel.schedules for line in text.splitlines())
        if not kernel.schedules:
            lines.append("    custom loops")
    return "\n".join(lines) + "\n"


def graph_size(graph: Graph) -> str:
    """How large a graph is."""
    return f"{len(list(graph.live_nodes()))} nodes"


def frame_size(frame: Frame) -> str:
    """A frame's progress through the lowering steps."""
    if frame.nbytes or frame.program:
        return f"{len(frame.tasks)} calls, {frame.nbytes} bytes of temporary values"
    if frame.tasks:
        return f"{len(frame.tasks)} calls"
    return f"{len(frame.partition.groups)} kernels"

"""Passes and partitions in words: what was decided and why, what each kernel holds, why the rest is not in it."""

from __future__ import annotations

from collections.abc import Sequence

from tracecomp.ir.graph import Node
from tracecomp.passes.groups import Partition
from tracecomp.passes.manager import Stage


def describe_partition(partition: Partition) -> str:
    """Kernels in order with their nodes, then every fusion that was refused and why."""
    lines: list[str] = []
    for number, group in enumerate(partition.groups):
        runs = " x ".join(f"{n}{' (reduced)' if r else ''}" for n, r in group.domain.runs) or "one element"
        lines.append(f"kernel {number}: {group.kind} over {runs}")
        stored = {v.node for v in partition.stored[group]}
        for node in group.nodes:
            lines.append(f"  {_describe(node)}{' -> memory' if node in stored else ''}")
    refused = [d for d in partition.decisions if not d.fused]
    if refused:
        lines.append("not fused:")
        lines.extend(f"  {_describe(d.producer)} into {_describe(d.consumer)}: {d.reason}" for d in refused)
    if partition.inlined:
        lines.append("evaluated again where read, instead of stored:")
        lines.extend(f"  {_describe(n)}" for n in partition.inlined)
    return "\n".join(lines) + "\n"


def _describe(node: Node) -> str:
    return f"{node.op.name} {', '.join(str(v.type) for v in node.outputs)}"


def describe_built(stages: Sequence[Stage], partition: Partition) -> str:
    """Everything that was decided about a graph."""
    return f"{describe_stages(stages)}\n{describe_partition(partition)}".rstrip()


def describe_stages(stages: Sequence[Stage]) -> str:
    """The passes in order: time, size, how often each rule fired, choices with their reasons."""
    lines = ["passes:"]
    for stage in stages:
        size = len(list(stage.graph.live_nodes()))
        lines.append(f"  {stage.name}: {size} nodes, {stage.seconds * 1e3:.1f} ms")
        if stage.log.hits.total():
            lines.append("    " + ", ".join(f"{n} x {rule}" for rule, n in stage.log.hits.most_common() if n))
        for choice in stage.log.choices:
            where = f" (from {choice.origin.source})" if choice.origin.source else ""
            lines.append(f"    {choice.subject}: {choice.chosen}; {choice.reason}{where}")
    return "\n".join(lines)

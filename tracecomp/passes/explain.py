"""A partition in words: what each kernel holds, and why the rest is not in it."""

from __future__ import annotations

from tracecomp.ir.graph import Node
from tracecomp.passes.fuse import Partition


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

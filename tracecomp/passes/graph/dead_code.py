"""Dead code elimination in control operators. Any rebuild of a graph drops other dead nodes."""

from __future__ import annotations

from typing import Any

from tracecomp.ir.graph import Graph, Node, Origin, Value
from tracecomp.passes.graph.rewrite import has_node
from tracecomp.passes.graph.subgraph import subgraph
from tracecomp.passes.steps import Log


def remove_dead_code(graph: Graph, log: Log) -> Graph:
    """Drop unread stacked results of ``scan``, and operands that its body ignores."""
    # Only scans stack results that may be unread.
    if not has_node(graph, lambda n: n.op.name == "scan"):
        return graph
    live = list(graph.live_nodes())
    read = {v for n in live for v in n.inputs} | {o.value for o in graph.outputs}
    new = Graph(graph.name)
    values = {i.value: new.add_input(i.value.type, i.name, i.role, i.data) for i in graph.inputs}
    for node in live:
        # Nodes keep their source line.
        new.here = graph.origin.get(node, Origin())
        kept = _kept_results(node, read)
        inputs, attrs = list(node.inputs), node.attrs
        if node.op.name == "scan":
            inputs, attrs = _trimmed_scan(node, kept, log)
        results = new.add(node.op, (values[v] for v in inputs), attrs)
        values.update(zip((node.outputs[k] for k in kept), results, strict=True))
    new.here = Origin()
    for output in graph.outputs:
        new.add_output(values[output.value], output.name, output.role)
    return new


def _kept_results(node: Node, read: set[Value]) -> list[int]:
    """The positions of the results that a node must keep."""
    # Carries stay, read or not: each step needs the previous one.
    carries = node.attrs["carries"] if node.op.name == "scan" else len(node.outputs)
    return [k for k, v in enumerate(node.outputs) if k < carries or v in read]


def _trimmed_scan(node: Node, kept: list[int], log: Log) -> tuple[list[Value], dict[str, Any]]:
    """Operands and attributes of a ``scan`` whose body computes only the ``kept`` results."""
    attrs = node.attrs
    full: Graph = attrs["body"]
    body = remove_dead_code(subgraph(full, full.inputs, [full.outputs[k] for k in kept]), log)
    needed = {v for n in body.live_nodes() for v in n.inputs} | {o.value for o in body.outputs}
    carries, given = attrs["carries"], [i for i in body.inputs if i.role != "constant"]
    # The body is simplified first, which also removes operands of dead code.
    places = [p for p, i in enumerate(given) if p < carries or i.value in needed]
    constants = [i for i in body.inputs if i.role == "constant" and i.value in needed]
    trimmed = subgraph(body, [given[p] for p in places] + constants, body.outputs)
    log.hits.update({"unread_scan_results": len(node.outputs) - len(kept)})
    log.hits.update({"unread_scan_operands": len(given) - len(places)})
    xs = sum(carries <= p < carries + attrs["xs"] for p in places)
    return [node.inputs[p] for p in places], {**attrs, "body": trimmed, "xs": xs}

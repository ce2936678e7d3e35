"""Graphs for other tools: DOT for graphviz, networkx, and Google's Model Explorer."""

from __future__ import annotations

import json
from typing import Any

from tracecomp.ir.printer import attrs_text, is_literal
from tracecomp.ir.values import GraphData, Value


def to_networkx(graph: GraphData) -> Any:
    """A ``networkx.MultiDiGraph``: a node for each input, operator and output, an edge for each operand.

    Nodes have ``label``, ``op``, ``type``, ``attrs``, ``scope`` and ``source``; edges ``operand``, the position among
    the reader's operands, and ``result``, the position among the producer's results.
    """
    import networkx  # loaded lazily: programs run without it

    found = networkx.MultiDiGraph(name=graph.name)
    names: dict[Value, str] = {}
    for i in graph.inputs:
        names[i.value] = f"input {i.name}"
        found.add_node(names[i.value], label=i.name, op=i.role, type=str(i.value.type), attrs="", scope="", source="")
    for n, node in enumerate(node for node in graph.live_nodes() if not is_literal(node)):
        origin = graph.origin.get(node)
        found.add_node(
            f"%{n}", label=node.op.name, op=node.op.name, type=", ".join(str(v.type) for v in node.outputs),
            attrs=attrs_text(node.attrs), scope="/".join(origin.scope) if origin else "",
            source=str(origin.source) if origin and origin.source else "",
        )  # fmt: skip
        names.update(dict.fromkeys(node.outputs, f"%{n}"))
        for place, value in enumerate(node.inputs):
            if value in names:
                found.add_edge(names[value], f"%{n}", operand=place, result=_place(value))
    for o in graph.outputs:
        found.add_node(
            f"output {o.name}", label=o.name, op=o.role, type=str(o.value.type), attrs="", scope="", source=""
        )
        if o.value in names:
            found.add_edge(names[o.value], f"output {o.name}", operand=0, result=_place(o.value))
    return found


def _place(value: Value) -> int:
    """The position of a value among its node's results."""
    return 0 if value.node is None else value.node.outputs.index(value)


def to_dot(graph: GraphData) -> str:
    """The graph in the language of graphviz: ``dot -Tsvg``."""
    found = to_networkx(graph)
    lines = [f"digraph {_quoted(graph.name)} {{", "  node [shape=box, fontname=monospace]"]
    for name, data in found.nodes(data=True):
        border = ", style=rounded" if name.startswith(("input", "output")) else ""
        tip = f", tooltip={_quoted(data['source'])}" if data["source"] else ""
        lines.append(f"  {_quoted(name)} [label={_quoted(data['label'] + chr(10) + data['type'])}{border}{tip}]")
    lines += [f"  {_quoted(a)} -> {_quoted(b)}" for a, b in found.edges()]
    return "\n".join([*lines, "}"]) + "\n"


def to_model_explorer(graph: GraphData) -> str:
    """The graph as a JSON file of Model Explorer: scopes are layers, which open and close."""
    found = to_networkx(graph)
    nodes = [
        {
            "id": name,
            "label": data["label"],
            "namespace": data["scope"],
            "attrs": [{"key": k, "value": data[k]} for k in ("op", "attrs", "source") if data[k]],
            "incomingEdges": [
                {"sourceNodeId": maker, "sourceNodeOutputId": str(e["result"]), "targetNodeInputId": str(e["operand"])}
                for maker, _, e in found.in_edges(name, data=True)
            ],
            "outputsMetadata": [
                {"id": str(n), "attrs": [{"key": "type", "value": kind}]}
                for n, kind in enumerate(data["type"].split(", "))
            ],
        }
        for name, data in found.nodes(data=True)
    ]
    return json.dumps([{"id": graph.name, "nodes": nodes}], indent=1)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'

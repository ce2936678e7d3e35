"""Extraction of a part of a graph as a separate graph."""

from __future__ import annotations

from collections.abc import Sequence

from tracecomp.ir.graph import Graph, Input, Node, Output, Value


def extract(
    name: str, source: Graph, inputs: Sequence[Input], outputs: Sequence[Output],
    mapping: dict[Value, Value] | None = None, needed: set[Node] | None = None,
) -> Graph:  # fmt: skip
    """Return a graph that computes ``outputs`` (values of ``source``) from ``inputs`` (values of ``source``, cut
    there).

    Constants that are read are included; inputs are in the given order. ``mapping`` receives new values by old ones.
    ``needed`` are the nodes that the outputs depend on, if they are known.
    """
    graph = Graph(name)
    mapping = {} if mapping is None else mapping
    for i in inputs:
        mapping[i.value] = graph.add_input(i.value.type, i.name, i.role, i.data)
    if needed is None:
        needed = needed_nodes([o.value for o in outputs], set(mapping))
    constants = {i.value: i for i in source.inputs if i.role == "constant"}
    for v in [v for n in source.nodes if n in needed for v in n.inputs] if constants else ():
        _bring(graph, mapping, constants, v)
    graph.add_copies(source, needed, mapping)
    for o in outputs:
        _bring(graph, mapping, constants, o.value)
        graph.add_output(mapping[o.value], o.name, o.role)
    return graph


def needed_nodes(values: Sequence[Value], cut: set[Value]) -> set[Node]:
    """The nodes that ``values`` depend on, when those in ``cut`` are given."""
    found: set[Node] = set()
    stack = [v for v in values if v not in cut]
    while stack:
        node = stack.pop().node
        if node is None or node in found:
            continue
        found.add(node)
        stack.extend(v for v in node.inputs if v not in cut)
    return found


def _bring(graph: Graph, mapping: dict[Value, Value], constants: dict[Value, Input], v: Value) -> None:
    if v not in mapping and v in constants:
        c = constants[v]
        mapping[v] = graph.add_input(v.type, c.name, c.role, c.data)

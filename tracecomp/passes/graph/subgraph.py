"""A part of a graph as a separate graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tracecomp.ir.graph import Graph, Input, Origin, Output, Value, live_nodes


def subgraph(
    graph: Graph, inputs: Iterable[Input], outputs: Sequence[Output],
    numbers: Mapping[Value, bool | int | float] | None = None,
) -> Graph:  # fmt: skip
    """The graph that computes ``outputs`` (of values of ``graph``) from ``inputs`` (some of ``graph``'s, in any order).

    ``numbers`` are inputs that are replaced by constants.
    """
    new = Graph(graph.name)
    values: dict[Value, Value] = {
        v: new.apply("full", value=number, shape=v.shape, dtype=v.dtype) for v, number in (numbers or {}).items()
    }
    for given in inputs:
        values[given.value] = new.add_input(given.value.type, given.name, given.role, given.data)
    live = live_nodes([o.value for o in outputs])
    for node in (n for n in graph.nodes if n in live):
        new.here = graph.origin.get(node, Origin())
        values.update(zip(node.outputs, new.add(node.op, (values[v] for v in node.inputs), node.attrs), strict=True))
    new.here = Origin()
    for output in outputs:
        new.add_output(values[output.value], output.name, output.role)
    return new

"""Whether two runs of a program, at two sizes, wrote the same graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracecomp.fx.graph import Graph
from tracecomp.fx.node import Node, map_arg
from tracecomp.library import ops


def same_graphs(one: Graph, other: Graph, values: Sequence[int]) -> bool:
    """Whether both do the same in the same order where the open sizes are ``values``."""
    return [*_steps(one, values)] == [*_steps(other, values)]


def _steps(graph: Graph, values: Sequence[int]) -> Iterator[tuple[object, ...]]:
    """What each node does, apart from those that compute with sizes, with numbers for these."""
    number: dict[Node, int] = {}

    def shown(node: Node) -> object:
        form = node.meta.get("size")
        return f"%{number[node]}" if form is None else form.at(values)

    for node in graph.nodes:
        if "size" not in node.meta:
            number[node] = len(number)
            # What is written as a view, or as "a view if elements lie so", gives the same elements.
            target = ops.aten.reshape.default if node.target is ops.aten.view.default else node.target
            yield node.op, target, repr(map_arg((node.args, node.kwargs), shown))

"""Whether two runs of a program, at two sizes, wrote the same graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tracecomp.fx.graph import Graph
from tracecomp.fx.node import Node, map_arg
from tracecomp.ir.graph import Graph as Region
from tracecomp.ir.printer import print_graph
from tracecomp.library import ops


def same_graphs(one: Graph, other: Graph, values: Sequence[int]) -> bool:
    """Whether both do the same in the same order where the dynamic sizes are ``values``."""
    return [*_steps(one, values)] == [*_steps(other, values)]


def _steps(graph: Graph, values: Sequence[int]) -> Iterator[tuple[object, ...]]:
    """The action of each node, except those that compute with sizes, with ``values`` for the sizes."""
    number: dict[Node, int] = {}

    def shown(node: Node) -> object:
        form = node.meta.get("size")
        return f"%{number[node]}" if form is None else form.at(values)

    for node in graph.nodes:
        if "size" in node.meta:
            continue
        number[node] = len(number)
        target, args = node.target, node.args
        if target is ops.aten.view.default:
            # A view, and a view that copies if memory requires it, have the same elements.
            target = ops.aten.reshape.default
        elif target is ops.aten.slice.Tensor and _extents(node, values) == _extents(args[0], values):
            target, args = ops.aten.alias.default, args[:1]  # as long as its operand: all of it
        yield node.op, target, repr(map_arg((args, _with_text(node.kwargs)), shown))


def _extents(node: Node, values: Sequence[int]) -> list[int]:
    """The shape of a node's result where the dynamic sizes are ``values``."""
    return [n if isinstance(n, int) else n.at(values) for n in node.meta["extents"]]


def _with_text(kwargs: Mapping[str, object]) -> dict[str, Any]:
    """Arguments by name, with the text of a region (a branch of ``cond``, the body of a loop) in its place."""
    return {name: print_graph(x) if isinstance(x, Region) else x for name, x in kwargs.items()}

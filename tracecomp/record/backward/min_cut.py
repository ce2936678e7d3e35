"""Minimum cut, by bytes, of the values that a forward graph keeps for its backward graph; the rest is recomputed.

PyTorch calls this the min-cut partitioner.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from tracecomp.ir.graph import Graph, Node, Value
from tracecomp.record.backward.extract import needed_nodes

RECOMPUTED_KINDS = frozenset(("elementwise", "view", "pad", "concat", "creation"))
MAX_NODES = 4000
"""The most nodes for which a minimum cut is searched, as its time grows faster than their number."""


def choose_saved(
    graph: Graph, forward: Collection[Node], wanted: Collection[Value], cost: Callable[[Value], int]
) -> list[Value]:
    """Values of ``forward`` and graph inputs from which backward can compute ``wanted``, of least total ``cost``.

    Reductions, contractions and other long computations are never repeated. The choice is a minimum cut between values
    that cannot be computed again and those that backward reads. Cutting a value costs as much as keeping it.
    """
    import networkx

    nodes = [n for n in needed_nodes(list(wanted), set()) if n in forward]
    if len(nodes) > MAX_NODES:
        return list(wanted)
    _, (left, _) = networkx.minimum_cut(_network(networkx.DiGraph(), nodes, wanted, cost), "source", "sink")
    return [v for v in _values(graph, nodes, wanted) if ("in", v) in left and ("out", v) not in left]


def _network(flow: Any, nodes: Collection[Node], wanted: Collection[Value], cost: Callable[[Value], int]) -> Any:
    flow.add_nodes_from(("source", "sink"))
    seen: set[Value] = set()

    def add(v: Value) -> None:
        if v not in seen:
            seen.add(v)
            flow.add_edge(("in", v), ("out", v), capacity=cost(v))
            if v.node is None or v.node.op.kind not in RECOMPUTED_KINDS:
                flow.add_edge("source", ("in", v))

    for node in nodes:
        for out in node.outputs:
            add(out)
            if node.op.kind not in RECOMPUTED_KINDS:
                continue
            for v in node.inputs:
                add(v)
                flow.add_edge(("out", v), ("in", out))
    for v in wanted:
        add(v)
        flow.add_edge(("out", v), "sink")
    return flow


def _values(graph: Graph, nodes: Collection[Node], wanted: Collection[Value]) -> list[Value]:
    chosen = set(nodes)
    listed = [i.value for i in graph.inputs]
    listed += [v for n in graph.nodes if n in chosen for v in n.outputs]
    return listed + [v for v in wanted if v.node is not None and v.node not in chosen]

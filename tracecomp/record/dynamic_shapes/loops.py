"""Scans over an axis whose size varies: every step after the last valid one leaves the state unchanged."""

from __future__ import annotations

from functools import lru_cache

from tracecomp.ir.graph import Graph
from tracecomp.ir.op import OPS
from tracecomp.ir.types import TensorType, bool_
from tracecomp.ops.regions import inline, input_types
from tracecomp.passes.graph.rewrite import Rules
from tracecomp.passes.graph.scan_accumulators import sum_after_scans
from tracecomp.passes.steps import Log


@lru_cache(maxsize=256)
def masked_body(body: Graph, carries: int, xs: int) -> Graph:
    """``body`` with an extra operand after its ``xs``: whether the step is valid. Other steps keep the carries."""
    graph = Graph(f"{body.name}_masked")
    types = input_types(body)
    operands = [graph.add_input(t, f"in{n}") for n, t in enumerate(types[: carries + xs])]
    live = graph.add_input(TensorType(bool_, ()), "live")
    operands += [graph.add_input(t, f"const{n}") for n, t in enumerate(types[carries + xs :])]
    results = inline(graph, body, operands)
    for number, new in enumerate(results):
        stays = number >= carries or new is operands[number]
        graph.add_output(new if stays else graph.apply("where", live, new, operands[number]))
    return graph


@lru_cache(maxsize=256)
def sums_apart(types: tuple[TensorType, ...], body: Graph, carries: int, xs: int, length: int, reverse: bool) -> Graph:
    """A scan of operands of these types as a graph, in which sums over all steps are computed after it.

    Graph passes compute them there; so padding must be masked there, and not in the steps.
    """
    graph = Graph("scan")
    operands = [graph.add_input(t, f"in{n}") for n, t in enumerate(types)]
    attrs = {"body": body, "carries": carries, "xs": xs, "length": length, "reverse": reverse}
    for value in graph.add(OPS["scan"], operands, attrs):
        graph.add_output(value)
    return sum_after_scans(graph, Log(), Rules())

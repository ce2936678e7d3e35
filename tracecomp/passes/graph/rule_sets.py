"""The passes made of rules alone: decompose, simplify, canonicalise."""

from __future__ import annotations

from typing import cast

from tracecomp.ir.graph import Graph
from tracecomp.ir.op import KINDS, Composed
from tracecomp.ops.autodiff import Sym
from tracecomp.passes.graph import algebra, casts, contractions, convolutions, fourier, gathers, pads, reductions, views
from tracecomp.passes.graph.rewrite import Application, Replacement, Rewriter, Rules, has_node, rewrite
from tracecomp.passes.steps import Log

DECOMPOSITION = Rules()
# Order of application: algebra before shapes.
SIMPLIFICATION = Rules(algebra.RULES, casts.RULES, views.RULES, pads.RULES, reductions.EXACT_RULES, gathers.RULES)
# Canonical rules come first; simplification cleans up after each of them.
CANONICAL = Rules(contractions.RULES, reductions.RULES, SIMPLIFICATION)


@DECOMPOSITION.on_kind(*KINDS)
def composed_operator(g: Rewriter, a: Application) -> Replacement:
    """argmax(x) -> min(where(x == max(x), position, size))"""
    if not isinstance(a.op.loop, Composed):
        return None
    graph = cast(Graph, g)  # has a graph's interface, and simplifies
    result = a.op.loop.fn(*(Sym(graph, v) for v in a.inputs), **a.attrs)
    return [r.value for r in result] if isinstance(result, tuple) else result.value


DECOMPOSED = Rules(convolutions.RULES, fourier.RULES, DECOMPOSITION, SIMPLIFICATION)


def decompose(graph: Graph, log: Log) -> Graph:
    """Expand convolutions, transforms and operators whose loop meaning is a composition of others."""
    # Rebuilding a graph costs time; most need no expansion.
    if not has_node(graph, lambda n: n.op.kind in ("convolution", "transform") or isinstance(n.op.loop, Composed)):
        return graph
    return rewrite(graph, DECOMPOSED, log, "decompose")


def simplify(graph: Graph, log: Log) -> Graph:
    """Apply every bit-exact rule to a fixed point, dropping dead nodes."""
    return rewrite(graph, SIMPLIFICATION, log, "simplify")


def canonicalise(graph: Graph, log: Log) -> Graph:
    """Bring contractions and reductions to normal form. This fixes orders of summation."""
    return rewrite(graph, CANONICAL, log, "canonical")

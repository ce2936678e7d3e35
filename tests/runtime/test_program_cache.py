"""Keys of stored programs: those of a graph's content, also where the graph has changed since it was last asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tracecomp as tc
from tracecomp.ir.graph import Graph
from tracecomp.passes.cost.machine import host
from tracecomp.runtime import program_cache


def _rename(graph: Graph) -> None:
    graph.name = "other"


def _add_input(graph: Graph) -> None:
    graph.add_input(graph.inputs[0].value.type, "other")


def _add_output(graph: Graph) -> None:
    graph.add_output(graph.nodes[0].outputs[0])


def _add_node(graph: Graph) -> None:
    graph.add_output(graph.apply("sin", graph.inputs[0].value))


def _replace_node(graph: Graph) -> None:
    """As many nodes as before, and the same outputs."""
    graph.drop_dead()
    graph.apply("sin", graph.inputs[0].value)


@pytest.mark.parametrize("change", [_rename, _add_input, _add_output, _add_node, _replace_node])
def test_a_key_follows_changes_of_the_graph(change: Callable[[Graph], None]) -> None:
    graph = tc.trace(lambda x: x.exp() * 2, tc.ones(3))
    graph.apply("cos", graph.inputs[0].value)
    before = program_cache.key_of(graph, host())
    assert program_cache.key_of(graph, host()) == before
    change(graph)
    after = program_cache.key_of(graph, host())
    program_cache._digests.clear()
    assert after == program_cache.key_of(graph, host()) != before

"""Every pass keeps every element of random graphs whose arithmetic is exact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.passes.random_graphs import Maker
from tracecomp import ops
from tracecomp.base import config
from tracecomp.base.dump import Dump
from tracecomp.compiled.graph_bisection import run_native
from tracecomp.ir.interpret import interpret
from tracecomp.ir.parser import parse_graph
from tracecomp.ir.printer import print_graph
from tracecomp.passes import pipeline

assert ops


@pytest.mark.slow
@settings(max_examples=120)
@given(st.integers(0, 10**9), st.integers(2, 18))
def test_passes_keep_exact_results(seed: int, nodes: int) -> None:
    graph, arrays = Maker(seed).make(nodes)
    want = interpret(graph, arrays)
    with config.override(verify=True):
        stages = pipeline.run(graph, Dump("t", enabled=False))
    for stage in stages[1:]:
        for have, expected in zip(interpret(stage.state, arrays), want, strict=True):
            np.testing.assert_array_equal(have, expected, err_msg=f"seed {seed}, {nodes} nodes: {stage.name}")
    text = print_graph(stages[-1].state)
    assert print_graph(parse_graph(text)) == text


@pytest.mark.slow
@settings(max_examples=30)
@given(st.integers(0, 10**9), st.integers(2, 18))
def test_native_code_keeps_exact_results(seed: int, nodes: int) -> None:
    graph, arrays = Maker(seed).make(nodes)
    final = pipeline.run(graph, Dump("t", enabled=False))[-1].state
    for have, expected in zip(run_native(final, arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_array_equal(have, expected, err_msg=f"seed {seed}, {nodes} nodes")

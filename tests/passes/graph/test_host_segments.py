"""Compiled programs with linear algebra routines that the host runs."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import tracecomp
from tests.references import by_numpy
from tracecomp.base.errors import CompileError
from tracecomp.ir.graph import Graph
from tracecomp.ir.parser import parse_graph
from tracecomp.ir.types import float64
from tracecomp.passes.graph.constant_folding import fold_constants
from tracecomp.passes.graph.host_segments import has_external, segments, started
from tracecomp.passes.steps import Log

TEXT = """\
graph "step" {
  %x: f64[3,3] = argument "x"
  %b: f64[3,1] = argument "b"
  %c: f64[3,1] = constant "c" [1.0, 2.0, 3.0]
  %0 = mul(%x, 2.0:f64) : f64[3,3]
  %1 = add(%b, %c) : f64[3,1]
  %2 = eigvalsh(%0) {uplo="L"} : f64[3]
  %3 = exp(%2) : f64[3]
  %4 = svdvals(%1) : f64[1]
  %5 = mul(%3, %4) : f64[3]
  %6 = pinv(%0) {hermitian=false, rtol=0.0} : f64[3,3]
  result "a" = %5
  result "b" = %6
  result "c" = %b
}
"""


def test_segments_are_few_and_in_order() -> None:
    parts = segments(parse_graph(TEXT))
    kinds = [f"{len(p.work.nodes)} native" if isinstance(p.work, Graph) else p.work.op.name for p in parts]
    assert kinds == ["3 native", "eigvalsh", "svdvals", "pinv", "2 native"]


TWO_SUMS = """\
graph "step" {
  %x: f64[3] = argument "x"
  %y: f64[3] = argument "y"
  %0 = exp(%x) : f64[3]
  %1 = all_reduce(%0) {op="SUM", group="", total=1} : f64[3]
  %2 = sin(%y) : f64[3]
  %3 = mul(%2, %0) : f64[3]
  %4 = all_reduce(%3) {op="SUM", group="", total=1} : f64[3]
  %5 = cos(%2) : f64[3]
  %6 = add(%1, %4) : f64[3]
  result "a" = %5
  result "b" = %6
}
"""


AFTER_ANOTHER = """\
graph "step" {
  %x: f64[3] = argument "x"
  %0 = all_reduce(%x) {op="SUM", group="", total=1} : f64[3]
  %1 = exp(%0) : f64[3]
  %2 = all_reduce(%1) {op="SUM", group="", total=1} : f64[3]
  %3 = all_reduce(%x) {op="MAX", group="", total=1} : f64[3]
  %4 = all_reduce(%x) {op="MAX", group="", total=1} : f64[3]
  result "a" = %2
  result "b" = %3
  result "c" = %4
}
"""


def test_communications_keep_the_order_of_the_program_and_none_is_taken_for_another() -> None:
    """Another process may run the same lines eagerly, or between other code."""
    graph = parse_graph(AFTER_ANOTHER)
    hosted = [p.work for p in segments(graph) if not isinstance(p.work, Graph)]
    assert [n.attrs["op"] for n in hosted] == ["SUM", "SUM", "MAX", "MAX"]


def test_communications_of_constants_are_not_folded() -> None:
    graph = Graph("step")
    one = graph.apply("full", value=1.0, shape=(3,), dtype=float64)
    graph.add_output(graph.apply("all_reduce", one, op="SUM", group="", total=1))
    folded = fold_constants(graph, Log())
    assert [n.op.name for n in folded.live_nodes()] == ["full", "all_reduce"]


def test_communication_begins_when_its_operands_are_there_and_goes_on_beside_code() -> None:
    parts = segments(parse_graph(TWO_SUMS))
    kinds = [[n.op.name for n in p.work.nodes] if isinstance(p.work, Graph) else p.work.op.name for p in parts]
    assert kinds == [["exp"], "all_reduce", ["sin", "mul"], "all_reduce", ["cos"], ["add"]]
    assert started(parts) == {p.work for p in parts if not isinstance(p.work, Graph)}


def test_communication_whose_result_is_read_at_once_is_waited_for() -> None:
    text = TWO_SUMS.replace("sin(%y)", "sin(%1)")
    parts = segments(parse_graph(text))
    first, second = (p.work for p in parts if not isinstance(p.work, Graph))
    assert started(parts) == {second} and first is not second


def test_a_body_cannot_call_the_host() -> None:
    text = 'graph "b" { %c: f64[2] = argument "c" %0 = reshape(%c) {shape=[1, 2]} : f64[1,2] %1 = svdvals(%0) : f64[1] '
    body = parse_graph(text + '%2 = expand(%1) {shape=[2]} : f64[2] result "o" = %2 }')
    graph = Graph("g")
    c = graph.add_input(body.inputs[0].value.type, "c")
    graph.add_output(graph.apply("scan", c, body=body, carries=1, xs=0, length=3, reverse=False))
    with pytest.raises(CompileError, match="backend='interpret'"):
        has_external(graph)


def test_compiled_equals_eager_with_gradients() -> None:
    def loss(a: tracecomp.Tensor, b: tracecomp.Tensor) -> tracecomp.Tensor:
        spd = a @ a.T + 3 * tracecomp.eye(4, dtype=a.dtype)
        y = tracecomp.linalg.solve(spd, b.exp())
        total = (y * y).sum() + tracecomp.linalg.svdvals(a).log().sum()
        total.backward()
        return total.detach()

    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((4, 4)), rng.standard_normal((4, 2))]

    def leaves() -> list[tracecomp.Tensor]:
        return [tracecomp.tensor(v, requires_grad=True) for v in arrays]

    eager = leaves()
    want = by_numpy(loss)(*eager)
    compiled = tracecomp.compile(loss)
    for _ in range(3):
        given = leaves()
        got = compiled(*given)
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-12)
        for a, b in zip(given, eager, strict=True):
            np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-10)


@pytest.mark.parametrize("backend", ["interpret", "native"])
def test_states_that_trade_places(backend: str) -> None:
    a, b = tracecomp.ones(2, 2), 3 * tracecomp.eye(2)

    @tracecomp.compile(backend=backend)
    def trade() -> tracecomp.Tensor:
        inverse = tracecomp.linalg.pinv(a + 2 * b)
        kept = a.clone()
        a.copy_(b)
        b.copy_(kept)
        return inverse

    for turn in range(1, 5):
        trade()
        ones, eye = (b, a) if turn % 2 else (a, b)
        np.testing.assert_array_equal(ones.numpy(), np.ones((2, 2)))
        np.testing.assert_array_equal(eye.numpy(), 3 * np.eye(2))


def test_a_process_whose_first_program_is_one_call_of_the_host() -> None:
    text = (
        "import tracecomp\n"
        "run = tracecomp.compile(tracecomp.linalg.pinv)\n"
        "for _ in range(5): found = run(tracecomp.eye(3) * 2)\n"
        "print(found.sum().item())\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, "1.5\n"), done.stderr

"""The printed language: printing, parsing, verifying and running graphs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.ops.samples import samples_of
from tracecomp.base.errors import Source, VerifyError
from tracecomp.ir.graph import Graph, Node, Origin
from tracecomp.ir.interpret import Interpreter
from tracecomp.ir.op import OPS, Op
from tracecomp.ir.parser import parse_graph
from tracecomp.ir.printer import print_graph
from tracecomp.ir.types import TensorType, bool_, float32, float64, int64
from tracecomp.ir.verify import verify

TEXT = """\
graph "step" {
  %x: f32[2,3] = argument "x"
  %layer_weight: f32[4,3] = state "layer.weight"
  %lr: f64[] = host "lr"
  %scale: f16[4] = constant "scale" [1.0, 0.1, -0.0, inf]
  %0 = contract(%x, %layer_weight) {spec="mk,nk->mn"} : f32[2,4]
  %1 = cast(%scale) {dtype=f32} : f32[4]
  %2 = mul(%0, %1) : f32[2,4]
  %3, %4 = sort(%2) {axis=1, descending=false} : f32[2,4], i64[2,4]
  %5 = cast(%lr) {dtype=f32} : f32[]
  %6 = mul(%layer_weight, %5) : f32[4,3]
  %7 = add(%3, -1e-05:f32) : f32[2,4]
  result "out0" = %7
  result "limit" = nan:f32
  state "layer.weight" = %6
  predicate "p0" = true:b1
}
"""


def test_print_of_parse_is_the_text() -> None:
    graph = parse_graph(TEXT)
    verify(graph)
    assert print_graph(graph) == TEXT


def test_parsed_graph_runs() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    w = np.ones((4, 3), np.float32)
    out, limit, new_w, held = parse_graph(TEXT).interpret(x, w, np.array(0.5))
    assert out.shape == (2, 4) and np.isnan(limit) and bool(held)
    np.testing.assert_array_equal(new_w, w * 0.5)


def test_comments_are_printed_and_ignored() -> None:
    graph = Graph("g")
    x = graph.add_input(TensorType(float32, (2,)), "x")
    graph.here = Origin(Source("train.py", 12, "step"), ("model", "softmax"), "fold")
    graph.add_output(graph.apply("exp", x))
    assert "%0 = exp(%x) : f32[2]  # train.py:12 model/softmax (fold)" in str(graph)
    assert print_graph(parse_graph(str(graph))) == print_graph(graph)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("op", [pytest.param(op, id=op.name) for op in OPS.values()])
def test_every_operator_prints_and_parses(op: Op) -> None:
    for case in samples_of(op):
        graph = Graph(op.name)
        operands = [graph.add_input(t, f"x{i}") for i, t in enumerate(case.types)]
        for value in graph.add(op, operands, case.attrs):
            graph.add_output(value)
        verify(graph)
        text = print_graph(graph)
        again = parse_graph(text)
        assert print_graph(again) == text
        for a, b in zip(graph.interpret(*case.arrays), again.interpret(*case.arrays), strict=True):
            assert a.tobytes() == b.tobytes()


def test_large_constants_are_kept_in_full_and_left_out_in_short() -> None:
    data = np.random.default_rng(0).standard_normal(100)
    graph = Graph("g")
    graph.add_output(graph.add_input(TensorType(float64, (100,)), "c", "constant", data))
    (back,) = parse_graph(print_graph(graph)).interpret()
    np.testing.assert_array_equal(back, data)
    short = parse_graph(str(graph))
    with pytest.raises(TypeError, match="no data"):
        short.interpret()


def test_equal_input_names_stay_apart() -> None:
    graph = Graph("g")
    for name in ("a.b", "a b", "a_b", "0"):
        graph.add_output(graph.add_input(TensorType(float32, ()), name))
    text = print_graph(graph)
    assert print_graph(parse_graph(text)) == text
    assert [i.name for i in parse_graph(text).inputs] == ["a.b", "a b", "a_b", "0"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("contract(", "contrakt(", "line 6: no operator 'contrakt'"),
        ("%0, %1)", "%0, %9)", "line 8: %9 is not defined above"),
        ("f32[2,4], i64[2,4]", "f32[2,4], i32[2,4]", "line 9: sort gives f32.2,4., i64.2,4., not f32.2,4., i32.2,4."),
        ("%3, %4 = sort", "%3 = sort", "line 9: 1 names for 2 results"),
        ("f64[] = host", "f65[] = host", "line 4: unknown element type 'f65'"),
        ("host", "guest", "line 4: unknown input role 'guest'"),
        ("}\n", "", "the text ends too early"),
        ("graph", "graff", "line 1: expected 'graph', found 'graff'"),
        ("%x: f32", "%x; f32", "line 2: unexpected ';'"),
    ],
)
def test_parse_errors_name_the_line(old: str, new: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_graph(TEXT.replace(old, new, 1) if old != "}\n" else TEXT[:-2])


def test_interpreter_refuses_wrong_arrays() -> None:
    graph = parse_graph(TEXT)
    with pytest.raises(TypeError, match="takes 3 arrays, got 1"):
        graph.interpret(np.zeros((2, 3), np.float32))
    w, lr = np.ones((4, 3), np.float32), np.array(1.0)
    with pytest.raises(TypeError, match=r"input 'x' is f32\[2,3\], got float64\[2, 3\]"):
        graph.interpret(np.zeros((2, 3)), w, lr)


def test_observer_sees_every_intermediate_and_dead_values_are_freed() -> None:
    graph = Graph("chain")
    value = graph.add_input(TensorType(float32, (4,)), "x")
    for name in ("exp", "neg", "exp"):
        value = graph.apply(name, value)
    graph.add_output(value)
    graph.apply("log", value)
    seen: list[tuple[str, float]] = []
    interpreter = Interpreter(graph)
    interpreter.run([np.zeros(4, np.float32)], lambda node, results: seen.append((node.op.name, float(results[0][0]))))
    assert [name for name, _ in seen] == ["exp", "neg", "exp"]
    assert seen[1][1] == -1.0
    dead = [[v.node.op.name if v.node else "input" for v in values] for values in interpreter.dead]
    assert dead == [["input"], ["exp"], ["neg"]]


def small() -> tuple[Graph, Node]:
    graph = Graph("small")
    x = graph.add_input(TensorType(float32, (2,)), "x")
    y = graph.apply("exp", x)
    graph.add_output(y)
    assert y.node is not None
    return graph, y.node


def test_verifier_accepts_a_good_graph_and_names_the_pass_of_a_bad_one() -> None:
    graph, node = small()
    verify(graph)
    node.outputs[0].type = TensorType(float32, (3,))
    with pytest.raises(VerifyError, match=r"after pass 'fuse'.*has type f32\[3\], should have f32\[2\]"):
        verify(graph, "fuse")


def test_verifier_finds_foreign_values_and_bad_attributes() -> None:
    graph, node = small()
    other, _ = small()
    node.inputs = (other.inputs[0].value,)
    with pytest.raises(VerifyError, match="operand 0 is not defined before it"):
        verify(graph)
    graph, node = small()
    node.attrs["axis"] = 1
    with pytest.raises(VerifyError, match=r"attributes \['axis'\], the operator has \[\]"):
        verify(graph)
    graph, _ = small()
    graph.add_output(other.inputs[0].value)
    with pytest.raises(VerifyError, match="output 'out1' is not a value of this graph"):
        verify(graph)


def test_verifier_checks_roles_and_constants() -> None:
    graph, _ = small()
    graph.add_output(graph.inputs[0].value, role="return")
    with pytest.raises(VerifyError, match="unknown role 'return'"):
        verify(graph)
    graph, _ = small()
    graph.add_input(TensorType(float32, (2,)), "c", "constant", np.zeros(2))
    with pytest.raises(VerifyError, match=r"constant 'c' is f32\[2\], its data float64"):
        verify(graph)


def test_verifier_checks_operands_again() -> None:
    graph, node = small()
    node.inputs[0].type = TensorType(int64, (2,))
    with pytest.raises(VerifyError, match=r"operands are refused: .*not implemented for 'Long'"):
        verify(graph)


def test_language_document_is_parsable() -> None:
    document = (Path(__file__).parents[2] / "docs" / "ir-language.md").read_text()
    example = next(block for block in document.split("```") if block.strip().startswith('graph "step"'))
    verify(parse_graph(example))


def test_interning_tells_signed_zeros_and_booleans_apart() -> None:
    graph = Graph("g")
    assert graph.scalar(0.0, float32) is not graph.scalar(-0.0, float32)
    assert graph.scalar(float("nan"), float32) is graph.scalar(float("nan"), float32)
    assert graph.scalar(True, bool_) is not graph.scalar(1, int64)

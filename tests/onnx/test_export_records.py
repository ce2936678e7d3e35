"""Every operator record is exported to ONNX, or is in the list of those without a form there, with the reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.samples import Case, samples_of
from tracecomp.ir.graph import Graph
from tracecomp.ir.op import OPS

onnx = pytest.importorskip("onnx")
ReferenceEvaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator
runtime = pytest.importorskip("onnxruntime")
from tracecomp.onnx import UnsupportedError  # noqa: E402
from tracecomp.onnx.export_rules import REFUSED, RULES, Emitter, missing, number_of  # noqa: E402

ACCURACY = {"float16": 4e-3, "float32": 4e-6, "float64": 1e-13}
ERF = 1e-6
"""The error of onnx's evaluator, which has float32 only."""
UNDEFINED = {
    ("prod", "i"): "products of integers that overflow wrap around here, and are cut off by onnxruntime",
    ("conv", "i"): "refused: ONNX has convolutions of floats only",
    ("conv_transpose", "i"): "the same",
    ("conv_weight", "i"): "the same",
}


def graph_of(case: Case) -> Graph:
    graph = Graph(case.op.name)
    operands = [graph.add_input(t, f"x{k}") for k, t in enumerate(case.types)]
    for value in graph.add(case.op, operands, case.attrs):
        graph.add_output(value)
    return graph


def model_of(graph: Graph, version: int = 20) -> Any:
    e = Emitter(version)
    names = [f"x{k}" for k in range(len(graph.inputs))]
    results = [e.node("Identity", [r]) for r in e.inline(graph, names)]
    told = onnx.helper.make_tensor_value_info
    inputs = [told(n, number_of(i.value.dtype), i.value.shape) for n, i in zip(names, graph.inputs, strict=True)]
    outputs = [told(n, number_of(o.value.dtype), o.value.shape) for n, o in zip(results, graph.outputs, strict=True)]
    made = onnx.helper.make_graph([*e.fixed, *e.nodes], graph.name, inputs, outputs)
    opsets = [onnx.helper.make_opsetid("", version)]
    model = onnx.helper.make_model(made, opset_imports=opsets, ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    return model


def run(model: Any, arrays: tuple[Any, ...]) -> list[Any]:
    """By onnxruntime; by onnx's own evaluator where it has no kernel for the types."""
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    given = {f"x{k}": a for k, a in enumerate(arrays)}
    try:
        session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no class that says this
        if "NOT_IMPLEMENTED" not in str(error):
            raise
        with np.errstate(all="ignore"):
            return [*ReferenceEvaluator(model).run(None, given)]
    return [*session.run(None, given)]


def close(found: Any, wanted: Any, name: str) -> bool:
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    if wanted.dtype.name not in ACCURACY:
        return bool(np.array_equal(found, wanted))
    by = ERF if name in ("erf", "erfc") else ACCURACY[wanted.dtype.name]
    return bool(np.allclose(found.astype(np.float64), wanted.astype(np.float64), by, by, equal_nan=True))


def test_every_record_has_a_rule_or_a_reason() -> None:
    assert OPS.keys() == RULES.keys() | REFUSED.keys() and not RULES.keys() & REFUSED.keys()
    assert all(REFUSED.values())


@pytest.mark.parametrize("name", sorted(RULES.keys() - {"random_bits"}))
def test_onnxruntime_computes_what_the_record_means(name: str) -> None:
    tried = 0
    for case in samples_of(OPS[name]):
        graph = graph_of(case)
        kind = graph.outputs[0].value.dtype.numpy.kind
        evaluates_wrong = name == "conv_transpose" and graph.outputs[0].value.dtype.name != "float32"  # onnx's own
        if missing(graph) or (name, kind) in UNDEFINED or evaluates_wrong:
            continue
        found = run(model_of(graph), case.arrays)
        for got, wanted in zip(found, graph.interpret(*case.arrays), strict=True):
            assert close(np.asarray(got), wanted, name), (str(case), got, wanted)
        tried += 1
    assert tried


@pytest.mark.parametrize("version", [11, 13, 15, 17, 24])
def test_older_and_newer_versions_of_the_operators_mean_the_same(version: int) -> None:
    """The first sample of each record; what a version has no operator for is refused."""
    refused = set()
    for name in sorted(RULES.keys() - {"random_bits"}):
        case = next(c for c in samples_of(OPS[name]))
        graph = graph_of(case)
        if missing(graph) or (name, graph.outputs[0].value.dtype.numpy.kind) in UNDEFINED:
            continue
        try:
            model = model_of(graph, version)
        except (UnsupportedError, onnx.shape_inference.InferenceError):
            refused.add(name)
            continue
        for got, wanted in zip(run(model, case.arrays), graph.interpret(*case.arrays), strict=True):
            assert close(np.asarray(got), wanted, name), (str(case), got, wanted)
    bits = {"bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "shift_right"}
    assert refused <= (set() if version > 17 else {*bits, "fold", "scatter", "searchsorted"})


def test_random_bits_are_uniform_and_those_of_two_nodes_differ() -> None:
    graph = Graph("random")
    for k in range(2):
        state = graph.add_input(samples_state().type, f"state{k}")
        graph.add_output(graph.apply("random_bits", state, shape=(4, 5000)))
    a, b = run(model_of(graph), (np.zeros(2, np.int64), np.zeros(2, np.int64)))
    assert a.dtype == np.int32 and a.shape == (4, 5000) and (a == b).mean() < 0.01
    for bit in range(32):
        assert abs((a >> bit & 1).mean() - 0.5) < 0.02


def samples_state() -> Any:
    return Graph("state").add_input(next(iter(samples_of(OPS["random_bits"]))).types[0], "state")

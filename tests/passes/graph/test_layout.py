"""Layout: convolutions through every pass, channels-last chains, dead results of scans."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp as tc
from tests.passes.cases import samples
from tests.references import by_numpy
from tracecomp import ops
from tracecomp.base import config
from tracecomp.base.dump import Dump
from tracecomp.ir.graph import Graph, Value
from tracecomp.ir.interpret import interpret
from tracecomp.ir.op import OPS
from tracecomp.ir.types import TensorType, float32, float64
from tracecomp.passes import pipeline
from tracecomp.passes.graph import axis_orders, dead_code, layout
from tracecomp.passes.steps import Log, Stage

assert ops

ONE: dict[str, Any] = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}


def run_all(graph: Graph) -> list[Stage[Graph]]:
    """Every pass, verified, each stage computing what the recorded graph computes."""
    [arrays] = samples([i.value.type for i in graph.inputs], special=False)
    want = interpret(graph, arrays)
    with config.override(verify=True):
        stages = pipeline.run(graph, Dump("t"))
    for stage in stages[1:]:
        for have, expected in zip(interpret(stage.state, arrays), want, strict=True):
            np.testing.assert_allclose(have, expected, rtol=1e-9, atol=1e-9, err_msg=stage.name)
    return stages


@pytest.mark.parametrize("name", ["conv", "conv_transpose", "conv_weight"])
def test_convolution_samples(name: str) -> None:
    op = OPS[name]
    for sample in op.samples:
        if sample.args[0][1] == "f64":
            graph = Graph()
            types = [TensorType(float64, shape) for shape, _, _ in sample.args]
            values = [graph.add_input(t, f"x{n}") for n, t in enumerate(types)]
            graph.add_output(graph.add(op, values, sample.attrs)[0])
            final = run_all(graph)[-1].state
            assert not {"conv", "conv_transpose", "conv_weight"} & {n.op.name for n in final.live_nodes()}


def network(channels: int, size: int) -> Graph:
    """Two convolutions with bias, relu and pooling between, the gradients of the second, and a flat result."""
    graph = Graph()

    def given(name: str, *shape: int) -> Value:
        return graph.add_input(TensorType(float64, shape), name)

    x, w1 = given("x", 4, 3, size, size), given("w1", channels, 3, 3, 3)
    w2, bias = given("w2", channels, channels, 3, 3), given("bias", channels)
    zero = graph.scalar(0.0, float64)
    y = graph.apply("add", graph.apply("conv", x, w1, **ONE), graph.apply("reshape", bias, shape=(channels, 1, 1)))
    y = graph.apply("windows", graph.apply("maximum", y, zero), sizes=(2, 2), strides=(2, 2), dilations=(1, 1))
    y = graph.apply("max", y, axes=(4, 5))
    z = graph.apply("maximum", graph.apply("conv", y, w2, **ONE), zero)
    graph.add_output(graph.apply("reshape", z, shape=(4, channels * (size // 2) ** 2)))
    graph.add_output(graph.apply("conv_weight", y, z, kernel=(3, 3), **ONE))
    back = graph.apply("conv_transpose", z, w2, size=y.shape[2:], **ONE)
    graph.add_output(graph.apply("sum", back, axes=(0, 2, 3)))
    wide = graph.apply("expand", graph.apply("reshape", back, shape=(*back.shape, 1, 1)), shape=(*back.shape, 2, 2))
    folded = graph.apply("fold", wide, shape=(4, channels, size, size), sizes=(2, 2), strides=(2, 2), dilations=(1, 1))
    graph.add_output(graph.apply("concat", folded, graph.apply("flip", folded, axes=(1,)), axis=1))
    return graph


def test_channels_last_through_a_network() -> None:
    stages = run_all(network(64, 12))
    [choice] = next(s for s in stages if s.name == "layout").log.choices
    assert choice.chosen == "channels last" and "cycles" in choice.reason
    contractions = [n for n in stages[-1].state.live_nodes() if n.op.name == "contract"]
    assert len(contractions) == 4
    assert all(n.outputs[0].shape[-1] == 64 for n in contractions)


def test_channels_first_where_turning_costs_more() -> None:
    graph = Graph()
    x = graph.add_input(TensorType(float32, (8, 4, 64, 64)), "x")
    w = graph.add_input(TensorType(float32, (4, 4, 3, 3)), "w")
    graph.add_output(graph.apply("conv", x, w, **ONE))
    log = Log()
    padded = next(s for s in pipeline.run(graph, Dump("t")) if s.name == "decompose").state
    layout.plan(padded, log)
    assert [c.chosen for c in log.choices] == ["channels first"]


def test_data_that_lie_channels_last_are_not_turned() -> None:
    graph = Graph()
    x = graph.add_input(TensorType(float64, (2, 12, 12, 32)), "x")
    w = graph.add_input(TensorType(float64, (32, 1, 3, 3)), "w")
    y = graph.apply("conv", graph.apply("permute", x, dims=(0, 3, 1, 2)), w, **{**ONE, "groups": 32})
    graph.add_output(graph.apply("permute", y, dims=(0, 2, 3, 1)))
    [choice] = next(s for s in run_all(graph) if s.name == "layout").log.choices
    assert choice.chosen == "channels last" and choice.reason.endswith("costs about 0")


@pytest.mark.parametrize("groups", [64, 1])
def test_gradients_of_depthwise_weights_run_over_channels(groups: int) -> None:
    """With channels first each channel is a chain of additions; that costs more than transposing the images."""
    graph = Graph()
    x, g = (graph.add_input(TensorType(float32, (4, 64, n, n)), name) for name, n in (("x", 26), ("g", 24)))
    attrs = {**ONE, "padding": ((0, 0), (0, 0)), "kernel": (3, 3), "groups": groups}
    graph.add_output(graph.apply("conv_weight", x, g, **attrs))
    log = Log()
    layout.plan(graph, log)
    assert [c.chosen for c in log.choices] == ["channels last"]


def test_an_axis_of_one_place_stands_behind_the_axis_before_it() -> None:
    last = axis_orders.channels_last(4)
    assert axis_orders.reshaped((2, 8, 5, 6), (2, 8, 5, 6, 1), last) == (0, 2, 3, 4, 1)
    assert axis_orders.reshaped((2, 8, 5, 6), (2, 8, 5, 1, 6), last) == (0, 2, 3, 4, 1)
    assert axis_orders.reshaped((2, 8, 5, 6), (1, 2, 8, 5, 6), last) == (0, 1, 3, 4, 2)


def test_sums_of_channels_read_them_as_they_are_kept() -> None:
    """As in batch normalization: the operand of the sum is not transposed."""
    graph = Graph()
    x = graph.add_input(TensorType(float64, (4, 64, 16, 16)), "x")
    w = graph.add_input(TensorType(float64, (64, 64, 3, 3)), "w")
    y = graph.apply("conv", x, w, **ONE)
    for value in (y, graph.apply("mul", y, y), graph.apply("neg", y)):
        graph.add_output(graph.apply("sum", value, axes=(0, 2, 3)))
    [choice] = next(s for s in run_all(graph) if s.name == "layout").log.choices
    assert choice.chosen == "channels last"


def scan_graph() -> Graph:
    """A scan of which one stacked result is read, and whose body ignores an operand."""
    body = Graph("body")
    row = TensorType(float64, (3,))
    carry, x, unused = (body.add_input(row, name) for name in ("carry", "x", "unused"))
    total = body.apply("add", carry, x)
    for value in (total, body.apply("exp", total), body.apply("neg", total)):
        body.add_output(value)
    assert unused.node is None
    graph = Graph()
    start, xs = graph.add_input(row, "start"), graph.add_input(TensorType(float64, (5, 3)), "xs")
    other = graph.add_input(row, "other")
    attrs = {"body": body, "carries": 1, "xs": 1, "length": 5, "reverse": False}
    last, _, negated = graph.add(OPS["scan"], (start, xs, other), attrs)
    graph.add_output(graph.apply("mul", last, last))
    graph.add_output(negated)
    return graph


def total_graph() -> Graph:
    """A scan that adds up products of rows, reads a constant at every step, and goes backwards."""
    body = Graph("body")
    row, square = TensorType(float64, (2, 3)), TensorType(float64, (3, 3))
    state, total, bias, x, zero = (
        body.add_input(t, name) for t, name in ((row, "state"), (square, "total"), (TensorType(float64, (3,)), "bias"),
                                                (row, "x"), (row, "zero"))
    )  # fmt: skip
    new = body.apply("sub", body.apply("add", body.apply("mul", state, x), zero), state)
    body.add_output(new)
    body.add_output(body.apply("add", total, body.apply("contract", new, x, spec="bi,bj->ij")))
    body.add_output(body.apply("add", body.apply("sum", new, axes=(0,)), bias))
    body.add_output(new)
    graph = Graph()
    types = (row, square, TensorType(float64, (3,)), TensorType(float64, (4, 2, 3)))
    starts = [graph.add_input(t, f"x{n}") for n, t in enumerate(types)]
    zeros = graph.apply("full", value=0.0, shape=(4, 2, 3), dtype=float64)
    attrs = {"body": body, "carries": 3, "xs": 2, "length": 4, "reverse": True}
    for value in graph.add(OPS["scan"], (*starts, zeros), attrs):
        graph.add_output(value)
    return graph


def test_sums_over_the_steps_of_a_scan_leave_it() -> None:
    stages = {s.name: s for s in run_all(total_graph())}
    assert stages["constant_folding"].log.hits["scan_of_constants"] == 1
    assert stages["scan_accumulators"].log.hits["sum_over_steps"] == 2
    [scan] = [n for n in stages["scan_accumulators"].state.live_nodes() if n.op.name == "scan"]
    assert scan.attrs["carries"] == 1 and scan.attrs["xs"] == 1
    assert "contract" not in {n.op.name for n in scan.attrs["body"].nodes}


def test_unread_results_of_scan_are_dropped() -> None:
    graph, log = scan_graph(), Log()
    after = dead_code.remove_dead_code(graph, log)
    [scan] = [n for n in after.live_nodes() if n.op.name == "scan"]
    assert len(scan.outputs) == 2 and len(scan.inputs) == 2
    assert "exp" not in {n.op.name for n in scan.attrs["body"].nodes}
    assert log.hits == {"unread_scan_results": 1, "unread_scan_operands": 1}
    run_all(graph)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_along_three_axes(groups: int) -> None:
    """Their results compiled, with channels last and without, are numpy's."""
    x, w = tc.randn(2, 16, 6, 7, 8), tc.randn(32, 16 // groups, 3, 3, 3)

    def f(x: Any, w: Any) -> Any:
        return tc.nn.functional.conv3d(x, w, padding=1, groups=groups).relu()

    compiled = tc.compile(f)
    for _ in range(2):
        assert tc.allclose(compiled(x, w), by_numpy(f)(x, w), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("name", ["concat", "pad", "flip", "max", "sum"])
def test_operators_between_convolutions_keep_their_axis(name: str, axis: int) -> None:
    """The data of two convolutions have channels last; an operator between them works along the axis that it names."""
    graph = Graph()
    x = graph.add_input(TensorType(float64, (2, 64, 8, 8)), "x")
    y = graph.apply("conv", x, graph.add_input(TensorType(float64, (64, 64, 3, 3)), "w1"), **ONE)
    one = tuple(int(d == axis) for d in range(4))
    if name == "concat":
        y = graph.apply("concat", y, graph.apply("exp", y), axis=axis)
    elif name == "pad":
        y = graph.apply("pad", y, low=one, high=tuple(2 * n for n in one), interior=(0,) * 4, value=1.5)
    elif name == "flip":
        y = graph.apply("flip", y, axes=(axis,))
    else:
        total = graph.apply(
            "reshape",
            graph.apply(name, y, axes=(axis,)),
            shape=tuple(1 if n else s for n, s in zip(one, y.shape, strict=True)),
        )
        y = graph.apply("sub", y, graph.apply("expand", total, shape=y.shape))
    w2 = graph.add_input(TensorType(float64, (64, y.shape[1], 3, 3)), "w2")
    graph.add_output(graph.apply("conv", y, w2, **ONE))
    [choice] = next(s for s in run_all(graph) if s.name == "layout").log.choices
    assert choice.chosen == "channels last"

"""The meaning of ONNX's operators where libraries differ or samples are rare: each case is worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tracecomp as torch

onnx = pytest.importorskip("onnx")
from tracecomp.onnx import load  # noqa: E402 - after the package that it needs

H, P = onnx.helper, onnx.TensorProto
f32, i64 = np.float32, np.int64


def run(op: str, *inputs: Any, opset: int = 21, outputs: int = 1, fixed: Sequence[int] = (), **attributes: Any) -> Any:
    """The results of one operator; inputs with numbers in ``fixed`` are constants of the model."""
    given = {f"x{k}": np.asarray(a) for k, a in enumerate(inputs) if a is not None}
    names = ["" if a is None else f"x{k}" for k, a in enumerate(inputs)]
    made = H.make_node(op, names, [f"y{k}" for k in range(outputs)], **attributes)
    weights = [onnx.numpy_helper.from_array(a, n) for n, a in given.items() if int(n[1:]) in fixed]
    free = {n: a for n, a in given.items() if int(n[1:]) not in fixed}
    kinds = [H.make_tensor_value_info(n, H.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in free.items()]
    graph = H.make_graph([made], op, kinds, [onnx.ValueInfoProto(name=o) for o in made.output], weights)
    model = H.make_model(graph, opset_imports=[H.make_opsetid("", opset)])
    found = load(model)(*map(torch.from_numpy, free.values()))
    arrays = [t.detach().numpy() for t in (found if isinstance(found, tuple) else (found,))]
    return arrays if outputs > 1 else arrays[0]


def row(*values: float, dtype: Any = f32) -> Any:
    return np.array(values, dtype)


def test_whole_numbers_are_resized_by_weights_and_cut_off() -> None:
    """The weights were whole numbers too, and all but those of the corners were 0."""
    x, scales = row(0, 10, 20, dtype=np.uint8)[None, None], row(1, 1, 2)
    for dtype in (np.uint8, np.int32):
        found = run("Resize", x.astype(dtype), None, scales, fixed=[2], mode="linear")
        assert found.dtype == dtype and found.tolist() == [[[0, 2, 7, 12, 17, 20]]]


def test_sizes_and_places_are_computed_in_float32() -> None:
    x = np.arange(20, dtype=f32)[None, None]
    assert run("Resize", x, None, row(1, 1, 2.1), fixed=[2]).shape == (1, 1, 42)  # 41.99... in float64
    kept = run("Resize", x[..., :3], None, row(1, 1, 1.3), fixed=[2])  # as long as before, and yet other places
    assert kept.tolist() == [[[0, 1, 1]]]
    assert run("Resize", x[..., :4], row(1, 1, 0.6), opset=10, fixed=[1]).tolist() == [
        [[0, 2]]
    ]  # its document's example


def test_pads_that_cut_come_before_those_that_wrap() -> None:
    x = row(1, 2, 3)
    assert run("Pad", x, row(-1, 1, dtype=i64), fixed=[1], mode="wrap").tolist() == [2, 3, 2]
    assert run("Pad", x, row(-1, 1, dtype=i64), fixed=[1], mode="reflect").tolist() == [2, 3, 2]
    assert run("Pad", x, row(0, -2, dtype=i64), fixed=[1], mode="edge").tolist() == [1]


def test_quantised_products_have_scales_and_zeros_for_each_row_of_the_first_operand() -> None:
    a, b = np.array([[1, 2], [3, 4]], np.uint8), np.array([[1, 0, 1], [0, 1, 1]], np.uint8)
    found = run("QLinearMatMul", a, row(1, 10), row(0, 1, dtype=np.uint8), b, f32(1), np.uint8(0), f32(1), np.uint8(0))
    assert found.tolist() == [[1, 2, 3], [20, 30, 50]]


def test_zeros_are_quantised_with_a_scale_of_one() -> None:
    y, scale, zero = run("DynamicQuantizeLinear", np.zeros(3, f32), outputs=3)
    assert y.tolist() == [0, 0, 0] and scale == 1 and zero == 0


def test_a_tie_at_the_end_of_float8_is_rounded_to_even() -> None:
    x = row(448, 464, 465, -464)
    small = H.make_node("Cast", ["x"], ["s"], to=P.FLOAT8E4M3FN, saturate=0)
    graph = H.make_graph(
        [small, H.make_node("Cast", ["s"], ["y"], to=P.FLOAT)], "g", [H.make_tensor_value_info("x", P.FLOAT, [4])],
        [H.make_tensor_value_info("y", P.FLOAT, [4])],
    )  # fmt: skip
    found = load(H.make_model(graph, opset_imports=[H.make_opsetid("", 19)]))(torch.from_numpy(x)).numpy()
    assert np.array_equal(found, row(448, 448, np.nan, -448), equal_nan=True)


def test_arrays_without_elements() -> None:
    empty = np.zeros((2, 0), f32)
    assert run("Hardmax", empty).shape == (2, 0)
    assert run("CumSum", empty, i64(1), fixed=[1], exclusive=1).shape == (2, 0)
    assert run("CumSum", empty, i64(0), fixed=[1], exclusive=1, reverse=1).shape == (2, 0)
    logs = run("ReduceLogSum", row(1, 8, dtype=np.int32), np.zeros(0, i64), fixed=[1], noop_with_empty_axes=1)
    assert logs.dtype == np.int32 and logs.tolist() == [0, 2]


def test_what_is_not_added_makes_no_nan() -> None:
    assert run("Gemm", np.ones((2, 2), f32), np.ones((2, 2), f32), row(np.nan, 1), beta=0.0).tolist() == [
        [2, 2],
        [2, 2],
    ]


def test_normalization_of_single_elements_and_of_every_element_for_itself() -> None:
    assert (
        run("InstanceNormalization", np.ones((2, 3, 1), f32) * 5, row(1, 2, 3), row(4, 5, 6)).tolist()
        == [[[4], [5], [6]]] * 2
    )
    x = np.arange(4, dtype=f32).reshape(1, 2, 2)
    ones, zeros = np.ones((2, 2), f32), np.zeros((2, 2), f32)
    found = run("BatchNormalization", x, ones, zeros, x[0], ones, opset=7, spatial=0, epsilon=0.0)
    assert found.tolist() == zeros[None].tolist()


def test_a_loop_that_does_not_turn_gives_rows_of_the_type_that_it_says() -> None:
    info = H.make_tensor_value_info
    body = H.make_graph(
        [H.make_node("Identity", ["go"], ["on"]), H.make_node("Identity", ["h"], ["h2"]),
         H.make_node("Shape", ["h"], ["seen"])],
        "body", [info("i", P.INT64, []), info("go", P.BOOL, []), info("h", P.FLOAT, [2, 3])],
        [info("on", P.BOOL, []), info("h2", P.FLOAT, [2, 3]), info("seen", P.INT64, [2])],
    )  # fmt: skip
    count = onnx.numpy_helper.from_array(np.array(0), "count")
    graph = H.make_graph(
        [H.make_node("Loop", ["count", "", "x"], ["y", "rows"], body=body)], "g", [info("x", P.FLOAT, [2, 3])],
        [info("y", P.FLOAT, [2, 3]), info("rows", P.INT64, None)], [count],
    )  # fmt: skip
    y, rows = load(H.make_model(graph, opset_imports=[H.make_opsetid("", 21)]))(torch.ones(2, 3))
    assert torch.equal(y, torch.ones(2, 3)) and np.asarray(rows).shape == (0, 2) and np.asarray(rows).dtype == i64

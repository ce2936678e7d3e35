"""Numbers in JSON: values keep, or are refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tracecomp.serve.errors import InvalidRequest
from tracecomp.serve.json_tensors import to_json, to_numbers, to_tensor
from tracecomp.serve.tensors import ITEM_BYTES, NUMPY_NAMES, TensorData, of_array, of_texts


@pytest.mark.parametrize("datatype", sorted(NUMPY_NAMES))
def test_every_bit_survives(datatype: str) -> None:
    data = np.random.default_rng(0).integers(0, 2 if datatype == "BOOL" else 256, 64 * 8, np.uint8).tobytes()
    tensor = TensorData("x", datatype, (len(data) // ITEM_BYTES[datatype],), data)
    told = json.loads(to_json(to_numbers(tensor)))
    again = to_tensor("x", datatype, tensor.shape, told).array()
    with np.errstate(invalid="ignore"):  # signalling NaNs
        assert np.array_equal(again, tensor.array(), equal_nan="F" in datatype)


@pytest.mark.parametrize(
    ("datatype", "data"),
    [
        ("INT8", [128]), ("INT8", [1.0]), ("UINT8", [-1]), ("UINT64", [-1]), ("UINT64", [2**64]), ("INT64", [2**63]),
        ("INT32", [True]), ("INT32", ["1"]), ("BOOL", [1]), ("FP32", [1e300]), ("FP16", [70000]), ("FP32", ["1.5"]),
        ("FP32", [None]), ("FP32", [True]), ("FP32", [[1], [2, 3]]), ("FP32", 1), ("FP32", {"a": 1}), ("FP32", [{}]),
        ("FP32", [1, 2]), ("FP32", []), ("BYTES", [1]), ("BYTES", ["\ud800"]), ("BYTES", ["a", "b"]), ("X", [1]),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_are_refused(datatype: str, data: object) -> None:
    with pytest.raises(InvalidRequest):
        to_tensor("x", datatype, (1,), data)


def test_lists_are_flat_or_nested_as_the_shape() -> None:
    for data in ([1, 2, 3, 4], [[1, 2], [3, 4]]):
        assert to_tensor("x", "FP32", (2, 2), data).array().tolist() == [[1, 2], [3, 4]]
    with pytest.raises(InvalidRequest, match="has shape"):
        to_tensor("x", "FP32", (4, 1), [[1, 2], [3, 4]])
    with pytest.raises(InvalidRequest, match="negative"):
        to_tensor("x", "FP32", (-1,), [])


def test_numbers_that_json_lacks_are_text() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1.5], np.float32)
    told = json.loads(to_json(to_numbers(of_array("x", x))))
    assert told == ["NaN", "Infinity", "-Infinity", 1.5]
    assert to_tensor("x", "FP32", (4,), told).array().tobytes() == x.tobytes()


def test_byte_strings() -> None:
    texts = [b"", "\u00e4\u4e2d\0".encode(), bytes(1000)]
    tensor = of_texts("x", (3,), texts)
    assert tensor.texts() == texts
    assert to_tensor("x", "BYTES", (3,), to_numbers(tensor)) == tensor
    with pytest.raises(InvalidRequest, match="not UTF-8"):
        to_numbers(of_texts("x", (1,), [b"\xff"]))


@pytest.mark.parametrize("data", ["", "0100", "01000000", "0100000041ff", "ffffffff41", "0000000000000000"])
def test_bytes_that_are_not_one_byte_string(data: str) -> None:
    with pytest.raises(InvalidRequest):
        TensorData("x", "BYTES", (1,), bytes.fromhex(data))

"""Tensors as JSON numbers, in both directions, without silent changes of values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracecomp.serve.errors import InvalidRequest
from tracecomp.serve.tensors import NUMPY_NAMES, Array, TensorData, array_bytes, byte_count
from tracecomp_runtime.tensors import dtype_of

_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""JSON has no such numbers; they are strings, as in the JSON form of protocol buffers."""
_FLOATS = ("FP16", "BF16", "FP32", "FP64")


def to_tensor(name: str, datatype: str, shape: tuple[int, ...], data: object) -> TensorData:
    """The tensor of a JSON list, flat or nested. InvalidRequest where a value does not fit the datatype exactly.

    Only floats may be rounded: to the nearest value of the datatype.
    """
    byte_count(name, datatype, shape)
    values = _values(name, data)
    if values.shape not in (shape, (math.prod(shape),)):
        raise InvalidRequest(f"input {name!r}: 'data' has shape {[*values.shape]}, 'shape' is {[*shape]}")
    array = _converted(name, datatype, _with_text(name, data) if values.dtype.kind == "U" else values)
    return TensorData(name, datatype, shape, array_bytes(array))


def to_numbers(tensor: TensorData) -> list[Any]:
    """The elements of a tensor in row-major order, as JSON has them."""
    array = tensor.array().reshape(-1)
    if tensor.datatype in _FLOATS:
        array = array.astype(np.float64)  # exact; JSON's numbers are read as such
        if not np.isfinite(array).all():
            return [x if math.isfinite(x) else _told(x) for x in array.tolist()]
    numbers: list[Any] = array.tolist()
    return numbers


def _told(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _values(name: str, data: object) -> Array:
    if not isinstance(data, list):
        raise InvalidRequest(f"input {name!r}: 'data' must be a list")
    try:
        return np.array(data)
    except (ValueError, OverflowError, RecursionError):
        raise InvalidRequest(f"input {name!r}: the lists of 'data' differ in length or depth") from None


def _converted(name: str, datatype: str, values: Array) -> Array:
    """``values`` in the datatype's numpy dtype; InvalidRequest unless all fit."""
    dtype = dtype_of(NUMPY_NAMES[datatype])
    if values.size == 0:
        return values.astype(dtype)
    if datatype in _FLOATS:
        return _floats(name, datatype, values, dtype)
    wanted = "b" if datatype == "BOOL" else "iu"
    if values.dtype.kind not in wanted:
        raise InvalidRequest(f"input {name!r}: 'data' must hold {'booleans' if wanted == 'b' else 'integers'}")
    converted = values.astype(dtype)
    if wanted == "iu" and ((converted != values).any() or ((converted < 0) != (values < 0)).any()):
        raise InvalidRequest(f"input {name!r}: a value is outside the range of {datatype}")
    return converted


def _floats(name: str, datatype: str, values: Array, dtype: np.dtype[Any]) -> Array:
    if values.dtype.kind not in "iuf":
        raise InvalidRequest(f"input {name!r}: 'data' must hold numbers")
    with np.errstate(over="ignore"):
        converted = values.astype(dtype)
    if (np.isinf(converted.astype(np.float64)) & np.isfinite(values)).any():
        raise InvalidRequest(f"input {name!r}: a value is outside the range of {datatype}")
    return converted


def _with_text(name: str, data: object) -> Array:
    """Numbers among which are the names of infinities and NaN."""
    values = np.array(data, object)
    found = [_NOT_FINITE.get(x) if isinstance(x, str) else x for x in values.reshape(-1).tolist()]
    if any(isinstance(x, bool) or not isinstance(x, int | float) for x in found):
        raise InvalidRequest(f"input {name!r}: 'data' must hold numbers, 'NaN', 'Infinity' or '-Infinity'")
    return np.array(found, np.float64).reshape(values.shape)

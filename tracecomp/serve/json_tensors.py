"""Tensors as JSON numbers, in both directions, without silent changes of values."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from tracecomp.serve.errors import InvalidRequest
from tracecomp.serve.tensors import NUMPY_NAMES, TEXT, Array, TensorData, array_bytes, byte_count, of_texts
from tracecomp_runtime.tensors import dtype_of

Json: TypeAlias = Any
"""A value that JSON has."""
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""JSON has no such numbers; they are strings, as in the JSON form of protocol buffers."""
_FLOATS = ("FP16", "BF16", "FP32", "FP64")


def to_tensor(name: str, datatype: str, shape: tuple[int, ...], data: object) -> TensorData:
    """The tensor of a JSON list, flat or nested. InvalidRequest where a value does not fit the datatype.

    Only floats may be rounded, as in C: to the nearest double, then to the nearest value of the datatype.
    """
    byte_count(name, datatype, shape)
    if not isinstance(data, list):
        raise InvalidRequest(f"input {name!r}: 'data' must be a list")
    try:
        values = np.array(data, object)
    except (ValueError, RecursionError):
        raise InvalidRequest(f"input {name!r}: the lists of 'data' differ in length or depth") from None
    if values.shape not in (shape, (math.prod(shape),)):
        raise InvalidRequest(f"input {name!r}: 'data' has shape {[*values.shape]}, 'shape' is {[*shape]}")
    if datatype == TEXT:
        return of_texts(name, shape, _encoded(name, values.reshape(-1).tolist()))
    array = _converted(name, datatype, values.reshape(-1).tolist())
    return TensorData(name, datatype, shape, array_bytes(array))


def to_numbers(tensor: TensorData) -> list[Any]:
    """The elements of a tensor in row-major order, as JSON has them. InvalidRequest for bytes that are not UTF-8."""
    if tensor.datatype == TEXT:
        try:
            return [text.decode() for text in tensor.texts()]
        except UnicodeDecodeError:
            told = f"output {tensor.name!r} is not UTF-8; ask for binary_data"
            raise InvalidRequest(told) from None
    array = tensor.array().reshape(-1)
    if tensor.datatype in _FLOATS:
        with np.errstate(invalid="ignore"):  # signalling NaNs
            array = array.astype(np.float64)  # exact; JSON's numbers are read as such
        if not np.isfinite(array).all():
            return [x if math.isfinite(x) else _told(x) for x in array.tolist()]
    numbers: list[Any] = array.tolist()
    return numbers


def _encoded(name: str, values: list[Json]) -> list[bytes]:
    try:
        return [value.encode() for value in values]
    except (AttributeError, UnicodeEncodeError):
        raise InvalidRequest(f"input {name!r}: 'data' must hold text") from None


def _told(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _converted(name: str, datatype: str, values: list[Json]) -> Array:
    """``values`` in the datatype's numpy dtype; InvalidRequest unless all fit."""
    dtype, kinds = dtype_of(NUMPY_NAMES[datatype]), {*map(type, values)}
    if datatype in _FLOATS and str in kinds:
        values = [_NOT_FINITE.get(x, x) if type(x) is str else x for x in values]
        kinds = {*map(type, values)}
    wanted, text = (
        ({bool}, "booleans") if datatype == "BOOL" else
        ({int, float}, "numbers, 'NaN', 'Infinity' or '-Infinity'") if datatype in _FLOATS else ({int}, "integers")
    )  # fmt: skip
    if not kinds <= wanted:
        raise InvalidRequest(f"input {name!r}: 'data' must hold {text}")
    try:
        if datatype not in _FLOATS:
            return np.array(values, dtype)  # OverflowError for an integer that does not fit
        doubles = np.array(values, np.float64)
        with np.errstate(over="ignore"):
            converted = doubles.astype(dtype)
        if (np.isinf(converted.astype(np.float64)) & np.isfinite(doubles)).any():
            raise OverflowError
    except OverflowError:
        raise InvalidRequest(f"input {name!r}: a value is outside the range of {datatype}") from None
    return converted

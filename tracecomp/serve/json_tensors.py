"""Tensors as JSON numbers, in both directions, without silent changes of values."""

from __future__ import annotations

import math
import struct
from typing import Any, TypeAlias

import numpy as np
import pydantic_core

from tracecomp.serve.errors import InvalidRequest
from tracecomp.serve.tensors import TEXT, Buffer, TensorData, array_bytes, byte_count, of_texts
from tracecomp_runtime.tensors import dtype_of

Json: TypeAlias = Any
"""A value that JSON has."""
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_FORMATS = {
    "BOOL": "?", "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q", "INT8": "b", "INT16": "h", "INT32": "i",
    "INT64": "q", "FP16": "e", "FP32": "f", "FP64": "d",
}  # fmt: skip
"""Formats of module struct, which refuses what does not fit, and is faster than an array for short lists."""
_FLOATS = ("FP16", "BF16", "FP32", "FP64")


def to_tensor(name: str, datatype: str, shape: tuple[int, ...], data: object) -> TensorData:
    """The tensor of a JSON list, flat or nested. InvalidRequest where a value does not fit the datatype.

    Only floats may be rounded, as in C: to the nearest double, then to the nearest value of the datatype.
    """
    byte_count(name, datatype, shape)
    if not isinstance(data, list):
        raise InvalidRequest(f"input {name!r}: 'data' must be a list")
    values, kinds = data, {*map(type, data)}
    if list in kinds or len(values) != math.prod(shape):
        values = _flat(name, shape, data)
        kinds = {*map(type, values)}
    if datatype == TEXT:
        return of_texts(name, shape, _encoded(name, values))
    return TensorData(name, datatype, shape, _bytes(name, datatype, values, kinds))


def _flat(name: str, shape: tuple[int, ...], data: list[Json]) -> list[Json]:
    """The elements of nested lists."""
    try:
        values = np.array(data, object)
    except (ValueError, RecursionError):
        raise InvalidRequest(f"input {name!r}: the lists of 'data' differ in length or depth") from None
    if values.shape not in (shape, (math.prod(shape),)):
        raise InvalidRequest(f"input {name!r}: 'data' has shape {[*values.shape]}, 'shape' is {[*shape]}")
    flat: list[Json] = values.reshape(-1).tolist()
    return flat


def to_numbers(tensor: TensorData) -> list[Any]:
    """The elements of a tensor in row-major order, as JSON has them. InvalidRequest for bytes that are not UTF-8."""
    if tensor.datatype == TEXT:
        try:
            return [text.decode() for text in tensor.texts()]
        except UnicodeDecodeError:
            told = f"output {tensor.name!r} is not UTF-8; ask for binary_data"
            raise InvalidRequest(told) from None
    array = tensor.array().reshape(-1)
    if tensor.datatype == "BF16":
        with np.errstate(invalid="ignore"):  # signalling NaNs
            array = array.astype(np.float64)
    numbers: list[Any] = array.tolist()
    return numbers


def to_json(value: Json) -> bytes:
    """JSON text. Numbers that JSON lacks are strings, as in the JSON form of protocol buffers."""
    text: bytes = pydantic_core.to_json(value, inf_nan_mode="strings")
    return text


def _encoded(name: str, values: list[Json]) -> list[bytes]:
    try:
        return [value.encode() for value in values]
    except (AttributeError, UnicodeEncodeError):
        raise InvalidRequest(f"input {name!r}: 'data' must hold text") from None


def _bytes(name: str, datatype: str, values: list[Json], kinds: set[type]) -> Buffer:
    """The bytes of ``values``, which have these ``kinds``; InvalidRequest unless all fit the datatype."""
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
        return _bfloat16(values) if datatype == "BF16" else struct.pack(f"<{len(values)}{_FORMATS[datatype]}", *values)
    except (OverflowError, struct.error):
        raise InvalidRequest(f"input {name!r}: a value is outside the range of {datatype}") from None


def _bfloat16(values: list[float]) -> Buffer:
    doubles = np.array(values, np.float64)
    with np.errstate(over="ignore"):
        converted = doubles.astype(dtype_of("bfloat16"))
    if (np.isinf(converted.astype(np.float64)) & np.isfinite(doubles)).any():
        raise OverflowError
    return array_bytes(converted)

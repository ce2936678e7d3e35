"""Tensors of the Open Inference Protocol: datatypes, shapes and row-major bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import numpy as np

from tracecomp.serve.errors import InvalidRequest
from tracecomp_runtime import tensors as program_tensors

Array = np.ndarray[Any, Any]
Buffer = bytes | bytearray | memoryview

NUMPY_NAMES = {
    "BOOL": "bool", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64", "INT8": "int8",
    "INT16": "int16", "INT32": "int32", "INT64": "int64", "FP16": "float16", "BF16": "bfloat16", "FP32": "float32",
    "FP64": "float64",
}  # fmt: skip
"""The protocol's datatypes of numbers, and numpy's names of them."""
TEXT = "BYTES"
"""The datatype of byte strings. Each one is its length, four bytes with the lowest first, and its bytes."""
_LENGTH = struct.Struct("<I")
DATATYPES = {name: datatype for datatype, name in NUMPY_NAMES.items()}
ITEM_BYTES = {datatype: 2 if datatype == "BF16" else np.dtype(name).itemsize for datatype, name in NUMPY_NAMES.items()}
ITEM_BYTES[TEXT] = _LENGTH.size  # at least


@dataclass(slots=True)
class TensorData:
    """A tensor as bytes. ``__post_init__`` raises InvalidRequest unless their number follows from the shape."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: Buffer

    def __post_init__(self) -> None:
        nbytes = byte_count(self.name, self.datatype, self.shape)
        if self.datatype == TEXT:
            self.texts()
        elif len(self.data) != nbytes:
            told = f"{self.datatype}{[*self.shape]} takes {nbytes} bytes, got {len(self.data)}"
            raise InvalidRequest(f"tensor {self.name!r}: {told}")

    def texts(self) -> list[bytes]:
        """The byte strings of a tensor of BYTES. InvalidRequest unless they fill the data."""
        found, position, data = [], 0, memoryview(self.data)
        for _ in range(prod(self.shape)):
            start = position + _LENGTH.size
            if start > len(data):
                break
            position = start + _LENGTH.unpack_from(data, position)[0]
            found.append(bytes(data[start:position]))
        if len(found) < prod(self.shape) or position != len(data):
            raise InvalidRequest(f"tensor {self.name!r}: the data does not hold {prod(self.shape)} byte strings")
        return found

    def array(self) -> Array:
        """The tensor as a read-only array over the same bytes."""
        return np.frombuffer(self.data, _dtype(self.datatype)).reshape(self.shape)


def byte_count(name: str, datatype: str, shape: Sequence[int]) -> int:
    """The bytes of a tensor, for BYTES the fewest ones. InvalidRequest for an unknown datatype or a negative size."""
    if datatype not in ITEM_BYTES:
        known = ", ".join(ITEM_BYTES)
        raise InvalidRequest(f"tensor {name!r}: datatype {datatype!r} is not supported. Supported: {known}")
    if min(shape, default=0) < 0:
        raise InvalidRequest(f"tensor {name!r}: sizes must not be negative, got {[*shape]}")
    return prod(shape) * ITEM_BYTES[datatype]


@cache
def _dtype(datatype: str) -> np.dtype[Any]:
    return program_tensors.dtype_of(NUMPY_NAMES[datatype])


@cache
def _datatype(dtype: np.dtype[Any]) -> str | None:
    return DATATYPES.get(dtype.name)


def of_array(name: str, array: Array) -> TensorData:
    """An array as a tensor. InvalidRequest for a dtype that the protocol lacks."""
    datatype = _datatype(array.dtype)
    if datatype is None:
        raise InvalidRequest(f"tensor {name!r}: dtype {array.dtype.name} has no datatype in the protocol")
    return TensorData(name, datatype, array.shape, array_bytes(array))


def of_texts(name: str, shape: tuple[int, ...], texts: Sequence[bytes]) -> TensorData:
    """Byte strings as a tensor of BYTES."""
    return TensorData(name, TEXT, shape, b"".join(part for text in texts for part in (_LENGTH.pack(len(text)), text)))


def array_bytes(array: Array) -> memoryview:
    """The array's bytes in row-major order, without a copy where it is contiguous."""
    if array.flags.c_contiguous and array.size and array.dtype.kind in "biuf":
        return array.data.cast("B")  # the fastest way, which numpy's own dtypes have
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data

"""Arrays of a program file, in the layout of safetensors, and new arrays that begin at a cache line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tracecomp_runtime.container import Container

Array = np.ndarray[Any, Any]

NAMES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "C64": "complex64", "C128": "complex128",
}  # fmt: skip
"""Safetensors' names of dtypes, and ours."""

_LINE = 64


def dtype_of(name: str) -> np.dtype[Any]:
    """numpy's dtype; bfloat16 is ``ml_dtypes``'s, and without it two plain bytes."""
    if name != "bfloat16":
        return np.dtype(name)
    try:
        from ml_dtypes import bfloat16
    except ImportError:
        return np.dtype(np.uint16)
    found: np.dtype[Any] = np.dtype(bfloat16)
    return found


def zeros(nbytes: int) -> Array:
    """So many bytes of zeros that begin at a cache line."""
    memory = np.zeros(nbytes + _LINE, np.uint8)
    return memory[-memory.ctypes.data % _LINE :][:nbytes]


def empty(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """A new array whose memory begins at a cache line where it is larger than one."""
    made: Array = np.empty(shape, dtype)
    if made.nbytes <= 4096 or made.ctypes.data % _LINE == 0:
        return made
    memory = np.empty(made.nbytes + _LINE, np.uint8)
    start = -memory.ctypes.data % _LINE
    return memory[start : start + made.nbytes].view(dtype).reshape(shape)


def arrays(data: memoryview, file: Container) -> Mapping[str, Array]:
    """The arrays of a section, as views that cannot be written."""
    length = int.from_bytes(data[:8], "little")
    if length > len(data) - 8:
        raise file.error("is damaged: the header of its tensors is incomplete")
    header = json.loads(bytes(data[8 : 8 + length]))
    body, found = data[8 + length :], {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        dtype, shape = dtype_of(NAMES[entry["dtype"]]), tuple(entry["shape"])
        first, end = entry["data_offsets"]
        if not 0 <= first <= end <= len(body) or end - first != dtype.itemsize * int(np.prod(shape, dtype=object)):
            raise file.error(f"is damaged: tensor {name!r} does not have the size of its shape")
        found[name] = np.frombuffer(body[first:end], dtype).reshape(shape)
    return found


def to_bytes(named: Mapping[str, Array]) -> bytes:
    """Serialize a section of arrays. The widest elements come first, so that all are at multiples of their size."""
    short = {name: key for key, name in NAMES.items()}
    header: dict[str, Any] = {}
    parts, offset = [], 0
    for name, array in sorted(named.items(), key=lambda item: -item[1].dtype.itemsize):
        data = np.ascontiguousarray(array).tobytes()
        kind = short["bfloat16" if array.dtype.name == "bfloat16" else array.dtype.name]
        header[name] = {"dtype": kind, "shape": [*array.shape], "data_offsets": [offset, offset + len(data)]}
        parts.append(data)
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _LINE)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])

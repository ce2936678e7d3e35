"""Safetensors files: a JSON header and raw memory (https://github.com/huggingface/safetensors#format)."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tracecomp.eager.tensor import Tensor, wrap
from tracecomp.ir.types import dtype_named

Path_ = str | os.PathLike[str]
_NAMES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
_DTYPES = {short: name for name, short in _NAMES.items()}


def save(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """The file's contents. ValueError for anything but a mapping of names to tensors."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    parts: list[bytes] = []
    position = 0
    for name, t in tensors.items():
        if not isinstance(t, Tensor):
            raise ValueError(f"Key `{name}` is invalid, expected torch.Tensor but received {type(t)}")
        data = np.ascontiguousarray(t._read("save()")).tobytes()
        header[name] = {
            "dtype": _NAMES[t.dtype.name], "shape": list(t.shape), "data_offsets": [position, position + len(data)]
        }  # fmt: skip
        parts.append(data)
        position += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def save_file(tensors: Mapping[str, Tensor], filename: Path_, metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors to a file, which is replaced at once when everything is written."""
    path = Path(filename)
    data = save(tensors, metadata)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    os.replace(temporary, path)


def load(data: bytes) -> dict[str, Tensor]:
    """The tensors in a file's contents. ValueError when it is damaged."""
    if len(data) < 8 or (size := int.from_bytes(data[:8], "little")) > len(data) - 8:
        raise ValueError("safetensors: the header is not complete")
    try:
        header = json.loads(data[8 : 8 + size])
    except ValueError as error:
        raise ValueError(f"safetensors: the header is no JSON: {error}") from None
    memory = memoryview(data)[8 + size :]
    header.pop("__metadata__", None)
    return {name: _tensor(name, entry, memory) for name, entry in header.items()}


def _tensor(name: str, entry: dict[str, Any], memory: memoryview) -> Tensor:
    if entry["dtype"] not in _DTYPES:
        raise ValueError(f"safetensors: {name} has dtype {entry['dtype']}, which tensors cannot hold")
    dtype = dtype_named(_DTYPES[entry["dtype"]])
    start, end = entry["data_offsets"]
    shape = tuple(entry["shape"])
    if not 0 <= start <= end <= len(memory) or end - start != int(np.prod(shape)) * dtype.itemsize:
        raise ValueError(f"safetensors: {name} of shape {list(shape)} does not fit bytes {start} to {end}")
    return wrap(np.frombuffer(memory[start:end], dtype.numpy).reshape(shape).copy())


def load_file(filename: Path_, device: Any = "cpu") -> dict[str, Tensor]:
    """The tensors of a file. ValueError when it is damaged."""
    return load(Path(filename).read_bytes())

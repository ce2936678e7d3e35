"""Arrays from ``.npy``, ``.npz`` and ``.safetensors`` files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_SAFETENSORS = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64",
    "F16": "float16", "F32": "float32", "F64": "float64",
}  # fmt: skip


def read_arrays(path: Path) -> dict[str, Array]:
    """Every array of a file by name (a ``.npy`` file holds ``arr_0``); ValueError for another kind of file."""
    if path.suffix == ".npy":
        return {"arr_0": np.load(path)}
    if path.suffix == ".npz":
        with np.load(path) as file:
            return {name: file[name] for name in file.files}
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    raise ValueError(f"{path}: expected .npy, .npz or .safetensors")


def _read_safetensors(path: Path) -> dict[str, Array]:
    """The format is a little-endian header length, a JSON header, then the data.

    Source: https://huggingface.co/docs/safetensors
    """
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 + size:
        raise ValueError(f"{path} is not a complete safetensors file")
    header = json.loads(data[8 : 8 + size])
    found: dict[str, Array] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in _SAFETENSORS:
            raise ValueError(f"{path}: tensor {name} has type {entry['dtype']}; supported: {', '.join(_SAFETENSORS)}")
        start, stop = entry["data_offsets"]
        raw = np.frombuffer(data[8 + size + start : 8 + size + stop], np.dtype(_SAFETENSORS[entry["dtype"]]))
        found[name] = raw.reshape(entry["shape"]).copy()
    return found

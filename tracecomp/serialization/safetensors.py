"""Safetensors files: a JSON header and raw memory (https://github.com/huggingface/safetensors#format)."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tracecomp.base.atomic import write_file
from tracecomp.eager.tensor import Tensor, wrap
from tracecomp.ir.types import DType, dtype_named
from tracecomp.runtime.aligned import maker

Path_ = str | os.PathLike[str]
_NAMES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
_DTYPES = {short: name for name, short in _NAMES.items()}

_MAX_HEADER = 100_000_000
"""Bytes, as the format says."""

_MAX_AXES = 64
"""More than that numpy's arrays cannot have."""


def save(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """The file's contents. ValueError for what could not be loaded again: other names, values, dtypes, metadata."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    _check_metadata(header.get("__metadata__", {}))
    parts: list[bytes] = []
    position = 0
    for name, t in tensors.items():
        if not isinstance(t, Tensor):
            raise ValueError(f"Key `{name}` is invalid, expected torch.Tensor but received {type(t)}")
        if not isinstance(name, str) or name == "__metadata__":
            raise ValueError(f"safetensors: {name!r} is not a valid tensor name")
        if t.dtype.name not in _NAMES:
            raise ValueError(f"safetensors: {name} has dtype {t.dtype}, which such files cannot hold")
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
    data = save(tensors, metadata)
    write_file(filename, lambda file: file.write(data))


def load(data: bytes) -> dict[str, Tensor]:
    """The tensors in a file's contents. ValueError, and nothing else, when it is damaged."""
    return _read(io.BytesIO(data), len(data))


def _read(file: io.BufferedIOBase, nbytes: int) -> dict[str, Tensor]:
    """The tensors of a file of ``nbytes`` bytes, each read into its own memory: the file is never in memory as a
    whole."""
    size = int.from_bytes(file.read(8), "little")
    if nbytes < 8 or size > nbytes - 8:
        raise ValueError("safetensors: the header is not complete")
    if size > _MAX_HEADER:
        raise ValueError(f"safetensors: a header of {size} bytes is longer than {_MAX_HEADER}")
    header = _header(file.read(size))
    entries = {name: _entry(name, entry) for name, entry in header.items() if name != "__metadata__"}
    _check_metadata(header.get("__metadata__", {}))
    end = 0
    ordered = sorted(entries.items(), key=lambda item: (item[1].start, item[1].end))
    for name, entry in ordered:
        if entry.start != end:  # holes could hide something, and overlapping tensors could be more than the file
            raise ValueError(f"safetensors: {name} begins at byte {entry.start}, after {end} bytes of others")
        end = entry.end
    if end != nbytes - 8 - size:
        raise ValueError(
            f"safetensors: the header declares {end} bytes of tensors, but the file has {nbytes - 8 - size}"
        )
    tensors = {name: entry.tensor(file) for name, entry in ordered}
    return {name: tensors[name] for name in entries}


def _header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"safetensors: the header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise ValueError("safetensors: the header is not a JSON object")
    return header


def _unique(pairs: list[tuple[str, object]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is used twice")
    return found


def _check_metadata(metadata: object) -> None:
    if not isinstance(metadata, dict) or not all(isinstance(x, str) for pair in metadata.items() for x in pair):
        raise ValueError("safetensors: __metadata__ is not a mapping of names to text")


@dataclass(frozen=True)
class _Entry:
    """The header's entry of one tensor."""

    dtype: DType
    shape: tuple[int, ...]
    start: int
    end: int

    def tensor(self, file: io.BufferedIOBase) -> Tensor:
        """Read the next bytes of a file into new memory, with large pages if the tensor is large."""
        count = self.end - self.start
        array = maker(count)(self.shape, self.dtype.numpy)
        memory: Any = array.reshape(-1).view(np.uint8)
        if file.readinto(memory) != count:
            raise ValueError("safetensors: the file ended early")
        return wrap(array)


def _entry(name: str, entry: object) -> _Entry:
    match entry:
        case {"dtype": str() as short, "shape": list() as shape, "data_offsets": [int() as start, int() as end]}:
            pass
        case _:
            raise ValueError(f"safetensors: {name:.80} lacks dtype, shape or data_offsets")
    if short not in _DTYPES:
        raise ValueError(f"safetensors: {name:.80} has dtype {short:.20}, which tensors cannot hold")
    if not all(type(n) is int and 0 <= n < 1 << 63 for n in shape) or len(shape) > _MAX_AXES:
        raise ValueError(f"safetensors: {name:.80} has an invalid shape")
    dtype = dtype_named(_DTYPES[short])
    if not 0 <= start <= end or end - start != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"safetensors: {name:.80} of shape {shape} does not fit bytes {start} to {end}")
    return _Entry(dtype, tuple(shape), start, end)


def load_file(filename: Path_, device: object = "cpu") -> dict[str, Tensor]:
    """The tensors of a file. ValueError, which names it, when it is damaged."""
    try:
        with Path(filename).open("rb") as file:
            return _read(file, os.fstat(file.fileno()).st_size) if file.seekable() else load(file.read())
    except ValueError as error:
        raise ValueError(f"{os.fspath(filename)}: {error}") from None

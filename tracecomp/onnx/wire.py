"""Large weights of a serialized model, located without parsing them: protobuf copies each of them several times.

A message is a sequence of fields. Each is a number and a kind, and then a varint, 4 or 8 bytes, or a length and that
many bytes (protobuf's "Encoding" page). ``skeleton`` walks over the model, its graph and the graph's initializers.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from tracecomp.onnx.protos import TensorProto

Array = np.ndarray[Any, Any]
Buffer = bytes | mmap.mmap
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
"""The numbers of these fields: of a model, of a graph, of a tensor."""
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
"""The kinds of fields."""
LARGE = 4096
"""Bytes; smaller weights are read with the rest."""


@dataclass
class Skeleton:
    """A model without the bytes of its large weights, and their locations, by the number of the initializer."""

    text: bytes
    source: bytes | int
    """The whole model, or the open file that holds it."""
    places: dict[int, tuple[int, int]] = field(default_factory=dict)

    def array(self, number: int, tensor: TensorProto) -> Array:
        """The weight that ``tensor`` describes. ValueError if its number of bytes does not match its shape."""
        start, size = self.places[number]
        dtype, shape = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)), tuple(tensor.dims)
        if any(n < 0 for n in shape) or int(np.prod(shape, dtype=object)) * dtype.itemsize != size:
            raise ValueError(f"tensor {tensor.name!r} of shape {[*shape]} has {size} bytes")
        found = np.empty(size, np.uint8)
        if isinstance(self.source, bytes):
            found[:] = np.frombuffer(self.source, np.uint8, size, start)
        else:
            _fill(self.source, found, start)
        return found.view(dtype).reshape(shape)


def _fill(file: int, array: Array, start: int) -> None:
    """Read from an open file; systems read at most 2 GB at once."""
    done = 0
    while done < array.size:
        count = os.preadv(file, [array[done:].data], start + done)
        if not count:
            raise ValueError("the model's file was truncated while it was read")
        done += count


def skeleton(data: Buffer, source: bytes | int) -> Skeleton:
    """The model in ``data``. Invalid data is unchanged, for protobuf to report."""
    found = Skeleton(b"", source)
    try:
        graphs = [f for f in _fields(data, 0, len(data)) if f.number == _GRAPH]
        if len(graphs) == 1:
            graph = _without_weights(data, graphs[0], found.places)
            found.text = data[: graphs[0].tag] + _written(_GRAPH, graph) + data[graphs[0].end :]
            return found
    except (IndexError, ValueError):
        found.places.clear()
    found.text = data[:]
    return found


@dataclass(frozen=True)
class _Field:
    """A field of a message: where its tag and its value begin, and where it ends. Only bytes have their number."""

    number: int
    tag: int
    start: int
    end: int


def _without_weights(data: Buffer, graph: _Field, places: dict[int, tuple[int, int]]) -> bytes:
    """A graph's message without the bytes of large weights, whose places are noted."""
    parts, copied, count = [], graph.start, 0
    for tensor in _fields(data, graph.start, graph.end):
        if tensor.number != _INITIALIZER:
            continue
        inner = _fields(data, tensor.start, tensor.end) if tensor.end - tensor.start > LARGE else ()
        raw = [f for f in inner if f.number == _RAW_DATA]
        if len(raw) == 1 and raw[0].end - raw[0].start > LARGE:
            places[count] = raw[0].start, raw[0].end - raw[0].start
            rest = data[tensor.start : raw[0].tag] + data[raw[0].end : tensor.end]
            parts += [data[copied : tensor.tag], _written(_INITIALIZER, rest)]
            copied = tensor.end
        count += 1
    return b"".join([*parts, data[copied : graph.end]])


def _fields(data: Buffer, start: int, end: int) -> Iterator[_Field]:
    """The fields of a message. ValueError for invalid data."""
    at = start
    while at < end:
        tag, first = _number(data, at)
        kind = tag & 7
        if kind == _VARINT:
            _, last = _number(data, first)
        elif kind in (_EIGHT, _FOUR):
            last = first + (8 if kind == _EIGHT else 4)
        elif kind == _BYTES:
            size, first = _number(data, first)
            last = first + size
        else:
            raise ValueError("no field")
        if last > end:
            raise ValueError("a field ends beyond its message")
        yield _Field(tag >> 3 if kind == _BYTES else 0, at, first, last)
        at = last


def _written(number: int, value: bytes) -> bytes:
    """A field of bytes."""
    return _varint(number << 3 | _BYTES) + _varint(len(value)) + value


def _number(data: Buffer, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and where it ends."""
    found = shift = 0
    while shift < 64:
        byte = data[at]
        at += 1
        found |= (byte & 127) << shift
        if byte < 128:
            return found, at
        shift += 7
    raise ValueError("a number has too many bytes")


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)

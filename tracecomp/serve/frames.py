"""Messages between the server and a worker process: a JSON header and the bytes of tensors. Nothing is pickled."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tracecomp.serve.tensors import Buffer, TensorData, byte_count
from tracecomp_runtime import tensors
from tracecomp_runtime.container import aligned

_LENGTHS = struct.Struct("<IQ")
"""The bytes of the header and of the body. Each tensor begins at a multiple of 64 bytes of the body."""

_SMALL = 1 << 16
"""Bytes up to which a copy is cheaper than further system calls."""

Header = Mapping[str, Any]
"""The JSON object of a message."""
Parts = Sequence[tuple[str, str, Sequence[int], Sequence[Buffer]]]
"""Tensors: name, datatype, shape, and buffers whose concatenation has the data."""


def pack(header: Header, parts: Parts = ()) -> list[Buffer]:
    """A message as buffers to write one after the other."""
    body: list[Buffer] = []
    total = 0
    for _, _, _, buffers in parts:
        length = sum(map(len, buffers))
        body += [*buffers, bytes(aligned(length) - length)]
        total += aligned(length)
    told = json.dumps({**header, "tensors": [(name, kind, [*shape]) for name, kind, shape, _ in parts]}).encode()
    return [_LENGTHS.pack(len(told), total), told, *body]


def unpack(header: Header, body: memoryview) -> list[TensorData]:
    """The tensors of a message, as views of its body."""
    found, offset = [], 0
    for name, datatype, shape in header["tensors"]:
        length = byte_count(name, datatype, shape)
        found.append(TensorData(name, datatype, tuple(shape), body[offset : offset + length]))
        offset += aligned(length)
    return found


async def receive(reader: asyncio.StreamReader) -> tuple[Header, memoryview]:
    """The next message. IncompleteReadError where the other process has closed the connection."""
    header_length, body_length = _LENGTHS.unpack(await reader.readexactly(_LENGTHS.size))
    header = json.loads(await reader.readexactly(header_length))
    return header, memoryview(await reader.readexactly(body_length))


class Channel:
    """The worker's end of the connection, with blocking calls. EOFError where the server has closed it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def receive(self) -> tuple[Header, memoryview]:
        """The next message; its body begins at a cache line."""
        header_length, body_length = _LENGTHS.unpack(self._read(_LENGTHS.size))
        header = json.loads(bytes(self._read(header_length)))
        return header, self._read(body_length)

    def send(self, header: Header, parts: Parts = ()) -> None:
        """Send a message."""
        buffers = pack(header, parts)
        if sum(map(len, buffers)) <= _SMALL:
            buffers = [b"".join(buffers)]
        for buffer in buffers:
            self._connection.sendall(buffer)

    def _read(self, length: int) -> memoryview:
        memory = tensors.empty((length,), np.dtype(np.uint8)).data
        position = 0
        while position < length:
            count = self._connection.recv_into(memory[position:])
            if not count:
                raise EOFError
            position += count
        return memory

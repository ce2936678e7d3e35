"""Messages between the server and a worker process: a JSON header and the bytes of tensors. Nothing is pickled."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from tracecomp.serve.tensors import Buffer, TensorData
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
    lengths = [sum(map(len, buffers)) for _, _, _, buffers in parts]
    for (_, _, _, buffers), length in zip(parts, lengths, strict=True):
        body += [*buffers, bytes(aligned(length) - length)]
        total += aligned(length)
    described = [(n, kind, [*shape], length) for (n, kind, shape, _), length in zip(parts, lengths, strict=True)]
    told = json.dumps({**header, "tensors": described}).encode()
    return [_LENGTHS.pack(len(told), total), told, *body]


def unpack(header: Header, body: memoryview) -> list[TensorData]:
    """The tensors of a message, as views of its body."""
    found, offset = [], 0
    for name, datatype, shape, length in header["tensors"]:
        found.append(TensorData(name, datatype, tuple(shape), body[offset : offset + length]))
        offset += aligned(length)
    return found


def _joined(buffers: list[Buffer]) -> list[Buffer]:
    return [b"".join(buffers)] if sum(map(len, buffers)) <= _SMALL else buffers


class ServerChannel:
    """The server's end of the connection, for coroutines of one event loop. OSError where it is closed."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._users = 0
        self._is_closing = False

    async def receive(self) -> tuple[Header, memoryview]:
        """The next message."""
        with self._in_use():
            header_length, body_length = _LENGTHS.unpack(await self._read(_LENGTHS.size))
            header = json.loads(bytes(await self._read(header_length)))
            return header, await self._read(body_length)

    async def send(self, header: Header, parts: Parts = ()) -> None:
        """Send a message."""
        with self._in_use():
            for buffer in _joined(pack(header, parts)):
                await self._loop.sock_sendall(self._connection, buffer)

    def close(self) -> None:
        """Close the connection, which ends the worker. A coroutine that waits for a message gets OSError."""
        self._is_closing = True
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)  # wakes the coroutine; a closed descriptor would not
        if not self._users:
            self._connection.close()

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._is_closing and not self._users:
                self._connection.close()

    async def _read(self, length: int) -> memoryview:
        memory = np.empty(length, np.uint8).data
        position = 0
        while position < length:
            count = await self._loop.sock_recv_into(self._connection, memory[position:])
            if not count:
                raise ConnectionResetError
            position += count
        return memory


class WorkerChannel:
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
        for buffer in _joined(pack(header, parts)):
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

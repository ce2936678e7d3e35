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
"""The bytes of the header and of the body. Spaces behind the header let the body begin at a multiple of 64 bytes of the
message, as each tensor does in the body."""
_ALIGNMENT = 64  # bytes of a cache line

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
    told += b" " * (-(_LENGTHS.size + len(told)) % _ALIGNMENT)
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


class _Incoming:
    """A message that arrives. The two ends send in turns, so all bytes belong to one message."""

    def __init__(self) -> None:
        self._memory, self._count, self._total = _empty(_SMALL), 0, _LENGTHS.size

    @property
    def is_complete(self) -> bool:
        """Whether the last byte has arrived."""
        return self._count == self._total

    @property
    def room(self) -> memoryview:
        """The memory for further bytes."""
        return self._memory[self._count :]

    def add(self, count: int) -> None:
        """Take the first ``count`` bytes of ``room``."""
        self._count += count
        if self._total == _LENGTHS.size <= self._count:
            self._total += sum(_LENGTHS.unpack_from(self._memory))
            if self._total > len(self._memory):
                larger = _empty(self._total)
                larger[: self._count] = self._memory[: self._count]
                self._memory = larger

    def message(self) -> tuple[Header, memoryview]:
        """The header, and the body, which begins at a cache line."""
        length, _ = _LENGTHS.unpack_from(self._memory)
        start = _LENGTHS.size + length
        return json.loads(bytes(self._memory[_LENGTHS.size : start])), self._memory[start : self._total]


def _empty(size: int) -> memoryview:
    return tensors.empty((size,), np.dtype(np.uint8)).data


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
        incoming = _Incoming()
        with self._in_use():
            while not incoming.is_complete:
                count = await self._loop.sock_recv_into(self._connection, incoming.room)
                if not count:
                    raise ConnectionResetError
                incoming.add(count)
        return incoming.message()

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


class WorkerChannel:
    """The worker's end of the connection, with blocking calls. EOFError where the server has closed it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def receive(self) -> tuple[Header, memoryview]:
        """The next message."""
        incoming = _Incoming()
        while not incoming.is_complete:
            count = self._connection.recv_into(incoming.room)
            if not count:
                raise EOFError
            incoming.add(count)
        return incoming.message()

    def send(self, header: Header, parts: Parts = ()) -> None:
        """Send a message."""
        for buffer in _joined(pack(header, parts)):
            self._connection.sendall(buffer)

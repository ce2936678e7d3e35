"""Messages between the server and a worker process: a JSON header and the bytes of tensors. Nothing is pickled."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
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
"""Bytes of the memory in which messages arrive. Longer ones continue in memory of their size."""
_SHORT = 4096  # bytes whose place in cache lines does not matter
_MOST_BUFFERS = 512  # of one system call; Linux takes 1024

Header = Mapping[str, Any]
"""The JSON object of a message."""
Parts = Sequence[tuple[str, str, Sequence[int], Sequence[Buffer]]]
"""Tensors: name, datatype, shape, and buffers whose concatenation has the data."""
Message = tuple[Header, memoryview]
"""A message that has arrived: its header and its body."""


def pack(header: Header, parts: Parts = ()) -> list[Buffer]:
    """A message as buffers to write one after the other. The header's values are hashable."""
    body: list[Buffer] = []
    described = []
    for name, datatype, shape, buffers in parts:
        length = sum(map(len, buffers))
        described.append((name, datatype, tuple(shape), length))
        body += buffers
        body.append(bytes(aligned(length) - length))
    return [_encoded(tuple(header.items()), tuple(described)), *body]


@lru_cache(1024)  # most messages of a model have one of a few headers
def _encoded(items: Sequence[tuple[str, Any]], described: Sequence[tuple[str, str, tuple[int, ...], int]]) -> bytes:
    """The lengths and the header of a message."""
    told = json.dumps({**dict(items), "tensors": described}).encode()
    told += b" " * (-(_LENGTHS.size + len(told)) % _ALIGNMENT)
    return _LENGTHS.pack(len(told), sum(aligned(length) for *_, length in described)) + told


@lru_cache(1024)
def _decoded(told: bytes) -> Header:
    header: Header = json.loads(told)
    return header


def unpack(header: Header, body: memoryview) -> list[TensorData]:
    """The tensors of a message, as views of its body."""
    found, offset = [], 0
    for name, datatype, shape, length in header["tensors"]:
        found.append(TensorData(name, datatype, tuple(shape), body[offset : offset + length]))
        offset += aligned(length)
    return found


def _send(connection: socket.socket, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
    """Write what the connection takes; the rest."""
    sent = connection.sendmsg(buffers[:_MOST_BUFFERS])
    for k, buffer in enumerate(buffers):
        if sent < len(buffer):
            return [memoryview(buffer)[sent:], *buffers[k + 1 :]]
        sent -= len(buffer)
    return ()


class _Incoming:
    """Messages that arrive. The two ends send in turns, so all bytes belong to one message."""

    def __init__(self) -> None:
        self._first = self._memory = _empty(_SMALL)
        self._count, self._total = 0, _LENGTHS.size

    @property
    def room(self) -> memoryview:
        """The memory for further bytes."""
        return self._memory[self._count :]

    def add(self, count: int) -> Message | None:
        """Take the first ``count`` bytes of ``room``; the message if they complete it."""
        self._count += count
        if self._total == _LENGTHS.size <= self._count:
            self._total += sum(_LENGTHS.unpack_from(self._memory))
            if self._total > len(self._memory):
                self._memory = _empty(self._total)
                self._memory[: self._count] = self._first[: self._count]
        return self._message() if self._count == self._total else None

    def _message(self) -> Message:
        """The header, and the body, which begins at a cache line if it is long."""
        memory, total = self._memory, self._total
        self._memory, self._count, self._total = self._first, 0, _LENGTHS.size
        start = _LENGTHS.size + _LENGTHS.unpack_from(memory)[0]
        body = memory[start:total]
        if memory is self._first:  # the next message overwrites it
            body = memoryview(bytes(body)) if len(body) <= _SHORT else _copied(body)
        return _decoded(bytes(memory[_LENGTHS.size : start])), body


def _copied(body: memoryview) -> memoryview:
    made = _empty(len(body))
    made[:] = body
    return made


def _empty(size: int) -> memoryview:
    return tensors.empty((size,), np.dtype(np.uint8)).data


class ServerChannel:
    """The server's end of the connection, in one event loop. It sends a message and gets the next one for it."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(connection, self._read)
        self._incoming = _Incoming()
        self._outgoing: Sequence[Buffer] = ()
        self._answered: Callable[[Message | None], None] | None = None
        self._is_closed = False

    def ask(self, header: Header, parts: Parts, answered: Callable[[Message | None], None]) -> None:
        """Send a message, and call ``answered`` with the next one, or with None when the connection is closed.

        Ask again only after that.
        """
        if self._is_closed:
            self._loop.call_soon(answered, None)
            return
        self._answered, self._outgoing = answered, pack(header, parts)
        self._write()

    def close(self) -> None:
        """Close the connection, which ends the worker."""
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.remove_reader(self._connection)
        self._loop.remove_writer(self._connection)
        self._connection.close()
        self._give(None)

    def _write(self) -> None:
        try:
            while self._outgoing:
                self._outgoing = _send(self._connection, self._outgoing)
        except BlockingIOError:
            self._loop.add_writer(self._connection, self._write_rest)
        except OSError:
            self.close()

    def _write_rest(self) -> None:
        self._loop.remove_writer(self._connection)
        self._write()

    def _read(self) -> None:
        try:
            count = self._connection.recv_into(self._incoming.room)
            message = self._incoming.add(count) if count else None
        except BlockingIOError:
            return
        except Exception:  # a message that cannot be read ends the connection
            count, message = 0, None
        if not count or (message is not None and self._answered is None):
            self.close()
        elif message is not None:
            self._give(message)

    def _give(self, message: Message | None) -> None:
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(message)


class WorkerChannel:
    """The worker's end of the connection, with blocking calls. EOFError where the server has closed it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._incoming = _Incoming()

    def receive(self) -> Message:
        """The next message."""
        message = None
        while message is None:
            count = self._connection.recv_into(self._incoming.room)
            if not count:
                raise EOFError
            message = self._incoming.add(count)
        return message

    def send(self, header: Header, parts: Parts = ()) -> None:
        """Send a message."""
        outgoing: Sequence[Buffer] = pack(header, parts)
        while outgoing:
            outgoing = _send(self._connection, outgoing)

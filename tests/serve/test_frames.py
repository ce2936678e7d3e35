"""Messages between the server and a worker: sizes, order and closed connections."""

from __future__ import annotations

import asyncio
import socket
import threading

import numpy as np
import pytest

from tracecomp.serve.frames import Header, Message, Parts, ServerChannel, WorkerChannel, unpack
from tracecomp.serve.tensors import of_array


def echo(connection: socket.socket) -> None:
    """Return every message, until the other end is closed."""
    channel = WorkerChannel(connection)
    with connection:
        while True:
            try:
                header, body = channel.receive()
            except (EOFError, ConnectionError):
                return
            tensors = unpack(header, body)
            assert all(np.frombuffer(t.data, np.uint8).ctypes.data % 64 == 0 for t in tensors if len(t.data) > 4096)
            channel.send({"n": header["n"]}, [(t.name, t.datatype, t.shape, [t.data]) for t in tensors])


def asked(channel: ServerChannel, header: Header, parts: Parts) -> asyncio.Future[Message | None]:
    """The answer to a message."""
    answer: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()
    channel.ask(header, parts, answer.set_result)
    return answer


def test_messages_of_all_sizes_come_back() -> None:
    arrays = [np.arange(n, dtype=np.uint8) for n in (0, 1, 63, 64, 65, 5000, 1 << 16, 3_000_001)]
    tensors = [of_array(f"t{k}", a) for k, a in enumerate(arrays)]

    async def main() -> None:
        here, there = socket.socketpair()
        thread = threading.Thread(target=echo, args=(there,))
        thread.start()
        channel = ServerChannel(here)
        kept = []
        for n in range(3):
            for some in (tensors, tensors[:5], [*tensors] * 200):
                parts = [(t.name, t.datatype, t.shape, [t.data[:7], t.data[7:]]) for t in some[:1000]]
                message = await asked(channel, {"n": n}, parts)
                assert message is not None and message[0]["n"] == n
                kept.append((some[:1000], unpack(*message)))
        for some, found in kept:  # later messages have left them as they were
            assert [bytes(t.data) for t in found] == [bytes(t.data) for t in some]
        channel.close()
        thread.join()

    asyncio.run(main())


@pytest.mark.parametrize("which", ["here", "there"])
@pytest.mark.parametrize("size", [1, 1 << 24])  # the second one is more than the socket holds
def test_a_closed_connection_answers_who_waits(which: str, size: int) -> None:
    async def main() -> None:
        here, there = socket.socketpair()
        channel = ServerChannel(here)
        answer = asked(channel, {}, [("x", "UINT8", (size,), [bytes(size)])])
        await asyncio.sleep(0)
        if which == "there":
            there.close()
        else:
            channel.close()
        assert await asyncio.wait_for(answer, 60) is None
        assert await asyncio.wait_for(asked(channel, {}, ()), 60) is None
        there.close()

    asyncio.run(main())


@pytest.mark.parametrize("data", [b"\1" * 12 + b"{" * 64, b"\x40\0\0\0" + bytes(8) + b"{" * 64, b"\xff" * 12])
def test_bytes_that_are_no_message_close_the_connection(data: bytes) -> None:
    async def main() -> None:
        here, there = socket.socketpair()
        channel = ServerChannel(here)
        answer = asked(channel, {}, ())
        there.sendall(data)
        there.shutdown(socket.SHUT_WR)
        assert await asyncio.wait_for(answer, 60) is None
        there.close()

    asyncio.run(main())

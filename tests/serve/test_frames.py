"""Messages between the server and a worker: sizes, order and closed connections."""

from __future__ import annotations

import asyncio
import socket
import threading

import numpy as np
import pytest

from tracecomp.serve.frames import ServerChannel, WorkerChannel, unpack
from tracecomp.serve.tensors import TensorData, of_array


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


def test_messages_of_all_sizes_come_back() -> None:
    arrays = [np.arange(n, dtype=np.uint8) for n in (0, 1, 63, 64, 65, 5000, 1 << 16, 3_000_001)]
    tensors = [of_array(f"t{k}", a) for k, a in enumerate(arrays)]

    async def main() -> None:
        here, there = socket.socketpair()
        thread = threading.Thread(target=echo, args=(there,))
        thread.start()
        channel = ServerChannel(here)
        for n in range(3):
            parts = [(t.name, t.datatype, t.shape, [t.data[:7], t.data[7:]]) for t in tensors]
            await channel.send({"n": n}, parts)
            header, body = await channel.receive()
            found = unpack(header, body)
            assert header["n"] == n and [bytes(t.data) for t in found] == [bytes(t.data) for t in tensors]
        channel.close()
        thread.join()

    asyncio.run(main())


@pytest.mark.parametrize("which", ["here", "there"])
def test_a_closed_connection_wakes_who_waits(which: str) -> None:
    async def main() -> None:
        here, there = socket.socketpair()
        channel = ServerChannel(here)
        receiving = asyncio.ensure_future(channel.receive())
        big = TensorData("x", "UINT8", (1 << 24,), bytes(1 << 24))  # more than the socket holds
        sending = asyncio.ensure_future(channel.send({}, [("x", "UINT8", big.shape, [big.data])]))
        await asyncio.sleep(0)
        if which == "there":
            there.close()
        else:
            channel.close()
        for task in (receiving, sending):
            with pytest.raises(OSError):
                await asyncio.wait_for(task, 60)
        channel.close()
        there.close()

    asyncio.run(main())

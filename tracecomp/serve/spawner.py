"""A process that has imported what workers need, and forks a worker for each model.

Importing takes longer than everything else in the start of a worker. ``python -m tracecomp.serve.spawner SOCKET``.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tracecomp.base.lazy_names import load_module

_DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)


class Child:
    """A worker process of the spawner. The descriptor of a process, unlike its number, is never reused."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        self._descriptor = descriptor

    def kill(self) -> None:
        """End the process, if it still runs."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    async def wait(self) -> None:
        """Return when the process has ended."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(self._descriptor)

    def close(self) -> None:
        """Release the descriptor."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    __del__ = close  # a cancelled start drops the object; the process ends with its connection


class Spawner:
    """The connection to the spawner process. It is started when the first worker is, and again if it dies."""

    _connection: socket.socket | None

    def __init__(self) -> None:
        self.forget()

    def fork(self) -> None:
        """Start the spawner as a fork of this process, which must have no other threads yet.

        It need not import again what this process has imported.
        """
        here, there = socket.socketpair()
        pid = os.fork()
        if not pid:
            here.close()
            _exit_after(there)
        there.close()
        self._connection, self._pid = here, pid

    async def spawn(self, connection: socket.socket) -> Child:
        """Start a worker with ``connection``, which is closed here. OSError if no process can be started."""
        return await asyncio.get_running_loop().run_in_executor(None, self._spawn, connection)

    def _spawn(self, connection: socket.socket) -> Child:
        with self._lock, connection:
            try:
                return self._ask(self._connection or self._start(), connection)
            except OSError:  # the spawner has been killed
                return self._ask(self._start(), connection)

    def _ask(self, spawner: socket.socket, connection: socket.socket) -> Child:
        socket.send_fds(spawner, [b"w"], [connection.fileno()])
        told, descriptors, _, _ = socket.recv_fds(spawner, 8, 1)
        if not descriptors:
            raise ConnectionResetError("the process that starts workers has ended")
        return Child(int.from_bytes(told, "little"), descriptors[0])

    def _start(self) -> socket.socket:
        if self._connection is not None:
            self._connection.close()
            with suppress(ChildProcessError):
                os.waitpid(self._pid, 0)
        here, there = socket.socketpair()
        with there:
            there.set_inheritable(True)
            command = [sys.executable, "-m", __name__, str(there.fileno())]
            self._pid = os.posix_spawn(command[0], command, _environment())
        self._connection = here
        return here

    def forget(self) -> None:
        """Begin without a spawner: after a fork, it belongs to the other process."""
        self._lock = threading.Lock()  # several event loops may start workers
        self._connection = None
        self._pid = 0


SPAWNER = Spawner()
"""The spawner of this process. It ends with the process."""
os.register_at_fork(after_in_child=SPAWNER.forget)


def serve(connection: socket.socket) -> None:
    """Fork a worker for each socket that arrives, until the server closes the connection."""
    for number in (signal.SIGINT, signal.SIGTERM):  # may reach a whole group; the server decides when to stop
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    worker = load_module("tracecomp.serve.worker")
    load_module("tracecomp.compiled.program_files.load")  # for most models; workers import what others need
    gc.collect()
    gc.freeze()  # a collection in a worker would copy the pages that it shares
    while True:
        _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
        if not descriptors:
            return
        parent, pid = os.getpid(), os.fork()
        if not pid:
            connection.close()
            ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)  # also in the middle of a computation
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if os.getppid() == parent:
                worker.main(socket.socket(fileno=descriptors[0]))
            return
        os.close(descriptors[0])
        descriptor = os.pidfd_open(pid)  # it waits for its first message, so it has not ended
        socket.send_fds(connection, [pid.to_bytes(8, "little")], [descriptor])
        os.close(descriptor)


def _exit_after(connection: socket.socket) -> None:
    """Serve, then end the process without the handlers of the process that it was forked from."""
    code = 1
    try:
        serve(connection)
        code = 0
    except ConnectionError:
        code = 0
    except BaseException:  # any error must be shown, because the process ends without Python's own exit
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _environment() -> dict[str, str]:
    """The worker finds the package that this process runs, wherever it was started."""
    package = str(Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])}


def main(argv: Sequence[str]) -> None:
    """Serve on the socket whose descriptor is the only argument."""
    _exit_after(socket.socket(fileno=int(argv[0])))


if __name__ == "__main__":
    main(sys.argv[1:])

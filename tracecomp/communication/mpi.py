"""Transport of bytes over MPI (mpi4py), for processes started by ``mpiexec`` or ``srun``.

MPI moves bytes only inside its calls, and its own waiting spins. Here a waiting thread polls, then sleeps, longer each
time.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from tracecomp.communication.messages import HEADER, Array, Kind, Message, Sending

_SMALL = 1 << 14
"""Bytes of a body that is part of the message of its head: copying it costs less than a second message."""
_LARGEST = 1 << 30
"""Bytes of one MPI message: its count is an int of 32 bits."""
_HEAD, _BODY = 1, 2
"""MPI's tags, so that a receiver that waits for a head does not meet a body."""
MARKS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "PMI_RANK", "MPI_LOCALNRANKS")
"""Variables that MPI's own launchers set."""


def started_by_mpi() -> bool:
    """Whether an MPI launcher has started this process, and mpi4py is installed."""
    return any(mark in os.environ for mark in MARKS) and available()


def available() -> bool:
    """Whether mpi4py is installed."""
    return find_spec("mpi4py") is not None


class _Arriving:
    """A message whose body comes in separate messages."""

    def __init__(self, message: Message, requests: Sequence[Any]) -> None:
        self.message, self.requests = message, requests


class MpiTransport:
    """All processes of ``MPI.COMM_WORLD``."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        self._comm = MPI.COMM_WORLD.Dup()
        self._comm.Set_errhandler(MPI.ERRORS_RETURN)
        self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()
        self.name = " ".join(MPI.Get_library_version().splitlines()[0].partition(",")[0].strip("\0").split())
        self._lock = threading.Lock()
        self._out: list[tuple[list[Any], Any, Sending]] = []
        self._arriving: dict[int, deque[_Arriving]] = {}
        self._status = MPI.Status()

    def send(self, peer: int, head: bytes, body: Array) -> Sending:
        sending = Sending()
        with self._lock:
            if len(body) <= _SMALL:
                kept: Any = np.frombuffer(head + body.tobytes(), np.uint8)
                requests = [self._start(kept, peer, _HEAD)]
            else:
                kept = np.frombuffer(head, np.uint8)
                requests = [self._start(kept, peer, _HEAD)]
                requests += [self._start(part, peer, _BODY) for part in _parts(body)]
            if self._mpi.Request.Testall(requests):
                sending.done = True
            else:
                self._out.append((requests, (kept, body), sending))
        return sending

    def _start(self, part: Array, peer: int, tag: int) -> Any:
        return self._comm.Isend([part, self._mpi.BYTE], dest=peer, tag=tag)

    def pump(self, seconds: float) -> list[Message]:
        end, pause = time.monotonic() + seconds, 0.0
        rounds = 0
        while True:
            found = self._arrived()
            if self._sent() or found or time.monotonic() >= end:
                return found
            rounds += 1
            if rounds > 100:  # some ten microseconds without a message
                pause = min(pause + 5e-6, 1e-3)
            time.sleep(pause)

    def _sent(self) -> bool:
        """Whether a sending is complete."""
        if not self._out:
            return False
        with self._lock:
            left = []
            for entry in self._out:
                requests, _, sending = entry
                if self._mpi.Request.Testall(requests):
                    sending.done = True
                else:
                    left.append(entry)
            ended = len(left) < len(self._out)
            self._out = left
        return ended

    def _arrived(self) -> list[Message]:
        found: list[Message] = []
        while True:
            waiting = self._comm.Improbe(source=self._mpi.ANY_SOURCE, tag=_HEAD, status=self._status)
            if waiting is None:
                break
            found += self._received(waiting, self._status.Get_source(), self._status.Get_count(self._mpi.BYTE))
        for queue in self._arriving.values():
            while queue and self._mpi.Request.Testall(list(queue[0].requests)):
                found.append(queue.popleft().message)
        return found

    def _received(self, waiting: Any, source: int, count: int) -> list[Message]:
        """The message whose first part has arrived, unless it or an earlier one is incomplete."""
        raw = np.empty(count, np.uint8)
        waiting.Recv([raw, self._mpi.BYTE])
        kind, group, number, size = HEADER.unpack_from(raw.data)
        queue = self._arriving.setdefault(source, deque())
        if count > HEADER.size or not size:
            message = Message(source, Kind(kind), group, number, raw[HEADER.size :])
            if not queue:
                return [message]
            queue.append(_Arriving(message, ()))
            return []
        message = Message(source, Kind(kind), group, number, np.empty(size, np.uint8))
        parts = _parts(message.body)
        requests = [self._comm.Irecv([part, self._mpi.BYTE], source=source, tag=_BODY) for part in parts]
        queue.append(_Arriving(message, requests))
        return []

    def wake(self) -> None:
        """Do nothing: waiting threads poll."""

    def close(self) -> None:
        """Do nothing: everything has been sent and received, and MPI is finalized at exit."""


def _parts(body: Array) -> list[Array]:
    """``body`` in pieces whose sizes every MPI can count."""
    return [body[at : at + _LARGEST] for at in range(0, len(body), _LARGEST)]

"""Bootstrap of connections between processes that MPI did not start.

Every process listens, publishes its address on a board (the store of the rendezvous), and connects to those of lower
rank. A process that dies before it is connected to all is distinguished from a late one by its address: its port no
longer accepts connections.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Protocol

from tracecomp.communication.errors import DistError, DistNetworkError, DistStoreError

_HELLO = 4
"""Bytes of the rank that opens a connection."""
_LOOK = 0.2
"""Seconds between checks whether a process has died."""
_STAY = 1.0
"""Seconds that rank 0, which may serve the board, stays after a failure, so that others can read the reason."""


class Board(Protocol):
    """The place where processes publish their addresses: a store."""

    def set(self, key: str, value: object) -> None: ...

    def get(self, key: str) -> bytes: ...

    def check(self, keys: Sequence[str]) -> bool: ...

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None: ...


def links_to_all(rank: int, size: int, board: Board, host: str, seconds: float) -> dict[int, socket.socket]:
    """Return a connection to every other process.

    DistNetworkError, which names the rank, when a process dies or does not connect within ``seconds``; all waiting
    processes then raise it.
    """
    meeting = _Meeting(rank, size, board, seconds)
    with socket.create_server((host if ":" not in host else "", 0), backlog=size) as listener:
        try:
            board.set(f"address/{rank}", f"{host} {listener.getsockname()[1]} {os.getpid()}")
            meeting.connect()
            meeting.accept(listener)
            meeting.agree()
        except DistError as error:
            meeting.fail(error)
            raise
    return meeting.links


def check_still_runs(rank: int, waiting: int, size: int) -> None:
    """DistNetworkError if the launcher's note says that ``rank`` has ended with status 0, so that it will never join.

    The notes hold for the launcher's own ranks only, not for other numbers of processes.
    """
    notes = os.environ.get("TRACECOMP_RUN_NOTES")
    own = (os.environ.get("RANK"), os.environ.get("WORLD_SIZE")) == (str(waiting), str(size))
    if notes and own and os.path.exists(os.path.join(notes, f"done{rank}")):
        raise DistNetworkError(f"rank {rank} ended with status 0 without joining, while rank {waiting} waited for it")


class _Meeting:
    """The connections of this process so far."""

    def __init__(self, rank: int, size: int, board: Board, seconds: float) -> None:
        self.rank, self.size, self.board, self.seconds = rank, size, board, seconds
        self.deadline = time.monotonic() + seconds
        self.links: dict[int, socket.socket] = {}
        self.token = b""

    def connect(self) -> None:
        """Connect to all of lower rank, with the token that rank 0 publishes."""
        if self.rank == 0:
            self.board.set("token", secrets.token_hex(16))
        self.token = self._said("token", 0)
        for lower in range(self.rank):
            link = self._opened(lower)
            self._sent(lower, link, self.rank.to_bytes(_HELLO, "little") + self.token)
            self.links[lower] = link

    def accept(self, listener: socket.socket) -> None:
        """Wait for connections of all of higher rank."""
        while missing := [r for r in range(self.rank + 1, self.size) if r not in self.links]:
            listener.settimeout(_LOOK)
            try:
                link, _ = listener.accept()
            except TimeoutError:
                self._look(missing)
                continue
            rank = self._introduced(link)
            if rank is None:
                link.close()
            else:
                self.links[rank] = link

    def agree(self) -> None:
        """Wait until all others are connected to all too.

        No process continues and then ends while others still need it for their connections.
        """
        for rank, link in self.links.items():
            self._sent(rank, link, b"\1")
        for rank, link in self.links.items():
            link.settimeout(_LOOK)
            while not (said := self._heard(link)):
                if said is not None:
                    raise self._death(rank)
                self._look([rank])
            link.settimeout(None)

    def _sent(self, rank: int, link: socket.socket, data: bytes) -> None:
        try:
            link.sendall(data)
        except OSError as error:
            raise self._death(rank) from error

    def _heard(self, link: socket.socket) -> bytes | None:
        """The next byte, empty from a process that is gone, None if none has arrived."""
        try:
            return link.recv(1)
        except TimeoutError:
            return None
        except OSError:
            return b""

    def _introduced(self, link: socket.socket) -> int | None:
        """The rank that opened a connection; None without the right token."""
        link.settimeout(max(self.deadline - time.monotonic(), 0.001))
        hello, whole = b"", _HELLO + len(self.token)
        try:
            while len(hello) < whole and (more := link.recv(whole - len(hello))):
                hello += more
        except OSError:  # died, or speaks another protocol
            return None
        known = len(hello) == whole and hmac.compare_digest(hello[_HELLO:], self.token)
        return int.from_bytes(hello[:_HELLO], "little") if known else None

    def _said(self, key: str, by: int) -> bytes:
        """Wait for the entry of rank ``by`` on the board."""
        while True:
            try:
                self.board.wait([key], timedelta(seconds=_LOOK))
                return self.board.get(key)
            except DistStoreError:
                self._look([by])

    def _opened(self, rank: int) -> socket.socket:
        where, port, _ = self._said(f"address/{rank}", rank).decode().split()
        try:
            return socket.create_connection((where, int(port)), timeout=max(self.deadline - time.monotonic(), 0.001))
        except ConnectionError as error:
            raise self._death(rank) from error
        except OSError as error:
            raise DistNetworkError(f"no connection to rank {rank} at {where}:{port}: {error}") from error

    def _look(self, missing: Sequence[int]) -> None:
        """Raise if one of ``missing`` is gone, another process has reported that, or the time is over."""
        note = self._note()
        if note is not None:
            raise DistNetworkError(note)
        for rank in missing:
            check_still_runs(rank, self.rank, self.size)
        for rank in missing:
            if rank not in self.links and self.board.check([f"address/{rank}"]) and not self._listens(rank):
                raise self._death(rank)
        if time.monotonic() > self.deadline:
            named = f"rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))}"
            raise DistNetworkError(f"{named} did not join within {self.seconds:g} s, while rank {self.rank} waited")

    def _listens(self, rank: int) -> bool:
        """Whether the process is alive: it listens until it is connected to this one."""
        where, port, _ = self.board.get(f"address/{rank}").decode().split()
        try:
            socket.create_connection((where, int(port)), timeout=1.0).close()
        except ConnectionError:
            return False
        except OSError:  # a timeout proves nothing
            pass
        return True

    def _note(self) -> str | None:
        """The reason why another process has given up, if any."""
        return self.board.get("failed").decode() if self.board.check(["failed"]) else None

    def _death(self, rank: int) -> DistNetworkError:
        """The error for a process that is gone, with the reason if it could publish one."""
        note = None
        with suppress(DistNetworkError):  # the store is gone too
            note = self._note()
        return DistNetworkError(note or f"rank {rank} died while processes connected to each other")

    def fail(self, error: DistError) -> None:
        """Publish the error for waiting processes, if the board still exists, and close connections."""
        try:
            self.board.set("failed", str(error))
            if self.rank == 0:
                time.sleep(_STAY)
        except DistError:
            return
        finally:
            for link in self.links.values():
                link.close()

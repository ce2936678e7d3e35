"""Transport of bytes over TCP, for processes that MPI did not start; every pair is connected."""

from __future__ import annotations

import selectors
import socket
import threading
from collections import deque
from collections.abc import Iterator

import numpy as np

from tracecomp.communication.meeting import Board, links_to_all
from tracecomp.communication.messages import HEADER, Array, Kind, Message, Sending

_STAGE = 1 << 16
"""Bytes read at once for short messages, many of which arrive together; longer bodies are read into place."""


class _Peer:
    """One connection: the data to send, and the received part of the next messages."""

    def __init__(self, rank: int, link: socket.socket) -> None:
        self.rank, self.link = rank, link
        self.lock = threading.Lock()
        self.out: deque[tuple[memoryview, Sending | None]] = deque()
        self.closed = False
        self._stage = np.empty(_STAGE, np.uint8)
        self._start = self._end = 0
        self._message: Message | None = None
        self._have = 0
        link.setblocking(False)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def write(self) -> bool:
        """Send as much as the system accepts; return whether data is left. The lock is held."""
        while self.out:
            view, sending = self.out[0]
            if self.closed:
                count = len(view)
            else:
                try:
                    count = self.link.send(view)
                except BlockingIOError:
                    return True
                except OSError:  # reading will report it
                    self.closed, count = True, len(view)
            if count < len(view):
                self.out[0] = (view[count:], sending)
                continue
            self.out.popleft()
            if sending is not None:
                sending.done = True
        return False

    def read(self) -> Iterator[Message]:
        """Yield complete messages; at the end of the connection one of kind LOST."""
        while True:
            message = self._message
            try:
                if message is not None:
                    count = self.link.recv_into(message.body[self._have :].data)
                else:
                    count = self.link.recv_into(self._stage[self._end :].data)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                count = 0
            if not count:
                yield Message(self.rank, Kind.LOST, 0, 0, np.empty(0, np.uint8))
                return
            if message is not None:
                self._have += count
                if self._have < len(message.body):
                    continue
                self._message = None
                yield message
                continue
            self._end += count
            full = self._end == _STAGE
            yield from self._parsed()
            if not full and self._message is None:
                return

    def _parsed(self) -> Iterator[Message]:
        """Yield messages in the stage; the body of an incomplete one is read into place."""
        while self._end - self._start >= HEADER.size:
            kind, group, number, size = HEADER.unpack_from(self._stage.data, self._start)
            begin = self._start + HEADER.size
            here = min(size, self._end - begin)
            message = Message(self.rank, Kind(kind), group, number, np.empty(size, np.uint8))
            message.body[:here] = self._stage[begin : begin + here]
            self._start = begin + here
            if here < size:
                self._message, self._have = message, here
                break
            yield message
        rest = self._end - self._start
        self._stage[:rest] = self._stage[self._start : self._end].copy()
        self._start, self._end = 0, rest


class SocketTransport:
    """A transport with a connection between every pair of processes."""

    name = "TCP"

    def __init__(self, rank: int, size: int, board: Board, host: str, seconds: float) -> None:
        self.rank, self.size = rank, size
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        for end in (self._woken, self._waker):
            end.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        self._peers: dict[int, _Peer] = {}
        self._unsent: set[int] = set()
        self._watched: set[int] = set()
        for other, link in links_to_all(rank, size, board, host, seconds).items():
            self._add(other, link)

    def _add(self, rank: int, link: socket.socket) -> None:
        peer = self._peers[rank] = _Peer(rank, link)
        self._selector.register(link, selectors.EVENT_READ, peer)

    def send(self, peer: int, head: bytes, body: Array) -> Sending:
        to, sending = self._peers[peer], Sending()
        with to.lock:
            if len(body) <= _STAGE:
                to.out.append((memoryview(head + body.tobytes()), sending))
            else:
                to.out.append((memoryview(head), None))
                to.out.append((body.data, sending))
            left = to.write()
        if left:
            self._unsent.add(peer)
            self.wake()
        return sending

    def pump(self, seconds: float) -> list[Message]:
        for rank in self._unsent - self._watched:
            self._watch(rank, selectors.EVENT_READ | selectors.EVENT_WRITE)
        found: list[Message] = []
        for key, events in self._selector.select(seconds):
            peer: _Peer | None = key.data
            if peer is None:
                while self._drained():
                    pass
                continue
            if events & selectors.EVENT_WRITE:
                with peer.lock:
                    if not peer.write():
                        self._unsent.discard(peer.rank)
                if peer.rank not in self._unsent:
                    self._watch(peer.rank, selectors.EVENT_READ)
            if events & selectors.EVENT_READ:
                found += peer.read()
                if found and found[-1].kind is Kind.LOST:
                    self._drop(peer)
        return found

    def _watch(self, rank: int, events: int) -> None:
        peer = self._peers[rank]
        (self._watched.add if events & selectors.EVENT_WRITE else self._watched.discard)(rank)
        if not peer.closed:
            self._selector.modify(peer.link, events, peer)

    def _drop(self, peer: _Peer) -> None:
        self._selector.unregister(peer.link)
        with peer.lock:
            peer.closed = True
            peer.write()
        peer.link.close()
        self._unsent.discard(peer.rank)

    def _drained(self) -> bool:
        try:
            return bool(self._woken.recv(64))
        except BlockingIOError:
            return False

    def wake(self) -> None:
        try:
            self._waker.send(b"\0")
        except OSError:  # full, or closed: a wake-up is pending or unnecessary
            return

    def close(self) -> None:
        self._selector.close()
        for end in (self._woken, self._waker, *(p.link for p in self._peers.values())):
            end.close()

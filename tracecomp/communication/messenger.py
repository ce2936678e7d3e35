"""Mailboxes over a transport: wait for messages, and detect processes that died, left or disagree.

A single waiting thread moves the bytes of all; others wait for its notifications.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from tracecomp.communication.errors import DistBackendError
from tracecomp.communication.messages import Array, Kind, Message, Sending, Transport, as_bytes, header

_Box = tuple[int, Kind, int, int]
_NOTHING = np.empty(0, np.uint8)
_TURN = 0.5
"""Seconds between checks of a wait's time limit."""


@dataclass(frozen=True)
class Place:
    """Context of a wait, for its error: the group with its members, the operation, and the deadline."""

    group: int
    members: Sequence[int]
    what: str
    deadline: float
    seconds: float


class Receiving:
    """A request for a message of one of ``sources``. Requests are served in order."""

    __slots__ = ("message", "sources")

    def __init__(self, sources: Sequence[int]) -> None:
        self.sources = sources
        self.message: Message | None = None


class Messenger:
    """Messages of this process to and from all others. Methods may be called by any thread."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.rank, self.size = transport.rank, transport.size
        self._changed = threading.Condition()
        self._pumping = False
        self._boxes: dict[_Box, deque[Message]] = {}  # messages that are not requested yet
        self._asked: dict[tuple[Kind, int, int], list[Receiving]] = {}  # requests for messages, in order
        self._gone: dict[int, str] = {}  # ended processes, with the reason
        self._broken: dict[int, str] = {}  # groups with a failed operation, with the reason
        self._called: dict[tuple[int, int], tuple[str, Sequence[int]]] = {}  # calls to compare with the neighbour's
        self._heard: dict[tuple[int, int], tuple[int, str]] = {}  # neighbours' calls that are not made here yet
        self._passed: dict[int, int] = {}  # a group's last collective that all have reached
        self._closed = False

    # ---- sending and receiving

    def send(self, peer: int, kind: Kind, group: int, number: int, array: Array) -> Sending:
        """Start to send; ``array`` must not change before the sending is done."""
        body = as_bytes(array)
        if peer == self.rank:
            self._deliver([Message(peer, kind, group, number, body.copy())])
            return Sending(done=True)
        return self.transport.send(peer, header(kind, group, number, len(body)), body)

    def receive(self, source: int, kind: Kind, number: int, place: Place) -> Array:
        """The bytes of the next message from ``source``."""
        return self.receive_any((source,), kind, number, place).body

    def receive_any(self, sources: Sequence[int], kind: Kind, number: int, place: Place, fatal: bool = True) -> Message:
        """Return the next message of one of ``sources``. An error ends the group, unless ``fatal`` is False."""
        return self.received(self.ask(sources, kind, place.group, number), kind, number, place, fatal)

    def ask(self, sources: Sequence[int], kind: Kind, group: int, number: int) -> Receiving:
        """Request the next message of one of ``sources``."""
        asked = Receiving(sources)
        with self._changed:
            asked.message = self._next(sources, kind, group, number)
            if asked.message is None:
                self._asked.setdefault((kind, group, number), []).append(asked)
        return asked

    def received(self, asked: Receiving, kind: Kind, number: int, place: Place, fatal: bool = True) -> Message:
        """Wait for the requested message. An error ends the group, unless ``fatal`` is False."""
        try:
            self._wait(lambda: asked.message is not None, asked.sources, place, fatal)
        except BaseException:
            with self._changed:
                self._forgotten(asked, (kind, place.group, number))
            raise
        assert asked.message is not None
        return asked.message

    def has_come(self, asked: Receiving) -> bool:
        """Whether the requested message has arrived."""
        if asked.message is None:
            self._step(0.0)
        return asked.message is not None

    def _forgotten(self, asked: Receiving, box: tuple[Kind, int, int]) -> None:
        """Remove a request. The lock is held."""
        row = self._asked.get(box, [])
        if asked in row:
            row.remove(asked)
        if not row:
            self._asked.pop(box, None)

    def _taken(self, message: Message) -> bool:
        """Whether a message was requested: the first request receives it. The lock is held."""
        box = message.kind, message.group, message.number
        for asked in self._asked.get(box, ()):
            if message.source in asked.sources:
                asked.message = message
                self._forgotten(asked, box)
                return True
        return False

    def flush(self, sendings: Iterable[Sending], place: Place) -> None:
        """Wait until everything is sent."""
        waiting = [s for s in sendings if not s.done]
        if waiting:
            self._wait(lambda: all(s.done for s in waiting), (), place)

    def _next(self, sources: Sequence[int], kind: Kind, group: int, number: int) -> Message | None:
        for source in sources:
            box = self._boxes.get((source, kind, group, number))
            if box:
                message = box.popleft()
                if not box:
                    del self._boxes[source, kind, group, number]
                return message
        return None

    # ---- waiting

    def _wait(self, ready: Callable[[], bool], sources: Sequence[int], place: Place, fatal: bool = True) -> None:
        while True:
            with self._changed:
                if ready():
                    return
                why = self._obstacle(sources, place)
            if why is not None:
                if fatal:
                    self.give_up(place, why)
                raise DistBackendError(why)
            self._step(min(_TURN, max(place.deadline - time.monotonic(), 0.0)))

    def _step(self, seconds: float) -> None:
        """Move bytes, or wait for the thread that does."""
        with self._changed:
            if self._pumping:
                self._changed.wait(seconds)
                return
            self._pumping = True
        found: list[Message] = []
        try:
            found = self.transport.pump(seconds)
        finally:
            with self._changed:
                self._pumping = False
                self._deliver(found)
                self._changed.notify_all()

    def _obstacle(self, sources: Sequence[int], place: Place) -> str | None:
        """The reason why the awaited message cannot arrive. The lock is held."""
        if place.group in self._broken:
            return self._broken[place.group]
        nobody = all(rank in self._gone for rank in sources)  # at least one possible sender must be alive
        for rank in (*sources, *place.members):
            how = self._gone.get(rank)
            if how is not None and ((nobody and rank in sources) or how.startswith("died")):
                return f"rank {rank} {how}, while rank {self.rank} was in {place.what}"
        if time.monotonic() < place.deadline:
            return None
        asked = f" for rank {', '.join(map(str, sources))}" if sources else ""
        return f"rank {self.rank} waited {place.seconds:g} s{asked} in {place.what}"

    # ---- failures

    def break_off(self, place: Place, why: str) -> None:
        """Notify the members of a group that an operation failed: theirs fail too."""
        with self._changed:
            if place.group in self._broken:
                return
            self._broken[place.group] = why
            others = [m for m in place.members if m != self.rank and m not in self._gone]
            self._changed.notify_all()
        for rank in others:
            self.send(rank, Kind.ABORT, place.group, 0, np.frombuffer(why.encode(), np.uint8))
        self.transport.wake()

    def call(self, number: int, place: Place) -> None:
        """Announce that the members' collective ``number`` is ``place.what`` here; compare with the neighbour's."""
        members = place.members
        at = members.index(self.rank)
        key = place.group, number
        with self._changed:
            self._called[key] = place.what, members
            heard = self._heard.pop(key, None)
            if heard is not None:
                self._compare(key, *heard)
            if place.group in self._broken:
                raise DistBackendError(self._broken[place.group])
        text = np.frombuffer(place.what.encode(), np.uint8)
        self.send(members[(at + 1) % len(members)], Kind.CHECK, place.group, number, text)

    def passed(self, group: int, number: int) -> None:
        """Record that all reached the collective ``number`` of a group: messages about it, or earlier ones, are
        obsolete."""
        self._passed[group] = number
        if self._heard or self._called:
            with self._changed:
                for table in (self._called, self._heard):
                    for key in [k for k in table if k[0] == group and k[1] <= number]:
                        del table[key]

    def obstacle(self, sources: Sequence[int], place: Place) -> str | None:
        """Process arrived messages; return the reason why ``sources`` cannot send, if any."""
        self._step(0.0)
        with self._changed:
            return self._obstacle(sources, place)

    def give_up(self, place: Place, why: str) -> NoReturn:
        """End an operation in all processes, and raise ``why``."""
        self.break_off(place, why)
        raise DistBackendError(why)

    def fail(self, place: Place) -> None:
        """Wait for the message that ends an operation in which processes disagree, and raise its error."""
        self._wait(lambda: False, (), place)

    def _compare(self, key: tuple[int, int], source: int, theirs: str) -> None:
        """Compare calls; end the group if they differ. The lock is held."""
        mine, members = self._called.pop(key)
        if mine == theirs or key[0] in self._broken:
            return
        why = f"ranks disagree: rank {source} called {theirs}, rank {self.rank} called {mine}"
        self._broken[key[0]] = why
        for rank in members:
            if rank not in self._gone and rank != self.rank:
                self.send(rank, Kind.ABORT, key[0], 0, np.frombuffer(why.encode(), np.uint8))

    # ---- receiving

    def _deliver(self, messages: Sequence[Message]) -> None:
        with self._changed:
            for m in messages:
                if m.kind is Kind.CHECK:
                    self._check(m)
                elif m.kind is Kind.ABORT:
                    self._broken.setdefault(m.group, m.text)
                elif m.kind is Kind.LEAVE:
                    self._gone[m.source] = m.text
                elif m.kind is Kind.LOST:
                    self._gone.setdefault(m.source, "died: its connection is closed")
                elif not self._taken(m):
                    self._boxes.setdefault((m.source, m.kind, m.group, m.number), deque()).append(m)

    def _check(self, message: Message) -> None:
        key = message.group, message.number
        if message.number <= self._passed.get(message.group, 0):
            return
        if key in self._called:
            self._compare(key, message.source, message.text)
        else:
            self._heard[key] = message.source, message.text

    # ---- shutdown

    def forget(self, group: int) -> None:
        """End all sends and receives of a group."""
        with self._changed:
            self._passed.pop(group, None)
            for table in (self._called, self._heard):
                for key in [k for k in table if k[0] == group]:
                    del table[key]
            for box in [b for b in self._boxes if b[2] == group]:
                del self._boxes[box]
            for row in [k for k in self._asked if k[1] == group]:
                del self._asked[row]

    def leave(self, how: str) -> None:
        """Notify all others that this process leaves, and why; close the transport."""
        if self._closed:
            return
        self._closed = True
        text = np.frombuffer(how.encode(), np.uint8)
        others = [r for r in range(self.size) if r != self.rank and not self._gone.get(r, "").startswith("died")]
        sent = [self.send(rank, Kind.LEAVE, 0, 0, text) for rank in others]
        end = time.monotonic() + 5.0
        while not all(s.done for s in sent) and time.monotonic() < end:
            self._step(0.05)
        self.transport.close()

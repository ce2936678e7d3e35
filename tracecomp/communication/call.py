"""One running collective of this process: its messages, or its shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from tracecomp.communication.messages import Array, Kind, Sending, as_bytes
from tracecomp.communication.messenger import Messenger, Place
from tracecomp.communication.shared_memory import SharedMemory


class Call:
    """One running collective.

    Its messages carry its number and a digest of the call. Those of a different call are never mistaken for its own,
    even if the disagreement is detected late.
    """

    def __init__(self, messenger: Messenger, row: int, at: Place) -> None:
        self.messenger, self.at = messenger, at
        self._row, self._compared = row, False  # the number among the group's collectives
        self._number = row | (crc32(at.what.encode()) >> 1) << 32
        self._sent: list[Sending] = []
        self.shared: SharedMemory | None = None
        """Its shared memory, if there is one."""

    def compare(self) -> None:
        """Announce this call, and detect other processes in another call."""
        if not self._compared:
            self._compared = True
            self.messenger.call(self._row, self.at)

    def publish(self, arrays: Sequence[Array]) -> None:
        """Show the concatenated bytes of ``arrays`` to all processes, and wait until all have shown theirs.

        DistBackendError if they do not arrive, or make another call.
        """
        shared, messenger = self.shared, self.messenger
        assert shared is not None
        room = shared.room(sum(a.nbytes for a in arrays))
        at = 0
        for array in arrays:
            room[at : at + array.nbytes] = as_bytes(array)
            at += array.nbytes
        why = shared.publish(self._number, self._obstacle)
        if why is not None:
            messenger.give_up(self.at, why)
        if not shared.together(self._number):
            self.compare()
            messenger.fail(self.at)
        messenger.passed(self.at.group, self._row)

    def _obstacle(self, late: int) -> str | None:
        """The reason why the process ``late``, which others wait for, will not arrive."""
        self.compare()
        return self.messenger.obstacle((self.at.members[late],), self.at)

    def published(self, rank: int, nbytes: int) -> Array:
        """The memory in which a process showed its bytes, valid until the publication after the next."""
        assert self.shared is not None
        return self.shared.read(rank, nbytes)

    def send(self, to: int, array: Array) -> None:
        sending = self.messenger.send(self.at.members[to], Kind.DATA, self.at.group, self._number, array)
        self._sent.append(sending)

    def receive(self, source: int) -> Array:
        return self.messenger.receive(self.at.members[source], Kind.DATA, self._number, self.at)

    def exchange(self, arrays: Sequence[Array], end: bool = True) -> list[Array]:
        """Send ``arrays[r]`` to every process; return the bytes of each."""
        size = len(self.at.members)
        place = self.at.members.index(self.messenger.rank)
        for step in range(size):
            self.send((place + step) % size, arrays[(place + step) % size])
        found = [self.receive(r) for r in range(size)]
        if end:
            self.end()
        return found

    def end(self) -> None:
        """Wait until all messages are sent."""
        self.messenger.flush(self._sent, self.at)

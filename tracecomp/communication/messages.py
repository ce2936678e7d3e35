"""What travels between two processes: a header of fixed size, then bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, Any]

HEADER = struct.Struct("<BIqQ")


class Kind(IntEnum):
    """What a message is for. ``number`` of its header is that of the collective, or the tag of a point to point one."""

    DATA, POINT, CHECK, ABORT, LEAVE, LOST = range(6)


@dataclass(slots=True)
class Message:
    """One message as it arrived from process ``source``; ``body`` are its bytes."""

    source: int
    kind: Kind
    group: int
    number: int
    body: Array

    @property
    def text(self) -> str:
        return self.body.tobytes().decode()


class Sending:
    """Bytes on their way out; their memory must not change before ``done``."""

    __slots__ = ("done",)

    def __init__(self, done: bool = False) -> None:
        self.done = done


def header(kind: Kind, group: int, number: int, size: int) -> bytes:
    return HEADER.pack(kind, group, number, size)


def as_bytes(array: Array) -> Array:
    """The memory of a contiguous array as bytes; a copy of one that is not."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def contiguous(array: Array) -> Array:
    """The array in one piece, in its shape: numpy's function makes one axis of none."""
    return np.ascontiguousarray(array).reshape(array.shape)


class Transport(Protocol):
    """Moves bytes between the processes of one program. ``pump`` is called by one thread at a time, ``send`` by any.

    Messages from one process to another arrive in the order in which they were sent.
    """

    rank: int
    size: int
    name: str

    def send(self, peer: int, head: bytes, body: Array) -> Sending:
        """Start to send."""

    def pump(self, seconds: float) -> list[Message]:
        """Move bytes until a message has arrived or a sending is done, for at most ``seconds``.

        A process that ended is told once as a message of kind LOST.
        """

    def wake(self) -> None:
        """End a ``pump`` that is waiting in another thread."""

    def close(self) -> None:
        """Give back connections; nothing is sent any more."""


class Alone:
    """The transport of a program of one process."""

    rank, size, name = 0, 1, "one process"

    def send(self, peer: int, head: bytes, body: Array) -> Sending:
        raise ValueError(f"there is no process {peer}")

    def pump(self, seconds: float) -> list[Message]:
        return []

    def wake(self) -> None:
        """Nobody waits."""

    def close(self) -> None:
        """Nothing is open."""

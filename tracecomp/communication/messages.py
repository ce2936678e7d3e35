"""Format of messages between two processes: a header of fixed size, then bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, Any]

HEADER = struct.Struct("<BIqQ")


class Kind(IntEnum):
    """Purpose of a message. ``number`` in its header is that of the collective, or the tag of a point-to-point one."""

    DATA, POINT, CHECK, ABORT, LEAVE, LOST = range(6)


@dataclass(slots=True)
class Message:
    """A received message of process ``source``; ``body`` are its bytes."""

    source: int
    kind: Kind
    group: int
    number: int
    body: Array

    @property
    def text(self) -> str:
        return self.body.tobytes().decode()


class Sending:
    """Bytes that are being sent; their memory must not change before ``done``."""

    __slots__ = ("done",)

    def __init__(self, done: bool = False) -> None:
        self.done = done


def header(kind: Kind, group: int, number: int, size: int) -> bytes:
    return HEADER.pack(kind, group, number, size)


def as_bytes(array: Array) -> Array:
    """The memory of a contiguous array as bytes; a copy if it is not contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def contiguous(array: Array) -> Array:
    """Make the array contiguous in its shape: numpy's function turns 0-d arrays into 1-d ones."""
    return np.ascontiguousarray(array).reshape(array.shape)


class Transport(Protocol):
    """Transport of bytes between the processes of one program. ``pump`` is called by one thread at a time, ``send`` by
    any.

    Messages from one process to another arrive in the order in which they were sent.
    """

    rank: int
    size: int
    name: str

    def send(self, peer: int, head: bytes, body: Array) -> Sending:
        """Start to send."""

    def pump(self, seconds: float) -> list[Message]:
        """Move bytes until a message has arrived or a sending is done, for at most ``seconds``.

        A process that ended is reported once by a message of kind LOST.
        """

    def wake(self) -> None:
        """Interrupt a ``pump`` that waits in another thread."""

    def close(self) -> None:
        """Close connections; nothing is sent afterwards."""


class Alone:
    """The transport of a single process."""

    rank, size, name = 0, 1, "one process"

    def send(self, peer: int, head: bytes, body: Array) -> Sending:
        raise ValueError(f"there is no process {peer}")

    def pump(self, seconds: float) -> list[Message]:
        return []

    def wake(self) -> None:
        """Do nothing: there are no waiting threads."""

    def close(self) -> None:
        """Do nothing: there are no connections."""

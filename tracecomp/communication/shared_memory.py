"""Shared memory of the processes of a group on one machine: collectives read each other's arrays in place.

Every process has a segment that it alone writes: a counter of publications, digests of the two last calls, and memory
for two publications. A process that is two publications ahead of a reader would overwrite its data, so every
publication waits for the previous one of all others.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import struct
import sys
from collections.abc import Callable, Sequence

import numpy as np

from tracecomp.communication.messages import Array
from tracecomp_runtime.machine_code import barrier

LARGEST = 1 << 25
"""Bytes that one process may publish at once."""
_LEAST = 1 << 16
"""Bytes of the initial segment, enough for most arrays except gradients."""
_HEAD = 4096
"""Bytes before the data: one page, for alignment."""
_DIGEST = 64
"""Offset of the digest of the first of two calls: in another cache line than the counter."""
_NAP = 0.01
"""Seconds between checks of messages during a wait: they report processes that died or disagree."""
_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine())
"""Linux's number of the system call by which processes wait for a word of memory to change."""
_WAIT, _WAKE, _ALL = 0, 1, (1 << 31) - 1
"""Linux's ``FUTEX_WAIT`` and ``FUTEX_WAKE``, and the number of woken threads: all."""
_PLACE = struct.Struct("<qqQ16s")


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_libc = ctypes.CDLL(None, use_errno=True)
_nap = _Time(0, int(_NAP * 1e9))


def available() -> bool:
    """Whether the system supports this, and ``TRACECOMP_SHARED_MEMORY=0`` does not disable it."""
    if os.environ.get("TRACECOMP_SHARED_MEMORY") == "0":
        return False
    return sys.platform == "linux" and _FUTEX is not None and hasattr(os, "memfd_create")


class _Segment:
    """The memory of one process."""

    def __init__(self, file: int, size: int) -> None:
        self._memory = mmap.mmap(file, size)
        everything: Array = np.frombuffer(self._memory, np.uint8)
        self._words = everything[:_HEAD].view(np.uint32)
        self._digests = everything[_DIGEST : _DIGEST + 16].view(np.uint64)
        half = (size - _HEAD) // 2
        self.halves = everything[_HEAD : _HEAD + half], everything[_HEAD + half :]
        self._address = ctypes.c_void_p(everything.ctypes.data)

    def count(self) -> int:
        """The number of publications, modulo 2**32."""
        number = int(self._words[0])
        barrier()  # the publication is read after its number
        return number

    def digest(self, number: int) -> int:
        return int(self._digests[number % 2])

    def tell(self, number: int, digest: int) -> None:
        """Publish the data in the half of ``number``, and wake waiting processes."""
        self._digests[number % 2] = digest
        barrier()  # the publication is written, and the previous ones of others are read, before its number shows
        self._words[0] = number & 0xFFFFFFFF
        _libc.syscall(_FUTEX, self._address, _WAKE, _ALL, None, None, 0)

    def sleep(self, seen: int) -> None:
        """Wait until the count is not ``seen``, for a short time at most."""
        _libc.syscall(_FUTEX, self._address, _WAIT, ctypes.c_uint32(seen), ctypes.byref(_nap), None, 0)


class SharedMemory:
    """The segments of all processes of a group; ``place`` is the index of this process."""

    def __init__(self, place: int, segments: Sequence[_Segment], capacity: int) -> None:
        self._place, self._segments, self.capacity = place, segments, capacity
        self._number = 0

    def room(self, nbytes: int) -> Array:
        """The memory for the ``nbytes`` of the next publication of this process."""
        return self._segments[self._place].halves[(self._number + 1) % 2][:nbytes]

    def publish(self, digest: int, obstacle: Callable[[int], str | None]) -> str | None:
        """Publish the written data, and wait until all have published; return the reason if that cannot happen.

        ``obstacle`` is called repeatedly while a process is late: it returns why that process cannot arrive.
        """
        self._number += 1
        self._segments[self._place].tell(self._number, digest)
        for place, segment in enumerate(self._segments):
            while self._late(seen := segment.count()):
                segment.sleep(seen)
                if segment.count() == seen:
                    why = obstacle(place)
                    if why is not None and self._late(segment.count()):  # it may have published before it left
                        return why
        return None

    def _late(self, count: int) -> bool:
        return 0 < ((self._number - count) & 0xFFFFFFFF) < 1 << 31

    def together(self, digest: int) -> bool:
        """Whether the last publications of all processes belong to the same call."""
        return all(s.digest(self._number) == digest for s in self._segments)

    def read(self, place: int, nbytes: int) -> Array:
        """The publication of a process, valid until the one after the next."""
        return self._segments[place].halves[self._number % 2][:nbytes]


def meet(place: int, nbytes: int, exchange: Callable[[Array], Sequence[Array]]) -> SharedMemory | None:
    """Create segments with room for ``nbytes``; None in all processes when they are not on one machine.

    ``exchange`` returns the bytes of all processes.
    """
    capacity = max(_LEAST, 1 << (nbytes - 1).bit_length())
    mine = _made(_HEAD + 2 * capacity)
    others = exchange(np.frombuffer(_described(mine), np.uint8))
    segments = _opened(mine, [o.tobytes() for o in others])
    agreed = exchange(np.array([segments is not None], np.uint8))
    if mine is not None:
        os.close(mine)
    return SharedMemory(place, segments, capacity) if segments is not None and all(a[0] for a in agreed) else None


def _made(size: int) -> int | None:
    """Create an anonymous file: it is freed when the last process that maps it ends."""
    if not available():
        return None
    try:
        file = os.memfd_create("tracecomp", os.MFD_CLOEXEC)
        os.ftruncate(file, size)
    except OSError:  # out of memory, or not permitted
        return None
    return file


def _described(file: int | None) -> bytes:
    """Describe where others find the file; they must have the same process namespace."""
    if file is None:
        return _PLACE.pack(-1, -1, 0, b"")
    with open("/proc/sys/kernel/random/boot_id", "rb") as boot:
        machine = bytes.fromhex(boot.read().decode().strip().replace("-", ""))
    processes = os.stat("/proc/self/ns/pid").st_ino
    return _PLACE.pack(os.getpid(), file, processes, machine)


def _opened(mine: int | None, described: Sequence[bytes]) -> list[_Segment] | None:
    """The segments of all; None if one is not accessible."""
    places = [_PLACE.unpack(d) for d in described]
    if mine is None or any(p[0] < 0 or p[2:] != places[0][2:] for p in places):
        return None
    found: list[_Segment] = []
    for process, file, *_ in places:
        try:
            opened = os.open(f"/proc/{process}/fd/{file}", os.O_RDWR | os.O_CLOEXEC)
            found.append(_Segment(opened, os.fstat(opened).st_size))
            os.close(opened)
        except (OSError, ValueError):  # another user's process, or it is gone
            return None
    return found

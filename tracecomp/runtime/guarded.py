"""Memory between inaccessible pages, for checked programs.

An array ends at the next page: an access beyond it ends the process at once instead of being missed. The bytes between
the preceding page and the array have a pattern that is checked after the call.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracecomp.base.errors import CheckError
from tracecomp.ir.loops import LINE

Array = np.ndarray[Any, Any]
Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]

_PATTERN = 0xA5
"""A byte that is rare in numbers: unwritten memory shows."""
_FORBIDDEN = 0
"""PROT_NONE: neither readable nor writable."""


@dataclass(frozen=True)
class Guarded:
    """An array's bytes, and the gap between the preceding page and them."""

    room: Bytes
    gap: Bytes

    @staticmethod
    def of(nbytes: int) -> Guarded:
        """``nbytes`` between two forbidden pages. OSError when the system has no memory left."""
        page = mmap.PAGESIZE
        inner = max(-(-nbytes // page), 1) * page
        memory = np.frombuffer(mmap.mmap(-1, inner + 2 * page, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
        for start in (0, page + inner):
            _forbid(memory.ctypes.data + start, page)
        first = page + inner - nbytes
        gap = memory[page:first]
        gap[:] = _PATTERN
        return Guarded(memory[first : page + inner], gap)

    @staticmethod
    def copy(array: Array) -> tuple[Guarded, Array]:
        """The elements of ``array`` in row-major order, between forbidden pages."""
        memory = Guarded.of(array.nbytes)
        copy = memory.room.view(array.dtype).reshape(array.shape)
        np.copyto(copy, array)
        return memory, copy

    def intact(self) -> bool:
        """Whether nothing was written before the memory."""
        return bool((self.gap == _PATTERN).all())


def guarded_bytes(nbytes: int) -> Bytes:
    """Zeroed memory that starts at a cache line, between forbidden pages."""
    return Guarded.of(-(-nbytes // LINE) * LINE).room[:nbytes]


class GuardedCall:
    """The arrays of one call in guarded memory: the first ``inputs`` are read, and those in ``written`` are updated."""

    def __init__(self, arrays: Sequence[Array], inputs: int, written: Sequence[int]) -> None:
        self._own = arrays
        self._changing = {*written, *range(inputs, len(arrays))}
        pairs = [Guarded.copy(a) for a in arrays]
        self._memory = [memory for memory, _ in pairs]
        self.arrays = [copy for _, copy in pairs]

    def finish(self, name: str) -> None:
        """Copy back the memory that the program may write. CheckError if it wrote any other."""
        for n, (memory, own, now) in enumerate(zip(self._memory, self._own, self.arrays, strict=True)):
            if not memory.intact():
                raise CheckError(f"{name} writes before the start of array {n}")
            if n in self._changing:
                np.copyto(own, now)
            elif own.tobytes() != now.tobytes():
                raise CheckError(f"{name} writes to input {n}, which is declared read-only")


def _forbid(address: int, nbytes: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(nbytes), _FORBIDDEN):
        raise OSError(ctypes.get_errno(), "mprotect failed")

"""Machine code of a program in memory, and its calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracecomp.base.errors import native_failure
from tracecomp.codegen.threads.entry import ENTRY
from tracecomp.ir.arrays import row_major_copy
from tracecomp.runtime import threads
from tracecomp.runtime.entry import load, new_call
from tracecomp.runtime.guarded import GuardedCall, guarded_bytes
from tracecomp.runtime.image import Image
from tracecomp.runtime.malloc import aligned_bytes

Array = np.ndarray[Any, Any]


@dataclass
class _Call:
    """A builtin and its arena, whose preparation is for the last ``seen``."""

    run: Callable[..., int]
    arena: Array
    seen: Any = None


class Loaded:
    """One way of compiling a program, loaded. Idle calls keep their memory, by thread count, for reuse."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self.library = load(image.objects)
        self.entry = self.library.address(ENTRY)
        self._idle: defaultdict[int, list[_Call]] = defaultdict(list)

    def run(self, arrays: Sequence[Array], count: int | None, seen: object = None) -> None:
        """Run on ``arrays``; IndexError names the operation whose index is out of range.

        Frozen inputs are unchanged between calls with an equal ``seen``; None: they may differ each time.
        """
        count = threads.wanted(count) if self.image.parallel else 1
        if count > 1:
            threads.start_workers(count - 1)
        idle = self._idle[count]
        try:
            call = idle.pop()
        except IndexError:
            call = self._new_call(count)
        if self.image.prepared is not None:
            call.arena[self.image.prepared] = seen is not None and seen == call.seen
            call.seen = None
        failed = call.run(*arrays)
        if failed >= 0:
            call.seen = seen
        idle.append(call)
        if failed > 0:
            raise native_failure(failed, self.image.labels)
        if failed:
            self.run(self._plain(arrays), count, seen)

    def free_idle(self) -> None:
        """Free the memory of calls that have ended."""
        self._idle.clear()

    def _plain(self, arrays: Sequence[Array]) -> list[Array]:
        """Return objects of exactly the type ndarray: the same memory, or contiguous copies of inputs."""
        if len(arrays) != self.image.arrays or not all(isinstance(a, np.ndarray) for a in arrays):
            raise TypeError(f"{self.image.arrays} arrays are expected, got {[type(a).__name__ for a in arrays]}")
        outputs = arrays[self.image.inputs :]
        if not all(a.flags.c_contiguous for a in outputs):
            raise ValueError("outputs must be C-contiguous")
        return [*map(_row_major, arrays[: self.image.inputs]), *[a.view(np.ndarray) for a in outputs]]

    def _new_call(self, count: int) -> _Call:
        arena_bytes = self.image.memory_bytes + count * self.image.thread_bytes
        pool, memory = threads.POOL.ctypes.data, guarded_bytes if self.image.checked else aligned_bytes
        return _Call(*new_call(self.entry, self.image.arrays, arena_bytes, count, pool, memory))


def _row_major(array: Array) -> Array:
    return np.ascontiguousarray(array if array.flags.c_contiguous else row_major_copy(array))


class _Guarded(Loaded):
    """Checked code, which runs on copies in guarded memory."""

    def run(self, arrays: Sequence[Array], count: int | None, seen: object = None) -> None:
        """Run like unchecked code; CheckError if it writes other memory."""
        call = GuardedCall(self._plain(arrays), self.image.inputs, self.image.written)
        super().run(call.arrays, count, seen)
        call.finish(", ".join(self.image.labels))


def loaded(image: Image) -> Loaded:
    """An image in memory, ready for calls."""
    return (_Guarded if image.checked else Loaded)(image)

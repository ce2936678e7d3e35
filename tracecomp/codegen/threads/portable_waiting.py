"""LLVM text of waiting on systems without Linux's system calls: with the best function that the process has.

macOS has ``os_sync_wait_on_address`` from 14.4 on, and before it ``__ulock_wait``, with which its C++ library waits. A
system without either sleeps in steps, which delays a worker and changes no result. None of these systems tells a
processor by number or lets a thread choose it, so workers stay where the system places them.
"""

from __future__ import annotations

import ctypes
import time
from functools import cache
from typing import Literal

from tracecomp.codegen.text.assembler import Assembler
from tracecomp.codegen.text.target import Target
from tracecomp.codegen.threads.waiting import PART_HEAD, Waiting

Way = Literal["os_sync", "ulock", "usleep"]
_NEEDED: dict[Way, tuple[str, ...]] = {
    "os_sync": ("os_sync_wait_on_address", "os_sync_wake_by_address_all"),
    "ulock": ("__ulock_wait", "__ulock_wake"),
    "usleep": ("usleep",),
}
"""Functions of each way to wait, the best way first."""
_DECLARED: dict[Way, str] = {
    "os_sync": "declare i32 @os_sync_wait_on_address(ptr, i64, i64, i32)\n"
    "declare i32 @os_sync_wake_by_address_all(ptr, i64, i32)",
    "ulock": "declare i32 @__ulock_wait(i32, ptr, i64, i32)\ndeclare i32 @__ulock_wake(i32, ptr, i64)",
    "usleep": "declare i32 @usleep(i32)",
}
_COMPARE_AND_WAIT, _WAKE_ALL = 1, 0x100
"""Darwin's numbers for ``__ulock_wait`` and ``__ulock_wake``."""
_STEP_US = 100
"""Microseconds of a sleep without a wake-up: about ten times what waking costs elsewhere."""


def waiting_for(target: Target) -> Waiting:
    """The emitter of waiting for ``target``."""
    return Waiting(target) if "linux" in target.triple else PortableWaiting(target, way_to_wait())


@cache
def way_to_wait() -> Way:
    """The best way to wait for a word of memory of which this process has all functions."""
    process = ctypes.CDLL(None)
    return next(way for way, names in _NEEDED.items() if all(hasattr(process, name) for name in names))


class PortableWaiting(Waiting):
    """Emit the functions for a system other than Linux, which waits in ``way``."""

    def __init__(self, target: Target, way: Way) -> None:
        super().__init__(target)
        self.way = way

    def _declared(self) -> str:
        return _DECLARED[self.way]  # of ``clock_gettime`` in ``sync.shared_text``

    def _sleep_while(self, a: Assembler, word: str, old: str) -> None:
        if self.way == "usleep":
            a.call("i32", "@usleep", f"i32 {_STEP_US}")
            return
        value = f"i64 {a.let(f'zext i32 {old} to i64')}"
        if self.way == "os_sync":
            a.call("i32", "@os_sync_wait_on_address", f"ptr {word}", value, "i64 4", "i32 0")
        else:
            a.call("i32", "@__ulock_wait", f"i32 {_COMPARE_AND_WAIT}", f"ptr {word}", value, "i32 0")

    def _wake_all(self, a: Assembler, word: str) -> None:
        if self.way == "os_sync":
            a.call("i32", "@os_sync_wake_by_address_all", f"ptr {word}", "i64 4", "i32 0")
        elif self.way == "ulock":
            a.call("i32", "@__ulock_wake", f"i32 {_COMPARE_AND_WAIT | _WAKE_ALL}", f"ptr {word}", "i64 0")

    def _read_clock(self, a: Assembler, own: bool, time: str) -> None:
        a.call("i32", "@clock_gettime", f"i32 {_THREAD if own else MONOTONIC}", f"ptr {time}")

    def record_thread(self, a: Assembler, seat: str) -> None:
        """Store nothing: no system call takes a thread's number."""

    def record_processor(self, a: Assembler, seat: str) -> None:
        """Store nothing: the system does not tell it."""

    def is_main_thread(self, a: Assembler) -> str:
        """True: Python itself leaves signals to its main thread."""
        return "true"

    def _part(self) -> str:
        a = Assembler()
        a.do("ret void")
        return a.text(PART_HEAD)


MONOTONIC = getattr(time, "CLOCK_MONOTONIC", 1)
"""This system's number of the clock of wall time."""
_THREAD = getattr(time, "CLOCK_THREAD_CPUTIME_ID", 3)

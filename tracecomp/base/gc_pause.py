"""The cycle collector: waiting for it cheaply, pausing it, and letting it run more rarely."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from tracecomp.base.forks import in_child


def collected(gone: Callable[[], bool]) -> bool:
    """Whether the object is gone after collection: young generations first, as a full collection may be slow."""
    for generation in range(3):
        if gone():
            return True
        _collect(generation)
    return gone()


def _collect(generation: int) -> None:
    """Collect a generation.

    ``gc.collect`` does nothing during a collection of another thread, so this function waits for it. The wait has a
    limit, because a finalizer may call it during a collection of the same thread.
    """
    end = time.monotonic() + 0.25
    before = gc.get_stats()[generation]["collections"]
    gc.collect(generation)
    while gc.get_stats()[generation]["collections"] == before and time.monotonic() < end:
        time.sleep(0.001)
        gc.collect(generation)


_inside: list[int] = []
"""Threads in blocks without the collector, once per block."""

_Result = TypeVar("_Result")


class _Here(threading.local):
    pauses = True


_here = _Here()


def never_pause_here() -> None:
    """Never pause the collector in this thread: the program runs in others, and could see that or set the collector."""
    _here.pauses = False


def without_collecting(work: Callable[[], _Result]) -> _Result:
    """Run ``work()`` without collection of cycles.

    This is for work that creates many long-lived objects, among which a collection would find no garbage. A thread that
    finds the collector running, or paused by another thread here, keeps it paused; the last one resumes it.
    """
    was, thread = _here.pauses and (gc.isenabled() or bool(_inside)), threading.get_ident()
    try:
        if was:
            _inside.append(thread)
            gc.disable()
        return work()
    finally:
        if was:
            if len(_inside) == 1:
                gc.enable()  # before Ctrl-C can interrupt
            _inside.remove(thread)
            if not _inside:
                gc.enable()  # of two threads that leave together, either may be the last
            else:
                gc.disable()  # another thread may have entered in between


YOUNG = 10_000
"""New objects between two collections while a program is recorded. By default there are 700. A recording creates many
objects that stay, so most collections find nothing. They took a fifth of the time. Few of them are tensors."""


class RareCollections:
    """From ``start`` to ``stop``, the collector runs only once in ``YOUNG`` new objects."""

    def __init__(self) -> None:
        self._before: tuple[int, int, int] | None = None

    def start(self) -> None:
        before = gc.get_threshold()
        if _here.pauses and 0 < before[0] < YOUNG:  # 0 would mean never
            self._before = before
            gc.set_threshold(YOUNG, *before[1:])

    def stop(self) -> None:
        before, self._before = self._before, None
        if before is not None and gc.get_threshold()[0] == YOUNG:
            gc.set_threshold(*before)


@in_child
def _after_fork() -> None:
    """In a forked child, the other threads inside do not exist."""
    if _inside:
        _inside.clear()
        gc.enable()

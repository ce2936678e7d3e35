"""The collector of cycles: waiting for it at no more cost than needed, and doing without it for a while."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable

from tracecomp.base.locks import Lock


def collected(gone: Callable[[], bool]) -> bool:
    """Whether what is looked for is gone, once cycles are collected: young ones first, for all objects may be many."""
    for generation in range(3):
        if gone():
            return True
        gc.collect(generation)
    return gone()


class Pause:
    """A context for any number of threads: while one is inside, cycles are not collected.

    For work that makes many objects which live until it ends: looking through all of them again finds nothing.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._resume = False

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._resume = gc.isenabled()
                gc.disable()
            self._inside += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._end()

    def _end(self) -> None:
        if self._resume:
            gc.enable()

    def after_fork(self) -> None:
        """In a child, the threads that were inside do not exist."""
        if self._inside:
            self._inside = 0
            self._end()


pause = Pause()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pause.after_fork)

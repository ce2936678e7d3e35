"""Locks that a fork leaves usable: in the child, the thread that held one may not exist any more."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from weakref import ref

_all: list[ref[Lock]] = []
"""All locks, and some that are gone: to be told of each end would be a function in which Ctrl-C gets lost."""

_SOME = 64
"""New locks after which those that are gone are forgotten: looking at all of them for each would be quadratic."""


class Lock:
    """A reentrant lock. A forked child finds it free, or held by its only thread if that held it at the fork."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _all.append(ref(self))
        if len(_all) % _SOME == 0:
            _all[:] = [r for r in _all if r() is not None]

    @property
    def __enter__(self) -> Callable[[], bool]:
        return self._lock.__enter__

    @property
    def __exit__(self) -> Callable[..., None]:
        """What releases the lock: a function in C, because Ctrl-C could come before one in Python has done so."""
        return self._lock.__exit__

    def renew(self) -> None:
        """In a child: forget a holder who does not exist there."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = threading.RLock()


def _after_fork() -> None:
    for lock in [r() for r in _all]:
        if lock is not None:
            lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

"""Locks that a fork leaves usable: in the child, the thread that held one may not exist any more."""

from __future__ import annotations

import os
import threading
from weakref import WeakSet

_all: WeakSet[Lock] = WeakSet()


class Lock:
    """A reentrant lock. A forked child finds it free, or held by its only thread if that held it at the fork."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _all.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exception: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        """In a child: forget a holder who does not exist there."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = threading.RLock()


def _after_fork() -> None:
    for lock in list(_all):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

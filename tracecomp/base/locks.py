"""Locks that a fork leaves usable: in the child, the owning thread may no longer exist."""

from __future__ import annotations

import threading
from collections.abc import Callable
from weakref import ref

from tracecomp.base.forks import in_child

_all: list[ref[Lock]] = []
"""All locks, and some deleted ones: a callback for each deletion could lose a Ctrl-C."""

_SOME = 64
"""New locks between two clean-ups of deleted ones: a scan for each would be quadratic."""


class Lock:
    """A reentrant lock. In a forked child it is free, or owned by its only thread if that owned it at the fork."""

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
        """The function that releases the lock: in C, because Ctrl-C could interrupt a Python one before the release."""
        return self._lock.__exit__

    def renew(self) -> None:
        """In a child: clear an owner that does not exist there."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = threading.RLock()


@in_child
def _after_fork() -> None:
    for lock in [r() for r in _all]:
        if lock is not None:
            lock.renew()

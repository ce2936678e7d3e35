"""The collector of cycles: waiting for it at no more cost than needed, and doing without it for a while."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from typing import TypeVar


def collected(gone: Callable[[], bool]) -> bool:
    """Whether what is looked for is gone, once cycles are collected: young ones first, for all objects may be many."""
    for generation in range(3):
        if gone():
            return True
        gc.collect(generation)
    return gone()


_stopped: set[int] = set()
"""Threads that have stopped the collector."""

_Result = TypeVar("_Result")


def without_collecting(work: Callable[[], _Result]) -> _Result:
    """``work()``, during which cycles are not collected.

    For work that makes many objects which live until it ends: looking through all of them again finds nothing. Who
    finds the collector running stops it, and starts it again.
    """
    was, thread = gc.isenabled(), threading.get_ident()
    try:
        if was:
            gc.disable()
            _stopped.add(thread)
        return work()
    finally:
        if was:
            gc.enable()  # before anything that Ctrl-C could interrupt
            _stopped.discard(thread)


def _after_fork() -> None:
    """In a child, the threads that were inside do not exist."""
    if _stopped:
        _stopped.clear()
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

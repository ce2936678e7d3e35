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


_inside: list[int] = []
"""Threads that do without the collector, once for each time."""

_Result = TypeVar("_Result")


def without_collecting(work: Callable[[], _Result]) -> _Result:
    """``work()``, during which cycles are not collected.

    For work that makes many objects which live until it ends: looking through all of them again finds nothing. Who
    finds the collector running, or stopped by another thread in here, keeps it stopped; the last one starts it again.
    """
    was, thread = gc.isenabled() or bool(_inside), threading.get_ident()
    try:
        if was:
            _inside.append(thread)
            gc.disable()
        return work()
    finally:
        if was:
            if len(_inside) == 1:
                gc.enable()  # before anything that Ctrl-C could interrupt
            _inside.remove(thread)
            if not _inside:
                gc.enable()  # of two that leave at once, either may be the last
            else:
                gc.disable()  # another may have come while this one took itself for the last


def _after_fork() -> None:
    """In a child, the threads that were inside do not exist."""
    if _inside:
        _inside.clear()
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

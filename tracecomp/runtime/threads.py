"""Threads of compiled programs: how many, and the pool of those that help the calling thread.

Workers are Python daemon threads parked in a native loop (``codegen/threads/sync.py``), outside the interpreter lock.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from functools import cache

from tracecomp.base import config
from tracecomp.base.forks import in_child
from tracecomp.base.locks import Lock
from tracecomp.codegen.threads import sync
from tracecomp.runtime.entry import library
from tracecomp.runtime.malloc import aligned_bytes

chosen: int | None = None
"""The number of threads requested with ``set_num_threads``."""

POOL = aligned_bytes(sync.POOL_BYTES)
"""The memory that workers watch."""

workers = 0
"""Number of workers started in this process."""
_starting = Lock()


def available_cores() -> int:
    """Cores this process may use: its affinity, cut by the cgroup's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_quota()
    return max(1, min(cores, int(quota))) if quota else cores


def _cgroup_quota() -> float | None:
    """Processors that the cgroup grants; None when it sets no limit."""
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
            return None if quota == "max" else float(quota) / float(period)
    except (OSError, ValueError):
        return None


def get_num_threads() -> int:
    """Threads a call uses unless it says otherwise."""
    return chosen or config.current().num_threads or _default_threads()


@cache
def _default_threads() -> int:
    return available_cores()


def set_num_threads(count: int) -> None:
    """Use ``count`` threads from now on; RuntimeError when it is not positive."""
    if not isinstance(count, int):
        raise RuntimeError(f"set_num_threads expects an int, but got {type(count).__name__}")
    if count < 1:
        raise RuntimeError(f"set_num_threads expects a positive integer, got {count}")
    global chosen
    chosen = count


def wanted(count: int | None) -> int:
    """Threads of a call that asks for ``count`` (None: the default); RuntimeError when that is not positive."""
    if count is None:
        return min(get_num_threads(), sync.MAX_THREADS)
    if count < 1:
        raise RuntimeError(f"threads expects a positive integer, got {count}")
    return min(count, sync.MAX_THREADS)


def start_workers(count: int) -> None:
    """Start at least ``count`` workers, or as many as the system permits: the caller does the remaining work."""
    global workers
    if workers >= count:
        return
    with _starting, contextlib.suppress(RuntimeError):
        while workers < count:
            threading.Thread(target=_work, args=(workers + 1,), daemon=True).start()
            workers += 1


def _work(number: int) -> None:
    """The main function of a worker. Waking it must not displace the thread that it helps: SCHED_BATCH."""
    if hasattr(os, "SCHED_BATCH"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(library().address("tc_worker"))(POOL.ctypes.data, number)


@in_child
def _after_fork() -> None:
    """A forked child has none of its parent's threads."""
    global workers
    workers = 0
    POOL[:] = 0
    _default_threads.cache_clear()

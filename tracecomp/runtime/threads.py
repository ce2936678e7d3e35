"""Threads of compiled programs: how many, and the pool of those that help the calling thread.

Workers are Python daemon threads parked in a native loop, outside the interpreter lock. One call uses the pool at a
time; a call that finds it taken runs alone, with the same results.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from functools import cache

import numpy as np

from tracecomp import config
from tracecomp.codegen import sync
from tracecomp.runtime.entry import aligned_bytes, library

_chosen: int | None = None

POOL_CELL = aligned_bytes(64)
"""Holds the address of this process's pool, 0 while there is none; compiled calls look here."""


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
    return _chosen or config.current().num_threads or _default_threads()


@cache
def _default_threads() -> int:
    return available_cores()


def set_num_threads(count: int) -> None:
    """Use ``count`` threads from now on; RuntimeError when it is not positive."""
    if count < 1:
        raise RuntimeError(f"set_num_threads expects a positive integer, got {count}")
    global _chosen
    _chosen = count


class Pool:
    """Workers and the block of memory they watch."""

    def __init__(self) -> None:
        self.workers = 0
        self._growing = threading.Lock()
        self._block = aligned_bytes(sync.POOL_BYTES)
        self._address = self._block.ctypes.data
        native = library()
        pointer = ctypes.c_void_p
        self._worker = ctypes.CFUNCTYPE(None, pointer, ctypes.c_int64, ctypes.c_int32)(native.address("tc_worker"))
        self._acquire = ctypes.CFUNCTYPE(ctypes.c_int32, pointer)(native.address("tc_acquire"))
        self._release = ctypes.CFUNCTYPE(None, pointer)(native.address("tc_release"))
        POOL_CELL[:8].view(np.uintp)[0] = self._address

    def ensure(self, threads: int) -> None:
        """Have workers for calls with ``threads`` threads."""
        if self.workers >= threads - 1:
            return
        with self._growing:
            while not self._acquire(self._address):
                time.sleep(0)
            job = int(self._block[:4].view(np.int32)[0])
            while self.workers < threads - 1:
                self.workers += 1
                threading.Thread(target=self._worker, args=(self._address, self.workers, job), daemon=True).start()
            self._block[192:196].view(np.int32)[0] = self.workers
            self._release(self._address)


@cache
def pool() -> Pool:
    """The pool of this process."""
    return Pool()


def _after_fork() -> None:
    """A forked child has none of its parent's threads."""
    POOL_CELL[:] = 0
    pool.cache_clear()
    _default_threads.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

"""The pool of threads that run compiled programs together with the calling thread.

Workers are Python daemon threads parked in a native loop, outside the interpreter lock. One call uses the pool at a time;
a call that finds it busy runs alone, with the same results.
"""

from __future__ import annotations

import ctypes
import os
import threading
from functools import cache

import numpy as np

from tracecomp import config
from tracecomp.codegen import native, sync
from tracecomp.runtime import cache as objects

_POINTER, _INT = ctypes.c_void_p, ctypes.c_int64
_chosen: int | None = None


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


def aligned_bytes(nbytes: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Zeroed memory that starts at a multiple of 64."""
    memory = np.zeros(nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + nbytes]


class Pool:
    """Workers and the block of memory they watch."""

    def __init__(self) -> None:
        self.busy = threading.Lock()
        self.workers = 0
        self._block = aligned_bytes(sync.POOL_BYTES)
        self._address = self._block.ctypes.data
        self._library = objects.library(sync.pool_text(native.host_target()), native.host_target())
        self._worker = ctypes.CFUNCTYPE(None, _POINTER, _INT, ctypes.c_int32)(self._library.address("tc_worker"))
        arguments = (_POINTER, _POINTER, _POINTER, _POINTER, _INT, _POINTER)
        self._launch = ctypes.CFUNCTYPE(None, *arguments)(self._library.address("tc_launch"))

    def launch(self, entry: int, table: int, arena: int, threads: int, sync_block: int) -> None:
        """Run ``entry`` on ``threads`` threads, this one included; the caller holds ``busy``."""
        self._grow(threads - 1)
        self._launch(self._address, entry, table, arena, threads, sync_block)

    def _grow(self, workers: int) -> None:
        job = int(self._block[:4].view(np.int32)[0])
        while self.workers < workers:
            self.workers += 1
            run = threading.Thread(target=self._worker, args=(self._address, self.workers, job), daemon=True)
            run.start()
        self._block[192:196].view(np.int32)[0] = self.workers


@cache
def pool() -> Pool:
    """The pool of this process."""
    return Pool()


def _after_fork() -> None:
    """A forked child has none of its parent's threads."""
    pool.cache_clear()
    _default_threads.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

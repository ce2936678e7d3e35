"""Threads that help with parallel loops: parked in native code, which watches a piece of memory for work."""

from __future__ import annotations

import ctypes
import os
from _thread import allocate_lock

from tracecomp_runtime.machine_code import Code
from tracecomp_runtime.tensors import zeros

MAX_THREADS = 256
_POOL_BYTES = 256 + 64 * MAX_THREADS

POOL = zeros(_POOL_BYTES)
"""The memory that workers watch; all zeros means that there is no work."""

_workers = 0
_starting = allocate_lock()


def available() -> int:
    """Cores that this process may use: its affinity, cut by the cgroup's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
        granted = cores if quota == "max" else int(float(quota) / float(period))
    except (OSError, ValueError):
        granted = cores
    return max(1, min(cores, granted, MAX_THREADS))


def start_workers(code: Code, worker: int, count: int) -> None:
    """Have at least ``count`` workers; new ones run the function at offset ``worker`` of ``code``."""
    global _workers
    import threading  # here, as it takes milliseconds that programs of one thread can do without

    with _starting:
        while _workers < count:
            run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.address + worker)
            thread = threading.Thread(target=run, args=(POOL.ctypes.data, _workers + 1), daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no free thread: the others, or the caller alone, do the work
                return
            _workers += 1

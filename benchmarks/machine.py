"""The machine's description, its rate of multiply-adds and its memory bandwidth, measured by the threads' processor
time."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tracecomp.runtime import peaks

WHOLE = 0.85
"""The share of the cores' rate that counts as all of it."""


def describe() -> dict[str, Any]:
    """Processor, cores, versions, peaks for 1 and 2 threads."""
    packages = ("numpy", "llvmlite", "tracecomp", "torch", "jax", "onnxruntime")
    cores = len(os.sched_getaffinity(0))
    counts = [1, *([2] if cores > 1 else [])]
    return {
        "processor": processor(),
        "cores": cores,
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": {p: v for p in packages if (v := _version(p))},
        "flops": {str(n): peaks.flops(n) for n in counts},
        "bandwidth": {str(n): peaks.bandwidth(n) for n in counts},
    }


def has_cores(threads: int) -> bool:
    """Return whether the first cores have their full rate now: no other process uses them, on the host either."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(cores)[:threads])
    try:
        return peaks.flops_now(threads) >= WHOLE * peaks.flops(threads)
    finally:
        os.sched_setaffinity(0, cores)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    name = next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), platform.processor())
    return f"{name}, {'AVX-512' if peaks.lanes() == 16 else 'no AVX-512'}"

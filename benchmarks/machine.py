"""The machine: what it is, its rate of multiply-adds and its memory bandwidth, measured by the threads' own time."""

from __future__ import annotations

import ctypes
import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np

_LOOPS = 4_000_000
_CHAINS = 10


def describe() -> dict[str, Any]:
    """Processor, cores, versions, peaks for 1 and 2 threads."""
    packages = ("numpy", "llvmlite", "tracecomp", "torch", "jax", "onnxruntime")
    cores = len(os.sched_getaffinity(0))
    counts = [1, *([2] if cores > 1 else [])]
    return {
        "processor": _processor(),
        "cores": cores,
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": {p: v for p in packages if (v := _version(p))},
        "flops": {str(n): _together(n, _flops()) for n in counts},
        "bandwidth": {str(n): _together(n, _copy()) for n in counts},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    name = next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), platform.processor())
    return f"{name}, {'AVX-512' if _lanes() == 16 else 'no AVX-512'}"


def _lanes() -> int:
    return 16 if llvm.get_host_cpu_features().get("avx512f") else 8


def _together(threads: int, make: Callable[[], Callable[[], float]]) -> float:
    """The work per second of threads that run at once, best of five."""
    runs = [make() for _ in range(threads)]
    best = 0.0
    for _ in range(5):
        with ThreadPoolExecutor(threads) as pool:
            best = max(best, sum(pool.map(lambda run: run(), runs)))
    return best


def _copy() -> Callable[[], Callable[[], float]]:
    """Bytes read and written per second by a copy that fits no cache."""

    def make() -> Callable[[], float]:
        source, target = np.ones(2**25, np.float32), np.ones(2**25, np.float32)

        def run() -> float:
            start = time.thread_time()
            np.copyto(target, source)
            return 2 * source.nbytes / (time.thread_time() - start)

        return run

    return make


def _flops() -> Callable[[], Callable[[], float]]:
    """Operations per second of independent float32 multiply-adds in registers."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )
    module = llvm.parse_assembly(_text(_lanes()))
    engine = llvm.create_mcjit_compiler(module, target)
    engine.finalize_object()
    function = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(engine.get_function_address("peak"))
    function.engine = engine  # type: ignore[attr-defined]  # the code lives as long as the function

    def make() -> Callable[[], float]:
        memory = np.zeros(64, np.float32)

        def run() -> float:
            start = time.thread_time()
            function(_LOOPS, memory.ctypes.data)
            return 2 * _LOOPS * _CHAINS * _lanes() / (time.thread_time() - start)

        return run

    return make


def _text(lanes: int) -> str:
    vector = f"<{lanes} x float>"
    phis = "\n".join(f"  %p{n} = phi {vector} [ zeroinitializer, %entry ], [ %q{n}, %loop ]" for n in range(_CHAINS))
    steps = "\n".join(
        f"  %q{n} = call {vector} @llvm.fma.v{lanes}f32({vector} %p{n}, {vector} %x, {vector} %x)"
        for n in range(_CHAINS)
    )
    sums = "\n".join(f"  %s{n} = fadd {vector} {'%x' if n == 0 else f'%s{n - 1}'}, %q{n}" for n in range(_CHAINS))
    return f"""
declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})
define void @peak(i64 %count, ptr %memory) {{
entry:
  %x = load {vector}, ptr %memory, align 4
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{phis}
{steps}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %done
done:
{sums}
  store {vector} %s{_CHAINS - 1}, ptr %memory, align 4
  ret void
}}
"""

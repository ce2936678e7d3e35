"""What this machine can do at most, measured: multiply-adds per second, bytes copied per second."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from functools import cache

import numpy as np

from tracecomp.codegen.text import native

_LOOPS = 4_000_000
_CHAINS = 10
_TRIES = 5
_COPIED = 2**25

Run = Callable[[], float]


@cache
def flops(threads: int = 1) -> float:
    """Operations per second of independent float32 multiply-adds in registers, two for each; takes some 50 ms."""
    return max(flops_now(threads) for _ in range(_TRIES))


def flops_now(threads: int = 1) -> float:
    """``flops`` of one try of some 10 ms: less while others use the cores."""
    return _at_once([_multiply_adds()() for _ in range(threads)])


@cache
def bandwidth(threads: int = 1) -> float:
    """Bytes per second, read and written, of copying memory that fits no cache; takes some 100 ms."""
    copies = [_copy() for _ in range(threads)]
    return max(_at_once(copies) for _ in range(_TRIES))


def lanes() -> int:
    """Floats of this machine's vectors."""
    return native.host_target().vector_bits // 32


def _at_once(runs: list[Run]) -> float:
    """The work per second of threads that run at once, by their own time."""
    rates: list[float] = []
    others = [threading.Thread(target=lambda run=run: rates.append(run())) for run in runs[1:]]
    for other in others:
        other.start()
    rates.append(runs[0]())
    for other in others:
        other.join()
    return sum(rates)


def _copy() -> Run:
    source, target = np.ones(_COPIED, np.float32), np.ones(_COPIED, np.float32)

    def run() -> float:
        start = time.thread_time()
        np.copyto(target, source)
        return 2 * source.nbytes / (time.thread_time() - start)

    return run


@cache
def _multiply_adds() -> Callable[[], Run]:
    target = native.host_target()
    library = native.Library([native.compile_object(_text(lanes()), target)], target)
    function = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(library.address("peak"))

    def make() -> Run:
        memory = np.zeros(64, np.float32)

        def run(code: native.Library = library) -> float:  # the code lives as long as what calls it
            start = time.thread_time()
            function(_LOOPS, memory.ctypes.data)
            return 2 * _LOOPS * _CHAINS * lanes() / (time.thread_time() - start)

        return run

    return make


def _text(width: int) -> str:
    vector = f"<{width} x float>"
    phis = "\n".join(f"  %p{n} = phi {vector} [ zeroinitializer, %entry ], [ %q{n}, %loop ]" for n in range(_CHAINS))
    steps = "\n".join(
        f"  %q{n} = call {vector} @llvm.fma.v{width}f32({vector} %p{n}, {vector} %x, {vector} %x)"
        for n in range(_CHAINS)
    )
    sums = "\n".join(f"  %s{n} = fadd {vector} {'%x' if n == 0 else f'%s{n - 1}'}, %q{n}" for n in range(_CHAINS))
    return f"""
declare {vector} @llvm.fma.v{width}f32({vector}, {vector}, {vector})
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

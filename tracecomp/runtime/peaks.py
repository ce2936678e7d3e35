"""Measured peak rates of this machine: operations, loads and bytes per second, and the time of a wake-up."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from functools import cache

import numpy as np

from tracecomp.codegen.text import native
from tracecomp.ir.index import Var, index
from tracecomp.ir.loops import Buffer, Const, Loop, Store
from tracecomp.ir.program import CallStep, Kernel, Program, Ref, Slot
from tracecomp.ir.types import float32
from tracecomp.runtime import compiler
from tracecomp.runtime.executable import Executable
from tracecomp.runtime.library import Library
from tracecomp.runtime.threads import available_cores

_LOOPS = 4_000_000
"""Iterations of the loop of ten multiply-adds: some 10 ms."""
_FEWER = 200_000
"""Iterations of operations that take several cycles each."""
_CHAINS = 10
"""Independent operations in flight: two per cycle, with a latency of up to five cycles each."""
_TRIES = 5
"""Number of measurements of which the best counts, as other work disturbs some."""
_COPIED = 2**25
"""Elements of the copied array: 128 MB, more than a share of any cache."""
_WAKES = 20
"""Timed wake-ups; their median counts."""
_ASLEEP = 1e-3
"""Seconds until workers, which spin for a fifth of that, are asleep."""

_MULTIPLY_ADD = "%q{n} = call {v} @llvm.fma.v{w}f32({v} %p{n}, {v} %x, {v} %x)"
_DIVISION = "%q{n} = fdiv {v} %p{n}, %x"
_LOAD = """%a{n} = getelementptr {v}, ptr %memory, i64 {n}
  %l{n} = load volatile {v}, ptr %a{n}, align 4
  %q{n} = fadd {v} %p{n}, %l{n}"""
_GATHER = """%b{n} = getelementptr float, ptr %base, i64 {n}
  %w{n} = getelementptr float, ptr %b{n}, <{w} x i64> %places
  %g{n} = call {v} @llvm.masked.gather.v{w}f32.v{w}p0(<{w} x ptr> %w{n}, i32 4, <{w} x i1> %all, {v} %x)
  %q{n} = fadd {v} %p{n}, %g{n}"""

Run = Callable[[], float]


@cache
def flops(threads: int = 1) -> float:
    """Operations per second of independent float32 multiply-adds in registers, two for each; takes some 50 ms."""
    return max(flops_now(threads) for _ in range(_TRIES))


def flops_now(threads: int = 1) -> float:
    """``flops`` of one try of some 10 ms: less while others use the cores."""
    return _at_once([_repeated(_MULTIPLY_ADD, 2 * lanes())() for _ in range(threads)])


@cache
def bandwidth(threads: int = 1) -> float:
    """Bytes per second, read and written, of a copy that fits no cache; takes some 100 ms."""
    copies = [_copy() for _ in range(threads)]
    return max(_at_once(copies) for _ in range(_TRIES))


def divisions() -> float:
    """Independent float32 divisions in registers per second, by elements."""
    return _best(_repeated(_DIVISION, lanes(), _FEWER))


def gathers() -> float:
    """Elements per second that are gathered from 4 KB, four lines to a vector."""
    return _best(_repeated(_GATHER, lanes(), _FEWER))


@cache
def load_bytes() -> float:
    """Bytes per second that are loaded from the first cache, in whole registers."""
    return _best(_repeated(_LOAD, 4 * lanes()))


def _best(make: Callable[[], Run]) -> float:
    run = make()
    return max(run() for _ in range(_TRIES))


def wake_seconds() -> float:
    """The time that waking a worker takes the waking thread; 0.0 with a single processor.

    It is measured as the time of a call that wakes a worker for almost no work, minus that of one without workers.
    """
    if available_cores() < 2:
        return 0.0
    result = Buffer("y", float32, 2)
    place = Var("i", 2)
    loop = Loop("parallel", place, (Store(result, index(place), Const(1.0, float32)),))
    kernel = Kernel("wake", (result,), frozenset(["y"]), (loop,))
    slot = Slot("y", "output", 0, 8)
    executable = Executable(Program("wake", (), (slot,), 0, (CallStep(kernel, (Ref(slot),), "wake"),)))
    output = np.zeros(2, np.float32)
    times: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(_WAKES):
        for threads in times:
            time.sleep(_ASLEEP)
            start = time.perf_counter()
            executable.run((), (output,), threads)
            times[threads].append(time.perf_counter() - start)
    return max(float(np.median(times[2]) - np.median(times[1])), 1e-6)


def lanes() -> int:
    """Floats of this machine's vectors."""
    return compiler.host_target().vector_bits // 32


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
def _repeated(operation: str, elements: int, loops: int = _LOOPS) -> Callable[[], Run]:
    """Return timed runs of a loop over independent operations, with ``elements`` results of each operation."""
    target = compiler.host_target()
    library = Library([native.compile_object(_text(operation, lanes()), target)])
    function = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(library.address("peak"))

    def make() -> Run:
        memory = np.ones(1024, np.float32)

        def run(code: Library = library) -> float:  # keeps the code alive with its caller
            start = time.thread_time()
            function(loops, memory.ctypes.data)
            return elements * loops * _CHAINS / (time.thread_time() - start)

        return run

    return make


def _text(operation: str, width: int) -> str:
    vector = f"<{width} x float>"
    phis = "\n".join(f"  %p{n} = phi {vector} [ %x, %entry ], [ %q{n}, %loop ]" for n in range(_CHAINS))
    steps = "\n  ".join(operation.format(n=n, v=vector, w=width) for n in range(_CHAINS))
    sums = "\n".join(f"  %s{n} = fadd {vector} {'%x' if n == 0 else f'%s{n - 1}'}, %q{n}" for n in range(_CHAINS))
    places = ", ".join(f"i64 {n % 4 * 256 + n // 4}" for n in range(width))
    return f"""
declare {vector} @llvm.fma.v{width}f32({vector}, {vector}, {vector})
declare {vector} @llvm.masked.gather.v{width}f32.v{width}p0(<{width} x ptr>, i32, <{width} x i1>, {vector})
define void @peak(i64 %count, ptr %memory) {{
entry:
  %x = load {vector}, ptr %memory, align 4
  %places = add <{width} x i64> <{places}>, zeroinitializer
  %all = icmp eq <{width} x i64> zeroinitializer, zeroinitializer
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{phis}
  %step = and i64 %i, 15
  %base = getelementptr float, ptr %memory, i64 %step
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

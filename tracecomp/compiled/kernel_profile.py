"""Time per kernel of a compiled call, with its work and its share of the machine's peak."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from os import PathLike
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

import numpy as np

import tracecomp.passes as passes
from tracecomp.base.html import table
from tracecomp.compiled.backends import Backend, Interpreted, Native
from tracecomp.compiled.checked import Checked
from tracecomp.ir.index import Var, index
from tracecomp.ir.loops import Buffer, Const, Loop, Store
from tracecomp.ir.program import CallStep, Kernel, Program, Ref, Slot
from tracecomp.ir.types import float32
from tracecomp.passes.cost.machine import host
from tracecomp.passes.kernel_title import graphs_of, title_of
from tracecomp.runtime import peaks
from tracecomp.runtime.executable import Executable
from tracecomp.runtime.threads import wanted

Array = np.ndarray[Any, Any]

MANY = 5
"""How often cores may be taken away while a program is profiled until its times are doubted."""
_TICKS = 64
"""Steps of the program that measures the time of measuring a step."""


@dataclass(frozen=True)
class KernelProfile:
    """One kernel of a call.

    ``seconds`` is the mean over the faster half of the profiled calls (all iterations of a kernel in a loop).
    ``nbytes`` is the size of the arrays that it reads or writes, and ``operations`` its scalar operations, both per
    iteration. A multiply-add is two operations, any function one. ``share`` is its part of the measured peak of float32
    multiply-adds, or of bytes per second, whichever is more (``binding`` says which). The bytes come from the first
    cache if its arrays fit the second, else from memory; data in the last cache can then exceed 1. ``source`` names the
    user's lines, ``title`` its module, functions and lines. ``fastest`` is the shortest time of a call.
    """

    name: str
    source: str
    seconds: float
    nbytes: int
    operations: int
    share: float
    binding: str = "arithmetic"
    title: str = ""
    fastest: float = 0.0


@dataclass(frozen=True)
class Profile:
    """The kernels of a compiled call in the order they run; ``print`` shows the most expensive first.

    ``wall`` is the wall-clock time of the native call, measured separately, without clocks between kernels.
    ``taken_away`` is the number of preemptions in that time: times may then be too long.
    """

    kernels: tuple[KernelProfile, ...]
    threads: int
    wall: float = 0.0
    taken_away: int = 0

    @property
    def seconds(self) -> float:
        """Time of all kernels of one call."""
        return sum(k.seconds for k in self.kernels)

    def table(self, rows: int = 30) -> str:
        """The ``rows`` most expensive kernels as text."""
        total = self.seconds or 1.0
        lines = [f"{'time':>10} {'share':>6} {'MB':>9} {'MFLOP':>9} {'peak':>6}  kernel"]
        for k in sorted(self.kernels, key=lambda k: -k.seconds)[:rows]:
            lines.append(
                f"{1e6 * k.seconds:>7.1f} us {100 * k.seconds / total:>5.1f}% {k.nbytes / 1e6:>9.3f} "
                f"{k.operations / 1e6:>9.2f} {100 * k.share:>5.0f}%  {k.title or k.name}"
            )
        if len(self.kernels) > rows:
            lines.append(f"and {len(self.kernels) - rows} more")
        counts = f"kernels {len(self.kernels)}, threads {self.threads}"
        whole = f"; by the wall clock {1e6 * self.wall:.1f} us" if self.wall else ""
        lines.append(f"{1e6 * self.seconds:.1f} us: {counts}{whole}")
        if self.disturbed:
            lines.append(f"preempted {self.taken_away} times; mean times may be too high")
        return "\n".join(lines)

    @property
    def disturbed(self) -> bool:
        """Whether other programs had so much of the cores that times say little."""
        return self.taken_away > MANY

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        total = self.seconds or 1.0
        rows = [
            (f"{1e6 * k.seconds:.1f}", f"{100 * k.seconds / total:.1f}", f"{k.nbytes / 1e6:.3f}",
             f"{k.operations / 1e6:.2f}", f"{100 * k.share:.0f}", k.title or k.name, k.name)
            for k in sorted(self.kernels, key=lambda k: -k.seconds)[:30]
        ]  # fmt: skip
        head = ("us", "% of time", "MB", "MFLOP", "% of peak", "kernel", "key")
        below = escape(str(self).splitlines()[-1])
        return f"{table(head, rows, numbers=5)}<p>{below}</p>"

    def export_chrome_trace(self, path: str | PathLike[str]) -> None:
        """Write one call, its kernels one after the other, as Chrome's trace viewer and Perfetto read it."""
        start, events = 0.0, []
        for k in self.kernels:
            given = {
                "key": k.name,
                "bytes": k.nbytes,
                "operations": k.operations,
                "share of peak": k.share,
                "source": k.source,
            }
            events.append(_event(k.title or k.name, start, k.seconds, given))
            start += k.seconds
        events.append(_event("call", 0.0, start, {"threads": self.threads}))
        Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}), encoding="utf-8")


def _event(name: str, start: float, seconds: float, args: Mapping[str, object]) -> dict[str, Any]:
    return {"name": name, "ph": "X", "pid": 0, "tid": 0, "ts": 1e6 * start, "dur": 1e6 * seconds, "args": args}


def profile_backend(
    given: Backend, arrays: Sequence[Array], outputs: Sequence[Array], calls: int, seen: object = None
) -> Profile:
    """Run the call ``calls`` times on the given memory; RuntimeError if it is not native code alone.

    Values that calls with an equal ``seen`` need not prepare again are prepared first. Calls with and without kernel
    times alternate, so that both measure the machine in the same state. Times are means over the faster half of the
    calls: means add up like the times of kernels, and slow calls were disturbed by other programs.
    """
    backend = given.native if isinstance(given, Checked) else given
    if not isinstance(backend, Native):
        what = "runs in the interpreter" if isinstance(backend, Interpreted) else "needs host routines"
        raise RuntimeError(f"profile(): this program {what}; only programs of native kernels can be profiled")
    backend.timed(arrays, outputs, seen)  # both ways find memory and caches as calls do that follow others
    backend.run(arrays, outputs, seen)
    timed, walls = [], []
    before = getrusage(RUSAGE_SELF).ru_nivcsw
    for _ in range(max(calls, 1)):
        timed.append(backend.timed(arrays, outputs, seen))
        start = time.perf_counter()
        backend.run(arrays, outputs, seen)
        walls.append(time.perf_counter() - start)
    taken_away = getrusage(RUSAGE_SELF).ru_nivcsw - before
    threads = wanted(backend.threads) if backend.executable.image.parallel else 1
    quiet = sorted(timed, key=sum)[: len(timed) // 2 + 1]
    seconds = np.mean(quiet, axis=0).tolist()
    fastest = np.min(timed, axis=0).tolist()
    graphs = graphs_of(backend.built.lowered.frame)
    kernels = [
        _kernel(step, s, least, threads, str(title_of(step.nodes, graphs)))
        for step, s, least in zip(backend.steps(), seconds, fastest, strict=True)
    ]
    return Profile(tuple(kernels), threads, float(np.mean(sorted(walls)[: len(walls) // 2 + 1])), taken_away)


def _kernel(step: CallStep, measured: float, least: float, threads: int, title: str) -> KernelProfile:
    seconds, fastest = (max(x - clock_seconds(), 1e-9) for x in (measured, least))
    nbytes = sum(p.size * p.dtype.itemsize for p in step.kernel.params)
    work = passes.operations(step.kernel.body)
    near = nbytes <= threads * host().l2_bytes
    rate = threads * peaks.load_bytes() if near else peaks.bandwidth(threads)
    bounds = {"cache" if near else "bandwidth": nbytes / rate, "arithmetic": work / peaks.flops(threads)}
    binding = max(bounds, key=lambda name: bounds[name])
    source = step.label.partition(" (")[2].removesuffix(")")
    share = bounds[binding] / seconds
    return KernelProfile(step.kernel.name, source, seconds, nbytes, work, share, binding, title, fastest)


@cache
def clock_seconds() -> float:
    """Overhead of reading the clock per step: the shortest time of a step that stores one number."""
    result = Buffer("y", float32, 1)
    place = Var("i", 1)
    store = Store(result, index(place), Const(1.0, float32))
    kernel = Kernel("tick", (result,), frozenset(["y"]), (Loop("serial", place, (store,)),))
    slot = Slot("y", "output", 0, 4)
    steps = tuple(CallStep(kernel, (Ref(slot),), "tick") for _ in range(_TICKS))
    executable = Executable(Program("tick", (), (slot,), 0, steps))
    output = np.zeros(1, np.float32)
    return min(float(np.median([s for _, s in executable.run_profiled((), (output,), 1)])) for _ in range(5))

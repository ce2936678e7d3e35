"""The bottleneck of a kernel, from its resource counts, the machine's rates, and its machine code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from tracecomp.inspect import assembly
from tracecomp.inspect.kernel_cost import KernelCost, cost_of
from tracecomp.ir.program import Kernel
from tracecomp.passes.cost.machine import Machine
from tracecomp.passes.cost.rates import Rates
from tracecomp.runtime import peaks

SHORT = 1e-6
"""Seconds below which the call overhead dominates a kernel, so that advice about its loops is useless."""
BINDS = 0.5
"""Least share of a kernel's time for which a resource is the bottleneck."""
MOSTLY = 0.3
"""The same if there is no other bottleneck."""
WASTED = 0.25
"""Least share of empty lanes, or of instructions that only move registers, that is reported."""
SPILLED = 0.1
"""Least share of instructions that spill registers that is reported."""
LATENCY = 4
"""Cycles from an addition or multiply-add to the next one that needs its result."""
MISS = 8e-9
"""Seconds per line of memory that no cache holds: some 80 ns, with ten in flight."""
LEAVE = 20
"""Cycles that a mispredicted end of a loop costs; Fog, "The microarchitecture of Intel, AMD and VIA CPUs", 2023."""
NAMED = 0.05
"""Least share of a kernel's time for which one of several resources is named."""


@dataclass(frozen=True)
class Limit:
    """Why a kernel is not faster: a short name, a sentence with its numbers, and advice."""

    name: str
    words: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.words}{f'; {self.advice}' if self.advice else ''}"


@dataclass(frozen=True)
class Measured:
    """A kernel's fastest call by the clock, and threads of the program.

    ``disturbed``: other programs used the cores, so that even the fastest call may have been slowed down.
    """

    seconds: float
    threads: int
    disturbed: bool = False


@cache
def rates_now() -> Rates:
    """Measured rates of one core of this machine; takes about a third of a second."""
    return Rates(
        multiply_adds=peaks.flops() / 2,
        divisions=peaks.divisions(),
        gathers=peaks.gathers(),
        load_bytes=peaks.load_bytes(),
        bandwidth=peaks.bandwidth(),
        wake_seconds=0.0,
    )


def limit_of(kernel: Kernel, measured: Measured, machine: Machine, code: Sequence[Sequence[str]]) -> Limit:
    """The first bottleneck that explains most of the time, in this order: too short to matter, the dominant resource,
    one thread where several would help, empty lanes, spilled registers.

    ``code`` are the kernel's functions as assembly.
    """
    return next(_reasons(kernel, measured, machine, code))


def _reasons(kernel: Kernel, m: Measured, machine: Machine, code: Sequence[Sequence[str]]) -> Iterator[Limit]:
    if m.seconds < SHORT:
        yield Limit("short", f"takes {m.seconds * 1e9:.0f} ns, about what a call of a kernel costs")
    demand = cost_of(kernel, machine)
    cores = m.threads if demand.shared > 1 else 1
    units = sorted(_units(demand, rates_now(), cores, machine), key=lambda unit: -unit.seconds)
    first = units[0]
    if first.seconds >= BINDS * m.seconds:
        yield first.limit(m)
    yield from _threads(demand, m, machine)
    if 1 - demand.lanes_used >= WASTED:
        yield Limit("tail", f"tail: {_percent(1 - demand.lanes_used)} of the vector lanes are empty",
                    f"sizes that are multiples of {demand.width} fill them")  # fmt: skip
    spilled, total = (sum(parts) for parts in zip((0, 0), *map(assembly.spills, code), strict=True))
    if total and spilled >= SPILLED * total:
        words = f"register spill: {spilled} of {total} instructions of its inner loops go to the stack"
        yield Limit("spill", words)
    if first.seconds >= MOSTLY * m.seconds:
        yield first.limit(m)
    if m.disturbed:
        yield Limit("disturbed", "other programs slowed it down while it was measured; "
                    f"{first.name}, the busiest resource, is {first.part(m)}",
                    "measure again on an idle machine")  # fmt: skip
    if sum(u.seconds for u in units[:3]) >= BINDS * m.seconds:
        parts = ", ".join(f"{u.name} {_percent(u.seconds / m.seconds)}" for u in units[:3] if u.named(m))
        yield Limit("several", f"several causes together: {parts} of its fastest call")
    yield Limit("latency", f"operations wait for each other: {first.name}, the busiest resource, is {first.part(m)}",
                "more independent elements in a call, as in a larger batch, fill the waits")  # fmt: skip


@dataclass(frozen=True)
class _Unit:
    """A resource that a kernel waits for: the least time, and its description."""

    seconds: float
    name: str
    words: str
    advice: str = ""

    def limit(self, m: Measured) -> Limit:
        return Limit(self.name, f"{self.words}: {self.part(m)}", self.advice)

    def part(self, m: Measured) -> str:
        """Its share of the kernel's time. Rates are measured too, so a share may come out above one."""
        return f"{_percent(min(self.seconds / m.seconds, 1.0))} of its fastest call"

    def named(self, m: Measured) -> bool:
        """Whether it takes enough of the kernel's time to be named."""
        return self.seconds >= NAMED * m.seconds


def _units(d: KernelCost, r: Rates, cores: int, machine: Machine) -> Iterator[_Unit]:
    """The resources of a kernel, and the time of each alone."""
    nbytes = sum(d.memory.values())
    cycle = 2 * d.width / r.multiply_adds
    far = nbytes > machine.l2_bytes * cores
    divisions, gathered, misses, waits = map(_count, (d.divisions, d.gathered, d.misses, d.waits))
    starts, rounds = _count(d.short_loops), d.rounds / d.short_loops if d.short_loops else 0.0
    wake = machine.rates.wake_seconds if d.wakes and cores > 1 else 0.0
    simple, whole, loaded = map(_count, (d.arithmetic, nbytes, d.loaded_bytes))
    yield _Unit(d.arithmetic / (r.multiply_adds * cores), "arithmetic", f"arithmetic, {simple} operations",
                "only fewer operations help: smaller sizes or dtypes")  # fmt: skip
    yield _Unit(nbytes / peaks.bandwidth(cores) if far else 0.0, "bandwidth", f"memory bandwidth, {whole} bytes",
                "read and write fewer bytes: fuse kernels or use smaller dtypes")  # fmt: skip
    yield _Unit(d.loaded_bytes / (r.load_bytes * cores), "loads", f"loads from caches, {loaded} bytes")
    yield _Unit(d.divisions / (r.divisions * cores), "division", f"division throughput, {divisions} divisions",
                "multiplying by a precomputed reciprocal is faster but rounds differently")  # fmt: skip
    yield _Unit(d.gathered / (r.gathers * cores), "gather", f"gather, {gathered} elements one by one",
                "indices of neighbours, or a slice, let vectors load several at once")  # fmt: skip
    yield _Unit(d.strided / (r.gathers * cores), "transposed reading",
                f"transposed reading, {_count(d.strided)} elements at a distance in memory",
                "contiguous() once, before the operand is read many times, lets vectors load it")  # fmt: skip
    yield _Unit(d.short_loops * LEAVE * cycle / cores, "short inner loops",
                f"short inner loops, {starts} of {rounds:.0f} rounds each",
                "a longer last axis has fewer of them")  # fmt: skip
    yield _Unit(wake, "waking threads", f"waking threads, about {wake * 1e6:.0f} us",
                "threads=1 avoids it; a larger batch makes it pay")  # fmt: skip
    yield _Unit(d.misses * MISS / cores, "cache misses", f"cache misses expected, {misses}",
                "sorted or fewer indices touch fewer cache lines")  # fmt: skip
    yield _Unit(d.functions / (r.multiply_adds * cores), "functions", f"math functions ({', '.join(sorted(d.names))})",
                "fast_math=True uses cheaper functions")  # fmt: skip
    yield _Unit(d.waits * LATENCY * cycle / cores, "order of a sum",
                f"order of a sum, {waits} additions that wait for the previous one")  # fmt: skip


def _threads(d: KernelCost, m: Measured, machine: Machine) -> Iterator[Limit]:
    """The reason why a single thread works, if there are more."""
    if m.threads < 2 or d.shared >= m.threads:
        return
    if d.shared:
        yield Limit("rows", f"too few rows for threads: {d.shared} pieces for {m.threads} threads")
    elif m.seconds < 4 * machine.rates.wake_seconds * 2:
        yield Limit("little work", f"too little work for {m.threads} threads: waking one costs about "
                    f"{machine.rates.wake_seconds * 1e6:.0f} us")  # fmt: skip
    else:
        yield Limit("rows", f"one thread works alone: its outer loop has {d.outer} rounds, or too little work in each")


def _percent(share: float) -> str:
    return f"{100 * min(share, 1.0):.0f} %"


def _count(number: float) -> str:
    for size, unit in ((1e9, "billion"), (1e6, "million"), (1e3, "thousand")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f}"

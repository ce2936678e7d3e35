"""Arm processors on which tracecomp has not been measured: their facts, from public documents.

The facts are predictions until ``python -m tracecomp env --measure`` replaces the rates on such a machine. Caches apply
where the system reports none. Both choose schedules, so a wrong prediction costs time and never changes a bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tracecomp.passes.cost.processor import Cache
from tracecomp.passes.cost.rates import Rates


@dataclass(frozen=True, slots=True)
class Predicted:
    """``pipes`` and ``loads`` are 128-bit multiply-adds and loads for each cycle of ``gigahertz``; caches by level."""

    pipes: int
    loads: int
    gigahertz: float
    caches: Mapping[int, Cache]

    @property
    def rates(self) -> Rates:
        """Rates of one core. The documents do not tell the others, which remain those of the reference machine."""
        cycles = self.gigahertz * 1e9
        return Rates(multiply_adds=4 * self.pipes * cycles, load_bytes=16 * self.loads * cycles)


_FIRST = Cache(64 << 10, 4, 64)
"""The first data cache of each of these cores of Neoverse: 64 KB in four ways."""
PREDICTED: Mapping[str, Predicted] = {
    "Neoverse N1": Predicted(2, 2, 2.5, {1: _FIRST, 2: Cache(1 << 20, 8, 64), 3: Cache(32 << 20, 16, 64, 64)}),
    "Neoverse V1": Predicted(4, 3, 2.6, {1: _FIRST, 2: Cache(1 << 20, 8, 64), 3: Cache(32 << 20, 16, 64, 64)}),
    "Neoverse V2": Predicted(4, 3, 2.8, {1: _FIRST, 2: Cache(2 << 20, 8, 64), 3: Cache(36 << 20, 12, 64, 96)}),
    "Apple M1": Predicted(4, 3, 3.2, {1: Cache(128 << 10, 8, 128), 2: Cache(12 << 20, 12, 128, 4)}),
    "Apple M2": Predicted(4, 3, 3.5, {1: Cache(128 << 10, 8, 128), 2: Cache(16 << 20, 16, 128, 4)}),
}
"""By name. The figures are those of these documents, but for Apple's first cache, which has 4 ways there.

* Neoverse, pipes and loads: LLVM's scheduling models, which follow Arm's software optimization guides
  (``AArch64SchedNeoverseN1.td``, ``V1`` and ``V2``: units ``V`` and ``L``). SVE uses V1's pipes as two of 256 bits;
  the code that is generated here uses four of 128 bits.
* Neoverse, caches in Amazon's Graviton2 and 4:
  https://learn.arm.com/learning-paths/servers-and-cloud-computing/memory-subsystem/cache-hierarchy
* Neoverse, clocks of Graviton2, 3 and 4, and caches of Graviton3: https://en.wikichip.org/wiki/AWS_Graviton3 and the
  pages of the others.
* Apple M1, pipes and loads: https://dougallj.github.io/applecpu/firestorm.html. Those of M2 are assumed to be equal.
* Apple, clocks and second caches: https://hmc-tech.com/cpu/apple-m2-8c9g-fl-vs-apple-m1-8c8g-fl

No schedule depends on the ways of first and third caches."""


def predicted(name: str) -> Predicted | None:
    """The prediction for the processor ``name``; variants such as ``Apple M1 Pro`` count as their family."""
    return next((facts for family, facts in PREDICTED.items() if f"{name} ".startswith(f"{family} ")), None)

"""Machines unlike each other, for tests of what must not depend on them."""

from __future__ import annotations

from tracecomp.passes.cost.machine import Machine, _with_caches
from tracecomp.passes.cost.predicted import PREDICTED


def _predicted(name: str) -> Machine:
    facts = PREDICTED[name]
    return _with_caches(Machine(16, 32, rates=facts.rates), {**facts.caches})


MACHINES = {
    "Zen 4": Machine(64, 32, 32 << 10, 1 << 20, 32 << 20, in_halves=True),
    "Sapphire Rapids": Machine(64, 32, 48 << 10, 2 << 20, 105 << 20, l2_ways=16, l3_sharers=112),
    "Haswell": Machine(32, 16, 32 << 10, 256 << 10, 8 << 20, l3_sharers=8),
    "x86-64": Machine(16, 16, 32 << 10, 256 << 10, 4 << 20),
    **{name: _predicted(name) for name in ("Neoverse N1", "Neoverse V2", "Apple M1")},
    "tiny caches": Machine(16, 12, 2 << 10, 8 << 10, 32 << 10, l2_ways=4),
}
"""By name. The last is none that exists: its caches hold nothing, so that small programs are cut into blocks."""

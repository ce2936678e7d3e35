"""The machine that code is scheduled for: its resources, read from the system, and its speed.

``Machine`` has facts for the cost models, and no decisions. A choice made from it changes a program's speed and never
its bits. Choices that decide bits use ``passes/cost/reference.py``, the same on every processor. Tests pass a machine
(``lower(..., machine=...)``, or ``with on(machine):`` around the compilation).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache

from tracecomp.base import config
from tracecomp.passes.cost import processor
from tracecomp.passes.cost.predicted import predicted
from tracecomp.passes.cost.processor import Cache
from tracecomp.passes.cost.rates import Rates, recorded
from tracecomp.passes.cost.tuning import Tuning


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts about one processor core and the caches that it reaches. Sizes are bytes.

    ``in_halves``: arithmetic on whole registers takes two steps, so that half-width vectors take half the time.
    ``l3_sharers``: how many of the system's processors share the last cache.
    """

    vector_bytes: int
    registers: int
    # The reference machine's caches are the default where the system reports none.
    l1_bytes: int = 32 * 1024
    l2_bytes: int = 1024 * 1024
    l3_bytes: int = 32 * 1024 * 1024
    in_halves: bool = False
    l2_ways: int = 8
    line_bytes: int = 64
    l3_sharers: int = 1
    rates: Rates = field(default_factory=Rates)
    tuning: Tuning = field(default_factory=Tuning)

    def lanes(self, itemsize: int) -> int:
        """Elements of ``itemsize`` bytes in one register."""
        return self.vector_bytes // itemsize

    def tuned(self, **values: int) -> Machine:
        """The machine with some fields of ``tuning`` set; TypeError for an unknown name."""
        return replace(self, tuning=replace(self.tuning, **values))

    @property
    def cold_bytes(self) -> int:
        """Memory larger than a quarter of the last cache counts as not cached, as other operands need the cache too."""
        # The last cache is shared by the kernel's operands and results and by other threads. One operand may count on a
        # quarter of it; this errs towards copying too little rather than too much.
        return self.l3_bytes // 4

    @property
    def parallel_work(self) -> float:
        """Vector additions (``passes/cost/scalar_cost.py``) above which waking threads for a loop pays."""
        # Scaled by the work that one wake-up costs: a fast core with slow wake-ups needs longer loops.
        return self.tuning.parallel_work * self.rates.work_of_a_wake

    @property
    def parallel_products(self) -> float:
        """Multiply-adds above which waking threads for a contraction pays."""
        return self.tuning.parallel_products * self.rates.work_of_a_wake


_chosen: ContextVar[Machine | None] = ContextVar("tracecomp_machine", default=None)


def host() -> Machine:
    """The machine this process runs on, or the one of the innermost ``with on(...)`` of this thread."""
    chosen = _chosen.get()
    if chosen is not None:
        return chosen
    try:
        return _host(str(config.cache_directory()))
    # The cache folder is the key, so that a test with a separate cache folder does not see this process's record.
    except FileNotFoundError:  # no home directory: no records either
        return described()


@contextmanager
def on(machine: Machine) -> Iterator[Machine]:
    """Make ``host()`` return ``machine`` in this thread during the block, for tests and for trials of schedules."""
    token = _chosen.set(machine)
    try:
        yield machine
    finally:
        _chosen.reset(token)


@cache
def _host(folder: str) -> Machine:
    # Sizes come from the system, rates from measurements. Only the latter need a record, so a missing record is not an
    # error.
    plain = described()
    return replace(plain, rates=recorded(folder) or plain.rates)


def described() -> Machine:
    """The machine as the system describes it, with default rates; predictions fill the gaps of known processors."""
    found = processor.read()
    known = predicted(found.name)
    machine = Machine(found.vector_bytes, found.registers, in_halves=found.in_halves)
    if known is None:
        return _with_caches(machine, found.caches)
    return _with_caches(replace(machine, rates=known.rates), {**known.caches, **found.caches})


def _with_caches(machine: Machine, caches: dict[int, Cache]) -> Machine:
    """The machine with the caches that the system reports; the others keep their defaults.

    A processor without a third cache counts its second in its place.
    """
    first, second, last = (caches.get(level) for level in (1, 2, 3))
    if first:
        machine = replace(machine, l1_bytes=first.nbytes, line_bytes=first.line_bytes or machine.line_bytes)
    if second:
        machine = replace(machine, l2_bytes=second.nbytes, l2_ways=second.ways or machine.l2_ways)
    if last:
        # AMD reports a slice of the third cache that some cores share. Never below
        # the second cache: schedules count on l1 <= l2 <= l3.
        machine = replace(machine, l3_bytes=max(last.nbytes, machine.l2_bytes), l3_sharers=last.sharers)
    elif second:
        machine = replace(machine, l3_bytes=second.nbytes, l3_sharers=second.sharers)
    return machine

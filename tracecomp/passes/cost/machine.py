"""The machine that code is scheduled for: what it has, read from the system, and how fast it is.

``Machine`` holds facts for the cost models, and no decisions. Everything that is chosen from it changes how fast a
program is and never its bits: what decides bits is in ``passes/cost/reference.py``, the same on every processor. Tests
hand in a machine (``lower(..., machine=...)``, or ``with on(machine):`` around what compiles).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache

from tracecomp.base import config
from tracecomp.passes.cost import processor
from tracecomp.passes.cost.processor import Cache
from tracecomp.passes.cost.rates import Rates, recorded
from tracecomp.passes.cost.tuning import Tuning


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts about one processor core and the caches that it reaches. Sizes are bytes.

    ``in_halves``: arithmetic on whole registers takes two steps, so that on half of one it takes half the time.
    ``l3_sharers``: how many of the system's processors share the last cache.
    """

    vector_bytes: int
    registers: int
    # The reference machine's caches, which hold where the system tells of none.
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
        """The machine with some fields of ``tuning`` set; TypeError for a name that is none of them."""
        return replace(self, tuning=replace(self.tuning, **values))

    @property
    def cold_bytes(self) -> int:
        """Memory larger than this comes from no cache, as other operands want the last one too: a quarter of it."""
        # The last cache is shared by what the kernel reads, what it writes and by other threads. A quarter is what
        # one operand may count on; it also errs towards copying too little rather than too much.
        return self.l3_bytes // 4

    @property
    def parallel_work(self) -> float:
        """Vector additions (``passes/cost/scalar_cost.py``) from which on it pays to wake threads for a loop."""
        # Scaled by how much work goes into the time of one wake-up: a fast
        # core with slow wake-ups needs longer loops.
        return self.tuning.parallel_work * self.rates.work_of_a_wake

    @property
    def parallel_products(self) -> float:
        """Multiply-adds from which on it pays to wake threads for a contraction."""
        return self.tuning.parallel_products * self.rates.work_of_a_wake


_chosen: ContextVar[Machine | None] = ContextVar("tracecomp_machine", default=None)


def host() -> Machine:
    """The machine this process runs on, or the one of the innermost ``with on(...)`` of this thread."""
    chosen = _chosen.get()
    if chosen is not None:
        return chosen
    try:
        return _host(str(config.cache_directory()))
    # The key is the folder, so that a test with a cache folder of its own does not see this process's record.
    except FileNotFoundError:  # a user without a home has no records either
        return described()


@contextmanager
def on(machine: Machine) -> Iterator[Machine]:
    """Let ``host()`` be ``machine`` in this thread while the block runs, for tests and for trying schedules."""
    token = _chosen.set(machine)
    try:
        yield machine
    finally:
        _chosen.reset(token)


@cache
def _host(folder: str) -> Machine:
    # Sizes are what the system says, rates what was measured: only the
    # latter need a record, so a missing one is no error.
    plain = described()
    return replace(plain, rates=recorded(folder) or plain.rates)


def described() -> Machine:
    """The machine as the system describes it, with rates that nobody has measured."""
    found = processor.read()
    machine = Machine(found.vector_bytes, found.registers, in_halves=found.in_halves)
    return _with_caches(machine, found.caches)


def _with_caches(machine: Machine, caches: dict[int, Cache]) -> Machine:
    """The machine with the caches that the system tells of; the others stay as they are by default.

    A processor without a last cache of its own kind has the one before in its place.
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

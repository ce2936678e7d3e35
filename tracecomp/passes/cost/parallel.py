"""Whether threads share a loop, judged by its amount of work."""

from __future__ import annotations

from tracecomp.passes.cost.machine import Machine


def parallel_kind(work: float, machine: Machine) -> str:
    """The kind of a loop with so much work, in vector additions (``passes/cost/scalar_cost.py``)."""
    return _kind(work, machine.parallel_work, machine.tuning.opportunistic)


def parallel_kind_of_products(work: float, machine: Machine) -> str:
    """The kind of a loop with so much work, in multiply-adds."""
    return _kind(work, machine.parallel_products, machine.tuning.opportunistic_products)


def _kind(work: float, worth_waking: float, fraction: int) -> str:
    """Workers are woken for a ``parallel`` loop; awake ones join an ``opportunistic`` one (opportunistic parallel)."""
    if work >= worth_waking:
        # Between "worth waking" and a fraction of it, threads that still spin after the previous loop may help. The
        # loop has the same chunks in any case, so bits do not depend on the number of helpers.
        return "parallel"
    return "opportunistic" if work * fraction >= worth_waking else "serial"

"""Timing statements and comparing the times, under the names of ``torch.utils.benchmark``."""

from tracecomp.utils.benchmark.compare import Compare
from tracecomp.utils.benchmark.measurement import (
    Measurement,
    TaskSpec,
    ordered_unique,
    select_unit,
    set_torch_threads,
    trim_sigfig,
    unit_to_english,
)
from tracecomp.utils.benchmark.timing import Timer, timer

__all__ = [
    "Compare", "Measurement", "TaskSpec", "Timer", "ordered_unique", "select_unit", "set_torch_threads", "timer",
    "trim_sigfig", "unit_to_english",
]  # fmt: skip

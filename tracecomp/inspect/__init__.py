"""Inspection of compiled programs: comparison of every stage, explanation of decisions."""

from tracecomp.inspect.compare import compare
from tracecomp.inspect.comparison import Comparison
from tracecomp.inspect.explain import explain
from tracecomp.inspect.explanation import Explanation
from tracecomp.inspect.scheduling import Tried, schedules, try_schedules
from tracecomp.inspect.summary import Summary, summary

__all__ = [
    "Comparison",
    "Explanation",
    "Summary",
    "Tried",
    "compare",
    "explain",
    "schedules",
    "summary",
    "try_schedules",
]

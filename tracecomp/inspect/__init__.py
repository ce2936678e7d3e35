"""Looking into compiled programs: compare every stage, explain decisions."""

from tracecomp.inspect.compare import Comparison, compare
from tracecomp.inspect.explain import explain
from tracecomp.inspect.explanation import Explanation
from tracecomp.inspect.scheduling import Tried, schedules, try_schedules

__all__ = ["Comparison", "Explanation", "Tried", "compare", "explain", "schedules", "try_schedules"]

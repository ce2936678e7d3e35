"""Looking into compiled programs: compare every stage, explain decisions."""

from tracecomp.inspect.compare import Comparison, compare
from tracecomp.inspect.explain import explain

__all__ = ["Comparison", "compare", "explain"]

"""The names of ``torch._higher_order_ops.associative_scan``."""

from tracecomp.func.associative_scan import associative_scan

__all__ = ["associative_scan"]

"""Higher-order functions under the names of ``torch._higher_order_ops``."""

from tracecomp._higher_order_ops.associative_scan import associative_scan  # not the module of that name
from tracecomp.func.control import cond, scan, while_loop

__all__ = ["associative_scan", "cond", "scan", "while_loop"]

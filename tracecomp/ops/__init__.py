"""Every primitive operator, one record each; importing this package fills the registry ``ir.op.OPS``."""

from tracecomp.ops import creation, elementwise_binary, elementwise_unary, reduction, view

__all__ = ["creation", "elementwise_binary", "elementwise_unary", "reduction", "view"]

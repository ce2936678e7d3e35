"""Every primitive operator, one record each; importing this package fills the registry ``ir.op.OPS``."""

from tracecomp.ops import (
    contraction,
    creation,
    elementwise_binary,
    elementwise_unary,
    gather_scatter,
    pad_concat,
    reduction,
    view,
)

__all__ = [
    "contraction",
    "creation",
    "elementwise_binary",
    "elementwise_unary",
    "gather_scatter",
    "pad_concat",
    "reduction",
    "view",
]

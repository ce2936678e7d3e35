"""Every primitive operator, one record each; importing this package fills the registry ``ir.op.OPS``."""

from tracecomp.ops import (
    contraction,
    convolution,
    creation,
    elementwise_binary,
    elementwise_unary,
    gather_scatter,
    pad_concat,
    reduction,
    view,
    window,
)

__all__ = [
    "contraction",
    "convolution",
    "creation",
    "elementwise_binary",
    "elementwise_unary",
    "gather_scatter",
    "pad_concat",
    "reduction",
    "view",
    "window",
]

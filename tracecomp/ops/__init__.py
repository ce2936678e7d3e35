"""Every primitive operator, one record each; importing this package fills the registry ``ir.op.OPS``."""

from tracecomp.ops import (
    contraction,
    control,
    convolution,
    creation,
    cumulative,
    elementwise_binary,
    elementwise_unary,
    factorization,
    gather_scatter,
    linalg,
    pad_concat,
    random,
    reduction,
    sort,
    view,
    window,
)

__all__ = [
    "contraction",
    "control",
    "convolution",
    "creation",
    "cumulative",
    "elementwise_binary",
    "elementwise_unary",
    "factorization",
    "gather_scatter",
    "linalg",
    "pad_concat",
    "random",
    "reduction",
    "sort",
    "view",
    "window",
]

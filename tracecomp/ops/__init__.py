"""Every primitive operator, one record each; importing this package fills the registry ``ir.op.OPS``."""

from typing import Any

from tracecomp.base.lazy_names import load_module
from tracecomp.ops import (
    bits,
    collective,
    complexes,
    contraction,
    control,
    convolution,
    creation,
    cumulative,
    elementwise_binary,
    elementwise_unary,
    gather_scatter,
    hosted,
    opaque,
    pad_concat,
    random,
    reduction,
    search,
    sort,
    view,
    window,
)
from tracecomp.ops.fourier import dft, fourier
from tracecomp.ops.linalg import (
    cholesky,
    eigenvalues,
    factorization,
    groups,
    indefinite,
    linalg,
    orthogonal,
    triangular,
)

__all__ = [
    "bits",
    "cholesky",
    "collective",
    "complexes",
    "contraction",
    "control",
    "convolution",
    "creation",
    "cumulative",
    "dft",
    "eigenvalues",
    "elementwise_binary",
    "elementwise_unary",
    "factorization",
    "fourier",
    "gather_scatter",
    "groups",
    "hosted",
    "indefinite",
    "linalg",
    "opaque",
    "orthogonal",
    "pad_concat",
    "random",
    "reduction",
    "search",
    "sort",
    "triangular",
    "view",
    "window",
]


def __getattr__(name: str) -> Any:
    """``torch.ops.aten`` and other namespaces of operators, for ``import tracecomp as torch``."""
    library = load_module("tracecomp.library")  # a name above shadows an import statement
    # Test runners read attributes of every module: only namespaces are resolved.
    if not library.is_namespace(name):
        raise AttributeError(f"module 'tracecomp.ops' has no attribute {name!r}")
    return getattr(library.ops, name)

"""The torch-named functions and Tensor methods. Importing the package attaches the methods to ``Tensor``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracecomp.functional import (
    arithmetic,
    bessel,
    conversion,
    copies,
    creation,
    cumulative,
    einsum,
    factors,
    fourier,
    gamma,
    gathering,
    indexing,
    joining,
    legacy,
    linalg,
    logic,
    lowrank,
    masking,
    matmul,
    norms,
    pointwise,
    polynomials,
    printing,
    rearranging,
    reduction,
    sampling,
    sequences,
    settings,
    shaping,
    sorting,
    special,
    statistics,
    storage,
    strided,
    triangles,
    windows,
    writing,
)
from tracecomp.functional.method import NAMESPACES, PUBLIC

__all__ = [
    "NAMESPACES",
    "PUBLIC",
    "arithmetic",
    "bessel",
    "conversion",
    "copies",
    "creation",
    "cumulative",
    "einsum",
    "factors",
    "fourier",
    "gamma",
    "gathering",
    "indexing",
    "joining",
    "legacy",
    "linalg",
    "logic",
    "lowrank",
    "masking",
    "matmul",
    "norms",
    "pointwise",
    "polynomials",
    "printing",
    "rearranging",
    "reduction",
    "sampling",
    "sequences",
    "settings",
    "shaping",
    "sorting",
    "special",
    "statistics",
    "storage",
    "strided",
    "triangles",
    "windows",
    "writing",
]

globals().update(PUBLIC)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...

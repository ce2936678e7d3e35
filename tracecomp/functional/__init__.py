"""The torch-named functions and Tensor methods. Importing the package attaches the methods to ``Tensor``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracecomp.functional import (
    arithmetic,
    conversion,
    copies,
    creation,
    cumulative,
    einsum,
    gathering,
    indexing,
    joining,
    legacy,
    logic,
    matmul,
    pointwise,
    printing,
    reduction,
    sampling,
    shaping,
    sorting,
    statistics,
    writing,
)
from tracecomp.functional.method import PUBLIC

__all__ = [
    "PUBLIC", "arithmetic", "conversion", "copies", "creation", "cumulative", "einsum", "gathering", "indexing", "joining", "legacy", "logic", "matmul", "pointwise", "printing", "reduction", "sampling", "shaping", "sorting", "statistics", "writing",
]  # fmt: skip

globals().update(PUBLIC)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...

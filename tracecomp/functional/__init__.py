"""The torch-named functions and Tensor methods. Importing the package attaches the methods to ``Tensor``."""

from tracecomp.functional import (
    arithmetic,
    conversion,
    copies,
    creation,
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
    shaping,
    writing,
)
from tracecomp.functional.method import PUBLIC

__all__ = [
    "PUBLIC", "arithmetic", "conversion", "copies", "creation", "einsum", "gathering", "indexing", "joining", "legacy", "logic", "matmul", "pointwise", "printing", "reduction", "shaping", "writing",
]  # fmt: skip

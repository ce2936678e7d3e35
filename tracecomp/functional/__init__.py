"""The torch-named functions and Tensor methods. Importing the package attaches the methods to ``Tensor``."""

from typing import Any

from tracecomp.functional import (
    arithmetic,
    conversion,
    copies,
    creation,
    joining,
    logic,
    pointwise,
    reduction,
    shaping,
)
from tracecomp.functional.method import PUBLIC

__all__ = [
    "PUBLIC", "arithmetic", "conversion", "copies", "creation", "joining", "logic", "pointwise", "reduction", "shaping",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Every published function by its torch name."""
    if name not in PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return PUBLIC[name]

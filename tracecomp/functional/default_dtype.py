"""The default floating dtype."""

from __future__ import annotations

from tracecomp.ir.types import DType, bfloat16, float16, float32, float64

_default = float32


def default_dtype() -> DType:
    return _default


def get_default_dtype() -> DType:
    """The dtype of tensors from Python floats."""
    return _default


def set_default_dtype(d: DType) -> None:
    """Set the default dtype; TypeError unless floating."""
    global _default
    if d not in (float16, bfloat16, float32, float64):
        raise TypeError(f"only floating-point types are supported as the default type, got {d}")
    _default = d

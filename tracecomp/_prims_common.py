"""Queries that libraries import from ``torch._prims_common``."""

from __future__ import annotations

from tracecomp.eager.device import contiguous_format
from tracecomp.eager.device import memory_format as MemoryFormat
from tracecomp.eager.tensor import Tensor

__all__ = ["alert_not_deterministic", "is_contiguous_or_false"]


def alert_not_deterministic(caller: str) -> None:
    """Do nothing: every algorithm is deterministic."""


def is_contiguous_or_false(a: Tensor, memory_format: MemoryFormat = contiguous_format) -> bool:
    """Whether the elements of ``a`` are in the order of ``memory_format`` without gaps."""
    return a.is_contiguous(memory_format=memory_format)

"""Applying chains of views, and writes through them as functional updates of the base."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracecomp.eager.tensor_base import View
from tracecomp.ops.view import write_places


def look(x: Any, chain: Sequence[View]) -> Any:
    """``x`` seen through a chain of views."""
    for op, attrs in chain:
        x = x.__tracecomp_apply__(op, (x,), attrs)
    return x


def write(base: Any, chain: Sequence[View], new: Any) -> Any:
    """``base`` with the elements seen through ``chain`` replaced by ``new``."""
    if not chain:
        return new
    op, attrs = chain[0]
    assert op.write is not None, op.name
    if len(chain) == 1:
        return op.write(base, new, **attrs)
    if "overlapping" in op.traits:
        return write_places(base, lambda x: look(x, chain), new)
    return op.write(base, write(look(base, chain[:1]), chain[1:], new), **attrs)

"""Names that libraries import from ``torch.fx.experimental.symbolic_shapes``: queries about dynamic sizes.

Dynamic sizes of recordings answer like numbers, and record the query as a guard.
"""

from __future__ import annotations

from collections.abc import Iterable

from tracecomp.functional.symbols import SymBool, SymFloat, SymInt

__all__ = [
    "GuardOnDataDependentSymNode", "guard_or_false", "guard_or_true", "has_free_symbols", "is_concrete_bool",
    "is_concrete_int", "statically_known_true",
]  # fmt: skip
_SYMBOLS = (SymInt, SymFloat, SymBool)


class GuardOnDataDependentSymNode(RuntimeError):
    """A question that only numbers of tensors answer; recordings raise CaptureError in its place."""


def guard_or_false(a: object) -> bool:
    """The truth of ``a``."""
    return bool(a)


def guard_or_true(a: object) -> bool:
    """The truth of ``a``."""
    return bool(a)


def statically_known_true(x: object) -> bool:
    """Whether ``x`` is true for all dynamic sizes: no guard is recorded."""
    return not isinstance(x, _SYMBOLS) and bool(x)


def is_concrete_bool(a: object) -> bool:
    return not isinstance(a, SymBool)


def is_concrete_int(a: object) -> bool:
    return not isinstance(a, SymInt)


def has_free_symbols(val: object) -> bool:
    """Whether a number, or the sizes of a tensor or of anything among several, are open."""
    if hasattr(val, "shape"):
        val = tuple(val.shape)
    if isinstance(val, Iterable) and not isinstance(val, str):
        return any(has_free_symbols(x) for x in val)
    return isinstance(val, _SYMBOLS)

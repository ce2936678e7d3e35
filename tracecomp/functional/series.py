"""Evaluating Chebyshev series."""

from __future__ import annotations

from collections.abc import Sequence

from tracecomp.ops.prim import prim
from tracecomp.tensor import Tensor


def chebyshev(t: Tensor, coefficients: Sequence[float]) -> Tensor:
    """sum of c[k] T_k(t) by Clenshaw's recurrence."""
    twice = prim.add(t, t)
    high = prim.mul(t, 0.0)
    low = prim.add(high, coefficients[-1])
    for c in reversed(coefficients[1:-1]):
        low, high = prim.sub(prim.add(prim.mul(twice, low), c), high), low
    return prim.sub(prim.add(prim.mul(t, low), coefficients[0]), high)

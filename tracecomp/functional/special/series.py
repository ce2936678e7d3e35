"""Evaluation of polynomials and Chebyshev series."""

from __future__ import annotations

from collections.abc import Sequence

from tracecomp.eager.tensor import Tensor
from tracecomp.functional.primitives import prim
from tracecomp.ir.types import float64


def polynomial(t: Tensor, coefficients: Sequence[float]) -> Tensor:
    """sum of c[k] t**k for |t| <= 1, the even and the odd powers separately: two independent chains.

    Floats omit the last coefficients, below 1e-10 of the largest.
    """
    if t.dtype is not float64:
        least = 1e-10 * max(map(abs, coefficients))
        coefficients = coefficients[: 1 + max(k for k, c in enumerate(coefficients) if abs(c) > least)]
    square = prim.mul(t, t)
    return prim.add(_chain(square, coefficients[::2]), prim.mul(t, _chain(square, coefficients[1::2])))


def _chain(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    total = prim.add(prim.mul(x, coefficients[-1]), coefficients[-2])
    for c in reversed(coefficients[:-2]):
        total = prim.add(prim.mul(total, x), c)
    return total


def chebyshev(t: Tensor, coefficients: Sequence[float]) -> Tensor:
    """sum of c[k] T_k(t) by Clenshaw's recurrence."""
    twice = prim.add(t, t)
    high = prim.mul(t, 0.0)
    low = prim.add(high, coefficients[-1])
    for c in reversed(coefficients[1:-1]):
        low, high = prim.add(prim.mul(twice, low), prim.sub(c, high)), low
    return prim.add(prim.mul(t, low), prim.sub(coefficients[0], high))

"""Functions of flat float64 arrays, a piece at a time, and polynomials."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracecomp.ir.arrays import cached_slices

Array = Any


def in_float64(fn: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """``fn`` of flat float64 arrays as a function of any floating array, rounded to its type."""

    def run(x: Array) -> Array:
        x = np.asarray(x)
        flat = x.reshape(-1)
        result = np.empty(flat.shape, x.dtype)
        for part in cached_slices(flat.size):
            result[part] = fn(flat[part].astype(np.float64))
        return result.reshape(x.shape)[()]

    run.__doc__ = fn.__doc__
    return run


def horner(x: Array, coefficients: Sequence[float]) -> Array:
    """The polynomial with the highest coefficient first."""
    total = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total *= x
        total += c
    return total

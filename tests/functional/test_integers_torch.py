"""Functions of integers whose sums outgrow their type, against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp

torch = pytest.importorskip("torch")

CALLS = {
    "einsum over one operand": lambda T, x: T.einsum("ij->i", x),
    "einsum over both": lambda T, x: T.einsum("ij,jk->", x, x),
    "einsum of products": lambda T, x: T.einsum("ij,jk->ik", x, x),
    "masked.sum": lambda T, x: T.masked.sum(x, 0),
    "masked.prod": lambda T, x: T.masked.prod(x, 1),
    "masked.cumsum": lambda T, x: T.masked.cumsum(x, 0),
    "masked.cumprod": lambda T, x: T.masked.cumprod(x, 0),
    "trapezoid": lambda T, x: T.trapezoid(x),
    "trapezoid with places": lambda T, x: T.trapezoid(x, x),
    "trapezoid with a step": lambda T, x: T.trapezoid(x, dx=3),
    "cumulative_trapezoid": lambda T, x: T.cumulative_trapezoid(x, dim=0),
    "unravel_index": lambda T, x: T.unravel_index(x.abs(), (1 << 20, 7))[0],
    "prod": lambda T, x: x.prod(0),
    "cumsum": lambda T, x: x.cumsum(0),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64])
def test_types_and_values_are_torchs(dtype: Any, name: str) -> None:
    limit = min(np.iinfo(dtype).max, 1000)
    x = np.random.default_rng(0).integers(limit // 2, limit, (5, 5), dtype)
    got, want = (CALLS[name](T, T.tensor(x)).numpy() for T in (tracecomp, torch))
    assert got.dtype == want.dtype
    assert np.array_equal(got, want)

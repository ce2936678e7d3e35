"""The first elements of an order in numpy, found without sorting all, against those of the whole order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tracecomp.ops.order import first_ordered, ordered


def with_ties(shape: tuple[int, ...], dtype: str) -> Any:
    x = (np.random.default_rng(0).normal(size=shape) * 3).round(1).astype(dtype)
    if x.dtype.kind == "f":
        flat = x.reshape(-1)
        flat[::17], flat[5::13], flat[6::13], flat[3], flat[9] = np.nan, -0.0, 0.0, np.inf, -np.inf
    return x


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i8", "i4", "u1", "?"])
@pytest.mark.parametrize("shape, axis", [((7, 300), 1), ((300, 7), 0), ((3, 200, 4), 1), ((1000,), 0), ((0, 50), 1)])
@pytest.mark.parametrize("count", [1, 5, 40])
@pytest.mark.parametrize("descending", [True, False])
def test_first_of_an_order(dtype: str, shape: tuple[int, ...], axis: int, count: int, descending: bool) -> None:
    x = with_ties(shape, dtype) if np.prod(shape) else np.zeros(shape, dtype)
    first = (slice(None),) * axis + (slice(count),)
    found = first_ordered(x, axis=axis, count=count, descending=descending)
    for mine, whole in zip(found, ordered(x, axis=axis, descending=descending), strict=True):
        np.testing.assert_array_equal(mine, whole[first])
        assert mine.dtype == whole.dtype and mine.flags.c_contiguous

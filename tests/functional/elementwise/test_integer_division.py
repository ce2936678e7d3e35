"""Quotients and remainders of integers by numbers that a program knows: shifts, masks and multiplications instead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp as torch

DIVISORS = (1, 2, 3, 7, 8, 10, 64, 100, 127, -1, -2, -3, -8)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64])
def test_divisions_by_constants_are_exact_eagerly_and_compiled(dtype: Any) -> None:
    info = np.iinfo(dtype)
    rng = np.random.default_rng(0)
    edges = [n for n in (info.min, info.min + 1, -9, -8, -7, -1, 0, 1, 7, 8, 9, 63, 64, info.max) if n >= info.min]
    x = np.concatenate([np.array(edges, dtype), rng.integers(info.min, info.max, 100, dtype=dtype)])
    divisors = [n for n in (*DIVISORS, info.max, info.min) if n > 0 or info.min <= n < 0]
    names = ("remainder", "floor_divide", "fmod")

    def divided(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(getattr(torch, name)(x, n) for n in divisors for name in names)

    compiled = torch.compile(divided)
    tensor = torch.from_numpy(x)
    for found in (divided(tensor), compiled(tensor), compiled(tensor)):
        for result, (n, name) in zip(found, ((n, name) for n in divisors for name in names), strict=True):
            with np.errstate(all="ignore"):
                wanted = getattr(np, name)(x, dtype(n))
            assert np.array_equal(result.numpy(), wanted), (name, n)

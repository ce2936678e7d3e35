"""Compiled sorts are stable: by counting, by radix, in lanes, and of the first elements only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp as tc

SIZES = {"by counting": 40, "by radix": 700}


def values(dtype: tc.dtype, size: int) -> tc.Tensor:
    """Few different values, both zeros, and the extremes of the dtype, so that ties and the order of bits matter."""
    random = np.random.default_rng(size)
    if dtype.is_floating_point:
        pool = [-np.inf, -3.5, -1e-3, -0.0, 0.0, 1e-3, 3.5, np.inf, np.nan]
        return tc.tensor(random.choice(pool, (3, size))).to(dtype)
    info = tc.iinfo(dtype)
    pool = [info.min, info.min + 1, info.min // 2, 0, 1, 127, info.max - 1, info.max]
    return tc.tensor(random.choice(np.array(pool, dtype=np.int64), (3, size))).to(dtype)


def expected(x: tc.Tensor, descending: bool) -> np.ndarray:
    """Positions in stable order: NaN is the greatest value, and both zeros are equal."""
    plain = x.double().numpy() if x.dtype.is_floating_point else x.numpy()
    ascending = np.argsort(plain, axis=-1, kind="stable")
    if not descending:
        return ascending
    size = plain.shape[-1]
    return size - 1 - np.argsort(plain[..., ::-1], axis=-1, kind="stable")[..., ::-1]


@pytest.mark.parametrize("way", SIZES)
@pytest.mark.parametrize("dtype", [tc.float32, tc.float64, tc.bfloat16, tc.int8, tc.int32, tc.int64, tc.uint8], ids=str)
def test_order_and_positions(dtype: tc.dtype, way: str) -> None:
    x = values(dtype, SIZES[way])

    def both(x: tc.Tensor) -> Any:
        return x.sort(stable=True), x.sort(descending=True, stable=True), x.topk(5).values

    compiled = tc.compile(both)
    for _ in range(2):
        up, down, first = compiled(x)
    for result, descending in ((up, False), (down, True)):
        places = expected(x, descending)
        np.testing.assert_array_equal(result.indices.numpy(), places)
        assert tc.equal(result.values.nan_to_num(7.0), x.gather(1, tc.tensor(places)).nan_to_num(7.0))
    assert tc.equal(first.nan_to_num(7.0), down.values[:, :5].nan_to_num(7.0))

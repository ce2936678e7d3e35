"""Running sums and products: PyTorch's bits, one order everywhere, an error that does not grow with their length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp as tc

SHAPES = [((100_000,), 0), ((40, 1000), 0), ((3, 33, 5000), 1), ((300, 70), 1), ((2, 50, 4097), 1), ((5, 0, 400), 1)]


def both(name: str, x: Any, axis: int) -> list[Any]:
    """Eagerly, and compiled."""
    compiled = tc.compile(lambda t: getattr(tc, name)(t, axis))
    return [compiled(tc.tensor(x)).numpy() for _ in range(3)][::2]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "complex64", "int32"])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_sums_have_the_bits_of_torch(shape: tuple[int, ...], axis: int, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    x = (np.random.default_rng(0).standard_normal(shape) * 5).astype(dtype)
    expected = torch.cumsum(torch.tensor(x), axis).numpy()
    for found in both("cumsum", x, axis):
        assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_totals_of_float32_are_rounded_once(name: str) -> None:
    x = np.random.default_rng(1).uniform(0.9, 1.1, (100_000, 2)).astype(np.float32)
    exact = getattr(np, name)(x.astype(np.longdouble), 0)
    for found in both(name, x, 0):
        assert np.max(np.abs(found - exact) / np.spacing(exact.astype(np.float32))) < 0.51


def test_totals_that_leave_float32_come_back() -> None:
    x = np.array([3e38, 3e38, -3e38], np.float32)
    for found in both("cumsum", x, 0):
        assert found.tolist() == [np.float32(3e38), np.inf, np.float32(3e38)]

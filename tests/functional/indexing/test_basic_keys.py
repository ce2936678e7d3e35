"""Numbers and slices as a key: the view that numpy gives, whatever its bounds are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp as torch


def keys(rng: np.random.Generator, ndim: int) -> Any:
    """A random key of up to ``ndim`` parts."""

    def bound() -> int | None:
        return None if rng.random() < 0.3 else int(rng.integers(-8, 9))

    def part() -> Any:
        if rng.random() < 0.4:
            return int(rng.integers(-5, 5))
        return slice(bound(), bound(), None if rng.random() < 0.5 else int(rng.integers(1, 4)))

    found = tuple(part() for _ in range(int(rng.integers(1, ndim + 1))))
    return found[0] if len(found) == 1 and rng.random() < 0.5 else found


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("shape", [(5,), (4, 6), (3, 1, 5), (2, 0, 3)])
def test_a_view_of_the_elements_that_numpy_picks(shape: tuple[int, ...], graded: bool) -> None:
    rng = np.random.default_rng(len(shape))
    array = rng.standard_normal(shape).astype(np.float32)
    for _ in range(200):
        key = keys(rng, len(shape))
        x = torch.tensor(array).requires_grad_(graded)
        try:
            want = array[key]
        except IndexError:
            with pytest.raises(IndexError):
                x[key]
            continue
        found = x[key]
        assert tuple(found.shape) == want.shape, key
        np.testing.assert_array_equal(found.detach().numpy(), want, str(key))
        if not graded and want.size:
            found.fill_(7.0)
            changed = array.copy()
            changed[key] = 7.0
            np.testing.assert_array_equal(x.numpy(), changed, str(key))
        elif graded:
            found.sum().backward()
            expected = np.zeros_like(array)
            expected[key] = 1.0
            assert x.grad is not None
            np.testing.assert_array_equal(x.grad.numpy(), expected, str(key))


@pytest.mark.parametrize("step", [0, -1])
def test_steps_are_positive(step: int) -> None:
    with pytest.raises(ValueError, match="greater than zero"):
        torch.zeros(4, 4)[::step]

"""Running sums keep what float32 can hold, however many terms there are."""

from __future__ import annotations

import numpy as np
import pytest

import tracecomp as tc


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_running_sums_are_as_near_as_float32_can_be(compiled: bool, axis: bool) -> None:
    """One rounding of the exact sum: a total in float32 would be hundreds of units off."""
    terms = np.abs(np.random.default_rng(3).standard_normal((2, 100_000))).astype(np.float32)
    terms = terms.T if axis == 0 else terms
    exact = np.cumsum(terms.astype(np.float64), axis)
    program = tc.compile(tc.cumsum) if compiled else tc.cumsum
    found = program(tc.from_numpy(np.ascontiguousarray(terms)), axis).numpy()
    assert (np.abs(found - exact) / np.spacing(exact.astype(np.float32))).max() <= 0.5001


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ["float64", "float32"])
def test_remainders_by_numbers_near_the_least_normal_one_end(compiled: bool, name: str) -> None:
    """Thousands of steps of a division by subtraction: the quotient has up to 2100 binary digits."""
    kind = np.finfo(name)
    divisors = np.array([kind.smallest_subnormal, kind.smallest_normal, -kind.smallest_normal, kind.eps], name)
    divisors = np.concatenate([divisors, divisors * 1.5, divisors * 3])
    numbers = np.array([kind.max, -kind.max, 1.1, kind.smallest_normal * 1.7, np.inf, 0.0], name)
    x, y = (a.ravel() for a in np.meshgrid(numbers, divisors))
    program = tc.compile(tc.fmod) if compiled else tc.fmod
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(program(tc.from_numpy(x), tc.from_numpy(y)).numpy(), np.fmod(x, y))

"""Exact remainders near the least normal numbers, where an exponent field tells nothing."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

import tracecomp as tc

TINY = 2.0**-1022


def pairs() -> tuple[list[float], list[float]]:
    dice = random.Random(0)
    divisors = [TINY * dice.uniform(0.5, 1.0) for _ in range(40)]
    divisors += [TINY * (1 - 2.0**-k) for k in range(1, 53)] + [TINY * 2.0**-k for k in range(53)]
    divisors += [5e-324 * k for k in range(1, 20)] + [TINY * 1.37 * 2.0**k for k in range(0, 900, 37)]
    starts = [dice.choice((-1, 1)) * dice.uniform(0.5, 1) * 2.0 ** dice.randint(-1074, 1023) for _ in divisors]
    return [1.7e308, 1.0, 3e-310, *starts], [divisors[-1], divisors[0], divisors[41], *divisors]


@pytest.mark.parametrize("function", [tc.fmod, tc.remainder, tc.floor_divide])
def test_remainders_by_numbers_near_the_least_normal_one(function: object) -> None:
    x, y = (tc.tensor(v, dtype=tc.float64) for v in pairs())
    compiled = tc.compile(lambda a, b: function(a, b))  # type: ignore[operator]
    eager, *_, native = (compiled(x, y).numpy() for _ in range(3))
    assert eager.tobytes() == native.tobytes()
    if function is tc.fmod:
        assert np.array_equal(native, [math.fmod(a, b) for a, b in zip(*pairs(), strict=True)])

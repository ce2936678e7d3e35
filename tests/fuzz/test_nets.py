"""A few seconds of the nets that run for hours by command; seeds that once found something stand here for good."""

from __future__ import annotations

import time

import pytest

import tracecomp as tc
from tests.fuzz import changing, equal_graphs, loop_programs, training
from tracecomp.ir.loops import Const
from tracecomp.ir.types import float32

pytestmark = pytest.mark.slow  # measures memory or time: by chance red beside other work

SECONDS = 8.0
FOUND = (1177, 1547)  # a flip of no axes was no identity; two parts of a column sum had one name


@pytest.mark.parametrize("seed", FOUND)
def test_pairs_that_once_differed(seed: int) -> None:
    assert equal_graphs.difference(seed, 9) is None


def test_kernels_that_differ_in_the_sign_of_a_zero_are_two() -> None:
    """Random program 5000069: what was written was 0.0, its negative 0.0 too, and both were one kernel."""
    compiled = tc.compile(lambda a: (a.zero_(), -a, tc.where(a > 0, a, -a)))
    for _ in range(3):
        zero, *minus = compiled(tc.ones(4))
        assert not tc.signbit(zero).any() and all(tc.signbit(m).all() for m in minus)
    assert Const(0.0, float32) != Const(-0.0, float32) and Const(0, float32) == Const(0.0, float32)


@pytest.mark.parametrize(
    "net",
    [lambda s: equal_graphs.difference(s, 7), loop_programs.difference, changing.difference, training.difference],
    ids=["equal graphs", "loop programs", "changing worlds", "training programs"],
)  # fmt: skip
def test_no_difference_in_some_seconds(net: object) -> None:
    end, seed = time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        assert net(seed) is None  # type: ignore[operator]
        seed += 1
    assert seed > 2

"""A few programs of each net, whose command runs for hours; seeds that once found something stay here for good."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tracecomp as tc
from tests.fuzz import (
    ambient,
    changing,
    equal_graphs,
    loop_programs,
    panels,
    python_programs,
    ready,
    training,
    turned,
)
from tracecomp.ir.loops import Const
from tracecomp.ir.types import float32

FOUND = (1177, 1547)  # a flip of no axes was not an identity; two parts of a column sum had one name


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", FOUND)
def test_pairs_that_once_differed(seed: int) -> None:
    assert equal_graphs.difference(seed, 9) is None


@pytest.mark.parametrize("seed", [6])
def test_transposes_of_which_two_parts_had_one_name(seed: int) -> None:
    assert turned.difference(seed) is None


@pytest.mark.parametrize("seed", [30004095, 30004624])
def test_loop_programs_that_copied_the_sign_of_a_nan(seed: int) -> None:
    assert loop_programs.difference(seed) is None


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", [88, 130, 1043, 5069, 7035])
def test_programs_of_python_that_once_differed(seed: int) -> None:
    """A key that was left followed, a handed-on method, a number that stayed by chance, a slot, a list made shorter."""
    assert python_programs.difference(seed) is None


@pytest.mark.parametrize("seed", [8200139, 8200170, 8200600, 8201000])
def test_programs_in_a_changing_environment_that_once_differed(seed: int) -> None:
    """A gradient in ``inference_mode``; uint16 next to a size; zeros for a missing gradient; a freed history."""
    assert ambient.difference(seed, ("compiled",)) is None


def test_kernels_that_differ_in_the_sign_of_a_zero_are_two() -> None:
    """Random program 5000069: a value and its negative were both 0.0, and both became one kernel."""
    compiled = tc.compile(lambda a: (a.zero_(), -a, tc.where(a > 0, a, -a)))
    for _ in range(3):
        zero, *minus = compiled(tc.ones(4))
        assert not tc.signbit(zero).any() and all(tc.signbit(m).all() for m in minus)
    assert Const(0.0, float32) != Const(-0.0, float32) and Const(0, float32) == Const(0.0, float32)


NETS: dict[str, tuple[Callable[[int], str | None], int]] = {
    "equal graphs": (lambda seed: equal_graphs.difference(seed, 7), 10),
    "loop programs": (loop_programs.difference, 12),
    "panels": (panels.difference, 10),
    "changing worlds": (changing.difference, 10),
    "training programs": (training.difference, 5),
    "programs that become ready": (ready.difference, 5),
    "turned": (turned.difference, 25),
    "Python": (python_programs.difference, 20),
    "ambient state": (lambda seed: ambient.difference(seed, ("compiled",)), 4),
}
"""Each net and the number of its seeds, which take about a second together."""


@pytest.mark.parametrize("name", NETS)
def test_the_first_seeds_of_a_net_show_no_difference(name: str) -> None:
    difference, seeds = NETS[name]
    for seed in range(seeds):
        assert difference(seed) is None

"""The memory plan: the first place that is free while a value is alive, whatever the number of values."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tracecomp.ir.graph import Value
from tracecomp.ir.types import TensorType, float32
from tracecomp.passes.program.arena import ALIGNMENT, Lifetime, apart, plan_arena


def lifetimes(seed: int) -> list[Lifetime]:
    """Values of random sizes and lifetimes; many sizes are equal."""
    source = random.Random(seed)
    made = []
    for _ in range(source.randrange(1, 60)):
        first = source.randrange(30)
        value = Value(None, 0, TensorType(float32, ()))
        made.append(Lifetime(value, source.choice((0, 4, 64, 100, 4096)), first, first + source.randrange(8)))
    return made


def lowest(need: int, life: Lifetime, placed: Sequence[tuple[int, int, Lifetime]]) -> int:
    """The first free place, found by trying the end of each value that is alive at the same time."""
    alive = [(low, high) for low, high, other in placed if other.first <= life.last and life.first <= other.last]
    return min(
        start
        for start in (0, *(high for _, high in alive))
        if all(high <= start or start + need <= low for low, high in alive)
    )


@pytest.mark.parametrize("seed", range(40))
def test_each_value_is_at_the_lowest_free_place(seed: int) -> None:
    made = lifetimes(seed)
    offsets, size = plan_arena(made)
    placed: list[tuple[int, int, Lifetime]] = []
    for life in sorted(made, key=lambda x: (-x.nbytes, x.first)):
        need = max(-(-life.nbytes // ALIGNMENT) * ALIGNMENT, ALIGNMENT)
        start = offsets[life.value]
        assert start == lowest(need, life, placed)
        placed.append((start, start + need, life))
    assert size == max(high for _, high, _ in placed)


def test_values_apart_share_no_memory() -> None:
    made = lifetimes(0)
    offsets, size = apart(made)
    assert len(set(offsets.values())) == len(made)
    assert size == sum(max(-(-x.nbytes // ALIGNMENT) * ALIGNMENT, ALIGNMENT) for x in made)

"""Generators: reproducible, independent of how numbers are drawn in between, saved and restored."""

from __future__ import annotations

import numpy as np
import pytest

import tracecomp as torch
from tracecomp.eager import rng


def test_seed_determines_the_stream() -> None:
    torch.manual_seed(3)
    first = torch.rand(5), torch.randn(3)
    torch.manual_seed(3)
    second = torch.rand(5), torch.randn(3)
    assert all(a.tolist() == b.tolist() for a, b in zip(first, second, strict=True))
    assert torch.initial_seed() == 3
    assert torch.rand(5).tolist() != first[0].tolist()


def test_draws_do_not_overlap() -> None:
    generator = torch.Generator().manual_seed(1)
    many = [rng.bits((7,), generator).tolist() for _ in range(50)]
    assert len({v for draw in many for v in draw}) == 350


def test_state_round_trip_and_fork() -> None:
    torch.manual_seed(9)
    torch.rand(3)
    state = torch.get_rng_state()
    a = torch.rand(4).tolist()
    with torch.random.fork_rng():
        torch.rand(100)
    torch.set_rng_state(state)
    assert torch.rand(4).tolist() == a
    generator = torch.Generator().manual_seed(5)
    copy = generator.clone_state()
    assert torch.rand(3, generator=generator).tolist() == torch.rand(3, generator=copy).tolist()


def test_generators_are_independent_of_the_default_one() -> None:
    generator = torch.Generator().manual_seed(5)
    torch.manual_seed(0)
    want = torch.rand(3).tolist()
    torch.manual_seed(0)
    torch.rand(10, generator=generator)
    assert torch.rand(3).tolist() == want


def test_seeds_of_any_64_bits() -> None:
    for seed in (-1, (1 << 64) - 1, 0, 1 << 63):
        torch.manual_seed(seed)
        assert torch.initial_seed() == seed % (1 << 64)
    with pytest.raises(ValueError, match="must fit 64 bits"):
        torch.manual_seed(1 << 64)
    with pytest.raises(TypeError, match="get_state"):
        torch.set_rng_state(torch.zeros(3))


def test_compiled_draws_continue_the_same_stream() -> None:
    def draw() -> torch.Tensor:
        return torch.rand(6)

    torch.manual_seed(2)
    want = [draw().tolist() for _ in range(4)]
    torch.manual_seed(2)
    compiled = torch.compile(draw)
    assert [compiled().tolist() for _ in range(4)] == want


def test_many_compiled_draws_are_the_eager_ones() -> None:
    compiled = torch.compile(lambda: rng.bits((100_001,), torch.random.default_generator))
    for _ in range(3):
        state = torch.get_rng_state()
        found = compiled()
        torch.set_rng_state(state)
        assert torch.equal(found, rng.bits((100_001,), torch.random.default_generator))


def test_bits_are_uniform() -> None:
    bits = rng.bits((100_000,), torch.Generator().manual_seed(0)).numpy().view(np.uint32)
    counts = [(bits >> k & 1).mean() for k in range(32)]
    assert max(abs(c - 0.5) for c in counts) < 0.01

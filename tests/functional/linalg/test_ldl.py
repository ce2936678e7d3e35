"""Symmetric indefinite matrices: factors that need swaps and blocks of two rows."""

from __future__ import annotations

import numpy as np
import pytest

import tracecomp as torch


def symmetric(n: int, diagonal: float) -> np.ndarray:
    """Three matrices with ``diagonal`` times random numbers on their diagonals."""
    a = np.random.default_rng(n).standard_normal((3, n, n))
    a += a.swapaxes(-1, -2)
    a[:, range(n), range(n)] *= diagonal
    return a


@pytest.mark.parametrize("diagonal", [0.0, 0.1, 10.0])
@pytest.mark.parametrize("n", [2, 3, 7, 20])
def test_solves(n: int, diagonal: float) -> None:
    a, b = symmetric(n, diagonal), np.random.default_rng(0).standard_normal((3, n, 2))

    @torch.compile
    def solve(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        factors, pivots, info = torch.linalg.ldl_factor_ex(a)
        assert not info.any()
        return torch.linalg.ldl_solve(factors, pivots, b), pivots

    expected = np.linalg.solve(a, b)
    for _ in range(2):
        found, pivots = solve(torch.from_numpy(np.tril(a)), torch.from_numpy(b))
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-11)
    if diagonal == 0.0:
        assert (pivots.numpy() < 0).any()


def test_broadcast_right_hand_sides() -> None:
    a, b = symmetric(4, 0.1), np.random.default_rng(1).standard_normal((4, 2))
    factors, pivots = torch.linalg.ldl_factor(torch.from_numpy(a))
    found = torch.linalg.ldl_solve(factors, pivots, torch.from_numpy(b))
    np.testing.assert_allclose(found.numpy(), np.linalg.solve(a, b[None]), rtol=1e-9)


def test_singular_matrices_are_told() -> None:
    a = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 2.0]])
    assert torch.linalg.ldl_factor_ex(a).info.item() > 0
    with pytest.raises(RuntimeError, match="singular"):
        torch.linalg.ldl_factor(a)


@pytest.mark.parametrize("words,call", [
    ("square matrices", lambda: torch.linalg.ldl_factor(torch.ones(2, 3))),
    ("at least 2 dim", lambda: torch.linalg.ldl_factor(torch.ones(3))),
    ("floating", lambda: torch.linalg.ldl_factor(torch.ones(3, 3, dtype=torch.int64))),
    ("each A matrix is 3 by 3", lambda: solve_of(torch.ones(4, 2))),
    ("same dtype", lambda: solve_of(torch.ones(3, 2, dtype=torch.float64))),
    ("pivots", lambda: torch.linalg.ldl_solve(torch.eye(3), torch.ones(2, dtype=torch.int32), torch.ones(3, 1))),
])  # fmt: skip
def test_refusals(words: str, call: object) -> None:
    assert callable(call)
    with pytest.raises(RuntimeError, match=words):
        call()


def solve_of(b: torch.Tensor) -> torch.Tensor:
    factor, pivots = torch.linalg.ldl_factor(torch.eye(3))
    return torch.linalg.ldl_solve(factor, pivots, b)

"""Sobol sequences compared with PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

import tracecomp as tc
from tracecomp.quasirandom import SobolEngine

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("dimension", [1, 2, 7, 1024])
def test_points_are_those_of_pytorch_in_pieces_of_any_size(dimension: int) -> None:
    ours, theirs = SobolEngine(dimension), torch.quasirandom.SobolEngine(dimension)
    for n in (1, 3, 64, 5):
        assert np.array_equal(ours.draw(n).numpy(), theirs.draw(n).numpy())
    ours.fast_forward(13), theirs.fast_forward(13)
    assert np.array_equal(ours.draw(2, dtype=tc.float64).numpy(), theirs.draw(2, dtype=torch.float64).numpy())
    assert np.array_equal(ours.reset().draw_base2(3).numpy(), theirs.reset().draw_base2(3).numpy())
    assert repr(ours) == repr(theirs)
    assert ours.num_generated == theirs.num_generated


def test_scrambled_points_are_those_of_their_seed_and_fill_every_interval_once() -> None:
    n, points = 256, SobolEngine(5, scramble=True, seed=3).draw(256).numpy()
    assert np.array_equal(points, SobolEngine(5, scramble=True, seed=3).draw(256).numpy())
    assert not np.array_equal(points, SobolEngine(5, scramble=True, seed=4).draw(256).numpy())
    for column in points.T:
        assert sorted(np.floor(column * n).astype(int)) == list(range(n))


def test_what_is_refused() -> None:
    for dimension in (0, SobolEngine.MAXDIM + 1):
        with pytest.raises(ValueError, match="range of dimensionality"):
            SobolEngine(dimension)
    engine = SobolEngine(2)
    engine.draw(3)
    with pytest.raises(ValueError, match="power of 2"):
        engine.draw_base2(1)

"""Averages of models whose buffers are averaged too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp

torch = pytest.importorskip("torch")
X = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)


def test_averages_of_buffers_and_of_lists_by_dtype() -> None:
    """A count of batches is an integer: its average loses the fraction, as in a copy to it."""
    found = []
    for library in (tracecomp, torch):
        swa = library.optim.swa_utils
        model = library.nn.BatchNorm1d(2)

        def larger(averages: Any, values: Any, count: Any) -> None:
            assert len({t.dtype for t in averages}) == 1
            for average, value in zip(averages, values, strict=True):
                average.copy_(average + value)

        ways: list[dict[str, Any]] = [
            {}, {"avg_fn": swa.get_ema_avg_fn(0.5)}, {"multi_avg_fn": swa.get_ema_multi_avg_fn(0.8)},
            {"multi_avg_fn": larger},
        ]  # fmt: skip
        averages = [swa.AveragedModel(model, use_buffers=True, **way) for way in ways]
        for n in range(1, 6):
            model(library.tensor(X[:, 2 * (n % 2) : 2 * (n % 2) + 2]))
            for average in averages:
                average.update_parameters(model)
        found.append([m.detach().numpy() for a in averages for m in a.state_dict().values()])
    for ours, theirs in zip(*found, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)

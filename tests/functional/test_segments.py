"""``segment_reduce`` against torch: values, gradients, what does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp as tc

torch = pytest.importorskip("torch")
MODES = ("sum", "mean", "max", "min", "prod")


def drawn(seed: int) -> tuple[Any, Any, int, float | None]:
    """Data, lengths, the axis, and what stretches begin with."""
    rng = np.random.default_rng(seed)
    axis, n, count = int(rng.integers(2)), int(rng.integers(1, 9)), int(rng.integers(1, 5))
    lead = (int(rng.integers(1, 3)),) * axis
    cuts = np.sort(rng.integers(0, n + 1, (*lead, count - 1)), -1)
    ends = np.concatenate([np.zeros((*lead, 1), int), cuts, np.full((*lead, 1), n)], -1)
    shape = (*lead, n, *(int(k) for k in rng.integers(1, 4, int(rng.integers(2)))))
    return rng.integers(-3, 4, shape).astype("float64"), np.diff(ends), axis, [None, 2.0][int(rng.integers(2))]


@pytest.mark.parametrize("mode", MODES)
def test_stretches_give_pytorchs_values_and_gradients(mode: str) -> None:
    for seed in range(25):
        data, lengths, axis, initial = drawn(seed)
        offsets = np.concatenate([np.zeros((*lengths.shape[:-1], 1), int), lengths.cumsum(-1)], -1)
        for given in ({"lengths": lengths}, {"offsets": offsets}):
            found = []
            for lib in (tc, torch):
                x = lib.tensor(data, requires_grad=True)
                places = {k: lib.tensor(v) for k, v in given.items()}
                y = lib.segment_reduce(x, mode, axis=axis, initial=initial, **places)
                weights = lib.arange(y.numel(), dtype=y.dtype).reshape(y.shape) + 1
                (lib.where(y.isfinite(), y, 0.0) * weights).sum().backward()
                found += [y.detach().numpy(), x.grad.numpy()]
            np.testing.assert_allclose(found[0], found[2], rtol=1e-12, err_msg=f"{seed} {given}")
            np.testing.assert_allclose(found[1], found[3], rtol=1e-12, err_msg=f"{seed} {given}")


def test_compiled_stretches_follow_their_lengths() -> None:
    compiled = tc.compile(lambda x, n: tc.segment_reduce(x, "max", lengths=n))
    x = tc.tensor([3.0, 1.0, 2.0, 5.0])
    for lengths in ([2, 2], [1, 3], [4, 0], [0, 4]):
        n = tc.tensor(lengths)
        assert tc.equal(compiled(x, n), tc.segment_reduce(x, "max", lengths=n))
    with pytest.raises(RuntimeError, match="to sum to"):
        compiled(x, tc.tensor([1, 1]))


@pytest.mark.parametrize(
    "given",
    [
        {}, {"lengths": [1, 1]}, {"lengths": [-1, 5]}, {"lengths": [[4], [4]]}, {"lengths": [4], "axis": 1},
        {"lengths": [4], "reduce": "any"}, {"indices": [0, 0, 1, 1]}, {"lengths": [4.0]},
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_as_in_pytorch(given: dict[str, Any]) -> None:
    errors = []
    for lib in (tc, torch):
        options: dict[str, Any] = {k: lib.tensor(v) if isinstance(v, list) else v for k, v in given.items()}
        with pytest.raises((RuntimeError, NotImplementedError)) as caught:
            lib.segment_reduce(lib.ones(4, 2), **{"reduce": "sum", **options})
        errors.append((type(caught.value), str(caught.value)))
    assert errors[0] == errors[1]

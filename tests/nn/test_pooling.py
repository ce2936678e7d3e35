"""Maximum pooling, which finds places only where derivatives or the caller want them."""

from __future__ import annotations

import numpy as np
import pytest

import tracecomp


@pytest.mark.parametrize("n", [1, 2, 3])
def test_max_pool_is_the_same_with_and_without_a_gradient(n: int) -> None:
    x = np.random.default_rng(3).standard_normal((2, 3, *[9] * n)).astype(np.float32)
    x.reshape(-1)[[5, 50]] = np.nan
    pool = getattr(tracecomp.nn.functional, f"max_pool{n}d")
    differentiable = tracecomp.tensor(x, requires_grad=True)
    followed = pool(differentiable, 3, 2, 1)
    followed.nansum().backward()
    assert differentiable.grad is not None and differentiable.grad.sum().item() == (~followed.isnan()).sum().item()
    compiled = tracecomp.compile(lambda t: pool(t, 3, 2, 1))
    for _ in range(3):
        plain = compiled(tracecomp.tensor(x))
    np.testing.assert_array_equal(plain.numpy(), followed.detach().numpy())
    assert np.isnan(plain.numpy()).any()

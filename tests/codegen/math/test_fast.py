"""``fast_math``: other rounding within stated bounds, asked for by name."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest

import tracecomp as tc
from tracecomp import nn
from tracecomp.codegen.math.functions import FAST_ULP
from tracecomp.runtime.compiler import host_target


def compiled(f: Any, *args: Any, **options: Any) -> Any:
    c = tc.compile(f, **options)
    for _ in range(2):
        c(*args)
    return c(*args)


def hyperbolic(x: tc.Tensor) -> tc.Tensor:
    return tc.tanh(x)


@pytest.mark.parametrize("name", FAST_ULP)
def test_errors_of_functions(name: str) -> None:
    x = np.concatenate([np.linspace(-12, 12, 200_001), np.geomspace(1e-44, 12, 20_000)]).astype(np.float32)
    exact = np.array([getattr(math, name)(v) for v in x.tolist()])
    got = compiled(getattr(tc, name), tc.from_numpy(x), fast_math=True).numpy()
    ulp = np.spacing(np.maximum(np.abs(exact), np.float32(1e-38)).astype(np.float32)).astype(np.float64)
    assert (np.abs(got - exact) / ulp).max() <= FAST_ULP[name]
    assert np.abs(got).max() == 1.0
    ends = tc.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0])
    assert repr(compiled(getattr(tc, name), ends, fast_math=True).tolist()) == "[1.0, -1.0, nan, 0.0, -0.0]"
    doubles = tc.linspace(-4, 4, 1001, dtype=tc.float64)
    exactly = compiled(getattr(tc, name), doubles)
    assert np.array_equal(compiled(getattr(tc, name), doubles, fast_math=True).numpy(), exactly.numpy())


def test_products_and_sums_are_fused() -> None:
    """(1 + e) * (1 - e) - 1 is -e**2 in one rounding and 0 in two."""
    e = 2.0**-13
    x, y = tc.full((64,), 1 + e), tc.full((64,), 1 - e)

    def f(x: tc.Tensor, y: tc.Tensor) -> tc.Tensor:
        return x * y - 1.0

    assert set(compiled(f, x, y).tolist()) == {0.0}
    has_fma = "+fma" in host_target().features or not host_target().is_x86
    assert set(compiled(f, x, y, fast_math=True).tolist()) == {-(e**2) if has_fma else 0.0}


def test_a_training_step_stays_close() -> None:
    def run(**options: Any) -> list[float]:
        tc.manual_seed(0)
        model = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.LayerNorm(64), nn.Tanh(), nn.Linear(64, 5))
        optimizer = tc.optim.AdamW(model.parameters(), lr=1e-2)
        x, y = tc.randn(32, 20), tc.randint(0, 5, (32,))

        @tc.compile(**options)
        def step(x: tc.Tensor, y: tc.Tensor) -> tc.Tensor:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return [step(x, y).item() for _ in range(30)]

    exact, fast = run(), run(fast_math=True)
    assert exact != fast
    np.testing.assert_allclose(fast, exact, rtol=1e-3)


def test_programs_are_told_apart_in_the_cache_and_options_travel() -> None:
    x = tc.linspace(-3, 3, 4096)
    exact, fast = (compiled(hyperbolic, x, fast_math=on).numpy() for on in (False, True))
    assert not np.array_equal(exact, fast)
    c = pickle.loads(pickle.dumps(tc.compile(hyperbolic, fast_math=True)))
    for _ in range(3):
        again = c(x)
    assert np.array_equal(again.numpy(), fast)
    assert c.profile(x).kernels

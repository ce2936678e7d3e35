"""Half types compared with PyTorch: rounded numbers, and formulas that are rounded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as tc

torch = pytest.importorskip("torch")
F = Callable[..., Any]

EXACT: dict[str, F] = {
    "product": lambda t, x, y: x * 0.3,
    "product from the left": lambda t, x, y: 0.3 * x,
    "product in place": lambda t, x, y: x.clone().mul_(0.3),
    "product with a tensor of no dimensions": lambda t, x, y: x * t.tensor(0.3),
    "product with one of the type itself": lambda t, x, y: x * t.tensor(0.3, dtype=x.dtype),
    "tensor of no dimensions from the left": lambda t, x, y: t.mul(t.tensor(0.3), x),
    "quotient": lambda t, x, y: x / 0.3,
    "quotient from the left": lambda t, x, y: 0.3 / y.abs().clamp(0.1),
    "sum": lambda t, x, y: x + 0.3,
    "difference from the left": lambda t, x, y: 0.3 - x,
    "sum with alpha": lambda t, x, y: t.add(x, y, alpha=0.3),
    "difference with alpha": lambda t, x, y: t.sub(x, y, alpha=0.3),
    "rsub with alpha": lambda t, x, y: t.rsub(x, y, alpha=0.3),
    "sum with alpha in place": lambda t, x, y: x.clone().add_(y, alpha=-0.013),
    "power": lambda t, x, y: x.abs() ** 1.7,
    "addcmul": lambda t, x, y: t.addcmul(x, y, x, value=0.3),
    "softshrink": lambda t, x, y: t.nn.functional.softshrink(x, 0.3),
    "foreach": lambda t, x, y: t._foreach_add(t._foreach_mul([x], 0.97), [y], alpha=-0.1)[0],
}


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_numbers_beside_half_types_are_rounded_where_pytorch_rounds_them(name: str, dtype: str) -> None:
    # 1024: PyTorch's vector code rounds once, its code for the rest of an array more often
    x, y = np.random.default_rng(0).normal(size=(2, 1024)).astype("float32")
    ours, theirs = (
        EXACT[name](t, *(t.tensor(a).to(getattr(t, dtype)) for a in (x, y))).float().numpy() for t in (tc, torch)
    )
    assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_of_products_with_numbers_are_pytorchs(dtype: str) -> None:
    a, g = np.random.default_rng(0).normal(size=(2, 1024)).astype("float32")
    found = []
    for t in (tc, torch):
        x = t.tensor(a).to(getattr(t, dtype)).requires_grad_()
        (x * 0.3 + x / 0.7).backward(t.tensor(g).to(x.dtype))
        found.append(x.grad.float().numpy())
    assert np.array_equal(*found)


LARGE: dict[str, F] = {
    "norm": lambda t, x: x.norm(),
    "norm of order 3": lambda t, x: x.norm(3),
    "standard deviation": lambda t, x: x.std(),
    "variance and mean": lambda t, x: t.var_mean(x / 10)[0],
    "mean": lambda t, x: t.full((70000,), 10.0).to(x.dtype).mean(),
    "distance": lambda t, x: t.dist(x, -x.flip(0)),
    "normalize": lambda t, x: t.nn.functional.normalize(x, dim=0),
    "cosine": lambda t, x: t.nn.functional.cosine_similarity(x, x.flip(0), dim=0),
    "pairwise distance": lambda t, x: t.nn.functional.pairwise_distance(x[None], -x.flip(0)[None]),
    "average pool": lambda t, x: t.nn.functional.avg_pool1d(x.repeat(1, 1, 256) * 100, 1024),
    "attention": lambda t, x: t.nn.functional.scaled_dot_product_attention(*[x.reshape(1, 1, 1, -1)] * 3),
    "huber": lambda t, x: t.nn.functional.huber_loss(x, x.flip(0), delta=700.0),
}


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("compiled", [False, True])
def test_squares_and_sums_beyond_float16_are_no_reason_for_infinity(name: str, compiled: bool) -> None:
    values = np.array([300.0, -400.0, 200.0, 100.0], np.float32)
    expected = LARGE[name](torch, torch.tensor(values).half()).float().numpy()
    fn = (lambda x: LARGE[name](tc, x)) if not compiled else tc.compile(lambda x: LARGE[name](tc, x))
    for _ in range(3):
        found = fn(tc.tensor(values).half()).float().numpy()
        assert np.allclose(found, expected, rtol=2e-3, equal_nan=False)

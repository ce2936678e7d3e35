"""A compiled function has the bits of the eager one, whatever the memory order of its intermediate values."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as tc
from tracecomp import Tensor, nn

F = nn.functional
REDUCTIONS: dict[str, Callable[[Tensor, tuple[int, ...]], Tensor]] = {
    "sum": lambda y, axes: y.sum(axes),
    "mean": lambda y, axes: y.mean(axes),
    "prod": lambda y, axes: (1 + y / 64).prod(axes[0]),
    "var": lambda y, axes: y.var(axes, correction=0),
    "norm": lambda y, axes: tc.linalg.vector_norm(y, 2, axes),
    "logsumexp": lambda y, axes: y.logsumexp(axes),
    "softmax": lambda y, axes: y.softmax(axes[0]),
}
VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "itself": lambda y: y,
    "computed": lambda y: y.exp(),
    "flipped": lambda y: y.flip(0),
    "sliced": lambda y: y[::2],
    "expanded": lambda y: y.unsqueeze(0).expand(3, *y.shape),
    "flattened": lambda y: y.flatten(0, 1) if y.ndim > 2 else y,
}


def bits(x: Any) -> bytes | None:
    return None if x is None else np.ascontiguousarray(x.detach().numpy()).tobytes()


def compiled_bits(f: Callable[..., Tensor], *args: Tensor) -> bytes | None:
    run = tc.compile(f)
    for _ in range(3):
        found = run(*args)
    return bits(found)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(24))
def test_a_reduction_of_a_permuted_value(seed: int) -> None:
    rng = random.Random(seed)
    tc.manual_seed(seed)
    shape = [rng.choice((1, 2, 3, 8, 9, 17, 20, 65, 130)) for _ in range(rng.randint(2, 4))]
    while np.prod(shape) > 60_000:
        shape[rng.randrange(len(shape))] = 1
    x = tc.randn(shape).to(rng.choice((tc.float32, tc.float32, tc.float64, tc.float16)))
    dims = rng.sample(range(x.ndim), x.ndim)
    name, view = rng.choice(list(REDUCTIONS)), rng.choice(list(VIEWS))
    chosen = sorted(rng.sample(range(x.ndim), rng.randint(1, x.ndim)))

    def f(x: Tensor) -> Tensor:
        y = VIEWS[view](x.permute(dims))
        return REDUCTIONS[name](y, tuple(d for d in chosen if d < y.ndim) or (0,))

    assert compiled_bits(f, x) == bits(f(x)), (name, view, shape, dims, chosen)


AFTER: dict[str, Callable[[], Callable[[Tensor], Tensor]]] = {
    "sum": lambda: lambda y: y.sum((2, 3)),
    "whole sum": lambda: lambda y: y.sum(),
    "mean of channels": lambda: lambda y: y.mean(1),
    "batch norm": lambda: nn.BatchNorm2d(32, momentum=0.0),
    "group norm": lambda: nn.GroupNorm(4, 32),
    "instance norm": lambda: nn.InstanceNorm2d(32, affine=True),
    "pooling": lambda: lambda y: F.avg_pool2d(y, 3, 2, 1),
    "global pooling": lambda: lambda y: F.adaptive_avg_pool2d(y, 1),
    "softmax": lambda: lambda y: y.softmax(1),
}


@pytest.mark.sampled(18)
@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("after", AFTER)
def test_what_follows_a_convolution_and_its_gradients(after: str, squared: bool) -> None:
    """The gradient that reaches the convolution repeats one number where the result is only summed."""
    tc.manual_seed(0)
    conv, layer = nn.Conv2d(16, 32, 3, padding=1), AFTER[after]()
    held = [*conv.parameters(), *(layer.parameters() if isinstance(layer, nn.Module) else ())]

    def f(x: Tensor) -> Tensor:
        for p in held:
            p.grad = None
        y = layer(conv(x))
        (y * y if squared else y).sum().backward()
        return y

    for x in (tc.randn(4, 16, 14, 14), tc.randn(2, 16, 9, 9).to(memory_format=tc.channels_last)):
        eager = [bits(f(x)), *(bits(p.grad) for p in held)]
        assert [compiled_bits(f, x), *(bits(p.grad) for p in held)] == eager


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rows, columns", [(40, 300), (300, 40), (1, 70), (70, 1)])
def test_a_product_of_a_transposed_matrix_with_a_vector(rows: int, columns: int) -> None:
    tc.manual_seed(0)
    w, v, u = tc.randn(rows, columns), tc.randn(rows), tc.randn(columns)
    for f in (lambda: w.T @ v, lambda: w @ u, lambda: v @ w, lambda: u @ w.T):
        assert compiled_bits(f) == bits(f())


def test_constants_are_computed_to_the_bits_of_eager_ones() -> None:
    def f() -> Tensor:
        places = tc.arange(100, dtype=tc.float32) / 7
        return tc.stack([places.sum(), places.exp().mean(), tc.full((3000,), 0.1).sum(), places @ places])

    assert compiled_bits(f) == bits(f())

"""Functions of complex numbers against torch, also on the axes, at branch points and near branch cuts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp

torch = pytest.importorskip("torch")

EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 1e-10, -1e-10, 1e10, -3.0, 100.0]
NAMES = ["asin", "acos", "atan", "asinh", "acosh", "atanh", "log1p", "expm1", "sinc"]


def points() -> Any:
    rng = np.random.default_rng(0)
    grid = [complex(a, b) for a in EDGES for b in EDGES]
    return np.concatenate([grid, rng.normal(size=100) + 1j * rng.normal(size=100)])


def close(got: Any, want: Any, tolerance: float) -> Any:
    with np.errstate(invalid="ignore"):
        near = np.abs(got - want) <= tolerance * (1 + np.abs(want))
    return near | (got == want) | (np.isnan(got) & np.isnan(want))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_elementwise_functions_have_torchs_values_and_branches(name: str, dtype: Any) -> None:
    x = points().astype(dtype)
    if name == "atan" and dtype is np.complex64:
        x = x[~(np.abs(np.abs(x) - 1) < 0.1)]  # torch's own sum of squares cancels near |x| = 1
    want = getattr(torch, name)(torch.tensor(x)).numpy()
    got = getattr(tracecomp, name)(tracecomp.tensor(x)).numpy()
    fine = close(got, want, 1e-12 if dtype is np.complex128 else 3e-6)
    assert fine.all(), [(x[i], got[i], want[i]) for i in np.flatnonzero(~fine)[:5]]


@pytest.mark.parametrize("name", NAMES)
def test_elementwise_functions_have_torchs_gradients(name: str) -> None:
    x = points()
    x = x[(np.abs(x) < 50) & (x.imag != 0) & (x.real != 0) & (np.abs(x) > 1e-6)]
    ours, theirs = tracecomp.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    (getattr(tracecomp, name)(ours).abs() ** 2).sum().backward()
    (getattr(torch, name)(theirs).abs() ** 2).sum().backward()
    assert close(ours.grad.numpy(), theirs.grad.numpy(), 1e-8).all()


@pytest.mark.parametrize("shape, dim", [((7,), 0), ((3, 1, 5), -1), ((2, 8), 0), ((0, 3), 0), ((4, 0), 1)])
@pytest.mark.parametrize("name", ["prod", "cumprod", "logsumexp"])
def test_products_and_sums_along_a_dimension(name: str, shape: tuple[int, ...], dim: int) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    if x.size:
        x.flat[0] = 0  # the gradient of a product at a zero needs no division
    ours, theirs = tracecomp.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    got, want = getattr(tracecomp, name)(ours, dim), getattr(torch, name)(theirs, dim)
    assert close(got.detach().numpy(), want.detach().numpy(), 1e-12).all()
    (got.abs() ** 2).sum().backward()
    (want.abs() ** 2).sum().backward()
    assert close(ours.grad.numpy(), theirs.grad.numpy(), 1e-10).all()


@pytest.mark.parametrize("name", ["conv1d", "conv_transpose1d"])
def test_convolutions(name: str) -> None:
    rng = np.random.default_rng(2)
    x, w, b = (rng.normal(size=s) + 1j * rng.normal(size=s) for s in ((2, 4, 9), (4, 4, 3), (4,)))
    results = []
    for lib in (tracecomp, torch):
        values = [lib.tensor(v, requires_grad=True) for v in (x, w, b)]
        out = getattr(lib.nn.functional, name)(*values, stride=2, padding=1)
        (out.abs() ** 2).sum().backward()
        results.append([out.detach().numpy(), *(v.grad.numpy() for v in values)])
    for got, want in zip(*results, strict=True):
        assert close(got, want, 1e-12).all()


def spread(dtype: Any, shape: tuple[int, ...]) -> Any:
    rng = np.random.default_rng(3)
    size = [10.0 ** rng.integers(-4, 4, shape) * rng.normal(size=shape) for _ in range(2)]
    return tracecomp.tensor((size[0] + 1j * size[1]).astype(dtype))


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_compiled_functions_have_the_bits_of_eager_ones(dtype: Any) -> None:
    x, y = spread(dtype, (40, 30)), spread(dtype, (30,))

    def step(x: Any, y: Any) -> list[Any]:
        quotients = [x / y, 1.0 / y, x.square(), x**3, x.sum(0), x.sum(1), x.mean(), (x / x.abs()).prod(1), x @ y]
        small = x * 1e-3
        return [*quotients, *(getattr(tracecomp, name)(small) for name in NAMES), small.logsumexp(0), small.sigmoid()]

    compiled = tracecomp.compile(step)
    compiled(x, y)
    for place, (a, b) in enumerate(zip(compiled(x, y), step(x, y), strict=True)):
        assert np.array_equal(a.numpy(), b.numpy(), equal_nan=True), place

"""Functions that search, scan, pad and measure distances, against PyTorch where a composition could go wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tracecomp as tc  # noqa: E402

RNG = np.random.default_rng(0)


def both(array: Any, **options: Any) -> tuple[Any, Any]:
    return torch.tensor(array, **options), tc.tensor(array, **options)


def check(want: Any, found: Any, tolerance: float = 0.0) -> None:
    assert tuple(want.shape) == tuple(found.shape)
    np.testing.assert_allclose(found.detach().numpy(), want.detach().numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("sequence", [[1.0, np.nan], [1.0, 2.0, 2.0, np.nan], [3.0, 1.0, 2.0, 5.0, 0.0], []])
def test_searchsorted_finds_what_pytorchs_search_finds(sequence: list[float], right: bool) -> None:
    s, t = both(np.array(sequence, np.float32))
    values = np.array([0.5, 1.0, 2.0, 4.0, np.nan, np.inf], np.float32)
    v, w = both(values)
    want = torch.searchsorted(s, v, right=right)
    check(want, tc.searchsorted(t, w, right=right))
    compiled = tc.compile(lambda a, b: tc.searchsorted(a, b, right=right))
    for _ in range(3):
        check(want, compiled(t, w))


@pytest.mark.parametrize("tested", [0, 1, 64, 65, 500])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8])
def test_isin_among_few_and_many(tested: int, dtype: Any) -> None:
    elements, others = RNG.integers(0, 200, (30, 40)).astype(dtype), RNG.integers(0, 200, tested).astype(dtype)
    if dtype is np.float32:
        elements[:3], elements[3] = np.nan, np.inf
        others[::3] = np.nan
        others[1::7] = np.inf
    (a, b), (c, d) = both(elements), both(others)
    for invert in (False, True):
        check(torch.isin(a, c, invert=invert), tc.isin(b, d, invert=invert))


@pytest.mark.parametrize("infinite", [True, False])
@pytest.mark.parametrize("shape", [(40,), (3, 300), (4, 7, 5)])
def test_logcumsumexp_is_finite_where_sums_are(shape: tuple[int, ...], infinite: bool) -> None:
    x = RNG.standard_normal(shape) * 300
    x.reshape(-1)[:4] = -np.inf
    x.reshape(-1)[20] = np.inf if infinite else 200.0
    a, b = both(x, requires_grad=True)
    want, found = torch.logcumsumexp(a, -1), tc.logcumsumexp(b, -1)
    check(want, found, 1e-12)
    if not infinite:  # a gradient is NaN in PyTorch where a sum is infinite
        for y, t, lib in ((want, a, torch), (found, b, tc)):
            weights = lib.linspace(-1, 1, y.numel(), dtype=lib.float64).reshape(y.shape)
            finite = lib.where(lib.isfinite(y), y * weights, 0.0)
            finite.sum().backward()
            assert lib.isfinite(y).any() and t.grad is not None
        inside = np.isfinite(want.detach().numpy())
        np.testing.assert_allclose(b.grad.numpy()[inside], a.grad.numpy()[inside], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize(("shape", "axes"), [((3, 7), 1), ((2, 3, 5, 6), 2), ((2, 2, 4, 5, 6), 3)])
def test_padding_and_cutting(shape: tuple[int, ...], axes: int, mode: str) -> None:
    x = RNG.standard_normal(shape).astype(np.float32)
    for _ in range(12):
        pad = tuple(map(int, RNG.integers(0 if mode == "circular" else -2, 4, 2 * axes)))
        a, b = both(x, requires_grad=True)
        want, found = torch.nn.functional.pad(a, pad, mode), tc.nn.functional.pad(b, pad, mode)
        check(want, found)
        want.square().sum().backward()
        found.square().sum().backward()
        check(a.grad, b.grad, 1e-6)


@pytest.mark.parametrize("compute_mode", [
    "use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist",
])  # fmt: skip
@pytest.mark.parametrize(
    ("one", "other"), [((30, 5), (40, 5)), ((2, 1, 30, 5), (3, 4, 5)), ((0, 5), (30, 5)), ((30, 0), (9, 0))]
)
def test_distances(one: tuple[int, ...], other: tuple[int, ...], compute_mode: str) -> None:
    (a, b), (c, d) = (both(RNG.standard_normal(s).astype(np.float32), requires_grad=True) for s in (one, other))
    want, found = torch.cdist(a, c, compute_mode=compute_mode), tc.cdist(b, d, compute_mode=compute_mode)
    check(want, found, 2e-6)
    want.sum().backward()
    found.sum().backward()
    check(a.grad, b.grad, 1e-4)
    check(c.grad, d.grad, 1e-4)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 3])
def test_bags(mode: str, padding: int | None) -> None:
    table, at = RNG.standard_normal((10, 6)).astype(np.float32), RNG.integers(0, 10, (5, 4))
    at[1] = 3
    a, b = both(table, requires_grad=True)
    i, j = both(at)
    offsets = [0, 2, 2, 11]
    for bags in ({}, {"offsets": offsets}):
        flat = (i.reshape(-1), j.reshape(-1)) if bags else (i, j)
        given = [{k: lib.tensor(v) for k, v in bags.items()} for lib in (torch, tc)]
        want = torch.nn.functional.embedding_bag(flat[0], a, mode=mode, padding_idx=padding, **given[0])
        found = tc.nn.functional.embedding_bag(flat[1], b, mode=mode, padding_idx=padding, **given[1])
        check(want, found, 1e-6)
        a.grad = b.grad = None
        want.square().sum().backward()
        found.square().sum().backward()
        check(a.grad, b.grad, 1e-5)


@pytest.mark.parametrize("dim", [0, 1])
def test_argsort_keeps_the_memory_order_of_its_input(dim: int) -> None:
    x, y = both(np.array([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]], np.float32))
    want, found = torch.argsort(x.t(), dim), tc.argsort(y.t(), dim)
    check(want, found)
    assert found.stride() == want.stride()


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions_of_extreme_bools_are_refused(name: str) -> None:
    for package in (torch, tc):
        with pytest.raises(RuntimeError, match=rf"{name}\(\): does not support bool input") as raised:
            getattr(package, name)(package.tensor([True, False]))
        assert raised.type is RuntimeError

"""Special functions made of primitives, against mpmath, in units in the last place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as T

mp = pytest.importorskip("mpmath")
pytestmark = pytest.mark.peers  # which brings mpmath


def quantile(p: Any) -> Any:
    """By bisection on the lower half."""
    if p > 0.5:
        return -quantile(1 - p)
    low, high = mp.mpf(-40), mp.mpf(0)
    for _ in range(110):
        middle = (low + high) / 2
        low, high = (middle, high) if mp.erfc(-middle / mp.sqrt(2)) / 2 < p else (low, middle)
    return high


# name: reference, points between, bound in units in the last place of the result
CASES: dict[str, tuple[Callable[[Any], Any], float, float, float]] = {
    "i0": (lambda x: mp.besseli(0, x), -30, 30, 5),
    "i0e": (lambda x: mp.besseli(0, x) * mp.exp(-abs(x)), -60, 60, 5),
    "i1": (lambda x: mp.besseli(1, x), -30, 30, 5),
    "i1e": (lambda x: mp.besseli(1, x) * mp.exp(-abs(x)), -60, 60, 5),
    "modified_bessel_k0": (lambda x: mp.besselk(0, x), 0.001, 30, 10),
    "scaled_modified_bessel_k1": (lambda x: mp.besselk(1, x) * mp.exp(x), 0.001, 60, 10),
    "erfcx": (lambda x: mp.exp(x * x) * mp.erfc(x), -1, 50, 8),
    "ndtri": (quantile, 1e-30, 0.999, 8),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_within_bound(name: str, dtype: Any) -> None:
    reference, low, high, bound = CASES[name]
    rng = np.random.default_rng(5)
    x = np.concatenate([rng.uniform(low, high, 90), low + (high - low) * 2.0 ** rng.uniform(-60, 0, 60)])
    x = x.astype(dtype)
    with mp.workdps(30):
        exact = np.array([float(reference(mp.mpf(float(v)))) for v in x])
    with np.errstate(all="ignore"):
        error = np.abs(getattr(T.special, name)(T.from_numpy(x)).numpy() - exact)
    units = error / np.spacing(np.abs(exact).astype(dtype))
    assert units.max() <= bound, (float(x[units.argmax()]), float(units.max()))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name,order", [("bessel_j0", 0), ("bessel_j1", 1), ("bessel_y0", 0), ("bessel_y1", 1)])
def test_waves_within_bound(name: str, order: int, dtype: Any) -> None:
    """Relative to the wave's amplitude, since roots have no last place."""
    x = np.random.default_rng(6).uniform(0.5, 40, 300).astype(dtype)
    kind = mp.besselj if "_j" in name else mp.bessely
    exact = np.array([float(kind(order, mp.mpf(float(v)))) for v in x])
    error = np.abs(getattr(T.special, name)(T.from_numpy(x)).numpy() - exact)
    assert (error * np.sqrt(x) / np.finfo(dtype).eps).max() <= 12


def test_polygamma_one() -> None:
    x = np.concatenate([np.random.default_rng(7).uniform(-6, 12, 300), [1e-8, 1.0, 2.0, 1e8]])
    exact = np.array([float(mp.polygamma(1, mp.mpf(v))) for v in x])
    np.testing.assert_allclose(T.polygamma(1, T.from_numpy(x)).numpy(), exact, rtol=4e-15)
    edges = T.polygamma(1, T.tensor([0.0, float("inf"), float("nan")]))
    np.testing.assert_array_equal(edges.numpy(), np.array([np.inf, 0.0, np.nan], np.float32))


@pytest.mark.parametrize("point", [0.3, 1.0, 2.0, -0.4])
def test_digamma_has_derivatives_of_every_order(point: float) -> None:
    x = T.tensor(point, dtype=T.float64, requires_grad=True)
    value = x.digamma()
    for order in (1, 2, 3):
        (value,) = T.autograd.grad(value, x, create_graph=True)
        assert value.item() == pytest.approx(float(mp.polygamma(order, point)), rel=1e-10)


def test_ndtri_has_two_derivatives() -> None:
    p = T.tensor([1e-200, 0.001, 0.1099, 0.1101, 0.3, 0.7, 0.999], dtype=T.float64, requires_grad=True)
    y = T.special.ndtri(p)
    (slope,) = T.autograd.grad(y.sum(), p, create_graph=True)
    (bend,) = T.autograd.grad(slope.sum(), p)
    exact = y.detach().numpy()
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(slope.detach().numpy(), np.sqrt(2 * np.pi) * np.exp(exact**2 / 2), rtol=1e-11)
        np.testing.assert_allclose(bend.numpy()[1:], (2 * np.pi * np.exp(exact**2) * exact)[1:], rtol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("low,high", [(1e-12, 1.0), (1.0, 20.0), (20.0, 300.0), (300.0, 1e5), (1e5, 1e9)])
def test_incomplete_gamma_functions_for_arguments_of_any_size(low: float, high: float, dtype: Any) -> None:
    """Most are near a = x, where sums converge slowest, on both sides of the switch between two expansions."""
    rng = np.random.default_rng(8)
    a = np.exp(rng.uniform(np.log(low), np.log(high), 80)).astype(dtype)
    beside = np.abs(a * (1 + rng.uniform(-6, 6, 80) / np.sqrt(a)))
    x = np.where(rng.random(80) < 0.7, beside, np.exp(rng.uniform(np.log(low / 10), np.log(high * 10), 80)))
    x = np.concatenate([x[:-2], [a[-2], 0.7 * a[-1]]]).astype(dtype)
    with mp.workdps(40):
        pairs = [_incomplete_gamma(mp.mpf(float(s)), mp.mpf(float(v))) for s, v in zip(a, x, strict=True)]
    lower, upper = np.array(pairs).T
    for name, exact in (("gammainc", lower), ("gammaincc", upper)):
        found = getattr(T.special, name)(T.from_numpy(a), T.from_numpy(x)).numpy()
        kept = exact > np.finfo(dtype).tiny
        # Exponents of size a ln(a) have so many digits before the point.
        digits = 1 + (np.abs(a * np.log(x / a)) + np.abs(x - a) + np.abs(np.log(x)))[kept]
        bound = np.finfo(dtype).eps + 60 * np.finfo(np.float64).eps * digits
        error = np.abs(found - exact)[kept] / exact[kept] / bound
        assert error.max() <= 2, (name, float(error.max()), a[kept][error.argmax()], x[kept][error.argmax()])


def _incomplete_gamma(a: Any, x: Any) -> tuple[float, float]:
    """Both functions; by quadrature of the density's logarithm where mpmath's sums are too long."""
    if a < 3e4:
        return float(mp.gammainc(a, 0, x, regularized=True)), float(mp.gammainc(a, x, mp.inf, regularized=True))
    width = mp.sqrt(a)
    near, far = (x, max(x, a) + 60 * width) if x > a else (max(a - 60 * width, mp.mpf(0)), x)
    part = mp.mpf(0)
    if near < far:
        part = mp.quad(lambda t: mp.exp((a - 1) * mp.log(t) - t - mp.loggamma(a)), mp.linspace(near, far, 25))
    return (float(1 - part), float(part)) if x > a else (float(part), float(1 - part))

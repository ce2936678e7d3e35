"""Special functions in numpy against the C library, exact arithmetic and PyTorch, in units of the last place."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tracecomp.ir import error_functions, special
from tracecomp.ir.scalars import SCALARS
from tracecomp.ops.random import philox

torch = pytest.importorskip("torch")


def ulps(mine: Any, reference: Any) -> float:
    """The largest error in units of the reference's last place."""
    return float(np.max(np.abs(mine - reference) / np.spacing(np.abs(reference))))


@pytest.mark.parametrize(
    ("mine", "reference", "points", "bound"),
    [
        (error_functions.erf, math.erf, np.concatenate([np.linspace(-6, 6, 4001), np.geomspace(1e-300, 0.1, 200)]), 4),
        (error_functions.erfc, math.erfc, np.linspace(-6, 26, 4001), 8),
        (special.lgamma, math.lgamma, np.concatenate([np.geomspace(1e-300, 0.1, 99), np.linspace(3, 400, 999)]), 8),
    ],
)
def test_against_the_c_library(
    mine: Callable[[Any], Any], reference: Callable[[float], float], points: Any, bound: float
) -> None:
    assert ulps(mine(points), np.array([reference(float(x)) for x in points])) <= bound


def test_float32_is_rounded_from_float64() -> None:
    x = np.linspace(-5, 5, 5001).astype(np.float32)
    assert ulps(error_functions.erf(x), np.array([math.erf(float(v)) for v in x])) <= 0.51 * 2**29
    assert error_functions.erf(x).dtype == np.float32


def test_lgamma_against_pytorch() -> None:
    x = np.concatenate([np.linspace(0.1, 3, 2001), np.linspace(-0.9, -0.1, 99)])
    theirs = torch.lgamma(torch.from_numpy(x)).numpy()
    away = np.abs(theirs) > 1e-3
    assert ulps(special.lgamma(x)[away], theirs[away]) <= 16


def test_lgamma_keeps_precision_at_its_zeros() -> None:
    """lgamma(1 + z) = -gamma z + pi^2/12 z^2 - zeta(3)/3 z^3 + ..., and lgamma(2 + z) = lgamma(1 + z) + log1p(z)."""
    z = np.array([1e-4, -1e-4, 1e-6, -1e-6, 2.0**-20])
    one, two = 1 + z, 2 + z
    z1, z2 = one - 1, two - 2

    def about_one(z: Any) -> Any:
        return z * (-0.5772156649015329 + z * (math.pi**2 / 12 - z * (1.2020569031595942 / 3 - z * math.pi**4 / 360)))

    assert ulps(special.lgamma(one), about_one(z1)) <= 8
    np.testing.assert_allclose(special.lgamma(two), about_one(z2) + np.log1p(z2), rtol=1e-11)


def test_erfinv_undoes_erf_in_both_tails() -> None:
    tails = 1 - np.geomspace(1e-15, 1e-3, 99), np.geomspace(1e-300, 0.1, 99)
    y = np.concatenate([np.linspace(-0.999, 0.999, 2001), *tails])
    theirs = torch.special.erfinv(torch.from_numpy(y)).numpy()
    away = y != 0
    assert ulps(error_functions.erfinv(y)[away], theirs[away]) <= 4


def test_digamma_against_pytorch() -> None:
    x = np.concatenate([np.linspace(0.05, 30, 3001), np.geomspace(1e-9, 1e9, 300)])
    theirs = torch.special.digamma(torch.from_numpy(x)).numpy()
    error = np.abs(special.digamma(x) - theirs) / np.spacing(np.maximum(np.abs(theirs), 1))
    assert error.max() <= 8


@pytest.mark.parametrize("name", ["erf", "erfc", "erfinv", "lgamma", "digamma", "sigmoid"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_special_values_are_pytorchs(name: str, dtype: Any) -> None:
    x = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, -2.0, 300.0, -300.5], dtype)
    theirs = getattr(torch, name)(torch.from_numpy(x)).numpy()
    mine = SCALARS[name].numpy(x)
    np.testing.assert_allclose(mine, theirs, rtol=2e-6 if dtype == np.float32 else 1e-13)
    np.testing.assert_array_equal(np.signbit(mine[mine == 0]), np.signbit(theirs[mine == 0]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fma_rounds_once(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(600).astype(dtype) for _ in range(3))
    c[:300] = -(a * b)[:300]
    for x, y, z, got in zip(a, b, c, special.fma(a, b, c), strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        neighbours = [Fraction(float(np.nextafter(got, dtype(t)))) for t in (np.inf, -np.inf)]
        assert all(abs(exact - Fraction(float(got))) <= abs(exact - n) for n in neighbours)


def test_fma_special_values_and_integers() -> None:
    a, b = np.array([np.inf, 1.0, np.nan, 1e308]), np.array([1.0, np.inf, 1, 10])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(special.fma(a, b, -np.ones(4)), [np.inf, np.inf, np.nan, np.inf])
    assert special.fma(np.int32(2**31 - 1), np.int32(1), np.array([1], np.int32))[0] == -(2**31)


def test_integer_division_and_power_follow_pytorch() -> None:
    a, b = np.array([7, -7, 7, -7]), np.array([2, 2, -2, -2])
    ta, tb = torch.from_numpy(a), torch.from_numpy(b)
    np.testing.assert_array_equal(special.floor_divide(a, b), torch.floor_divide(ta, tb).numpy())
    np.testing.assert_array_equal(special.remainder(a, b), torch.remainder(ta, tb).numpy())
    np.testing.assert_array_equal(special.fmod(a, b), torch.fmod(ta, tb).numpy())
    base, exponent = np.array([2, 1, -1, -1, 3, -2]), np.array([-1, -5, -2, -3, 4, 3])
    theirs = torch.pow(torch.from_numpy(base), torch.from_numpy(exponent)).numpy()
    np.testing.assert_array_equal(special.power(base, exponent), theirs)


def test_mulhi_takes_operands_as_unsigned() -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-(2**31), 2**31, 100).astype(np.int32) for _ in range(2))
    for x, y, got in zip(a, b, special.mulhi_unsigned(a, b), strict=True):
        assert int(got) % 2**32 == (int(x) % 2**32) * (int(y) % 2**32) >> 32


def test_philox_known_answer() -> None:
    """First answer of the authors' Random123 test vectors for philox4x32-10: key and counter zero."""
    wanted = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox(0, 0) == wanted
    assert [int(w[0]) for w in philox(np.zeros(1, np.uint64), 0)] == wanted


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i1", "i8", "?", "c8", "c16"])
@pytest.mark.parametrize("shapes", [((300, 70), (300, 70), (70,)), ((300, 1), (), (300, 70)), ((20000,), (20000,), ())])
def test_many_are_selected_as_numpy_does(dtype: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    rng = np.random.default_rng(0)
    condition, a, b = rng.random(shapes[0]) < 0.5, *(rng.normal(size=s).astype(dtype) for s in shapes[1:])
    if np.dtype(dtype).kind == "f":
        b = np.where(b > 1, np.array(np.nan, dtype), b)
    for given in ((condition, a, b), (condition, b, a)):
        mine, theirs = special.select(*given), np.where(*given)
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)

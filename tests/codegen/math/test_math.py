"""The emitted math functions against references of higher precision, within their stated bounds."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.codegen.programs import elementwise, scalar_op
from tracecomp.codegen.math.functions import ULP
from tracecomp.ir import error_functions, special
from tracecomp.ir.scalars import SCALARS
from tracecomp.ir.types import DType, float32, float64
from tracecomp.runtime.executable import Executable

Array = Any
LD = np.longdouble
COUNT = 20011


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with np.errstate(all="ignore"):
        yield


def native(op: str, dtype: DType, *args: Array) -> Array:
    out = np.empty(args[0].shape, dtype.numpy)
    program = elementwise(scalar_op(op, dtype), [dtype] * len(args), dtype, out.size)
    Executable(program).run([np.ascontiguousarray(a, dtype.numpy) for a in args], [out])
    return out


def ulps(got: Array, exact: Array, floor: float = 0.0) -> Array:
    """Errors in units in the last place of the result type at the exact value."""
    size = np.maximum(np.abs(exact), floor).astype(got.dtype)
    unit = np.spacing(np.maximum(size, np.finfo(got.dtype).tiny)).astype(LD)
    error = np.abs(got.astype(LD) - exact) / unit
    same = (got == exact.astype(got.dtype)) | (np.isnan(got) & np.isnan(exact))
    rounding = np.minimum(np.nan_to_num(error, nan=0.0), 0.5)
    return np.where(same, rounding, np.where(np.isnan(error), np.inf, error))


def spread(low: float, high: float, dtype: Any, seed: int) -> Array:
    """Points between two bounds, evenly by value and evenly by magnitude."""
    rng = np.random.default_rng(seed)
    even = rng.uniform(low, high, COUNT // 2)
    top = np.log2(max(abs(low), abs(high)))
    magnitude = np.exp2(rng.uniform(np.log2(float(np.finfo(dtype).tiny)), top, COUNT - COUNT // 2))
    signed = magnitude * rng.choice([-1.0, 1.0], magnitude.size)
    signed = np.where((signed < low) | (signed > high), magnitude if high >= max(0.0, low) else -magnitude, signed)
    return np.concatenate([even, np.clip(signed, low, high)]).astype(dtype)


EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 1e-45, -1e-45, 1e-310, -1e-310, 1e30, -1e30, 1e300,
         -1e300, np.inf, -np.inf, np.nan]  # fmt: skip

LIMITS: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "exp": ((-110, 95), (-760, 720)), "exp2": ((-155, 130), (-1080, 1030)), "expm1": ((-30, 95), (-50, 720)),
    "log": ((0, 3e38), (0, 1e308)), "log2": ((0, 3e38), (0, 1e308)), "log10": ((0, 3e38), (0, 1e308)),
    "log1p": ((-1, 3e38), (-1, 1e308)), "sin": ((-1e30, 1e30), (-1e30, 1e30)), "cos": ((-1e30, 1e30), (-1e30, 1e30)),
    "tan": ((-1e6, 1e6), (-1e6, 1e6)), "asin": ((-1, 1), (-1, 1)), "acos": ((-1, 1), (-1, 1)),
    "atan": ((-1e6, 1e6), (-1e6, 1e6)), "sinh": ((-95, 95), (-720, 720)), "cosh": ((-95, 95), (-720, 720)),
    "tanh": ((-20, 20), (-30, 30)), "asinh": ((-3e38, 3e38), (-1e307, 1e307)), "acosh": ((1, 3e38), (1, 1e308)),
    "atanh": ((-1, 1), (-1, 1)),
}  # fmt: skip

REFERENCE: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10,
    "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh,
}  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [float32, float64], ids=lambda t: t.short)
@pytest.mark.parametrize("op", sorted(REFERENCE))
def test_unary_within_bound(op: str, dtype: DType) -> None:
    double = dtype is float64
    low, high = LIMITS[op][double]
    x = spread(low, high, dtype.numpy, zlib.crc32(op.encode()))
    near = (np.linspace(-4, 4, 4001) if low < 0 else np.linspace(max(low, 0.0), 4, 4001)).astype(dtype.numpy)
    turns = np.arange(1, 40000 if op in ("sin", "cos") else 1, 7) * (np.pi / 2)
    x = np.concatenate([x, near, turns, EDGES]).astype(dtype.numpy)
    exact = REFERENCE[op](x.astype(LD))
    errors = ulps(native(op, dtype, x), exact)
    worst = int(np.argmax(errors))
    assert errors[worst] <= ULP[op][double], (op, float(errors[worst]), x[worst], float(exact[worst]))


BINARY: dict[str, Callable[[Array, Array], Array]] = {"pow": np.power, "atan2": np.arctan2, "hypot": np.hypot}


@pytest.mark.parametrize("dtype", [float32, float64], ids=lambda t: t.short)
@pytest.mark.parametrize("op", sorted(BINARY))
def test_binary_within_bound(op: str, dtype: DType) -> None:
    double = dtype is float64
    x = spread(-1e3, 1e3, dtype.numpy, 1)
    y = spread(-50, 50, dtype.numpy, 2)
    if op == "pow":
        x[::2] = np.abs(x[::2])
        y[1::2] = np.rint(y[1::2])
    grid = np.array([*EDGES, 5.0, -5.0, 0.1, -7.5], dtype.numpy)
    a, b = np.meshgrid(grid, grid)
    x, y = np.concatenate([x, a.ravel()]), np.concatenate([y, b.ravel()])
    exact = BINARY[op](x.astype(LD), y.astype(LD))
    errors = ulps(native(op, dtype, x, y), exact)
    worst = int(np.argmax(errors))
    assert errors[worst] <= ULP[op][double], (op, float(errors[worst]), x[worst], y[worst], float(exact[worst]))


@pytest.mark.parametrize("dtype", [float32, float64], ids=lambda t: t.short)
@pytest.mark.parametrize("op", ["fmod", "mod", "floordiv", "nextafter"])
def test_remainders_are_exact(op: str, dtype: DType) -> None:
    x, y = spread(-1e30, 1e30, dtype.numpy, 3), spread(-1e10, 1e10, dtype.numpy, 4)
    grid = np.array([*EDGES, 5.0, -5.0, 0.1, -7.5], dtype.numpy)
    a, b = np.meshgrid(grid, grid)
    x, y = np.concatenate([x, a.ravel()]), np.concatenate([y, b.ravel()])
    meanings: dict[str, Any] = {
        "fmod": np.fmod, "mod": special.remainder, "floordiv": np.floor_divide, "nextafter": np.nextafter,
    }  # fmt: skip
    expected = meanings[op](x, y)
    got = native(op, dtype, x, y)
    if op == "floordiv" and dtype is float32:
        np.testing.assert_allclose(got, expected, rtol=2e-7)
        return
    wrong = ~((got == expected) | (np.isnan(got) & np.isnan(expected)))
    assert not wrong.any(), (op, x[wrong][:5], y[wrong][:5], got[wrong][:5], expected[wrong][:5])


@pytest.mark.parametrize("op,low,high", [("erf", -7, 7), ("erfc", -7, 27), ("erfinv", -1, 1), ("sigmoid", -120, 120)])
def test_special_float32_against_float64(op: str, low: float, high: float) -> None:
    x = np.concatenate([spread(low, high, np.float32, 5), np.array(EDGES).astype(np.float32)])
    exact = SCALARS[op].numpy(x.astype(np.float64)).astype(LD)
    errors = ulps(native(op, float32, x), exact)
    worst = int(np.argmax(errors))
    assert errors[worst] <= ULP[op][0], (float(errors[worst]), x[worst])


@pytest.mark.parametrize("op", ["lgamma", "digamma"])
def test_gamma_float32_against_float64(op: str) -> None:
    x = np.concatenate([spread(-30, 1e4, np.float32, 6), np.array(EDGES).astype(np.float32)])
    exact = SCALARS[op].numpy(x.astype(np.float64)).astype(LD)
    errors = ulps(native(op, float32, x), exact, floor=1.0)
    worst = int(np.argmax(errors))
    assert errors[worst] <= ULP[op][0], (float(errors[worst]), x[worst])


@pytest.mark.parametrize("op,low,high", [("erf", -7, 7), ("erfc", -7, 26), ("lgamma", -30, 1e6)])
def test_special_float64_against_the_c_library(op: str, low: float, high: float) -> None:
    x = spread(low, high, np.float64, 7)
    exact = np.array([getattr(math, op)(float(v)) for v in x]).astype(LD)
    errors = ulps(native(op, float64, x), exact, floor=1.0 if op == "lgamma" else 0.0)
    worst = int(np.argmax(errors))
    assert errors[worst] <= ULP[op][1] + 1.0, (float(errors[worst]), x[worst])


def test_erfinv_float64_inverts_erf() -> None:
    y = spread(-1, 1, np.float64, 8)
    y = y[np.abs(y) < 0.999]
    x = native("erfinv", float64, y)
    back = np.array([math.erf(float(v)) for v in x])
    slope = 2 / np.sqrt(np.pi) * np.exp(-x * x)
    assert np.max(np.abs(back - y) / slope / np.spacing(np.abs(x))) <= ULP["erfinv"][1] + 2.0


def test_erfinv_float64_inverts_erfc_near_one() -> None:
    y = np.concatenate([1 - np.exp2(-np.linspace(5, 53, 4001)), 1 - np.arange(1, 50) * 2.0**-53])
    x = native("erfinv", float64, y)
    back = np.array([math.erfc(float(v)) for v in x])
    slope = 2 / np.sqrt(np.pi) * np.exp(-x * x)
    assert np.max(np.abs(back - (1 - y)) / slope / np.spacing(x)) <= ULP["erfinv"][1] + 2.0
    assert np.array_equal(native("erfinv", float64, -y), -x)


def test_normal_numbers_have_the_eager_bits() -> None:
    """Every 37th of the places at which ``randn`` of float32 takes the inverse of the distribution function."""
    odd = (np.arange(0, 2**23, 37) * 2.0**-22 + (2.0**-23 - 1)).astype(np.float32)
    assert np.array_equal(native("erfinv", float32, odd), error_functions.erfinv(odd))


def test_lgamma_float64_keeps_its_digits_near_its_roots() -> None:
    """Against its series about 1 and 2, to the third power: Abramowitz and Stegun 6.1.33."""
    d = np.concatenate([s * np.exp2(-np.arange(22.0, 51)) for s in (-1, 1)]).astype(LD)
    euler, zeta2, zeta3 = LD("0.57721566490153286061"), LD("1.6449340668482264365"), LD("1.2020569031595942854")
    about_one = -euler * d + zeta2 / 2 * d**2 - zeta3 / 3 * d**3
    about_two = (1 - euler) * d + (zeta2 - 1) / 2 * d**2 - (zeta3 - 1) / 3 * d**3
    for root, exact in ((1, about_one), (2, about_two)):
        errors = ulps(native("lgamma", float64, (root + d).astype(np.float64)), exact)
        assert np.max(errors) <= ULP["lgamma"][1]


def test_angles_of_denormal_points() -> None:
    a, b = (v.ravel() for v in np.meshgrid(np.arange(-9, 10), np.arange(-9, 10)))
    exact = np.arctan2(a.astype(LD), b.astype(LD))
    for dtype in (float32, float64):
        smallest = np.finfo(dtype.numpy).smallest_subnormal
        errors = ulps(native("atan2", dtype, a * smallest, b * smallest), exact)
        assert np.max(errors) <= ULP["atan2"][dtype is float64]


def test_digamma_float64() -> None:
    x = spread(0, 1e6, np.float64, 9)
    x = x[x > 1e-300]
    errors = ulps(native("digamma", float64, x), special.digamma(x).astype(LD), floor=1.0)
    assert np.max(errors) <= ULP["digamma"][1] + 4.0
    near = x[x > 0.01]
    shifted = native("digamma", float64, near) + 1.0 / near
    np.testing.assert_allclose(native("digamma", float64, near + 1.0), shifted, rtol=1e-13, atol=1e-13)


def test_scalars_and_vectors_give_the_same_bits() -> None:
    """A length of 1 is computed in scalar registers, without the vector unit's scaling instruction."""
    x = np.linspace(-100, 88, 41).astype(np.float32)
    together = native("exp", float32, x)
    alone = np.array([native("exp", float32, x[i : i + 1])[0] for i in range(0, x.size, 8)])
    assert np.array_equal(together[::8], alone)


@pytest.mark.parametrize("dtype", [float32, float64], ids=lambda t: t.short)
@pytest.mark.parametrize("op", ["erfinv", "lgamma", "pow", "atan2", "erfc", "sinh", "atanh"])
def test_lanes_do_not_look_at_each_other(op: str, dtype: DType) -> None:
    """A lane whose number makes all lanes take another path does not change the bits of other lanes."""
    x = np.concatenate([np.linspace(-0.9, 0.99999, 37), EDGES]).astype(dtype.numpy)
    args = (x, np.roll(x, 5)) if op in ("pow", "atan2") else (x,)
    together = native(op, dtype, *args)
    alone = np.array([native(op, dtype, *[a[i : i + 1] for a in args])[0] for i in range(0, x.size, 3)])
    assert np.array_equal(together[::3], alone, equal_nan=True)


@pytest.mark.parametrize("dtype", [float32, float64])
def test_digamma_beside_zero_is_the_negative_reciprocal(dtype: Any) -> None:
    smallest, least = np.finfo(dtype.numpy).smallest_subnormal, np.finfo(dtype.numpy).tiny
    x = np.array([0.0, smallest, 3 * smallest, least / 3, least, 1e-30, 1e-19], dtype.numpy)
    x = np.concatenate([x, -x])
    with np.errstate(divide="ignore", over="ignore"):
        want = -1 / x
    assert np.array_equal(native("digamma", dtype, x), want)


@pytest.mark.parametrize(("op", "low", "high"), [
    ("lgamma", 1e-3, 1.3), ("lgamma", 1.3, 1.5), ("lgamma", 1.5, 4.0), ("lgamma", 4.0, 1e4),
    ("digamma", 1e-3, 3.0), ("digamma", 3.0, 1e4), ("digamma", -5.0, 0.0), ("digamma", -300.0, -5.0),
])  # fmt: skip
def test_gamma_functions_of_float64_against_many_digits(op: str, low: float, high: float) -> None:
    mpmath = pytest.importorskip("mpmath")
    reference = mpmath.loggamma if op == "lgamma" else mpmath.digamma
    x = np.random.default_rng(11).uniform(low, high, 400)
    with mpmath.workprec(120):
        exact = [reference(mpmath.mpf(v)) for v in x.tolist()]
        other = [abs(float(mpmath.digamma(1 - mpmath.mpf(v)))) if v < 0 else 0.0 for v in x.tolist()]
        unit = [np.spacing(max(abs(float(e)), o, float(v < 0))) for e, o, v in zip(exact, other, x, strict=True)]
        found = native(op, float64, x).tolist()
        errors = [abs(float((mpmath.mpf(f) - e) / u)) for f, e, u in zip(found, exact, unit, strict=True)]
    assert max(errors) <= ULP[op][1], x[int(np.argmax(errors))]

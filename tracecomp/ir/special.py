"""Numpy meanings of scalar operations that numpy lacks or defines differently from PyTorch.

Every function takes arrays (or numpy scalars) and returns the dtype of its operands. float32 and narrower are computed
in float64 where a rational approximation is used, so they are correctly rounded but for rare ties.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Literal

import numpy as np

from tracecomp.ir.rational import horner, in_float64

Array = Any
_LONG = 16384
"""Elements above which merging bits takes less time than ``np.where``."""


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """``(s, e)`` with ``s == fl(a + b)`` and ``s + e == a + b`` exactly (Knuth)."""
    s = a + b
    bb = s - a
    return s, (a - (s - bb)) + (b - bb)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """``(p, e)`` with ``p == fl(a * b)`` and ``p + e == a * b`` exactly (Dekker, Veltkamp splitting)."""
    split = 134217729.0
    p = a * b
    ca, cb = split * a, split * b
    ah, bh = ca - (ca - a), cb - (cb - b)
    al, bl = a - ah, b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def _add_to_odd(a: Array, b: Array) -> Array:
    """``a + b`` in float64 rounded to odd, so that a second rounding is harmless (Boldo and Melquiond, 2008)."""
    s, e = _two_sum(a, b)
    s, e = np.asarray(s), np.asarray(e)
    bits = s.view(np.int64)
    fix = (e != 0) & ((bits & 1) == 0) & np.isfinite(s)
    return np.where(fix, np.nextafter(s, np.where(e > 0, np.inf, -np.inf)), s)


def fma(a: Array, b: Array, c: Array) -> Array:
    """``a * b + c`` with one rounding (float64: when nothing in between over- or underflows). Integers wrap."""
    dtype = np.result_type(a, b, c)
    if dtype.kind != "f":
        return a * b + c
    a, b, c = (np.asarray(v, np.float64) for v in (a, b, c))
    if dtype != np.float64:
        return _add_to_odd(a * b, c).astype(dtype)[()]
    plain = a * b + c
    high, low = _two_product(a, b)
    t, t_low = _two_sum(c, low)
    v, v_low = _two_sum(high, t)
    exact = v + _add_to_odd(t_low, v_low)
    return np.where(np.isfinite(exact) & np.isfinite(plain), exact, plain)[()]


def _integer_division(a: Array, b: Array) -> bool:
    return np.result_type(a, b).kind in "iu"


def floor_divide(a: Array, b: Array) -> Array:
    """Division rounded down; integers divided by zero give 0 here (operators reject it earlier)."""
    return np.floor_divide(a, b)


def remainder(a: Array, b: Array) -> Array:
    """The remainder with the sign of the divisor; integers modulo zero give 0 here."""
    if _integer_division(a, b):
        # numpy divides by a single number without dividing, but not so for remainders.
        return a - np.floor_divide(a, b) * b if np.size(b) == 1 and np.all(b) else np.remainder(a, b)
    m = np.fmod(a, b)
    return np.where((m != 0) & ((b < 0) != (m < 0)), m + b, m).astype(m.dtype)[()]


def fmod(a: Array, b: Array) -> Array:
    """The remainder with the sign of the dividend; integers modulo zero give 0 here."""
    return np.fmod(a, b)


def mulhi_unsigned(a: Array, b: Array) -> Array:
    """The high 32 bits of the 64-bit product of two int32 taken as unsigned; int32."""
    wide = np.asarray(a).astype(np.uint32).astype(np.uint64) * np.asarray(b).astype(np.uint32).astype(np.uint64)
    return (wide >> np.uint64(32)).astype(np.uint32).view(np.int32)[()]


def sign(x: Array) -> Array:
    """-1, 0 or 1; 0 for NaN, as in PyTorch."""
    return np.where(np.isnan(x), 0, np.sign(x)).astype(np.asarray(x).dtype)[()]


def select(condition: Array, a: Array, b: Array) -> Array:
    """``a`` where the condition holds, else ``b``. numpy branches for each element, so many are merged as bits."""
    shape, dtype = np.broadcast_shapes(*map(np.shape, (condition, a, b))), np.result_type(a, b)
    if math.prod(shape) < _LONG or dtype.itemsize > 8:
        return np.where(condition, a, b)
    bits = np.dtype(f"i{dtype.itemsize}")
    mask = np.asarray(condition, np.bool_).view(np.int8).astype(bits)
    yes, no = (np.asarray(v, dtype).view(bits) for v in (a, b))
    return (((yes ^ no) & np.negative(mask, out=mask)) ^ no).view(dtype)


def converted(x: Array, dtype: np.dtype[Any], order: Literal["C", "K"] = "K") -> np.ndarray[Any, Any]:
    """The array ``x`` as ``dtype``; a float outside the range of an integer type gives the same on every processor.

    C leaves such conversions undefined, and numpy gives what its processor does: AArch64 the nearest integer and zero
    for NaN, x86-64 the most negative integer. The latter is the definition here, in int32 for narrower types and in
    int64 for uint32. A uint64 takes numbers from 2**63 on by their distance to it.
    """
    array: np.ndarray[Any, Any] = np.asarray(x)
    with np.errstate(all="ignore"):
        if dtype.kind not in "iu" or array.dtype.kind in "iub" or _converts_as_defined(array.dtype, dtype):
            return array.astype(dtype, order=order)
        if array.dtype.kind not in "fV":
            return array.astype(dtype, order=order)
        return _to_integers(array if array.dtype.itemsize > 2 else array.astype(np.float32), dtype, order)


def _to_integers(x: Array, dtype: np.dtype[Any], order: Literal["C", "K"]) -> np.ndarray[Any, Any]:
    if dtype == np.uint64:
        far = x >= 2.0**63
        near = _truncated(np.where(far, x - x.dtype.type(2.0**63), x), np.dtype(np.int64)).view(np.uint64)
        return np.where(far, near ^ np.uint64(1 << 63), near).astype(dtype, order=order)
    wide = np.dtype(np.int64 if dtype.itemsize == 8 or dtype == np.uint32 else np.int32)
    return _truncated(x, wide).astype(dtype, order=order)


def _truncated(x: Array, wide: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The integer parts of floats; the lowest integer for NaN and for numbers out of range."""
    low = -(2.0 ** (8 * wide.itemsize - 1))
    # Every float32 below the limit is out of range; a double may be in range by its fraction.
    above = x > low - 1 if x.dtype.itemsize == 8 and wide.itemsize == 4 else x >= low
    found: np.ndarray[Any, Any] = np.where(above & (x < -low), x, x.dtype.type(low)).astype(wide)
    return found


_PROBED = (*(s * v for v in (np.nan, np.inf, 1e30, 6e4, 4e4, 300.0, 200.0, 1.5) for s in (1.0, -1.0)), *(
    s * (2.0**bits + d) for bits in (31, 32, 53, 63, 64) for d in (-1.0, 0.0, 0.5) for s in (1.0, -1.0)
))  # fmt: skip


@cache
def _converts_as_defined(source: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    """Whether numpy's conversion is the defined one here, for vectors and for single elements."""
    if source.kind not in "fV":
        return False
    probes = np.array(_PROBED).astype(np.float32 if source.itemsize <= 2 else source).astype(source)
    wanted = _to_integers(probes if source.itemsize > 2 else probes.astype(np.float32), dtype, "K")
    alone = [probes[k : k + 1].astype(dtype)[0] for k in range(len(probes))]
    return np.array_equal(probes.astype(dtype), wanted) and alone == wanted.tolist()


def sigmoid(x: Array) -> Array:
    """``1 / (1 + exp(-x))`` without overflow: results keep their relative precision for very negative ``x``."""
    x = np.asarray(x)
    if x.dtype.itemsize == 2:
        return np.asarray(sigmoid(x.astype(np.float32))).astype(x.dtype)[()]
    return np.exp(np.minimum(x, 0)) / (1 + np.exp(-np.abs(x)))


def power(a: Array, b: Array) -> Array:
    """``a ** b``; an integer to a negative power is the real result truncated (0, 1 or -1), as in PyTorch."""
    dtype = np.result_type(a, b)
    if dtype.kind not in "iu":
        return np.power(a, b)
    a, b = np.asarray(a, dtype), np.asarray(b, dtype)
    negative = b < 0
    whole = np.power(a, np.where(negative, 0, b).astype(b.dtype))
    odd = (b & 1) == 1
    inverse = np.where(a == 1, 1, np.where(a == -1, np.where(odd, -1, 1), 0))
    return np.where(negative, inverse, whole).astype(whole.dtype)[()]


_EULER = 0.57721566490153286060651209008240243
"""Euler's constant, to more digits than float64 has."""


def _zeta_minus_one(k: int) -> float:
    """``zeta(k) - 1`` by direct summation and the Euler-Maclaurin tail."""
    n = 200
    tail = n ** (1 - k) / (k - 1) + 0.5 * n**-k + k * n ** (-k - 1) / 12 - k * (k + 1) * (k + 2) * n ** (-k - 3) / 720
    return math.fsum([i**-k for i in range(2, n)] + [tail])


# lgamma(2 + z) = (1 - gamma) z + sum over k >= 2 of (zeta(k) - 1) (-z)^k / k   (Abramowitz and Stegun 6.1.33)
_LGAMMA = [*((-1.0) ** k * _zeta_minus_one(k) / k for k in range(30, 1, -1)), 1.0 - _EULER, 0.0]
# Stirling: B_2k / (2k (2k - 1)), highest first (Abramowitz and Stegun 6.1.40)
_STIRLING = (43867 / 244188, -3617 / 122400, 1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
# Digamma: B_2k / (2k), highest first (Abramowitz and Stegun 6.3.18)
_DIGAMMA = (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)


def _lgamma_positive(x: Array) -> Array:
    """lgamma for ``x > 0``: a series about 2, reached by recurrence, and Stirling's above 10."""
    low = x < 1.5
    z = np.where(low, x - 1.0, x - 2.0)
    tiny = x < 0.5
    z = np.where(tiny, x, z)
    product = np.ones_like(x)
    y = np.where(low, 2.0, np.minimum(x, 10.0))
    for _ in range(8):
        over = y >= 2.5
        y = np.where(over, y - 1.0, y)
        product = np.where(over, product * y, product)
    z = np.where(low, z, y - 2.0)
    near = horner(z, _LGAMMA) + np.log(product)
    near = np.where(low, near - np.log1p(z), near)
    near = np.where(tiny, near - np.log(np.where(tiny, x, 1.0)), near)
    big = np.maximum(x, 10.0)
    inverse = 1.0 / big
    stirling = (big - 0.5) * (np.log(big) - 1.0) - 0.5 + 0.5 * math.log(2 * math.pi)
    return np.where(x < 10.0, near, stirling + inverse * horner(inverse * inverse, _STIRLING))


def _sin_pi(x: Array) -> Array:
    """``sin(pi * x)`` with the period removed exactly."""
    r = x - 2.0 * np.rint(x / 2.0)
    r = np.where(np.abs(r) > 0.5, np.copysign(1.0, r) - r, r)
    return np.sin(np.pi * r)


@in_float64
def lgamma(x: Array) -> Array:
    """log |Gamma(x)|; infinite at 0 and the negative integers."""
    with np.errstate(all="ignore"):
        y = np.abs(x)
        positive = _lgamma_positive(np.where(y == 0, 1.0, np.where(np.isinf(y), 1.0, y)))
        reflected = np.log(np.pi / np.abs(x * _sin_pi(x))) - positive
        result = np.where(x > 0, positive, np.where(y < 1e-300, -np.log(y), reflected))
        pole = np.isinf(x) | ((x <= 0) & (np.floor(x) == x))
        return np.where(np.isnan(x), x, np.where(pole, np.inf, result))


@in_float64
def digamma(x: Array) -> Array:
    """The derivative of lgamma; NaN at negative integers, minus or plus infinity at +0 and -0, as in PyTorch."""
    with np.errstate(all="ignore"):
        y = np.where(x < 0.5, 1.0 - x, x)
        y = np.where(np.isfinite(y), y, 1.0)
        total = np.zeros_like(y)
        for _ in range(10):
            under = y < 10.0
            total = np.where(under, total - 1.0 / y, total)
            y = np.where(under, y + 1.0, y)
        z = 1.0 / (y * y)
        value = total + np.log(y) - 0.5 / y - z * horner(z, _DIGAMMA)
        r = x - np.rint(x)
        value = np.where(x < 0.5, value - np.pi / np.tan(np.pi * r), value)
        value = np.where((x < 0) & (np.floor(x) == x), np.nan, value)
        value = np.where(x == 0, -np.copysign(np.inf, x), value)
        return np.where(np.isposinf(x), np.inf, np.where(np.isfinite(x), value, np.nan))

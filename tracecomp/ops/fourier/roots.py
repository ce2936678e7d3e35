"""Roots of unity by sums and products alone: every processor rounds those alike, unlike a library's sines.

Angles and series are double-double numbers, unevaluated sums of two float64 (Dekker 1971): the final rounding to one
float64 starts from some thirty digits. Every step is a single rounded operation: their order is the algorithm.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any, TypeAlias

import numpy as np

Array = np.ndarray[Any, Any]
Two: TypeAlias = tuple[Any, Any]
"""A number as its nearest float64 and the remainder."""

_QUARTER_PI = (np.float64(math.pi / 4), np.float64(3.061616997868383e-17))
"""pi / 4: its nearest float64, and the remainder."""
_SERIES_TERMS = 14
"""Terms of a series at pi / 4: the next one is below 1e-32."""
_VELTKAMP_FACTOR = 2.0**27 + 1.0
"""Factor of Veltkamp's splitting: it separates the upper 26 of 53 bits, so that products of such halves are exact."""
_MIN_TABULATED = 4096
"""Points above which roots are products of two tables, each of about the square root of the points: one product takes a
sixth of the time of the two series."""


def _sum(a: Array, b: Array) -> Two:
    """The sum and its rounding error (Knuth's TwoSum)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _ordered(a: Array, b: Array) -> Two:
    """The same if ``a`` is not smaller (Dekker's FastTwoSum)."""
    total = a + b
    return total, b - (total - a)


def _product(a: Array, b: Array) -> Two:
    """The product and its rounding error (Dekker's TwoProduct, without a fused multiply-add)."""
    (ah, al), (bh, bl) = _halves(a), _halves(b)
    found = a * b
    return found, ((ah * bh - found) + ah * bl + al * bh) + al * bl


def _halves(a: Array) -> Two:
    """Two numbers of 26 bits whose sum is ``a`` (Veltkamp's splitting)."""
    wide = _VELTKAMP_FACTOR * a
    high = wide - (wide - a)
    return high, a - high


def _add(a: Two, b: Two) -> Two:
    total, rest = _sum(a[0], b[0])
    return _ordered(total, rest + (a[1] + b[1]))


def _times(a: Two, b: Two) -> Two:
    found, rest = _product(a[0], b[0])
    return _ordered(found, rest + (a[0] * b[1] + a[1] * b[0]))


def _series(square: Two, first: int) -> Two:
    """``sum of (-square)**j / (2 j + first)!``: the cosine for 0, the sine over its angle for 1."""
    total: Two | None = None
    for j in reversed(range(_SERIES_TERMS)):
        exact = Fraction((-1) ** j, math.factorial(2 * j + first))
        near = float(exact)
        factor = (np.float64(near), np.float64(float(exact - Fraction(near))))
        total = factor if total is None else _add(_times(total, square), factor)
    assert total is not None
    return total


def _cos_sin(m: Array, n: int) -> tuple[Two, Two]:
    """Cosine and sine of ``m / n * pi / 4`` for whole numbers ``m`` up to ``n``."""
    given = m.astype(np.float64)
    share = given / n
    back, rest = _product(share, np.asarray(float(n)))
    angle = _times((share, ((given - back) - rest) / n), _QUARTER_PI)
    square = _times(angle, angle)
    return _series(square, 0), _times(angle, _series(square, 1))


def _tabulated(m: Array, n: int) -> tuple[Two, Two]:
    """The same from the roots at every ``step`` and the first ones."""
    step = math.isqrt(n) + 1
    far, near = _cos_sin(np.arange(n // step + 1) * step, n), _cos_sin(np.arange(step), n)
    (ac, as_), (bc, bs) = ([(t[0][at], t[1][at]) for t in table] for table, at in ((far, m // step), (near, m % step)))
    minus = _times(as_, bs)
    return _add(_times(ac, bc), (-minus[0], -minus[1])), _add(_times(as_, bc), _times(ac, bs))


def roots_of_unity(k: Array, n: int) -> tuple[Array, Array]:
    """Cosine and sine of ``-2 pi k / n`` in float64, by the symmetries of the circle from angles up to ``pi / 4``."""
    eighths = 8 * (np.asarray(k, np.int64) % n)
    below = eighths > 4 * n
    eighths = np.where(below, 8 * n - eighths, eighths)
    left = eighths > 2 * n
    eighths = np.where(left, 4 * n - eighths, eighths)
    steep = eighths > n
    found = (_cos_sin if n < _MIN_TABULATED else _tabulated)(np.where(steep, 2 * n - eighths, eighths), n)
    near, across = (value[0] for value in found)
    cos, sin = np.where(steep, across, near), np.where(steep, near, across)
    return np.where(left, -cos, cos), np.where(below, sin, -sin)


def spectrum(x: Array) -> Array:
    """The transform of one row of complex128 whose length is a power of two, or 3 or 5 times one (Stockham 1966)."""
    size = len(x)
    real, imag = x.real.reshape(size, 1), x.imag.reshape(size, 1)
    while size % 2 == 0:
        half = size // 2
        cos, sin = (part[:, None] for part in roots_of_unity(np.arange(half), size))
        (ar, br), (ai, bi) = ((part[:half], part[half:]) for part in (real, imag))
        re, im = ar - br, ai - bi
        stacked = partial(np.stack, axis=1)
        real = stacked((ar + br, re * cos - im * sin)).reshape(half, -1)
        imag = stacked((ai + bi, re * sin + im * cos)).reshape(half, -1)
        size = half
    cos, sin = (part[:, :, None] for part in roots_of_unity(np.outer(np.arange(size), np.arange(size)), size))
    found = np.empty(real.shape, complex)
    found.real, found.imag = (real * cos - imag * sin).sum(1), (real * sin + imag * cos).sum(1)
    return found.reshape(-1)

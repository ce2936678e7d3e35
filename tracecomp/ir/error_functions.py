"""The error function, its complement and its inverse in numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tracecomp.ir.rational import horner, in_float64

Array = Any

# Rational Chebyshev approximations: W. J. Cody, "Rational Chebyshev approximations for the error function",
# Math. Comp. 23 (1969), 631-637. Highest coefficient first.
_ERF_P = (1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2, 3.77485237685302021e2,
          3.20937758913846947e3)  # fmt: skip
_ERF_Q = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
_ERFC_P = (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1,
           2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3,
           1.23033935479799725e3)  # fmt: skip
_ERFC_Q = (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
           3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3)  # fmt: skip
_TAIL_P = (1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1,
           1.60837851487422766e-2, 6.58749161529837803e-4)  # fmt: skip
_TAIL_Q = (1.0, 2.56852019228982242e0, 1.87295284992346725e0, 5.27905102951428412e-1, 6.05183413124413191e-2,
           2.33520497626869185e-3)  # fmt: skip


def _piecewise(x: Array, condition: Array, yes: Callable[[Array], Array], no: Callable[[Array], Array]) -> Array:
    """``yes(x)`` where the condition holds, ``no(x)`` elsewhere. ``no`` receives only its elements; ``yes`` receives
    all."""
    result = yes(x)
    others = np.flatnonzero(~condition)
    if others.size:
        result[others] = no(x[others])
    return result


def _erf_small(x: Array) -> Array:
    """erf for ``|x| <= 0.46875``."""
    z = x * x
    return x * (horner(z, _ERF_P) / horner(z, _ERF_Q))


def _erfc_tail(y: Array) -> Array:
    """``erfc(y) * exp(y * y)`` for ``y > 4``."""
    z = 1.0 / (y * y)
    return (1.0 / math.sqrt(math.pi) - z * (horner(z, _TAIL_P) / horner(z, _TAIL_Q))) / y


def _erfc_positive(y: Array) -> Array:
    """erfc for ``y > 0.46875``."""
    y = np.minimum(y, 30.0)
    scaled = _piecewise(y, y <= 4.0, lambda t: horner(t, _ERFC_P) / horner(t, _ERFC_Q), _erfc_tail)
    # exp(-y*y) with the square split in two exact parts, else its rounding is amplified by y*y
    high = np.trunc(y * 16.0) / 16.0
    return np.exp(-high * high) * np.exp(-(y - high) * (y + high)) * scaled


def erf(x: Array) -> Array:
    """The error function."""
    return _erf_wide(x) if np.asarray(x).dtype.itemsize == 8 else _erf_narrow(x)


@in_float64
def _erf_wide(x: Array) -> Array:
    def large(v: Array) -> Array:
        return np.copysign(0.5 + (0.5 - _erfc_positive(np.abs(v))), v)

    with np.errstate(all="ignore"):
        return _piecewise(x, np.abs(x) <= 0.46875, _erf_small, large)


# erf(x) / x for |x| up to 4 as a quotient of polynomials in x * x, fitted to a relative error of 3e-10.
_WHOLE_P = (-2.3644904095208267e-4, 7.637235935505486e-2, 6.054922529431315, 7.714245254801446e1,
            1.0204483596380469e3, 5.928547884420166e3, 2.7628412151567813e4, 6.879185038546786e4)  # fmt: skip
_WHOLE_Q = (1.0, 2.276907414852372e1, 3.013088157960716e2, 2.57290850244178e3, 1.4093116488978028e4,
            4.4806772112140454e4, 6.096519007513536e4)  # fmt: skip


@in_float64
def _erf_narrow(x: Array) -> Array:
    """erf with a relative error of 1.5e-8; beyond 4 it rounds to 1 in float32."""
    y = np.clip(x, -4.0, 4.0)
    z = y * y
    return y * (horner(z, _WHOLE_P) / horner(z, _WHOLE_Q))


@in_float64
def erfc(x: Array) -> Array:
    """The complementary error function."""

    def large(v: Array) -> Array:
        tail = _erfc_positive(np.abs(v))
        return np.where(v < 0, 2.0 - tail, tail)

    with np.errstate(all="ignore"):
        return _piecewise(x, np.abs(x) <= 0.46875, lambda v: 1.0 - _erf_small(v), large)


# The quantile of the normal distribution: M. J. Wichura, "Algorithm AS 241: The percentage points of the normal
# distribution", Applied Statistics 37 (1988), 477-484. Highest coefficient first.
MIDDLE_P = (
    2.5090809287301226727e3,
    3.3430575583588128105e4,
    6.7265770927008700853e4,
    4.5921953931549871457e4,
    1.3731693765509461125e4,
    1.9715909503065514427e3,
    1.3314166789178437745e2,
    3.3871328727963666080,
)
MIDDLE_Q = (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
             5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0)  # fmt: skip
SIDE_P = (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258,
           3.64784832476320460504, 5.76949722146069140550, 4.63033784615654529590, 1.42343711074968357734)  # fmt: skip
SIDE_Q = (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
           6.89767334985100004550e-1, 1.67638483018380384940, 2.05319162663775882187, 1.0)  # fmt: skip
FAR_P = (
    2.01033439929228813265e-7,
    2.71155556874348757815e-5,
    1.24266094738807843860e-3,
    2.65321895265761230930e-2,
    2.96560571828504891230e-1,
    1.78482653991729133580,
    5.46378491116411436990,
    6.65790464350110377720,
)
FAR_Q = (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
          1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0)  # fmt: skip


def erfinv(y: Array) -> Array:
    """The inverse error function: infinite at -1 and 1, NaN beyond."""
    return _erfinv_wide(y) if np.asarray(y).dtype.itemsize == 8 else _erfinv_narrow(y)


@in_float64
def _erfinv_wide(y: Array) -> Array:
    """The quantile refined by a step of Halley's method on the smaller tail."""
    with np.errstate(all="ignore"):
        x = _from_quantile(y)
        a, b = np.abs(y), np.abs(x)
        residual = np.where(a < 0.5, erf(b) - a, (1.0 - a) - erfc(b))
        step = residual / (2.0 / math.sqrt(math.pi) * np.exp(-b * b))
        refined = np.copysign(b - step / (1.0 + b * step), y)
        return np.where((a < 1.0) & (a > 0.0), refined, x)


@in_float64
def _erfinv_narrow(y: Array) -> Array:
    with np.errstate(all="ignore"):
        return _from_quantile(y)


def _from_quantile(y: Array) -> Array:
    """``quantile((1 + y) / 2) / sqrt(2)``, to some 6 units in the last place of float64."""
    return _piecewise(y, np.abs(y) <= 0.85, _quantile_middle, _quantile_tail) / math.sqrt(2.0)


def _quantile_middle(y: Array) -> Array:
    z = 0.180625 - 0.25 * y * y
    return 0.5 * y * (horner(z, MIDDLE_P) / horner(z, MIDDLE_Q))


def _quantile_tail(y: Array) -> Array:
    a = np.abs(y)
    root = np.sqrt(-np.log(0.5 * (1.0 - a)))

    def side(root: Array) -> Array:
        return horner(root - 1.6, SIDE_P) / horner(root - 1.6, SIDE_Q)

    def far(root: Array) -> Array:
        return horner(root - 5.0, FAR_P) / horner(root - 5.0, FAR_Q)

    return np.where(a == 1.0, np.inf * y, np.copysign(_piecewise(root, root <= 5.0, side, far), y))

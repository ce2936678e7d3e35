"""Bessel and Airy functions: polynomials near the origin, scaled polynomials of the asymptotic form beyond."""

from __future__ import annotations

import math
from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.functional.elementwise.pointwise import magnitude
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import as_float
from tracecomp.functional.publish import function
from tracecomp.functional.special import tables
from tracecomp.functional.special.series import chebyshev, polynomial


def _split(x: Tensor, limit: float) -> tuple[Tensor, Tensor, Tensor]:
    """Whether x <= limit, and x replaced by a harmless value for the form of the other side."""
    small = prim.le(x, limit)
    return small, prim.where(small, x, limit), prim.where(small, limit, x)


def _series_i(x: Tensor, order: int) -> Tensor:
    """I_order(x) for |x| <= 8 by its power series (DLMF 10.25.2), whose terms are all positive."""
    terms = (16**k / (math.factorial(k) * math.factorial(k + order)) for k in range(23))
    part = prim.mul(x, 0.125)
    value = polynomial(prim.mul(part, part), tuple(terms))
    return prim.mul(value, prim.mul(x, 0.5)) if order else value


def _modified_i(size: Tensor, order: int, scaled: bool) -> Tensor:
    """I_order(x) for x >= 0, times exp(-x) if ``scaled``."""
    small, low, high = _split(size, 8.0)
    far_table = tables.I0E_LARGE if order == 0 else tables.I1E_LARGE
    far = prim.mul(polynomial(prim.sub(prim.div(16.0, high), 1.0), far_table), prim.rsqrt(high))
    near = _series_i(low, order)
    if scaled:
        return prim.where(small, prim.mul(near, prim.exp(prim.neg(low))), far)
    return prim.where(small, near, prim.mul(far, prim.exp(high)))


@function("special.i0", "special.modified_bessel_i0", inplace=True, composite=True)
def i0(input: Tensor) -> Tensor:
    """Modified Bessel function of the first kind, order 0."""
    return _modified_i(magnitude(as_float(input)), 0, False)


@function(to="special", composite=True)
def i0e(input: Tensor) -> Tensor:
    """exp(-|x|) i0(x)."""
    return _modified_i(prim.abs(as_float(input)), 0, True)


def _odd(value: Tensor, x: Tensor) -> Tensor:
    return prim.where(prim.lt(x, 0.0), prim.neg(value), value)


@function("special.modified_bessel_i1", to="special", composite=True)
def i1(input: Tensor) -> Tensor:
    """Modified Bessel function of the first kind, order 1."""
    x = as_float(input)
    return _odd(_modified_i(magnitude(x), 1, False), x)


@function(to="special", composite=True)
def i1e(input: Tensor) -> Tensor:
    """exp(-|x|) i1(x)."""
    x = as_float(input)
    return _odd(_modified_i(magnitude(x), 1, True), x)


def _square_argument(x: Tensor, limit: float) -> Tensor:
    return prim.sub(prim.mul(prim.mul(x, x), 2.0 / limit**2), 1.0)


def _outer(x: Tensor, order: int, second: bool) -> Tensor:
    """J (or Y) for x > 8: sqrt(2 / (pi x)) (P cos chi - Q sin chi), chi = x - (order / 2 + 1 / 4) pi."""
    p_table, q_table = (tables.P0, tables.Q0) if order == 0 else (tables.P1, tables.Q1)
    t = prim.sub(prim.div(128.0, prim.mul(x, x)), 1.0)
    p, q = polynomial(t, p_table), prim.div(polynomial(t, q_table), x)
    sine, cosine = prim.sin(x), prim.cos(x)
    # cos and sin of x - pi/4 (order 0) or x - 3 pi/4 (order 1), from those of x.
    a, b = prim.mul(prim.add(cosine, sine), math.sqrt(0.5)), prim.mul(prim.sub(sine, cosine), math.sqrt(0.5))
    cos_chi, sin_chi = (a, b) if order == 0 else (b, prim.neg(a))
    if second:
        wave = prim.add(prim.mul(p, sin_chi), prim.mul(q, cos_chi))
    else:
        wave = prim.sub(prim.mul(p, cos_chi), prim.mul(q, sin_chi))
    return prim.mul(wave, prim.sqrt(prim.div(2 / math.pi, x)))


def _inner(x: Tensor, order: int) -> Tensor:
    """J for 0 <= x <= 8."""
    value = polynomial(_square_argument(x, 8.0), tables.J0_SMALL if order == 0 else tables.J1_SMALL)
    return prim.mul(value, x) if order else value


def _first_kind(x: Tensor, order: int) -> Tensor:
    size = prim.abs(x)
    small, low, high = _split(size, 8.0)
    value = prim.where(small, _inner(low, order), _outer(high, order, False))
    value = prim.where(prim.eq(size, math.inf), 0.0, value)
    return value if order == 0 else _odd(value, x)


def _second_kind(x: Tensor, order: int) -> Tensor:
    small, low, high = _split(x, 8.0)
    low = prim.where(prim.gt(low, 0.0), low, 1.0)
    series = polynomial(_square_argument(low, 8.0), tables.Y0_SMALL if order == 0 else tables.Y1_SMALL)
    log_part = prim.mul(prim.mul(prim.log(low), _inner(low, order)), 2 / math.pi)
    if order == 1:
        series = prim.sub(prim.mul(series, low), prim.div(2 / math.pi, low))
    value = prim.where(small, prim.add(series, log_part), _outer(high, order, True))
    value = prim.where(prim.eq(x, math.inf), 0.0, value)
    return prim.where(prim.gt(x, 0.0), value, prim.where(prim.eq(x, 0.0), -math.inf, prim.mul(x, math.nan)))


def _third_kind(x: Tensor, order: int, scaled: bool) -> Tensor:
    """Modified Bessel function of the second kind, times exp(x) if ``scaled``."""
    small, low, high = _split(x, 2.0)
    low = prim.where(prim.gt(low, 0.0), low, 1.0)
    t = _square_argument(low, 2.0)
    log_part = prim.mul(prim.log(prim.mul(low, 0.5)), _series_i(low, order))
    if order == 0:
        near = prim.sub(polynomial(t, tables.K0_SMALL), log_part)
    else:
        near = prim.add(prim.div(polynomial(t, tables.K1_SMALL), low), log_part)
    far_table = tables.K0_LARGE if order == 0 else tables.K1_LARGE
    far = prim.mul(polynomial(prim.sub(prim.div(4.0, high), 1.0), far_table), prim.rsqrt(high))
    value = prim.where(small, prim.mul(near, prim.exp(low)), far)
    if not scaled:
        value = prim.where(small, near, prim.mul(far, prim.exp(prim.neg(high))))
    return prim.where(prim.gt(x, 0.0), value, prim.where(prim.eq(x, 0.0), math.inf, prim.mul(x, math.nan)))


def _publish(name: str, fn: Any, doc: str, *settings: Any) -> None:
    def run(input: Tensor) -> Tensor:
        result: Tensor = fn(as_float(input), *settings)
        return result

    run.__name__, run.__doc__ = name, doc
    function(to="special", composite=True)(run)


for _order in (0, 1):
    _publish(f"bessel_j{_order}", _first_kind, f"Bessel function of the first kind, order {_order}.", _order)
    _publish(f"bessel_y{_order}", _second_kind, f"Bessel function of the second kind, order {_order}.", _order)
    _doc = f"Modified Bessel function of the second kind, order {_order}"
    _publish(f"modified_bessel_k{_order}", _third_kind, f"{_doc}.", _order, False)
    _publish(f"scaled_modified_bessel_k{_order}", _third_kind, f"{_doc}, times exp(x).", _order, True)


@function(to="special", composite=True)
def spherical_bessel_j0(input: Tensor) -> Tensor:
    """sin(x) / x, 1 at 0."""
    x = as_float(input)
    small = prim.lt(prim.abs(x), 0.25)
    square = prim.mul(prim.where(small, x, 0.0), prim.where(small, x, 0.0))
    near = prim.add(prim.mul(square, 0.0), 1.0)
    term = near
    for k in range(1, 8):
        term = prim.mul(prim.mul(term, square), -1.0 / (2 * k * (2 * k + 1)))
        near = prim.add(near, term)
    safe = prim.where(small, 1.0, x)
    far = prim.where(prim.eq(prim.abs(safe), math.inf), 0.0, prim.div(prim.sin(safe), safe))
    return prim.where(small, near, far)


@function(to="special", composite=True)
def airy_ai(input: Tensor) -> Tensor:
    """Airy function Ai."""
    x = as_float(input)
    middle = prim.bitwise_and(prim.ge(x, -7.0), prim.le(x, 3.0))
    t = prim.mul(prim.add(prim.where(middle, x, 0.0), 2.0), 0.2)
    near = chebyshev(t, tables.AIRY_MIDDLE)
    right = prim.gt(x, 3.0)
    up = prim.where(right, x, 4.0)
    zeta = prim.mul(prim.mul(up, prim.sqrt(up)), 2 / 3)
    series = polynomial(prim.sub(prim.div(6.0, zeta), 1.0), tables.AIRY_LARGE)
    decay = prim.mul(series, prim.exp(prim.neg(zeta)))
    high = prim.div(decay, prim.mul(prim.sqrt(prim.sqrt(up)), 2 * math.sqrt(math.pi)))
    # Values in neither range take this branch, so that NaN stays NaN.
    down = prim.where(prim.bitwise_or(middle, right), 8.0, prim.neg(x))
    return prim.where(middle, near, prim.where(right, high, _airy_wave(down)))


def _airy_wave(z: Tensor) -> Tensor:
    """Ai(-z) for z > 7."""
    zeta = prim.mul(prim.mul(z, prim.sqrt(z)), 2 / 3)
    t = prim.sub(prim.div(288.0, prim.mul(zeta, zeta)), 1.0)
    p, q = polynomial(t, tables.AIRY_P), prim.div(polynomial(t, tables.AIRY_Q), zeta)
    angle = prim.sub(zeta, math.pi / 4)
    wave = prim.add(prim.mul(p, prim.cos(angle)), prim.mul(q, prim.sin(angle)))
    return prim.div(wave, prim.mul(prim.sqrt(prim.sqrt(z)), math.sqrt(math.pi)))

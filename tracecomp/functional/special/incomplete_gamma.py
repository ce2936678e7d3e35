"""The regularised incomplete gamma functions, each by an expansion that converges for its arguments.

All is computed in float64: float32 would lose more than its last digits to large exponents.
"""

from __future__ import annotations

import math

from tracecomp.eager.tensor import Tensor
from tracecomp.functional.elementwise.arithmetic import two
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import cast, choose, common, not_implemented
from tracecomp.functional.publish import function
from tracecomp.functional.special.series import polynomial
from tracecomp.functional.special.tables import GAMMA_UNIFORM
from tracecomp.ir.types import float64

_STEPS = 200
"""Terms of the series, which needs 100 at x = 0.7 a and 50 at a = x = 20, and twice the levels of the fraction."""
_UNIFORM = 20.0
"""Least a for which the expansion for large a has 14 digits."""
_NEAR = 0.3
"""Largest relative distance of x from a for that expansion: farther away the others converge."""

_LOG_GAMMA = (0.0, -0.5772156649015329, 1.6449340668482264 / 2, -1.2020569031595942 / 3, 1.0823232337111382 / 4,
              -1.0369277551433699 / 5, 1.0173430619844491 / 6, -1.008349277381923 / 7, 1.0040773561979443 / 8,
              -1.0020083928260822 / 9, 1.000994575127818 / 10, -1.0004941886041194 / 11)  # fmt: skip
"""Coefficients of log(gamma(1 + a)) for small a: Euler's constant, then zeta(k) / k with alternating signs (DLMF
5.7.3)."""


@function("gammainc", "special.gammainc", inplace=True, composite=True)
def igamma(input: Tensor, other: Tensor) -> Tensor:
    """Lower regularised incomplete gamma function."""
    return _incomplete_gamma("igamma", input, other, False)


@function("gammaincc", "special.gammaincc", inplace=True, composite=True)
def igammac(input: Tensor, other: Tensor) -> Tensor:
    """Upper regularised incomplete gamma function."""
    return _incomplete_gamma("igammac", input, other, True)


def _incomplete_gamma(name: str, input: Tensor, other: Tensor, upper: bool) -> Tensor:
    a, x = common(*two(name, input, other))
    if not a.dtype.is_floating_point:
        raise not_implemented(f"{name}_cpu", a.dtype)
    wide_a, wide_x = cast(a, float64), cast(x, float64)
    return cast(_of_doubles(wide_a, wide_x, upper), a.dtype)


def _of_doubles(a: Tensor, x: Tensor, upper: bool) -> Tensor:
    regular = _all(prim.gt(a, 0.0), prim.lt(a, math.inf), prim.gt(x, 0.0), prim.lt(x, math.inf))
    sa, sx = prim.where(regular, a, 1.0), prim.where(regular, x, 1.0)
    apart = prim.div(prim.sub(sx, sa), sa)
    uniform = _all(prim.gt(sa, _UNIFORM), prim.lt(prim.abs(apart), _NEAR))
    low = _all(prim.lt(sx, prim.add(sa, 1.0)), prim.bitwise_not(uniform))
    small = _all(low, _tail_is_small(sa, sx))
    # Each expansion gets a harmless operand where the result of another expansion is used.
    lower = _series(prim.where(low, sa, 1.0), prim.where(low, sx, 1.0))
    neither = prim.bitwise_or(low, uniform)
    higher = _fraction(prim.where(neither, 1.0, sa), prim.where(neither, 3.0, sx))
    large = _expansion(prim.where(uniform, sa, 100.0), prim.where(uniform, apart, 0.1), upper)
    if upper:
        rest = _small_tail(prim.where(small, sa, 0.5), prim.where(small, sx, 0.5))
        value = prim.where(small, rest, prim.where(low, prim.sub(1.0, lower), higher))
    else:
        value = prim.where(low, lower, prim.sub(1.0, higher))
    return prim.where(regular, prim.where(uniform, large, value), _edges(a, x, upper))


def _all(*conditions: Tensor) -> Tensor:
    first, *others = conditions
    for c in others:
        first = prim.bitwise_and(first, c)
    return first


def _prefix(a: Tensor, x: Tensor) -> Tensor:
    """x**a exp(-x) / gamma(a + 1)."""
    return prim.exp(prim.sub(prim.sub(prim.mul(a, prim.log(x)), x), prim.lgamma(prim.add(a, 1.0))))


def _series(a: Tensor, x: Tensor) -> Tensor:
    """The lower function by its power series (DLMF 8.7.1)."""
    term = prim.div(x, prim.add(a, 1.0))
    total = prim.add(term, 1.0)
    for k in range(2, _STEPS):
        term = prim.div(prim.mul(term, x), prim.add(a, float(k)))
        total = prim.add(total, term)
    return prim.mul(total, _prefix(a, x))


def _fraction(a: Tensor, x: Tensor) -> Tensor:
    """The upper function by its continued fraction (DLMF 8.9.2), from the tail inwards."""
    tail = prim.add(x, 0.0)
    for k in range(_STEPS // 2, 0, -1):
        b = prim.sub(prim.add(x, 2.0 * k + 1.0), a)
        tail = b if k == _STEPS // 2 else prim.sub(b, prim.div(prim.mul(prim.sub(k + 1.0, a), k + 1.0), tail))
    first = prim.sub(prim.add(x, 1.0), a)
    return prim.div(prim.mul(_prefix(a, x), a), prim.sub(first, prim.div(prim.sub(1.0, a), tail)))


def _tail_is_small(a: Tensor, x: Tensor) -> Tensor:
    """Whether the upper function is the smaller one although x < a + 1, so that one minus the other would lose its
    digits."""
    near_zero = prim.ge(prim.mul(a, prim.log(x)), -0.4)
    return _all(prim.le(x, 1.1), prim.where(prim.le(x, 0.5), near_zero, prim.le(a, prim.mul(x, 1.1))))


def _small_tail(a: Tensor, x: Tensor) -> Tensor:
    """The upper function of small a and x: one minus the first term of DLMF 8.7.3, and the others."""
    power = prim.mul(a, prim.log(x))
    factor, total = prim.neg(x), prim.div(prim.neg(x), prim.add(a, 1.0))
    for n in range(2, 26):
        factor = prim.mul(factor, prim.mul(x, -1.0 / n))
        total = prim.add(total, prim.div(factor, prim.add(a, float(n))))
    # 1 + a loses digits of a small a.
    few = prim.lt(a, 0.05)
    log_gamma = prim.where(few, polynomial(prim.where(few, a, 0.0), _LOG_GAMMA), prim.lgamma(prim.add(a, 1.0)))
    others = prim.mul(prim.mul(total, a), prim.exp(prim.sub(power, log_gamma)))
    return prim.sub(prim.neg(prim.expm1(prim.sub(power, log_gamma))), others)


def _expansion(a: Tensor, apart: Tensor, upper: bool) -> Tensor:
    """Either function for large a and x = a (1 + apart): Temme's uniform expansion (DLMF 8.12.3 to 8.12.8)."""
    half = prim.sub(apart, prim.log1p(apart))
    # At x = a the root has no derivative, but eta is a smooth function of its argument, to first order.
    there = prim.gt(half, 0.0)
    root = prim.sqrt(prim.mul(prim.where(there, half, 0.5), 2.0))
    eta = prim.where(there, prim.where(prim.lt(apart, 0.0), prim.neg(root), root), apart)
    total = polynomial(eta, GAMMA_UNIFORM[-1])
    for row in GAMMA_UNIFORM[-2::-1]:
        total = prim.add(prim.div(total, a), polynomial(eta, row))
    square = prim.mul(prim.mul(eta, eta), 0.5)
    scale = prim.div(prim.exp(prim.neg(prim.mul(a, square))), prim.sqrt(prim.mul(a, 2 * math.pi)))
    rest, wave = prim.mul(total, scale), prim.mul(eta, prim.sqrt(prim.mul(a, 0.5)))
    normal = prim.mul(prim.erfc(wave if upper else prim.neg(wave)), 0.5)
    return prim.add(normal, rest) if upper else prim.sub(normal, rest)


def _edges(a: Tensor, x: Tensor, upper: bool) -> Tensor:
    """Limits at a = 0, a = inf, x = 0, x = inf; NaN outside of the domain."""
    whole, nothing = (0.0, 1.0) if upper else (1.0, 0.0)
    edge = choose(prim.gt(a, 0.0), nothing, math.nan, a.dtype)
    edge = prim.where(prim.eq(x, 0.0), edge, choose(prim.eq(a, 0.0), whole, math.nan, a.dtype))
    edge = prim.where(prim.eq(x, math.inf), whole, edge)
    at_infinity = choose(prim.eq(x, math.inf), math.nan, nothing, a.dtype)
    edge = prim.where(prim.eq(a, math.inf), at_infinity, edge)
    bad = prim.bitwise_or(prim.lt(a, 0.0), prim.lt(x, 0.0))
    bad = prim.bitwise_or(bad, prim.bitwise_or(prim.isnan(a), prim.isnan(x)))
    return prim.where(bad, math.nan, edge)

"""Gamma, zeta and incomplete gamma functions."""

from __future__ import annotations

import math
from typing import Any

from tracecomp.eager.tensor import Tensor, create
from tracecomp.functional.dtype_support import NUMBERS
from tracecomp.functional.elementwise.arithmetic import two
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import (
    Operand,
    as_float,
    choose,
    common,
    common_float,
    not_implemented,
)
from tracecomp.functional.publish import function
from tracecomp.ops.elementwise_unary import trigamma

_BERNOULLI = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600,
              -3617 / 10670622842880000)  # fmt: skip


def hurwitz(s: Any, q: Tensor) -> Tensor:
    """Sum of (q + k)**-s over k >= 0 by Euler and Maclaurin (DLMF 25.11.28), s > 1, q > 0."""
    terms = 12
    total = prim.pow(q, _minus(s))
    for k in range(1, terms):
        total = prim.add(total, prim.pow(prim.add(q, float(k)), _minus(s)))
    a = prim.add(q, float(terms))
    power = prim.pow(a, _minus(s))
    total = prim.add(total, prim.div(prim.mul(power, a), _plus(s, -1.0)))
    total = prim.add(total, prim.mul(power, 0.5))
    factor, inverse = s, prim.div(power, a)
    for i, b in enumerate(_BERNOULLI):
        total = prim.add(total, prim.mul(prim.mul(inverse, factor), b))
        factor = _times(factor, _times(_plus(s, 2 * i + 1.0), _plus(s, 2 * i + 2.0)))
        inverse = prim.div(inverse, prim.mul(a, a))
    return total


def _minus(s: Any) -> Any:
    return prim.neg(s) if isinstance(s, Tensor) else -s


def _plus(s: Any, k: float) -> Any:
    return prim.add(s, k) if isinstance(s, Tensor) else s + k


def _times(a: Tensor, b: Tensor) -> Any:
    return prim.mul(a, b) if isinstance(a, Tensor) else a * b


def zeta_of(s: object, q: Tensor) -> Tensor:
    """Hurwitz zeta for every real q: terms with q + k < 0 are added one by one."""
    low = int(prim.min(prim.floor(q.detach()).clamp(-1000, 0).reshape(-1), axes=(0,))) if q.numel() else 0
    total: Tensor | None = None
    for k in range(-low + 1 if low else 0):
        each = prim.add(q, float(k))
        used = prim.le(each, 0.0)
        term = prim.where(used, prim.pow(prim.where(used, each, 1.0), _minus(s)), 0.0)
        total = term if total is None else prim.add(total, term)
    rest = prim.sub(q, prim.floor(q))
    start = prim.where(prim.gt(q, 0.0), q, prim.where(prim.eq(rest, 0.0), 1.0, rest))
    body = hurwitz(s, start)
    return body if total is None else prim.add(body, total)


@function(to="special", composite=True)
def zeta(input: Operand, other: Operand) -> Tensor:
    """Hurwitz zeta function of exponent ``input`` at ``other``."""
    s, q = common_float(*two("zeta", input, other))
    if not isinstance(q, Tensor):
        q = create("full", value=q, shape=(), dtype=s.dtype)
    if not isinstance(s, Tensor):
        s = create("full", value=s, shape=(), dtype=q.dtype)
    whole = prim.bitwise_and(prim.le(q, 0.0), prim.eq(q, prim.floor(q)))
    complex_power = prim.bitwise_and(prim.le(q, 0.0), prim.ne(s, prim.floor(s)))
    valid = prim.gt(s, 1.0)
    value = zeta_of(prim.where(valid, s, 2.0), prim.where(whole, 1.0, q))
    value = prim.where(complex_power, math.nan, value)
    value = prim.where(whole, math.inf, value)
    return prim.where(valid, value, choose(prim.eq(s, 1.0), math.inf, math.nan, s.dtype))


def polygamma_of(n: int, x: Tensor) -> Tensor:
    if n == 0:
        return prim.digamma(x)
    if n == 1:
        first: Tensor = trigamma(x)
        return first
    factor = math.factorial(n) * (1.0 if n % 2 else -1.0)
    whole = prim.bitwise_and(prim.le(x, 0.0), prim.eq(x, prim.floor(x)))
    value = prim.mul(zeta_of(float(n + 1), prim.where(whole, 1.0, x)), factor)
    return prim.where(whole, math.copysign(math.inf, factor), value)


@function("special.polygamma", inplace=True, composite=True)
def polygamma(input: int | Tensor, other: int | Tensor) -> Tensor:
    """The n-th derivative of digamma: ``polygamma(n, x)`` or ``x.polygamma(n)``."""
    n, x = (other, input) if isinstance(input, Tensor) else (input, other)
    if not isinstance(x, Tensor):
        raise TypeError(f"polygamma(): argument 'input' must be Tensor, not {type(x).__name__}")
    if not isinstance(n, int):
        raise TypeError(f"polygamma(): argument 'n' must be int, not {type(n).__name__}")
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    return polygamma_of(n, as_float(x))


@function("multigammaln", "special.multigammaln", takes=NUMBERS, inplace=True, composite=True)
def mvlgamma(input: Tensor, p: int) -> Tensor:
    """log of the multivariate gamma function of dimension ``p``."""
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    x = as_float(input)
    total: Tensor | float = p * (p - 1) / 4 * math.log(math.pi)
    for j in range(p):
        term = prim.lgamma(prim.sub(x, j / 2) if j else x)
        total = prim.add(term, total)
    assert isinstance(total, Tensor)
    return total


_STEPS = 200
"""Terms of the series, and twice the levels of the continued fraction; both converge most slowly near a = x."""


def _gamma_prefix(a: Tensor, x: Tensor) -> Tensor:
    """x**a exp(-x) / gamma(a)."""
    return prim.exp(prim.sub(prim.sub(prim.mul(a, prim.log(x)), x), prim.lgamma(a)))


def _gamma_series(a: Tensor, x: Tensor) -> Tensor:
    """Lower regularised incomplete gamma by its power series (DLMF 8.7.1)."""
    term = prim.div(1.0, a)
    total = term
    for k in range(1, _STEPS):
        term = prim.div(prim.mul(term, x), prim.add(a, float(k)))
        total = prim.add(total, term)
    return prim.mul(total, _gamma_prefix(a, x))


def _gamma_fraction(a: Tensor, x: Tensor) -> Tensor:
    """Upper regularised incomplete gamma by its continued fraction (DLMF 8.9.2), from the tail inwards."""
    tail = prim.add(x, 0.0)
    for k in range(_STEPS // 2, 0, -1):
        b = prim.sub(prim.add(x, 2.0 * k + 1.0), a)
        tail = b if k == _STEPS // 2 else prim.sub(b, prim.div(prim.mul(prim.sub(k + 1.0, a), k + 1.0), tail))
    first = prim.sub(prim.add(x, 1.0), a)
    return prim.div(_gamma_prefix(a, x), prim.sub(first, prim.div(prim.sub(1.0, a), tail)))


def _incomplete_gamma(name: str, input: Tensor, other: Tensor, upper: bool) -> Tensor:
    a, x = common(*two(name, input, other))
    if not a.dtype.is_floating_point:
        raise not_implemented(f"{name}_cpu", a.dtype)
    regular = prim.bitwise_and(
        prim.bitwise_and(prim.gt(a, 0.0), prim.lt(a, math.inf)), prim.bitwise_and(prim.gt(x, 0.0), prim.lt(x, math.inf))
    )
    sa, sx = prim.where(regular, a, 1.0), prim.where(regular, x, 1.0)
    low = prim.lt(sx, prim.add(sa, 1.0))
    lower = _gamma_series(prim.where(low, sa, 1.0), prim.where(low, sx, 1.0))
    higher = _gamma_fraction(prim.where(low, 1.0, sa), prim.where(low, 3.0, sx))
    value = prim.where(low, lower, prim.sub(1.0, higher))
    if upper:
        value = prim.where(low, prim.sub(1.0, lower), higher)
    return prim.where(regular, value, _gamma_edges(a, x, upper))


def _gamma_edges(a: Tensor, x: Tensor, upper: bool) -> Tensor:
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


@function("gammainc", "special.gammainc", inplace=True, composite=True)
def igamma(input: Tensor, other: Tensor) -> Tensor:
    """Lower regularised incomplete gamma function."""
    return _incomplete_gamma("igamma", input, other, False)


@function("gammaincc", "special.gammaincc", inplace=True, composite=True)
def igammac(input: Tensor, other: Tensor) -> Tensor:
    """Upper regularised incomplete gamma function."""
    return _incomplete_gamma("igammac", input, other, True)

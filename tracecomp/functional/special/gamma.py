"""Gamma, zeta and incomplete gamma functions."""

from __future__ import annotations

import math
from typing import Any

from tracecomp.base.errors import refuse_long
from tracecomp.eager.tensor import Tensor, create
from tracecomp.functional.dtype_support import NUMBERS
from tracecomp.functional.elementwise.arithmetic import two
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import (
    Operand,
    as_float,
    choose,
    common_float,
)
from tracecomp.functional.publish import function
from tracecomp.ops.elementwise_unary import trigamma

_BERNOULLI = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600,
              -3617 / 10670622842880000)  # fmt: skip


def hurwitz(s: Tensor | float, q: Tensor) -> Tensor:
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


def _minus(s: Tensor | float) -> Any:
    return prim.neg(s) if isinstance(s, Tensor) else -s


def _plus(s: Tensor | float, k: float) -> Any:
    return prim.add(s, k) if isinstance(s, Tensor) else s + k


def _times(a: Tensor | float, b: Tensor | float) -> Any:
    return prim.mul(a, b) if isinstance(a, Tensor) else a * b


def zeta_of(s: Tensor | float, q: Tensor) -> Tensor:
    """Hurwitz zeta for every real q: terms with q + k < 0 are added one by one."""
    floors = prim.floor(prim.where(prim.lt(q, 0.0), q, 0.0).detach()).clamp(-1000, 0)  # 0 for NaN, which has no terms
    low = int(prim.min(floors.reshape(-1), axes=(0,))) if q.numel() else 0
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


_LARGEST_FACTORIAL = 170
"""Largest argument whose factorial is a finite float64."""


def polygamma_of(n: int, x: Tensor) -> Tensor:
    if n == 0:
        return prim.digamma(x)
    if n == 1:
        first: Tensor = trigamma(x)
        return first
    factor = (float(math.factorial(n)) if n <= _LARGEST_FACTORIAL else math.inf) * (1.0 if n % 2 else -1.0)
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
    refuse_long(n)
    return polygamma_of(n, as_float(x))


@function("multigammaln", "special.multigammaln", takes=NUMBERS, inplace=True, composite=True)
def mvlgamma(input: Tensor, p: int) -> Tensor:
    """log of the multivariate gamma function of dimension ``p``."""
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    refuse_long(p)
    x = as_float(input)
    if p * x.nbytes >= 2**47:  # PyTorch makes a tensor of all terms
        raise RuntimeError(f"mvlgamma(): can't allocate memory for {p} terms")
    total: Tensor | float = p * (p - 1) / 4 * math.log(math.pi)
    for j in range(p):
        term = prim.lgamma(prim.sub(x, j / 2) if j else x)
        total = prim.add(term, total)
    assert isinstance(total, Tensor)
    return total

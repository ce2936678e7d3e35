"""Special functions composed from the primitives: logarithms of sums, error functions, gamma functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tracecomp.eager.tensor import Tensor, create
from tracecomp.functional.dtype_support import ALL, COMPLEX, FLOATS
from tracecomp.functional.elementwise.arithmetic import two
from tracecomp.functional.elementwise.complexes import log_of_sum, of_complex, of_number
from tracecomp.functional.elementwise.pointwise import magnitude
from tracecomp.functional.named_results import FrexpResult, MantissaExponent
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import (
    Operand,
    as_float,
    cast,
    choose,
    common,
    common_float,
    not_implemented,
    rounded,
    scalar,
    wide,
)
from tracecomp.functional.publish import function
from tracecomp.functional.special.series import polynomial
from tracecomp.functional.special.tables import ERFCX, NDTRI
from tracecomp.ir.types import bool_, float64, int32


@function(takes=FLOATS + COMPLEX, composite=True)
def logaddexp(input: Tensor, other: Tensor) -> Tensor:
    """log(exp(input) + exp(other)) without overflow."""
    if input.dtype.is_complex or other.dtype.is_complex:
        return log_of_sum(*common(*two("logaddexp", input, other)))
    return _log_add(input, other, prim.exp, prim.log1p, 1.0, "logaddexp")


@function(composite=True)
def logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """log2(2**input + 2**other) without overflow."""
    return _log_add(input, other, prim.exp2, prim.log1p, 1 / math.log(2), "logaddexp2")


def _log_add(
    input: Tensor, other: Tensor, power: Callable[..., Tensor], log1p: Callable[..., Tensor], scale: float, name: str,
) -> Tensor:  # fmt: skip
    a, b = common(*two(name, input, other))
    if not a.dtype.is_floating_point:
        raise not_implemented(f"{name}_cpu", a.dtype)
    like, a, b = a, wide(a), wide(b)
    greater = prim.ge(a, b)
    top = prim.where(greater, a, b)
    same = prim.bitwise_and(prim.eq(a, b), prim.eq(prim.abs(a), math.inf))
    gap = prim.where(same, 0.0, prim.where(greater, prim.sub(a, b), prim.sub(b, a)))
    tail = log1p(power(prim.neg(gap)))
    found = prim.where(same, a, prim.add(top, tail if scale == 1.0 else prim.mul(tail, scale)))
    return rounded(found, like)


def _zero_times(x: Tensor, y: Any, log: Callable[..., Tensor], safe: float) -> Tensor:
    """x * log(y), zero where x is zero and y is a number. The gradient is finite where the logarithm is."""
    if not isinstance(y, Tensor):
        y = create("full", value=float(y), shape=(), dtype=x.dtype)
    infinite = prim.bitwise_or(prim.le(y, safe - 1.0), prim.eq(y, math.inf))
    zero = prim.bitwise_and(prim.eq(x, 0.0), infinite)
    return prim.where(zero, 0.0, prim.mul(x, log(prim.where(zero, safe, y))))


def _scaled_log(name: str, input: Operand, other: Operand, log: Callable[..., Tensor], safe: float) -> Tensor:
    a, b = common_float(*two(name, input, other))
    if not isinstance(a, Tensor):
        a = create("full", value=float(a), shape=(), dtype=b.dtype)
    return _zero_times(a, b, log, safe)


@function("special.xlogy", inplace=True, composite=True)
def xlogy(input: Operand, other: Operand) -> Tensor:
    """input * log(other), zero where ``input`` is zero."""
    return _scaled_log("xlogy", input, other, prim.log, 1.0)


@function(to="special", composite=True)
def xlog1py(input: Operand, other: Operand) -> Tensor:
    """input * log1p(other), zero where ``input`` is zero."""
    return _scaled_log("xlog1py", input, other, prim.log1p, 0.0)


@function(to="special", composite=True)
def entr(input: Tensor) -> Tensor:
    """-x log(x), 0 at 0, -inf below."""
    x = as_float(input)
    positive = prim.gt(x, 0.0)
    safe = prim.where(positive, x, 1.0)
    value = prim.neg(prim.mul(safe, prim.log(safe)))
    rest = prim.where(prim.eq(x, 0.0), 0.0, prim.where(prim.isnan(x), x, -math.inf))
    return prim.where(positive, value, rest)


@function("special.sinc", takes=ALL, inplace=True, composite=True)
def sinc(input: Tensor) -> Tensor:
    """sin(pi x) / (pi x), 1 at 0."""
    x = as_float(input)
    if x.dtype.is_complex:
        return of_complex("sinc", x)
    zero = prim.eq(x, 0.0)
    turn = prim.mul(prim.where(zero, 1.0, x), math.pi)
    return prim.where(zero, 1.0, prim.div(prim.sin(turn), turn))


def erfcx_of(x: Tensor) -> Tensor:
    """exp(x^2) erfc(x): a polynomial in (x - 3.75) / (x + 3.75) for x >= 0, reflected below."""
    size = magnitude(x)
    bounded = prim.minimum(size, 1e30)
    t = prim.div(prim.sub(bounded, 3.75), prim.add(bounded, 3.75))
    right = prim.div(polynomial(t, ERFCX), prim.add(prim.mul(size, 2.0), 1.0))
    negative = prim.lt(x, 0.0)
    left_x = prim.where(negative, x, 0.0)
    left = prim.sub(prim.mul(prim.exp(prim.mul(left_x, left_x)), 2.0), right)
    return prim.where(negative, left, right)


@function(to="special", composite=True)
def erfcx(input: Tensor) -> Tensor:
    """exp(x^2) erfc(x)."""
    return erfcx_of(as_float(input))


_ROOT_HALF = math.sqrt(0.5)


@function(to="special", composite=True)
def ndtr(input: Tensor) -> Tensor:
    """Distribution function of the standard normal."""
    return prim.mul(prim.erfc(prim.mul(as_float(input), -_ROOT_HALF)), 0.5)


def _log_ndtr(x: Tensor) -> Tensor:
    low = prim.lt(x, -1.0)
    scaled = prim.mul(x, _ROOT_HALF)
    tail_x = prim.where(low, scaled, -1.0)
    tail = prim.sub(prim.log(prim.mul(erfcx_of(prim.neg(tail_x)), 0.5)), prim.mul(tail_x, tail_x))
    body_x = prim.where(low, 0.0, scaled)
    return prim.where(low, tail, prim.log1p(prim.mul(prim.erfc(body_x), -0.5)))


@function(to="special", composite=True)
def log_ndtr(input: Tensor) -> Tensor:
    """log of the distribution function of the standard normal, accurate far in the lower tail."""
    return _log_ndtr(as_float(input))


@function(to="special", composite=True)
def ndtri(input: Tensor) -> Tensor:
    """The inverse of :func:`ndtr`: by erfinv near 1/2, beyond by a polynomial of the root of the logarithm."""
    p = as_float(input)
    upper = prim.gt(p, 0.5)
    q = prim.where(upper, prim.sub(1.0, p), p)
    near = prim.gt(q, 0.11)
    body = prim.mul(prim.erfinv(prim.sub(prim.mul(prim.where(near, q, 0.5), 2.0), 1.0)), math.sqrt(2.0))
    inside = prim.gt(q, 0.0)
    s = prim.sqrt(prim.mul(prim.log(prim.where(prim.bitwise_and(inside, prim.le(q, 0.11)), q, 0.1)), -2.0))
    tail = prim.mul(s, polynomial(prim.sub(1.33, prim.div(14.3, prim.add(s, 4.0))), NDTRI))
    y = prim.where(near, body, prim.neg(tail))
    edge = choose(prim.eq(q, 0.0), -math.inf, math.nan, p.dtype)
    y = prim.where(inside, y, edge)
    return prim.where(upper, prim.neg(y), y)


@function(inplace=True, composite=True)
def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """0 below zero, 1 above, ``values`` at zero."""
    if input.dtype is not values.dtype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")
    zero = scalar(0, input.dtype)
    above = cast(prim.gt(input, zero), input.dtype)
    if input.dtype.is_floating_point:
        above = prim.where(prim.isnan(input), input, above)
    return prim.where(prim.eq(input, zero), values, above)


@function(takes=ALL, inplace=True, composite=True)
def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """input * 2**other; floating numbers with integer exponents keep their dtype and are scaled exactly.

    Such an exponent may exceed the range of ``exp2``, so it is split in three. The first step of a very negative one is
    -969: a number that becomes subnormal there vanishes in the next step. The result is therefore rounded once.
    """
    if input.dtype.is_floating_point and other.dtype is bool_:
        raise not_implemented("ldexp_cpu_exp", bool_)
    if not input.dtype.is_floating_point or other.dtype.is_floating_point or other.dtype.is_complex:
        return prim.mul(*common_float(input, of_number("exp2", as_float(other))))
    x, left = cast(input, float64), prim.cast(other, dtype=float64)
    for _ in range(3):
        step = prim.where(prim.lt(left, -1022.0), -969.0, prim.minimum(left, 1023.0))
        x, left = prim.mul(x, prim.exp2(step)), prim.sub(left, step)
    return cast(x, input.dtype)


@function(composite=True)
def frexp(input: Tensor) -> MantissaExponent:
    """(mantissa in [0.5, 1), exponent) with input = mantissa * 2**exponent."""
    if not input.dtype.is_floating_point:
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")
    finite = prim.bitwise_and(prim.lt(prim.abs(input), math.inf), prim.ne(input, 0.0))
    x = prim.where(finite, input, 0.5)
    # Two steps, so that 2**-exponent neither overflows nor vanishes for denormals.
    tiny = prim.lt(prim.abs(x), 1e-30)
    x = prim.where(tiny, prim.mul(x, 2.0**100), x)
    exponent = prim.add(prim.floor(prim.log2(prim.abs(x.detach()))), 1.0)
    mantissa = prim.mul(x, prim.exp2(prim.neg(exponent)))
    size = prim.abs(mantissa.detach())
    up, down = prim.ge(size, 1.0), prim.lt(size, 0.5)
    mantissa = prim.where(up, prim.mul(mantissa, 0.5), prim.where(down, prim.mul(mantissa, 2.0), mantissa))
    exponent = prim.add(exponent, prim.sub(cast(up, x.dtype), cast(down, x.dtype)))
    exponent = prim.where(tiny, prim.sub(exponent, 100.0), exponent)
    return FrexpResult(prim.where(finite, mantissa, input), prim.cast(prim.where(finite, exponent, 0.0), dtype=int32))


def _euclid(input: Tensor, other: Tensor, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """Greatest common divisor by remainders until all are zero."""
    a, b = common(*two(name, input, other))
    if a.dtype.kind != "int":
        raise not_implemented(f"{name}_cpu", a.dtype)
    x, y = prim.abs(a), prim.abs(b)
    for _ in range(int(1.45 * (a.dtype.itemsize * 8)) + 2):
        more = prim.ne(y, 0)
        if not bool(more.any()):
            break
        rest = prim.remainder(x, prim.where(more, y, 1))
        x, y = prim.where(more, y, x), prim.where(more, rest, 0)
    return x, a, b


@function(inplace=True, composite=True)
def gcd(input: Tensor, other: Tensor) -> Tensor:
    """Greatest common divisor of integers."""
    divisor, _, b = _euclid(input, other, "gcd")
    return prim.add(divisor, prim.mul(b, 0)) if tuple(divisor.shape) != tuple(b.shape) else divisor


@function(inplace=True, composite=True)
def lcm(input: Tensor, other: Tensor) -> Tensor:
    """Least common multiple of integers."""
    divisor, a, b = _euclid(input, other, "lcm")
    safe = prim.where(prim.eq(divisor, 0), 1, divisor)
    return prim.abs(prim.mul(prim.floor_divide(a, safe), b))

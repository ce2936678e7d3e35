"""Exact remainders and what is made of them, neighbours, hypotenuse, integer powers."""

from __future__ import annotations

import math

from tracecomp.codegen.emitter import Value
from tracecomp.codegen.numbers import Number, where

_STEP_BITS = 51


def _pow2(n: Number) -> Number:
    """The double 2**n for -1022 <= n <= 1023."""
    return ((n + 1023) << 52).as_float()


def _exponent(x: Number) -> Number:
    return x.bits().shift_logical(52) & 2047


def fmod(x: Number, y: Number) -> Number:
    """The exact remainder of doubles with the sign of ``x``: long division, 51 bits of quotient at a time."""
    e = x.e
    a, b = x.abs(), y.abs()
    valid = (a < math.inf) & (b > 0.0)
    start = where(valid, a, 0.0)
    divisor = where(valid & (b < math.inf), b, math.inf)
    divisor = where(divisor.equals(math.inf), start + 1.0, divisor)

    def more(values: list[Value]) -> Value:
        return (Number(e, values[0]) >= divisor).any().v

    def step(values: list[Value]) -> list[Value]:
        r = Number(e, values[0])
        lowest = where(_exponent(divisor).equals(0), -_STEP_BITS, _exponent(divisor))
        gap = _exponent(r) - lowest - _STEP_BITS
        j = where(gap > 0, gap, 0)
        half = j >> 1
        shifted = divisor * _pow2(half) * _pow2(j - half)
        q = (r / shifted).trunc()
        rest = (-q).fma(shifted, r)
        rest = where(rest < 0.0, rest + shifted, rest)
        return [where(r >= divisor, rest, r).v]

    rest = Number(e, e.repeat_while([start.v], more, step)[0])
    result = where(b.equals(math.inf) & valid, a, rest).with_sign_of(x)
    return where(valid, result, math.nan)


def remainder(x: Number, y: Number) -> Number:
    """The remainder with the sign of ``y``."""
    m = fmod(x, y)
    differ = (m < 0.0) ^ (y < 0.0)
    return where(m.differs(0.0) & differ, m + y, m)


def floor_divide(x: Number, y: Number) -> Number:
    """``floor(x / y)`` of the exact quotient, by way of the remainder; x / y for a zero divisor."""
    m = fmod(x, y)
    quotient = (x - m) / y
    down = m.differs(0.0) & ((m < 0.0) ^ (y < 0.0))
    quotient = where(down, quotient - 1.0, quotient)
    whole = quotient.floor()
    whole = where(quotient - whole > 0.5, whole + 1.0, whole)
    zero = x.full(0.0).with_sign_of(x / y)
    return where(y.equals(0.0), x / y, where(quotient.equals(0.0), zero, whole))


def nextafter(x: Number, y: Number) -> Number:
    """The neighbour of ``x`` towards ``y``."""
    bits = x.bits()
    step = where((x < y) ^ (bits < 0), bits.full(1), bits.full(-1))
    smallest = y.bits().full(1).as_float().with_sign_of(y)
    moved = where(x.equals(0.0), smallest, (bits + step).as_float())
    return where(x.equals(y), y, where(x.is_nan() | y.is_nan(), math.nan, moved))


def hypot(x: Number, y: Number) -> Number:
    """``sqrt(x*x + y*y)`` of doubles without overflow or underflow in between."""
    a, b = x.abs(), y.abs()
    big, small = where(a > b, a, b), where(a > b, b, a)
    huge, tiny = big > 2.0**500, big < 2.0**-500
    factor = where(huge, 2.0**-600, where(tiny, x.full(2.0**600), 1.0))
    back = where(huge, 2.0**600, where(tiny, x.full(2.0**-600), 1.0))
    big, small = big * factor, small * factor
    result = big.fma(big, small * small).sqrt() * back
    result = where(x.is_nan() | y.is_nan(), math.nan, result)
    return where(a.equals(math.inf) | b.equals(math.inf), math.inf, result)


def integer_power(x: Number, n: Number, bits: int, signed: bool) -> Number:
    """``x**n`` by squaring, wrapping around; a negative power is the real result truncated."""
    result = x.full(1)
    square = x
    for k in range(bits - 1 if signed else bits):
        odd = (n.shift_logical(k) & 1).equals(1)
        result = where(odd, result * square, result)
        square = square * square
    if not signed:
        return result
    unit = where((n & 1).equals(1), x, x.full(1))
    inverse = where(x.equals(1) | x.equals(-1), unit, 0)
    return where(n < 0, inverse, result)

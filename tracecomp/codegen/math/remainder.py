"""Exact remainders and functions of them, neighbours, hypotenuse, integer powers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tracecomp.codegen.math.numbers import Number, where
from tracecomp.codegen.text.emitter import Value

_QUOTIENT_BITS = {"float": 22, "double": 51}
"""Quotients of so few bits, rounded to whole numbers, are at most one too large."""


def _pow2(n: Number) -> Number:
    """The double 2**n for -1022 <= n <= 1023."""
    return ((n + 1023) << 52).as_float()


def _exponent(x: Number) -> Number:
    return x.bits().shift_logical(52) & 2047


@dataclass(frozen=True, slots=True)
class _Division:
    """|x| = quotient * |y| + rest, where x is finite, y neither zero nor NaN (``valid``), and the quotient short."""

    valid: Number
    short: Number
    quotient: Number
    rest: Number


def _divide(x: Number, y: Number) -> _Division:
    a, b = x.abs(), y.abs()
    valid = (a < math.inf) & (b > 0.0)
    # Dummies where there is no remainder, so that intermediate results neither trap nor are NaN.
    both = valid & (b < math.inf)
    start, divisor = where(both, a, 0.0), where(both, b, 1.0)
    quotient, rest = _whole(start, divisor)
    short = start < divisor * 2.0 ** _QUOTIENT_BITS[x.v.elem]
    return _Division(valid, short, quotient, where(a < b, a, rest))


def _whole(a: Number, b: Number) -> tuple[Number, Number]:
    q = (a / b).trunc()
    rest = (-q).fma(b, a)
    # The quotient was rounded; if it went up, the rest is negative, and is brought back. Both steps are exact.
    over = rest < 0.0
    return where(over, q - 1.0, q), where(over, rest + b, rest)


def _or_long(d: _Division, short: Number, long: Callable[[Number, Number], Number], x: Number, y: Number) -> Number:
    """``short`` where the quotient is, else ``long`` of doubles, which runs only if some quotient is not."""

    def run() -> list[Value]:
        return [where(d.short, short, long(x.to_double(), y.to_double()).rounded_to(x)).v]

    # Long quotients are rare, and the loop for them is slow: run only if some lane needs it.
    return Number(x.e, x.e.branch((~d.short).any().v, run, [short.v])[0])


def _long_fmod(x: Number, y: Number) -> Number:
    """Long division of finite doubles, 51 bits of the quotient at a time."""
    e, bits, divisor = x.e, _QUOTIENT_BITS["double"], y.abs()

    # The exponent field of a denormal divisor is meaningless: such a divisor is handled directly.
    field = _exponent(divisor)
    lowest = where(field.equals(0), _exponent(divisor * 2.0**54) - 54, field)

    def more(values: list[Value]) -> Value:
        return (Number(e, values[0]) >= divisor).any().v

    def step(values: list[Value]) -> list[Value]:
        r = Number(e, values[0])
        # Number of bits for one step: the difference of the exponents, minus the bits of one quotient.
        gap = _exponent(r) - lowest - bits
        j = where(gap > 0, gap, 0)
        half = j >> 1
        # Two factors, as 2^j alone may overflow.
        rest = _whole(r, divisor * _pow2(half) * _pow2(j - half))[1]
        return [where(r >= divisor, rest, r).v]

    valid = (x.abs() < math.inf) & (divisor > 0.0)
    return Number(e, e.repeat_while([where(valid, x.abs(), 0.0).v], more, step)[0]).with_sign_of(x)


def fmod(x: Number, y: Number) -> Number:
    """The exact remainder with the sign of ``x``."""
    d = _divide(x, y)
    return _or_long(d, where(d.valid, d.rest.with_sign_of(x), math.nan), _long_fmod, x, y)


def remainder(x: Number, y: Number) -> Number:
    """The remainder with the sign of ``y``."""
    m = fmod(x, y)
    differ = (m < 0.0) ^ (y < 0.0)
    return where(m.differs(0.0) & differ, m + y, m)


def floor_divide(x: Number, y: Number) -> Number:
    """``floor(x / y)`` of the exact quotient; x / y for a zero divisor."""
    d = _divide(x, y)
    exact = x / y
    down = d.rest.differs(0.0) & ((x < 0.0) ^ (y < 0.0))
    whole = where(down, d.quotient + 1.0, d.quotient).with_sign_of(exact)
    return _or_long(d, where(y.equals(0.0), exact, where(d.valid, whole, math.nan)), _long_floor_divide, x, y)


def _long_floor_divide(x: Number, y: Number) -> Number:
    # fmod is exact, so x - m is a multiple of y but for one rounding.
    m = _long_fmod(x, y)
    quotient = (x - m) / y
    quotient = where(m.differs(0.0) & ((m < 0.0) ^ (y < 0.0)), quotient - 1.0, quotient)
    whole = quotient.floor()
    return where(quotient - whole > 0.5, whole + 1.0, whole)


def nextafter(x: Number, y: Number) -> Number:
    """The neighbour of ``x`` towards ``y``."""
    bits = x.bits()
    # Bits of floats are ordered by magnitude: the next one is one more, or less for negative numbers.
    step = where((x < y) ^ (bits < 0), bits.full(1), bits.full(-1))
    smallest = y.bits().full(1).as_float().with_sign_of(y)
    moved = where(x.equals(0.0), smallest, (bits + step).as_float())
    return where(x.equals(y), y, where(x.is_nan() | y.is_nan(), math.nan, moved))


def hypot(x: Number, y: Number) -> Number:
    """``sqrt(x*x + y*y)`` of doubles without overflow or underflow in between."""
    a, b = x.abs(), y.abs()
    big, small = where(a > b, a, b), where(a > b, b, a)
    huge, tiny = big > 2.0**500, big < 2.0**-500
    # Scaled by powers of two, which is exact; both are scaled alike.
    factor = where(huge, 2.0**-600, where(tiny, x.full(2.0**600), 1.0))
    back = where(huge, 2.0**600, where(tiny, x.full(2.0**-600), 1.0))
    big, small = big * factor, small * factor
    result = big.fma(big, small * small).sqrt() * back
    result = where(x.is_nan() | y.is_nan(), math.nan, result)
    return where(a.equals(math.inf) | b.equals(math.inf), math.inf, result)


def known_power(x: Number, n: int) -> Number:
    """``x**n`` by squaring, for a known non-negative power."""
    result, square = x.full(1), x
    while n:
        result = result * square if n & 1 else result
        n >>= 1
        square = square * square if n else square
    return result


def integer_power(x: Number, n: Number, bits: int, signed: bool) -> Number:
    """``x**n`` by squaring, wrapping around; a negative power is the real result truncated."""
    result = x.full(1)
    square = x
    for k in range(bits - 1 if signed else bits):
        odd = (n.shift_logical(k) & 1).equals(1)
        # All rounds run: lanes differ in n, and a loop would take as long as the longest.
        result = where(odd, result * square, result)
        square = square * square
    if not signed:
        return result
    # A negative power of 1 or -1 is 1 or -1; of anything else it is a fraction, truncated to 0.
    unit = where((n & 1).equals(1), x, x.full(1))
    inverse = where(x.equals(1) | x.equals(-1), unit, 0)
    return where(n < 0, inverse, result)

"""Powers, from logarithms that have more bits than the result.

The polynomial is a minimax fit made for this file (Remez exchange in 45 digits).
"""

from __future__ import annotations

import math

from tracecomp.codegen.math.exponential import LN2_SHORT, decompose, exp_of_sum, exp_within, short_log
from tracecomp.codegen.math.numbers import Number, at_least, at_most, horner, where
from tracecomp.codegen.text.emitter import Value

# (log(1 + f) - 2*s - 2/3*s**3) / s**5 in s**2: 2**-65.2
_LOG_TAIL = (
    0.40000000000002417, 0.2857142857001741, 0.22222222535240374, 0.18181782975315505, 0.15386823598493105,
    0.13255228961080587, 0.13211462644356323,
)  # fmt: skip


def _two_sum(a: Number, b: Number) -> tuple[Number, Number]:
    """The rounded sum and its exact error (Knuth)."""
    # Exact for any order of magnitude (Knuth's sum needs no comparison).
    s = a + b
    bb = s - a
    return s, (a - (s - bb)) + (b - bb)


def _log_double_double(x: Number) -> tuple[Number, Number]:
    """log(x) with about 12 bits more than a double, for positive finite x."""
    m, e = decompose(x)
    f = m - 1.0
    d = f + 2.0
    s = f / d
    # The remainder of the quotient by FMA, and the rounding of d = f + 2: s + s_low is exact to some 100 bits.
    s_low = ((-s).fma(d, f) - s * (f - (d - 2.0))) / d
    z = s * s
    # Error of the square by FMA, and the cross term.
    z_low = s.fma(s, -z) + s * s_low * 2.0
    c = s * z
    c_low = s.fma(z, -c) + s_low * z + s * z_low
    # 2/3 in two parts.
    third, third_low = 2.0 / 3.0, 3.700743415417188e-17
    t = c * third
    t_low = c.fma(third, -t) + c * third_low + c_low * third
    rest = c * z * horner(z, _LOG_TAIL)
    # Largest terms first, each sum with its error.
    u, v = _two_sum(e * LN2_SHORT[0], s * 2.0)
    u, w = _two_sum(u, t)
    low = v + w + s_low * 2.0 + t_low + rest + e * LN2_SHORT[1]
    high = u + low
    return high, low - (high - u)


def power(x: Number, y: Number) -> Number:
    return _power_of_doubles(x, y) if x.is_double else _power_of_floats(x, y)


def _power_of_floats(x: Number, y: Number) -> Number:
    """By way of doubles, which hold log(x) with bits to spare."""
    a = x.abs().to_double()
    logarithm = where(a.equals(0.0), -math.inf, where(a < math.inf, short_log(a), a))
    # finite, so that its product with log(1) is zero
    exponent = at_least(at_most(y.to_double(), 2.0**128), -(2.0**128))
    magnitude = exp_within(at_least(at_most(exponent * logarithm, 110.0), -110.0)).rounded_to(x)
    # The sign bit and not x < 0, because -0.0 to an odd power is -0.0.
    negative = x.bits() < 0

    def signed() -> list[Value]:
        whole = y.trunc().equals(y)
        # Even if y/2 is whole.
        odd = whole & (y * 0.5).trunc().differs(y * 0.5)
        result = where(negative & odd, -magnitude, magnitude)
        return [where((x < 0.0) & ~whole & (x > -math.inf), math.nan, result).v]

    result = Number(x.e, x.e.branch(negative.any().v, signed, [magnitude.v])[0])
    return where(x.equals(1.0) | y.equals(0.0), 1.0, result)


def _power_of_doubles(x: Number, y: Number) -> Number:
    """With C's (and PyTorch's) results at the edges."""
    a = x.abs()
    # Special cases follow; 1.0 keeps the logarithm finite.
    log_high, log_low = _log_double_double(where((a > 0.0) & (a < math.inf), a, 1.0))
    product = y * log_high
    product_low = y.fma(log_high, -product) + y * log_low
    # Beyond 800 the result is 0 or infinity, and the low part may be NaN.
    inside = product.abs() < 800.0
    p = at_least(at_most(product, 800.0), -800.0)
    magnitude = exp_of_sum(p, where(inside, product_low, 0.0))
    whole = y.trunc().equals(y)
    # From 2^53 on all doubles are even.
    odd = whole & (y * 0.5).trunc().differs(y * 0.5) & (y.abs() < 2.0**53)
    # Whether |x|^y goes to infinity: larger than 1 with a positive power, or smaller with a negative one.
    grows = (a > 1.0).convert("zext", "i64").differs((y < 0.0).convert("zext", "i64"))
    edge = a.equals(0.0) | a.equals(math.inf)
    magnitude = where(edge | (y.abs().equals(math.inf)), where(grows, x.full(math.inf), 0.0), magnitude)
    # C: (-1) to an infinite power is 1.
    magnitude = where((y.abs().equals(math.inf)) & a.equals(1.0), 1.0, magnitude)
    negative = x.bits() < 0
    result = where(negative & odd, -magnitude, magnitude)
    result = where((x < 0.0) & ~whole & (x > -math.inf), math.nan, result)
    result = where(x.is_nan() | y.is_nan(), math.nan, result)
    # Last, as these hold even for NaN.
    return where(x.equals(1.0) | y.equals(0.0), 1.0, result)

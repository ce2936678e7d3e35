"""Exponentials, logarithms and hyperbolic functions, for float and double alike.

Polynomial coefficients are minimax fits made for this file (Remez exchange in 45 digits); each names its function and
range.
"""

from __future__ import annotations

import math

import numpy as np

from tracecomp.codegen.math.numbers import Number, at_least, at_most, horner, where
from tracecomp.codegen.text.emitter import FLOAT_BITS, Emitter, Value

# (exp(r) - 1 - r) / r**2 on |r| < ln(2)/2, relative to exp(r): 2**-28.3 and 2**-64
_EXP_FLOAT = (0.49999993319343256, 0.16666518945832554, 0.04166840921204227, 0.00836891936787915, 0.001381415797210295)
_EXP_DOUBLE = (
    0.5, 0.16666666666666685, 0.041666666666666075, 0.008333333333316673, 0.0013888888889121232, 0.00019841269897300545,
    2.480158691940208e-05, 2.7557233927420723e-06, 2.755758552097634e-07, 2.511236846557247e-08, 2.082613667798191e-09,
)  # fmt: skip
# the same relative to exp(r) - 1: 2**-31.9 and 2**-61.7
_EXPM1_FLOAT = (
    0.500000004516086, 0.16666666371963074, 0.041666356528890086, 0.008333388535240025, 0.0013940982277457596,
    0.00019846687094148542,
)  # fmt: skip
_EXPM1_DOUBLE = (
    0.5, 0.16666666666666677, 0.041666666666666505, 0.008333333333321433, 0.001388888888896347, 0.0001984126988671024,
    2.4801587171534036e-05, 2.7557243542455614e-06, 2.755740254960574e-07, 2.5109294886361446e-08,
    2.087564274867078e-09,
)  # fmt: skip
# (log(1 + f) - f + f**2/2) / f**3 on sqrt(1/2) <= 1 + f < sqrt(2): 2**-30.3
_LOG_FLOAT = (
    0.3333331259272695, -0.25000009072153356, 0.20002119065060486, -0.16668023493003406, 0.14219562794365534,
    -0.12405143484755476, 0.11887690950440488, -0.11677949409835987, 0.06750258204028654,
)  # fmt: skip
# (log(1 + f) - 2*s) / s**3 in s**2, where s = f / (2 + f): 2**-65.6
_LOG_DOUBLE = (
    0.6666666666666666, 0.400000000000067, 0.28571428568940144, 0.2222222266874296, 0.1818177390950765,
    0.1538716754476185, 0.13248386365435186, 0.132670804664528,
)  # fmt: skip
# the same: 2**-52.2
_LOG_SHORT = (
    0.666666666665872, 0.40000000052273277, 0.2857141712982842, 0.22223371683726129, 0.181236424622512,
    0.1681982406116157,
)  # fmt: skip

_LN2 = (0.6931471805599453, 2.3190468138462996e-17)
"""ln 2: a double and its remainder; the pairs below likewise."""
_LOG2E = (1.4426950408889634, 2.0355273740931033e-17)
"""1 / ln 2."""
_LOG10E = (0.4342944819032518, 1.098319650216765e-17)
"""1 / ln 10."""
_LOG10_2 = (0.3010299956639812, -2.8037281277851704e-18)
"""log10 of 2."""
# ln(2) in two parts of which the first has 12 trailing zero bits, so that its product with an exponent is exact
LN2_SHORT = (float.fromhex("0x1.62e42fefa3000p-1"), 2.8235290563031577e-13)


def split(like: Number, pair: tuple[float, float]) -> tuple[float, float]:
    """A constant given as a double and its remainder, in two parts of the type of ``like``."""
    if like.is_double:
        # Rounded to the type first, then the remainder: the two parts sum to the constant.
        return pair
    high = float(np.float32(pair[0]))
    return high, pair[0] - high + pair[1]


def _exponent(like: Number) -> tuple[int, int]:
    """Mantissa bits and exponent bias."""
    return (52, 1023) if like.is_double else (23, 127)


def _power_of_two(n: Number, like: Number) -> Number:
    """2**n for an integer n in the range of normal exponents; in the type of ``like``."""
    mantissa, bias = _exponent(like)
    # The exponent field is shifted into place; no table and no multiplication.
    return ((n + bias) << mantissa).as_float()


def scale(y: Number, n: Number) -> Number:
    """``y * 2**n`` for an integral n, rounded once for any size of the result."""
    # One instruction, rounded once, with denormal results.
    if y.e.module.target.has_scalef and y.v.width:
        return Number(y.e, _scalef(y.e, y.v, y.e.widen(n.v, y.v.width)))
    # Two factors, as one power of two could overflow where the result does not. Half each, so that both are normal.
    whole = n.to_int()
    half = whole >> 1
    return y * _power_of_two(half, y) * _power_of_two(whole - half, y)


def _scalef(e: Emitter, y: Value, n: Value) -> Value:
    """AVX-512's scaling instruction; longer vectors in halves, shorter ones in the smallest register."""
    bits = y.width * FLOAT_BITS[y.elem]
    if bits > 512:
        # In registers of 512 bits at most.
        half = y.width // 2
        low, high = list(range(half)), list(range(half, y.width))
        parts = [_scalef(e, e.shuffle(y, side), e.shuffle(n, side)) for side in (low, high)]
        return e.shuffle(parts[0], list(range(y.width)), parts[1])
    if bits < 128:
        # The instruction exists from 128 bits on.
        full = 128 // FLOAT_BITS[y.elem]
        padding = [*range(y.width), *([-1] * (full - y.width))]
        return e.shuffle(_scalef(e, e.shuffle(y, padding), e.shuffle(n, padding)), list(range(y.width)))
    kind = "ps" if y.elem == "float" else "pd"
    name = f"@llvm.x86.avx512.mask.scalef.{kind}.{bits}"
    mask = f"i{max(y.width, 8)}"
    # Rounding by the current mode: 4 says "as set", which only the 512-bit form takes.
    rounding = (", i32", ", i32 4") if bits == 512 else ("", "")
    e.declare(name, f"declare {y.type} {name}({y.type}, {y.type}, {y.type}, {mask}{rounding[0]})")
    rhs = f"call {y.type} {name}({y}, {n}, {y.type} zeroinitializer, {mask} -1{rounding[1]})"
    return e.pure(rhs, y.elem, y.width, (y, n))


def _reduce(x: Number) -> tuple[Number, Number]:
    """``(r, n)`` with x == r + n*ln(2), n integral and |r| < ln(2)/2."""
    n = (x * _LOG2E[0]).rint()
    high, low = split(x, _LN2)
    # Two steps of FMA: n * high is exact to the last place that matters, low brings what high lacks (Cody and Waite).
    return (-n).fma(low, (-n).fma(high, x)), n


def _exp_limits(x: Number) -> tuple[float, float]:
    # Beyond these the result is 0 or infinity in any case; the bound keeps n within an exponent's range.
    return (-746.0, 710.0) if x.is_double else (-104.0, 89.0)


def _exp_reduced(r: Number) -> Number:
    # 1 + r + r^2 * p(r): the small terms are summed first, so that 1.0 rounds once.
    return (r * r).fma(horner(r, _EXP_DOUBLE if r.is_double else _EXP_FLOAT), r) + 1.0


def exp(x: Number) -> Number:
    low, high = _exp_limits(x)
    return exp_within(at_least(at_most(x, high), low))


def exp_of_sum(x: Number, low: Number) -> Number:
    """e**(x + low) of doubles, where ``low`` is the rounding error of ``x``, for results that are doubles."""
    r, n = _reduce(x)
    return scale(_exp_reduced(r + low), n)


def exp_within(x: Number) -> Number:
    """exp where the result is known neither to overflow nor to vanish."""
    r, n = _reduce(x)
    return scale(_exp_reduced(r), n)


def half_exp(x: Number) -> Number:
    """``exp(x) / 2``, which overflows later than exp."""
    low, high = _exp_limits(x)
    r, n = _reduce(at_least(at_most(x, high + 1.0), low))
    return scale(_exp_reduced(r), n - 1.0)


def exp2(x: Number) -> Number:
    low, high = (-1076.0, 1025.0) if x.is_double else (-151.0, 129.0)
    x = at_least(at_most(x, high), low)
    n = x.rint()
    r = x - n
    # 2^r = exp(r * ln 2), the product in two parts.
    a, b = split(x, _LN2)
    return scale(_exp_reduced(r.fma(a, r * b)), n)


def expm1(x: Number) -> Number:
    """``exp(x) - 1``; the sign of a zero is kept."""
    _, high = _exp_limits(x)
    # A zero keeps its sign, which adding would lose.
    return where(x.equals(0.0), x, _expm1_within(at_least(at_most(x, high), _expm1_floor(x))))


def _expm1_floor(x: Number) -> float:
    """From here down expm1 is -1."""
    return -40.0 if x.is_double else -20.0


def _expm1_within(x: Number) -> Number:
    r, n = _reduce(x)
    # 2^(n-1) rather than 2^n, which would overflow one step before the result does.
    half = scale(x.full(1.0), n - 1.0)
    p = _expm1_reduced(r)
    # Twice (half * p + half - 1/2): exact but for one rounding.
    return where(n.equals(0.0), p, (half.fma(p, half - 0.5)) * 2.0)


def _expm1_reduced(r: Number) -> Number:
    return (r * r).fma(horner(r, _EXPM1_DOUBLE if r.is_double else _EXPM1_FLOAT), r)


def expm1_below_zero(x: Number) -> Number:
    """``exp(x) - 1`` for ``-100 <= x <= 0``; 0 for both zeros. If n is not 0, it is so large that one part of ln(2) is
    enough."""
    n = (x * _LOG2E[0]).rint()
    r = (-n).fma(split(x, _LN2)[0], x)
    power = scale(x.full(1.0), n)
    return power.fma(_expm1_reduced(r), power - 1.0)


def decompose(x: Number) -> tuple[Number, Number]:
    """``(m, e)`` with x == m * 2**e and sqrt(1/2) <= m < sqrt(2), for positive finite x; e is floating point."""
    mantissa, bias = _exponent(x)
    # Denormal numbers are made normal by an exact factor, for which the exponent is corrected.
    small = x < 2.0 ** (1 - bias)
    m, e = _decompose_normal(where(small, x * 2.0 ** (mantissa + 2), x))
    return m, where(small, e - (mantissa + 2), e).to_float()


def _decompose_normal(x: Number) -> tuple[Number, Number]:
    """The same for normal numbers; e is an integer."""
    mantissa, _ = _exponent(x)
    bits = x.bits()
    # Subtracting the bits of sqrt(1/2) makes the exponent field count from
    # there: one integer operation instead of a comparison.
    e = (bits - x.full(math.sqrt(0.5)).bits()) >> mantissa
    return (bits - (e << mantissa)).as_float(), e


def _log_near_one(f: Number, extra: Number | float = 0.0) -> Number:
    """``log(1 + f) + extra`` for 1 + f between sqrt(1/2) and sqrt(2), and a small ``extra``."""
    square = f * f
    if not f.is_double:
        tail = (f * square).fma(horner(f, _LOG_FLOAT), f.full(extra) if isinstance(extra, float) else extra)
        # f - f^2/2 + f^3 * p(f); the two leading terms are exact enough in one FMA.
        return f + square.fma(-0.5, tail)
    s = f / (f + 2.0)
    z = s * s
    half = square * 0.5
    # The quotient's series converges faster, and only small terms carry its rounding.
    return f - (half - (s.fma(half + z * horner(z, _LOG_DOUBLE), extra)))


def _log_edges(x: Number, result: Number) -> Number:
    """``result`` where 0 < x < inf, else the special value of a logarithm."""
    result = where(x < math.inf, result, x)
    result = where(x.equals(0.0), -math.inf, result)
    return where(x < 0.0, math.nan, result)


def log(x: Number) -> Number:
    m, e = decompose(x)
    high, low = split(x, _LN2)
    return _log_edges(x, e.fma(high, _log_near_one(m - 1.0, e * low)))


def log_less(x: Number, offset: Number) -> Number:
    """``log(x) - offset`` for positive finite doubles and an offset of 0 or 1, which loses no digits."""
    m, e = decompose(x)
    # ln 2 in a short part, so that e * ln 2 - offset is exact, and the rest.
    return (e * LN2_SHORT[0] - offset) + _log_near_one(m - 1.0, e * LN2_SHORT[1])


def log_of_normal(x: Number) -> Number:
    """log for positive finite normal doubles."""
    return _log_by_quotient(x, _LOG_DOUBLE)


def short_log(x: Number) -> Number:
    """The same with bits to spare for a result that is rounded to float."""
    return _log_by_quotient(x, _LOG_SHORT)


def _log_by_quotient(x: Number, coefficients: tuple[float, ...]) -> Number:
    m, e = _decompose_normal(x)
    f = m - 1.0
    return _log_series(f / (f + 2.0), e, coefficients)


def _log_series(s: Number, e: Number, coefficients: tuple[float, ...]) -> Number:
    """``log((1 + s) / (1 - s) * 2**e)``."""
    z = s * s
    return e.to_float().fma(_LN2[0], s * z.fma(horner(z, coefficients), 2.0))


def log2(x: Number) -> Number:
    m, e = decompose(x)
    y = _log_near_one(m - 1.0)
    high, low = split(x, _LOG2E)
    return _log_edges(x, y.fma(high, y.fma(low, e)))


def log10(x: Number) -> Number:
    m, e = decompose(x)
    y = _log_near_one(m - 1.0)
    high, low = split(x, _LOG10E)
    e_high, e_low = split(x, _LOG10_2)
    return _log_edges(x, e.fma(e_high, y.fma(high, y * low + e * e_low)))


def log1p(x: Number) -> Number:
    u = x + 1.0
    # The rounding error of adding 1.
    lost = x - (u - 1.0)
    usual = (u > 0.0) & (u < math.inf)
    # First order: log(u + lost) = log(u) + lost / u.
    result = log(u) + where(usual, lost / u, 0.0)
    return where(x.equals(0.0), x, result)


def sigmoid(x: Number) -> Number:
    low, _ = _exp_limits(x)
    # exp(-|x|) is at most 1, so neither form overflows: t / (1 + t) below zero, 1 / (1 + t) above.
    t = exp_within(at_least(-x.abs(), low))
    return where(x < 0.0, t, t.full(1.0)) / (t + 1.0)


def tanh(x: Number) -> Number:
    # tanh(x) = -t / (t + 2) with t = exp(-2|x|) - 1, which keeps the digits of small x.
    t = expm1_below_zero(at_least(x.abs() * -2.0, _expm1_floor(x)))
    return (-t / (t + 2.0)).abs().with_sign_of(x)


def sinh(x: Number) -> Number:
    if not x.is_double:
        return _sinh_of_floats(x)
    a = x.abs()
    t = expm1(at_most(a, 22.0))
    small = (t + t / (t + 1.0)) * 0.5
    # From 22 on exp(-x) is below half a last place of exp(x).
    return where(a < 22.0, small, half_exp(a)).with_sign_of(x)


def _sinh_of_floats(x: Number) -> Number:
    """By way of doubles, whose difference has digits to spare from 1/64 on."""
    a = at_most(x.abs(), 90.0).to_double()
    t = exp_within(a)
    z = a * a
    small = (a * z).fma(z.fma(1 / 120, z.full(1 / 6)), a)
    # Below 1/64 the difference would lose digits of a float; the series keeps them.
    return where(a < 2.0**-6, small, (t - 1.0 / t) * 0.5).rounded_to(x).with_sign_of(x)


def cosh(x: Number) -> Number:
    half = half_exp(x.abs())
    # exp(|x|)/2 + exp(-|x|)/2, the second from the first.
    return half + 0.25 / half


def asinh(x: Number) -> Number:
    a = x.abs()
    # From 2^28 on a^2 + 1 is a^2 in doubles, and the logarithm of 2a is the result.
    b = at_most(a, 2.0**28)
    small = log1p(b + b * b / ((b * b + 1.0).sqrt() + 1.0))
    return where(a < 2.0**28, small, log(a) + _LN2[0]).with_sign_of(x)


def acosh(x: Number) -> Number:
    t = at_most(x, 2.0**28) - 1.0
    # Near 1 the root's argument in t = x - 1 has no cancellation.
    small = log1p(t + (t * 2.0 + t * t).sqrt())
    return where(x < 1.0, math.nan, where(x > 2.0**28, log(x) + _LN2[0], small))


def atanh(x: Number) -> Number:
    if not x.is_double:
        return _atanh_of_floats(x)
    a = x.abs()
    return (log1p(a * 2.0 / (1.0 - a)) * 0.5).with_sign_of(x)


def _atanh_of_floats(x: Number) -> Number:
    """By way of doubles: half the logarithm of (1 + a)/(1 - a) by one division, which for small a gives a itself."""
    a = x.abs().to_double()
    above = a + 1.0
    m, e = _decompose_normal(1.0 - a)
    # m into [sqrt(1/2), sqrt(2)) of ``above``: then the quotient is small.
    twice = above > m * math.sqrt(2.0)
    m, e = where(twice, m * 2.0, m), where(twice, e - 1, e)
    s = where(e.equals(0), a, (above - m) / (above + m))
    result = _log_series(s, -e, _LOG_SHORT) * 0.5
    result = where(a < 1.0, result, where(a.equals(1.0), a.full(math.inf), math.nan))
    return result.rounded_to(x).with_sign_of(x)

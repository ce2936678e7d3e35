"""Circular functions and their inverses, for doubles; sine, cosine and the angle of a point for floats too.

Coefficients are minimax fits made for this file (Remez exchange in 45 digits).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tracecomp.codegen.math.numbers import Number, horner, where
from tracecomp.codegen.text.assembler import Assembler
from tracecomp.codegen.text.emitter import Emitter, Value

# (sin(x) - x) / x**3 in x**2 on |x| < pi/4: 2**-68; (cos(x) - 1 + x**2/2) / x**4: 2**-75
_SIN = (
    -0.16666666666666666, 0.00833333333333332, -0.00019841269841251917, 2.755731921255345e-06, -2.505210448501748e-08,
    1.6058312318032881e-10, -7.576009850939819e-13,
)  # fmt: skip
_COS = (
    0.041666666666666664, -0.001388888888888887, 2.48015873015681e-05, -2.755731921392602e-07, 2.0876754041623585e-09,
    -1.147025668347403e-11, 4.736470580106486e-14,
)  # fmt: skip
# the same for floats: 2**-28, 2**-33
_SIN_FLOAT = (-0.16666655242443085, 0.008332173340022564, -0.00019516656175255775)
_COS_FLOAT = (0.04166664555668831, -0.001388736185617745, 2.4437729734927416e-05)
# (atan(x) - x) / x**3 in x**2 on |x| < tan(pi/8): 2**-64
_ATAN = (
    -0.33333333333333326, 0.19999999999997645, -0.14285714285385068, 0.1111111108799299, -0.09090908137829089,
    0.07692282606724135, -0.0666622450883584, 0.058769997387671156, -0.05218262131591063, 0.04502969870855441,
    -0.033460936126122984, 0.015181390006877222,
)  # fmt: skip
# the same: 2**-40
_ATAN_FLOAT = (
    -0.33333333295734074, 0.19999994327067655, -0.14285423648969747, 0.11104004378533909, -0.08996845083992795,
    0.06991241293846397, -0.03792476166979684,
)  # fmt: skip
# (asin(x) - x) / x**3 in x**2 on |x| < 1/2: 2**-60
_ASIN = (
    0.16666666666666763, 0.07499999999970147, 0.04464285717523858, 0.030381942677706487, 0.022372215833897622,
    0.017351596836089455, 0.013981002295218004, 0.01139742566479862, 0.010788589165949604, 0.00367487755472138,
    0.021784327618965572, -0.021108161692753317, 0.03269707713899047,
)  # fmt: skip
_PI_2 = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591815e-33)
"""pi/2 in three doubles."""
_PI_2_FLOAT = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
"""pi/2 in three floats."""
_FAST_LIMIT = 2.0**23
"""Largest arguments for which n has so few bits that the reduction by three parts is exact."""
_FAST_LIMIT_FLOAT = 2.0**17
"""The same for floats."""

# 2/pi to 1280 bits
_TWO_OVER_PI = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e006492eea09d1921cfe1deb1cb129a73e"
    "e88235f52ebb4484e99c7026b45f7e413991d639835339f49c845f8bbdf9283b1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b7"
    "4f463f669e5fea2d7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6babf0cfbc209af4361d",
    16,
)

# Payne and Hanek's reduction: x = m * 2**e; only 256 bits of 2/pi affect the fraction of x * 2/pi / 4.
_REDUCE_NAME = "@tc.reduce_angle"
_TABLE = "@tc.two_over_pi"


def _declare_reduction(e: Emitter) -> None:
    words = ", ".join(f"i64 {(_TWO_OVER_PI >> (64 * k)) & (2**64 - 1)}" for k in range(40))
    table = f"{_TABLE} = internal constant [40 x i64] [{words}], align 64"
    a = Assembler()
    bits = a.let("bitcast double %x to i64")
    negative, size, quadrant = _turns(a, bits)
    angle = _angle(a, size, *(e.const("double", part).text for part in _PI_2[:2]))
    minus = a.let(f"fneg double {angle}")
    # For -x the angle and the quadrant change sign.
    below = a.let(f"icmp slt i64 {bits}, 0")
    turned = a.let(f"select i1 {a.let(f'xor i1 {negative}, {below}')}, double {minus}, double {angle}")
    quarter = a.let(f"select i1 {below}, i64 {a.let(f'sub i64 0, {quadrant}')}, i64 {quadrant}")
    first = a.let(f"insertvalue {{ double, i64 }} poison, double {turned}, 0")
    a.do(f"ret {{ double, i64 }} {a.let(f'insertvalue {{ double, i64 }} {first}, i64 {quarter}, 1')}")
    function = a.text(f"define {{ double, i64 }} {_REDUCE_NAME}(double %x) #3")
    e.declare(_REDUCE_NAME, f"{table}\n\ndeclare i256 @llvm.ctlz.i256(i256, i1)\n\n{function}\n")
    # Declares the fma intrinsic.
    e.fma(*[e.const("double", 0.0)] * 3)


def _turns(a: Assembler, bits: str) -> tuple[str, str, str]:
    """Return the difference of |x| * 2/pi from the nearest whole number: its sign (i1) and magnitude in units of
    2**-254 (i256); and that number modulo 4 (i64). ``bits`` are those of x."""
    exponent = a.let(f"and i64 {a.let(f'lshr i64 {bits}, 52')}, 2047")
    mantissa = a.let(f"or i64 {a.let(f'and i64 {bits}, 4503599627370495')}, 4503599627370496")
    # Start of the window of 2/pi for the exponent e, first in bytes, then in bits.
    shift = a.let(f"sub i64 2101, {exponent}")
    byte, bit = a.let(f"lshr i64 {shift}, 3"), a.let(f"and i64 {shift}, 7")
    window = a.let(f"load i320, ptr {a.at(_TABLE, byte)}, align 1")
    aligned = a.let(f"lshr i320 {window}, {a.let(f'zext i64 {bit} to i320')}")
    part, wide = a.let(f"trunc i320 {aligned} to i256"), a.let(f"zext i64 {mantissa} to i256")
    turns = a.let(f"mul i256 {part}, {wide}")
    # The two highest bits are whole quarters of a turn: rounded by adding a half.
    rounded = a.let(f"add i256 {turns}, {a.let('shl i256 1, 253')}")
    quadrant = a.let(f"lshr i256 {rounded}, 254")
    rest = a.let(f"sub i256 {turns}, {a.let(f'shl i256 {quadrant}, 254')}")
    negative = a.let(f"icmp slt i256 {rest}, 0")
    size = a.let(f"select i1 {negative}, i256 {a.let(f'sub i256 0, {rest}')}, i256 {rest}")
    return negative, size, a.let(f"trunc i256 {quadrant} to i64")


def _angle(a: Assembler, size: str, pi_high: str, pi_low: str) -> str:
    """``size`` units of 2**-254, times pi/2, as a double: its 64 leading bits in two doubles, by pi/2 in two."""
    zeros = a.let(f"call i256 @llvm.ctlz.i256(i256 {size}, i1 false)")
    leading = a.let(f"lshr i256 {a.let(f'shl i256 {size}, {zeros}')}, 192")
    top = a.let(f"trunc i256 {leading} to i64")
    # 53 bits and 11 bits: both are doubles without rounding.
    high = a.let(f"uitofp i64 {a.let(f'and i64 {top}, -2048')} to double")
    low = a.let(f"uitofp i64 {a.let(f'and i64 {top}, 2047')} to double")
    product = a.let(f"fmul double {high}, {pi_high}")
    error = _fma(a, high, pi_high, a.let(f"fneg double {product}"))
    rest = _fma(a, low, pi_high, _fma(a, high, pi_low, error))
    # 2**(-62 - zeros), built from its exponent.
    exponent = a.let(f"sub i64 961, {a.let(f'trunc i256 {zeros} to i64')}")
    scale = a.let(f"bitcast i64 {a.let(f'shl i64 {exponent}, 52')} to double")
    return a.let(f"fmul double {a.let(f'fadd double {product}, {rest}')}, {scale}")


def _fma(a: Assembler, x: str, y: str, z: str) -> str:
    return a.call("double", "@llvm.fma.f64", f"double {x}", f"double {y}", f"double {z}")


def _reduce_lanes(x: Number) -> list[Value]:
    """Angle and quadrant of every lane, by exact reduction."""
    e = x.e
    _declare_reduction(e)
    width = x.v.width
    angle, quadrant = (Value("poison", elem, width) for elem in ("double", "i64"))
    # Lane by lane: large arguments are rare.
    for k in range(max(width, 1)):
        lane = e.lane(x.v, k) if width else x.v
        pair = e.effect(f"call {{ double, i64 }} {_REDUCE_NAME}(double {lane.text})", "pair")
        one = e.effect(f"extractvalue {{ double, i64 }} {pair.text}, 0", "double")
        two = e.effect(f"extractvalue {{ double, i64 }} {pair.text}, 1", "i64")
        angle, quadrant = (e.insert(angle, one, k), e.insert(quadrant, two, k)) if width else (one, two)
    return [angle, quadrant]


def reduce_angle(x: Number) -> tuple[Number, Number]:
    """``(r, q)`` with x == r + q*pi/2 modulo 2*pi and |r| <= pi/4; NaN for infinities."""
    e = x.e
    large = ~(x.abs() < _FAST_LIMIT) & (x.abs() < math.inf)
    # Lanes with large arguments are handled separately; here they must not give NaN or overflow.
    tame = where(large, 0.0, x)
    # Adding 1.5 * 2^52 rounds to whole numbers, and leaves the number in the low bits.
    magic = 1.5 * 2.0**52
    shifted = tame.fma(2.0 / math.pi, magic)
    n = shifted - magic
    # The quadrant, without a conversion.
    q = shifted.bits() & 3
    r = tame
    # Three parts of pi/2: exact as far as n has 23 bits (Cody and Waite).
    for part in _PI_2:
        r = (-n).fma(part, r)

    def exact() -> list[Value]:
        # A harmless value in lanes with small arguments.
        angle, quadrant = _reduce_lanes(where(large, x, 2.0**30))
        return [e.select(large.v, angle, r.v), e.select(large.v, quadrant, q.v)]

    values = e.branch(large.any().v, exact, [r.v, q.v])
    return Number(e, values[0]), Number(e, values[1])


def sin_core(r: Number) -> Number:
    """sin for |r| <= pi/4."""
    z = r * r
    return (r * z).fma(horner(z, _SIN), r)


def cos_core(r: Number) -> Number:
    """cos for |r| <= pi/4."""
    z = r * r
    half = z * 0.5
    w = 1.0 - half
    # 1 - z/2 rounded, what the rounding lost, and the tail: the error stays below a last place.
    return w + ((1.0 - w) - half + z * z * horner(z, _COS))


def _sin_quadrant(r: Number, q: Number) -> Number:
    # Odd quadrants exchange sine and cosine, the upper two change the sign.
    value = where((q & 1).equals(0), sin_core(r), cos_core(r))
    return where((q & 2).equals(0), value, -value)


def _of_float(x: Number, quarter: int, of_double: Callable[[Number], Number]) -> Number:
    """sin(x + quarter * pi/2); where x is large, by way of doubles.

    Below the limit the first step of the reduction is exact, and the others round the angle to its last place.
    """
    magic = 1.5 * 2.0**23
    shifted = x.fma(2.0 / math.pi, magic)
    minus_n = magic - shifted
    r = x
    for part in _PI_2_FLOAT:
        r = minus_n.fma(part, r)
    z = r * r
    sine = (r * z).fma(horner(z, _SIN_FLOAT), r)
    cosine = z.fma(z.fma(horner(z, _COS_FLOAT), -0.5), z.full(1.0))
    q = shifted.bits() + quarter
    value = where((q & 1).equals(0), sine, cosine)
    # The sign bit is flipped by the quadrant's second bit.
    value = (value.bits() ^ ((q & 2) << 30)).as_float()
    # In this form NaN and infinities count as large.
    large = ~(x.abs() < _FAST_LIMIT_FLOAT)

    def exact() -> list[Value]:
        far = of_double(x.convert("fpext", "double")).convert("fptrunc", "float")
        return [where(large, far, value).v]

    return Number(x.e, x.e.branch(large.any().v, exact, [value.v])[0])


def sin(x: Number) -> Number:
    value = _sin_of_double(x) if x.is_double else _of_float(x, 0, _sin_of_double)
    # -0.0 stays -0.0.
    return where(x.equals(0.0), x, value)


def cos(x: Number) -> Number:
    return _cos_of_double(x) if x.is_double else _of_float(x, 1, _cos_of_double)


def _sin_of_double(x: Number) -> Number:
    return _sin_quadrant(*reduce_angle(x))


def _cos_of_double(x: Number) -> Number:
    r, q = reduce_angle(x)
    return _sin_quadrant(r, q + 1)


def tan(x: Number) -> Number:
    r, q = reduce_angle(x)
    s, c = sin_core(r), cos_core(r)
    even = (q & 1).equals(0)
    # The tangent of -0.0; else the quotient, rotated by a quarter in odd quadrants.
    return where(x.equals(0.0), x, where(even, s, -c) / where(even, c, s))


def _atan_unit(t: Number) -> Number:
    """atan for 0 <= t <= 1."""
    high = t > math.tan(math.pi / 8)
    # tan(a - pi/4): brings the argument below tan(pi/8), where the series is short.
    u = where(high, (t - 1.0) / (t + 1.0), t)
    z = u * u
    value = (u * z).fma(horner(z, _ATAN), u)
    # pi/4 in two parts, the small one first.
    return where(high, (value + _PI_2[1] / 2) + _PI_2[0] / 2, value)


def atan(x: Number) -> Number:
    a = x.abs()
    inverted = a > 1.0
    value = _atan_unit(where(inverted, 1.0 / a, a))
    # atan(a) = pi/2 - atan(1/a), again in two parts.
    return where(inverted, _PI_2[0] - (value - _PI_2[1]), value).with_sign_of(x)


def atan2(y: Number, x: Number) -> Number:
    return _atan2_of_doubles(y, x) if x.is_double else _atan2_of_floats(y, x)


def _atan2_of_floats(y: Number, x: Number) -> Number:
    """Computed in doubles, in which sums do not overflow and constants need no second part."""
    a, b = y.abs(), x.abs()
    steep = a > b
    low, high = where(steep, b, a), where(steep, a, b)
    same = low.equals(high)
    p, q = low.to_double(), high.to_double()
    # Compared as a product, to avoid a second division.
    upper = (p > q * math.tan(math.pi / 8)) | (same & (low > 0.0))
    # Equal numbers by hand: infinities would give NaN, and 0/0 too.
    u = where(same, 0.0, where(upper, p - q, p) / where(upper, p + q, q))
    z = u * u
    angle = (u * z).fma(horner(z, _ATAN_FLOAT), u)
    angle = where(upper, angle + _PI_2[0] / 2, angle)
    angle = where(steep, _PI_2[0] - angle, angle)
    # By the sign bit, as -0.0 is on the negative side.
    angle = where(x.bits() < 0, 2 * _PI_2[0] - angle, angle)
    return angle.rounded_to(y).with_sign_of(y)


def _atan2_of_doubles(y: Number, x: Number) -> Number:
    a, b = y.abs(), x.abs()
    steep = a > b
    low, high = where(steep, b, a), where(steep, a, b)
    # Infinity over infinity is 1, zero over zero 0, as C says.
    t = where(low.equals(high), where(high.equals(0.0), x.full(0.0), 1.0), low / high)
    angle = _atan_unit(t)
    angle = where(steep, _PI_2[0] - (angle - _PI_2[1]), angle)
    angle = where(x.bits() < 0, 2 * _PI_2[0] - (angle - 2 * _PI_2[1]), angle)
    return angle.with_sign_of(y)


def _asin_parts(x: Number) -> tuple[Number, Number, Number]:
    """``(large, s, p)``: whether |x| > 1/2; s = |x| or sqrt((1 - |x|) / 2); p = asin(s)."""
    # asin(a) = pi/2 - 2 * asin(sqrt((1 - a) / 2)): near 1 the square root keeps the digits.
    a = x.abs()
    large = a > 0.5
    z = where(large, (1.0 - a) * 0.5, a * a)
    s = where(large, z.sqrt(), a)
    return large, s, (s * z).fma(horner(z, _ASIN), s)


def asin(x: Number) -> Number:
    large, _, p = _asin_parts(x)
    return where(large, _PI_2[0] - (p * 2.0 - _PI_2[1]), p).with_sign_of(x)


def acos(x: Number) -> Number:
    large, _, p = _asin_parts(x)
    signed = p.with_sign_of(x)
    near = where(x < 0.0, 2 * _PI_2[0] - (p * 2.0 - 2 * _PI_2[1]), p * 2.0)
    return where(large, near, _PI_2[0] - (signed - _PI_2[1]))


PI_REST = 1.2246467991473532e-16
"""pi minus the float64 nearest to it."""


def sin_pi(x: Number) -> tuple[Number, Number, Number, Number]:
    """``(sin, cos)`` of pi * x with the period of sin's absolute value removed exactly, and their rounding errors."""
    # Exact: the nearest whole number is subtracted without rounding.
    r = x - x.rint()
    a = r.abs()
    far = a > 0.25
    # The other half by symmetry, so that the argument stays below pi/4.
    part = where(far, 0.5 - a, a)
    angle = part * math.pi
    lost = part.fma(math.pi, -angle) + part * PI_REST
    # Like ``sin_core`` and ``cos_core``, with the last sums in two parts.
    z, half = angle * angle, angle * angle * 0.5
    more = angle * z * horner(z, _SIN)
    s = angle + more
    w = 1.0 - half
    less = (1.0 - w) - half - angle.fma(angle, -z) * 0.5 + z * z * horner(z, _COS)
    c = w + less
    s_rest, c_rest = more - (s - angle) + c * lost, less - (c - w) - s * lost
    sin, sin_rest = where(far, c, s), where(far, c_rest, s_rest)
    return sin.with_sign_of(r), where(far, s, c), where(r < 0.0, -sin_rest, sin_rest), where(far, s_rest, c_rest)

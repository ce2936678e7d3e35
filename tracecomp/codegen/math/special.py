"""Error functions and the logarithm of the gamma function with its derivative.

Coefficients are minimax fits made for this file (Remez exchange in 45 digits); digamma's asymptotic series is
Abramowitz and Stegun 6.3.18.
"""

from __future__ import annotations

import math

from tracecomp.codegen.math.exponential import (
    exp,
    exp_within,
    expm1_below_zero,
    log,
    log_less,
    log_of_normal,
    short_log,
)
from tracecomp.codegen.math.numbers import Number, at_least, at_most, horner, where
from tracecomp.codegen.math.trigonometric import PI_REST, sin_pi
from tracecomp.codegen.text.emitter import Value

# log(erfc(-x))/x - 1 on -3.93 <= x <= 0 and -5.93 <= x <= 0, relative to erf: 2**-27.9 and 2**-60.3
_ERF_FLOAT = (
    0.12837917160969692, -0.6366193819543227, 0.10277783093982232, 0.01915306729067149, -0.00016038617823737228,
    -0.0016670142638198148, -0.0006328280582557159, -0.00011763842048039513, -9.255908862424961e-06,
)  # fmt: skip
_ERF_DOUBLE = (
    0.1283791670955126, -0.6366197723675816, 0.10277260330192356, 0.01912844700867232, -0.0002091946442551637,
    -0.0016962059533211725, -0.0005901230955153633, -2.5868762476431928e-05, 6.452080002525652e-05,
    2.9788408113479517e-05, 3.517954051262294e-06, -2.6854866826721894e-06, -1.580518187410763e-06,
    -1.972501689535143e-07, 2.3423531656456722e-07, 1.9660860897585495e-07, 9.08498677853565e-08,
    3.025987414767329e-08, 7.76360089167695e-09, 1.5630534426429977e-09, 2.463376196122957e-10,
    2.986774138162455e-11, 2.693541914297564e-12, 1.702221067687132e-13, 6.725699468351075e-15,
    1.2497638081766086e-16,
)  # fmt: skip
# erf(x)/x - 1 in x**2 on |x| <= 1: 2**-62.8
_ERF_SMALL = (
    0.1283791670955126, -0.3761263890318375, 0.11283791670954885, -0.026866170645077875, 0.005223977624828431,
    -0.0008548326981425542, 0.0001205533113295582, -1.4925595772180906e-05, 1.64610084778027e-06,
    -1.6350396222864617e-07, 1.466032872274226e-08, -1.137495573607015e-09, 5.960685338520971e-11,
)  # fmt: skip
# exp(x**2) * erfc(x) * (1 + 2*x) in (x - 4)/(x + 4) on 0.4 <= x <= 28: 2**-59.3
_ERFC = (
    1.2329951186255526, -0.1396211168405625, 0.015379652102619502, 0.06809705425468886, -0.10103906603628664,
    0.0937328349985142, -0.0663303658127169, 0.03716751553422486, -0.016197734050687976, 0.00503197001369808,
    -0.0007577733471323011, -0.00019925693333578274, 0.0001506219758493035, -2.4398188162693183e-05,
    -1.1223022076035997e-05, 5.7068248732639575e-06, 2.959315365451195e-07, -8.200126235898077e-07,
    7.180812095395441e-08, 1.0368282686702848e-07, -1.5795232748671433e-08, -9.805221648284275e-09,
    1.1526280760382661e-09,
)  # fmt: skip
# exp(x**2) * erfc(x) in (x - 3)/(x + 3) on 0 <= x <= 10.3: 2**-39.8
_ERFC_FLOAT = (
    0.1790011511813304, -0.32623356004658244, 0.24560380173081844, -0.15011593626153494, 0.07166583647174066,
    -0.024392504169022337, 0.0042691455464719105, 0.000707791989830522, -0.000597108709254176, 4.5028149753197686e-05,
    6.413238472859092e-05, -1.225782326747966e-05, -7.866171232141898e-06, 1.368022795289421e-06, 8.37428408208654e-07,
)  # fmt: skip
# with w = -log(1 - x**2): erfinv(x)/x in w - 2.5 for w <= 5 (2**-48.5, 2**-60.1), erfinv(x) in sqrt(w) - 4.1 above
# (2**-57.8)
_ERFINV_LOW_FLOAT = (
    1.5014093511107893, 0.24664027674414607, -0.004177317724310494, -0.0012527079076049804, 0.0002182502640128427,
    -4.9960801910582515e-06, -3.416619013222167e-06, 4.787259898420675e-07, 1.3416281387957226e-08,
    -1.0861712298198468e-08, 9.075724689118438e-10, 1.1983187316473328e-10, -3.11870926157584e-11,
    8.551712927001756e-13, 5.5206759500974e-13, -6.766328959908953e-14, -4.845674555441205e-15, 1.188736287399199e-15,
)  # fmt: skip
_ERFINV_LOW_DOUBLE = (
    1.501409351110792, 0.246640276744167, -0.004177317724383611, -0.0012527079078110146, 0.00021825026434398045,
    -4.996079598910815e-06, -3.416619596361712e-06, 4.787252186206429e-07, 1.3416803492822814e-08,
    -1.08611690231221e-08, 9.073038469127555e-10, 1.196070328659803e-10, -3.110287920060904e-11, 9.115512869535705e-13,
    5.356621262598828e-13, -7.612361847467458e-14, -2.886480161879081e-15, 1.8963370626971755e-15,
    -1.3597581846470003e-16, -2.680062728525162e-17, 4.865847188952442e-18, 1.6923341092921467e-19,
    -6.76351260422343e-20,
)  # fmt: skip
_ERFINV_HIGH = (
    3.940744784545275, 1.0097211645422568, 0.0010142951000405528, -0.0007439554289700553, 0.0002561537176316358,
    -7.246040290984967e-05, 1.8309073075807704e-05, -4.072055365203232e-06, 6.628910951093031e-07,
    2.6997881369893084e-08, -9.466715734325572e-08, 5.515463637347564e-08, -2.0939670301638155e-08,
    4.954744979762145e-09, -6.061763900935882e-11, -5.960525162964429e-10, 3.1951723039754984e-10,
    -8.739540516519263e-11, 3.094732003350562e-12, 7.431849036896845e-12, -2.4591952138701414e-12,
    4.785309254869829e-13, -3.0506823729322936e-13, 5.725476986809242e-14, 6.343635952418156e-14,
    -2.456059339279691e-14, -2.623959273781122e-15, 1.97186897451839e-15, -2.1098617780455748e-17,
    -4.725972131667408e-17,
)  # fmt: skip
# lgamma(2 + z)/z on |z| <= 1/2: 2**-62.5
_LGAMMA = (
    0.42278433509846713, 0.3224670334241132, -0.06735230105319814, 0.020580808427784925, -0.00738555102866841,
    0.00289051033071363, -0.0011927539119907364, 0.000509669525688406, -0.00022315475095366794, 9.945749518572103e-05,
    -4.492634872044129e-05, 2.0507409007665534e-05, -9.438474765110189e-06, 4.373503965643764e-06,
    -2.044857055570738e-06, 9.610503210973219e-07, -4.304897838156797e-07, 1.9668214851163328e-07,
    -1.3400967443735914e-07, 6.91497801724557e-08,
)  # fmt: skip
# lgamma(1 + z)/z in z - 1/4 on 0 <= z <= 1/2: 2**-53.8, the first coefficient's own rounding
_LGAMMA_ABOVE_ONE = (
    -0.3930873456872526, 0.6625352492439489, -0.25548268796157403, 0.13677079348835017, -0.08339250575547115,
    0.054390401756987936, -0.03692956433148535, 0.025743857642633955, -0.018282077950516312, 0.013163095200209427,
    -0.009579045642617183, 0.007030824612832789, -0.00519926250009703, 0.0038659948211805743, -0.002852787856591143,
    0.002140993389081943, -0.0019238096770028258, 0.001455912627655452,
)  # fmt: skip
# x * (lgamma(x) - (x - 1/2)*(log(x) - 1) - log(2*pi)/2 + 1/2) in 1/x**2 from 2.5 on: 2**-60.5 of lgamma
_STIRLING = (
    0.08333333333333175, -0.002777777777120145, 0.0007936506920622101, -0.0005952298067878816, 0.0008413347130693748,
    -0.0019034831351294338, 0.006071689073793696, -0.023415598485809038, 0.09136624325824508, -0.3067753145309246,
    0.771178173177651, -1.2402445692119564, 0.9390148619842219,
)  # fmt: skip
# digamma(x)/(x - root) in x - 1.5 on 1 <= x <= 2: 2**-56
_DIGAMMA_ROOT = (1.4616321449683622, 9.549995429965697e-17)
_DIGAMMA = (
    0.951055876031833, -0.4236274212814606, 0.24054248424077396, -0.1484049230538902, 0.09498872445497708,
    -0.06192213327468678, 0.04076083381057618, -0.026975796691557436, 0.01790725248758472, -0.011908219413802051,
    0.007926943925353848, -0.0052799463195547115, 0.0035190129743752053, -0.0023454203464332115, 0.001556594677597269,
    -0.0010368440095612278, 0.0007234529317614695, -0.0004847254934710821, 0.0002269949704502483,
    -0.00014698447758416166, 0.00025987569895370244, -0.0001765590873391525,
)  # fmt: skip
_DIGAMMA_SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
"""B(2n) / 2n, of the Bernoulli numbers."""


def erf(x: Number) -> Number:
    """``1 - exp(log(erfc(|x|)))``; beyond the fitted range it is 1."""
    # Beyond the fitted range erf is 1 to the last place.
    b = at_least(-x.abs(), -5.93 if x.is_double else -3.93)
    logarithm = b.fma(horner(b, _ERF_DOUBLE if x.is_double else _ERF_FLOAT), b)
    # 1 - exp(t): near 0 as well as near 1 this loses no digits.
    return expm1_below_zero(logarithm).with_sign_of(x)


def _erfc_tail(a: Number) -> Number:
    """erfc for doubles a >= 0.4."""
    a = at_most(a, 28.0)
    scaled = horner((a - 4.0) / (a + 4.0), _ERFC) / (a * 2.0 + 1.0)
    square = a * a
    # The error of the square, by FMA: exp(-a^2) magnifies it by a^2.
    lost = a.fma(a, -square)
    value = exp(-square) * scaled
    # First order: exp(-lost) = 1 - lost.
    return value - value * lost


def erfc(x: Number) -> Number:
    if not x.is_double:
        return _erfc_of_floats(x)
    a = x.abs()
    # Near 0 by the odd series; 0.45 is where both are good.
    small = 1.0 - x.fma(horner(x * x, _ERF_SMALL), x)
    tail = _erfc_tail(at_least(a, 0.45))
    return where(a < 0.45, small, where(x < 0.0, 2.0 - tail, tail))


def _erfc_of_floats(x: Number) -> Number:
    """By way of doubles, which hold the square; it vanishes before 10.3."""
    a = at_most(x.abs(), 10.3).to_double()
    tail = exp_within(-(a * a)) * horner((a - 3.0) / (a + 3.0), _ERFC_FLOAT)
    return where(x < 0.0, 2.0 - tail, tail).rounded_to(x)


def erfinv(y: Number) -> Number:
    """Computed in doubles; for floats, with enough bits that the choice of polynomial does not affect the rounded
    result."""
    x = y.to_double()
    # 1 - x^2 by FMA: rounded once, which matters near 1.
    square = (-x).fma(x, 1.0)
    w = -(log_of_normal(square) if y.is_double else short_log(square))
    central = x * horner(w - 2.5, _ERFINV_LOW_DOUBLE if y.is_double else _ERFINV_LOW_FLOAT)
    # In this form NaN counts as far, and is handled there.
    far = ~(square > math.exp(-5.0))

    def tail() -> list[Value]:
        a = x.abs()
        value = horner(w.sqrt() - 4.1, _ERFINV_HIGH)
        # erfinv(1) is infinite; beyond 1 it is NaN.
        value = where(a < 1.0, value, where(a.equals(1.0), x.full(math.inf), math.nan))
        return [where(far, value.with_sign_of(x), central).v]

    return Number(y.e, y.e.branch(far.any().v, tail, [central.v])[0]).rounded_to(y)


def lgamma(x: Number) -> Number:
    """Polynomials about 2 (below 1 with a logarithm) and above 1, Stirling's series from 2.5 on, and reflection."""
    a = x.abs()
    tiny, low, far = a < 0.5, a < 1.5, a >= 2.5
    inverse = 1.0 / a
    # For small numbers lgamma(a) = lgamma(a + 2) - log(a * (a + 1)); Stirling's form needs log(a) - 1.
    logarithm = log_less(where(tiny, a * (a + 1.0), a), where(far, x.full(1.0), 0.0))
    z = where(low, where(tiny, a, a - 1.0), a - 2.0)
    # Near 1 and near 2, where lgamma vanishes, z is exact and carries the relative accuracy.
    # Above 1 a difference with a logarithm would lose digits.
    above_one = z.fma(horner(z - 0.25, _LGAMMA_ABOVE_ONE), 0.0)
    below_one = z.fma(horner(z, _LGAMMA), -logarithm)
    near = where(low, where(a < 1.0, below_one, above_one), z * horner(z, _LGAMMA))
    tail = inverse.fma(horner(inverse * inverse, _STIRLING), 0.5 * math.log(2 * math.pi) - 0.5)
    positive = where(far, (a - 0.5).fma(logarithm, tail), near)
    # In this form NaN is reflected too, and stays NaN.
    reflect = ~(x > 0.0)

    def negative() -> list[Value]:
        # Reflection: gamma(x) * gamma(-x) = -pi / (x * sin(pi x)).
        s, *_ = sin_pi(x)
        # Close to zero the product would underflow; there it is -log|x|.
        reflected = where(a < 1e-20, -logarithm, -log_of_normal((x * s).abs() * (1.0 / math.pi)) - positive)
        # Poles.
        reflected = where(x.floor().equals(x), math.inf, reflected)
        return [where(reflect, where(x.is_nan(), x, reflected), positive).v]

    return Number(x.e, x.e.branch(reflect.any().v, negative, [positive.v])[0])


def _pi_cotangent(x: Number) -> tuple[Number, Number]:
    """``pi / tan(pi * x)`` and its rounding error."""
    s, c, s_rest, c_rest = sin_pi(x)
    quotient = c / s
    rest = ((-quotient).fma(s, c) + c_rest - quotient * s_rest) / s
    found = quotient * math.pi
    return found, quotient.fma(math.pi, -found) + quotient * PI_REST + rest * math.pi


def _reciprocal(x: Number) -> tuple[Number, Number]:
    """``1 / x`` and, for doubles, its rounding error."""
    found = 1.0 / x
    return found, (-found).fma(x, 1.0) * found if x.is_double else x.full(0.0)


def digamma(x: Number) -> Number:
    """Below 10 by recurrence to [1, 2), above by the asymptotic series, negative numbers by reflection."""
    reflect = x < 0.0
    y = where(reflect, 1.0 - x, x)
    tiny = y < 1.0
    t = where(tiny, y + 1.0, at_most(y, 10.0))
    total, lost = _reciprocal(where(tiny, -y, x.full(-1.0)))
    total, lost = where(tiny, total, 0.0), where(tiny, lost, 0.0)
    # Eight steps reduce 10 to below 2. Finished lanes do not change. For doubles, rounding errors are accumulated.
    for _ in range(8):
        above = t >= 2.0
        t = where(above, t - 1.0, t)
        term, rest = _reciprocal(t)
        more = total + term
        smaller = lost + (term - (more - total)) + rest if x.is_double else lost
        total, lost = where(above, more, total), where(above, smaller, lost)
    # The root in two parts: digamma is relatively accurate where it vanishes.
    near = total + (lost + (t - _DIGAMMA_ROOT[0] - _DIGAMMA_ROOT[1]) * horner(t - 1.5, _DIGAMMA))
    inverse = 1.0 / at_least(y, 10.0)
    z = inverse * inverse
    far = log(at_least(y, 10.0)) - inverse * 0.5 - z * horner(z, _DIGAMMA_SERIES)
    value = where(y < 10.0, near, far)
    # digamma(1 - x) - digamma(x) = pi * cot(pi x).
    pole, rest = _pi_cotangent(x)
    value = where(reflect, (value - pole) - rest, value)
    value = where(reflect & x.floor().equals(x), math.nan, value)  # poles at the negative whole numbers
    # Near zero the other terms round away. The reciprocal can overflow, and its rounding error is NaN then.
    value = where(x.abs() < 2.0**-60, -1.0 / x, value)
    return where(x.equals(math.inf), math.inf, value)

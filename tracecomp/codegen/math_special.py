"""Error functions and the logarithm of the gamma function with its derivative.

Coefficients are minimax fits made for this file (Remez exchange in 45 digits); asymptotic series are Abramowitz and
Stegun 6.1.40 and 6.3.18.
"""

from __future__ import annotations

import math

from tracecomp.codegen.math_exponential import exp, exp_within, log
from tracecomp.codegen.math_trigonometric import sin_pi
from tracecomp.codegen.numbers import Number, at_least, at_most, horner, where

# erf(x)/x - 1 in x**2 on |x| <= 1: 2**-29.7 and 2**-62.8
_ERF_FLOAT = (
    0.12837916591465431, -0.37612627140440547, 0.11283600211815889, -0.026854445581508075, 0.005189536461939261,
    -0.0008020845698406905, 7.889119157487838e-05,
)  # fmt: skip
_ERF_DOUBLE = (
    0.1283791670955126, -0.3761263890318375, 0.11283791670954885, -0.026866170645077875, 0.005223977624828431,
    -0.0008548326981425542, 0.0001205533113295582, -1.4925595772180906e-05, 1.64610084778027e-06,
    -1.6350396222864617e-07, 1.466032872274226e-08, -1.137495573607015e-09, 5.960685338520971e-11,
)  # fmt: skip
# log(erfc(x)) on 1 <= x <= 4, relative to erf: 2**-29.8
_LOG_ERFC_FLOAT = (
    -0.0003416990162321505, -1.1270883915407062, -0.6381463145773423, -0.10310531864386056, 0.021837299414821588,
    -0.002947446775427695, 0.00018635550016678348,
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
# erfinv(x)/x with w = -log(1 - x**2): in w - 2.5 for w < 5 (2**-21.8), in sqrt(w) - 3 above (2**-19.5)
_ERFINV_LOW = (
    1.5014091795575981, 0.2466414193945911, -0.00417625888690377, -0.001254629624282775, 0.00021733603601501058,
    -4.094750552020246e-06, -3.1858798765255963e-06, 3.156802787676444e-07,
)  # fmt: skip
_ERFINV_HIGH = (
    2.8329768960039345, 1.0017016700932055, 0.009445924206785439, -0.007838215994307379, 0.0057789399101649975,
    -0.0032052311386651998, 0.0011155310109614476, -0.00021174206306599845, 1.662526494055298e-05,
)  # fmt: skip
# lgamma(2 + z)/z on |z| <= 1/2: 2**-62.5
_LGAMMA = (
    0.42278433509846713, 0.3224670334241132, -0.06735230105319814, 0.020580808427784925, -0.00738555102866841,
    0.00289051033071363, -0.0011927539119907364, 0.000509669525688406, -0.00022315475095366794, 9.945749518572103e-05,
    -4.492634872044129e-05, 2.0507409007665534e-05, -9.438474765110189e-06, 4.373503965643764e-06,
    -2.044857055570738e-06, 9.610503210973219e-07, -4.304897838156797e-07, 1.9668214851163328e-07,
    -1.3400967443735914e-07, 6.91497801724557e-08,
)  # fmt: skip
_STIRLING = (
    1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400, 43867 / 244188,
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


def erf(x: Number) -> Number:
    a = x.abs()
    small = x.fma(horner(x * x, _ERF_DOUBLE if x.is_double else _ERF_FLOAT), x)
    if x.is_double:
        large = 1.0 - _erfc_tail(at_least(a, 1.0))
    else:
        large = 1.0 - exp_within(horner(at_most(a, 4.0), _LOG_ERFC_FLOAT))
    return where(a < 1.0, small, large.with_sign_of(x))


def _erfc_tail(a: Number) -> Number:
    """erfc for doubles a >= 0.4."""
    a = at_most(a, 28.0)
    scaled = horner((a - 4.0) / (a + 4.0), _ERFC) / (a * 2.0 + 1.0)
    square = a * a
    lost = a.fma(a, -square)
    value = exp(-square) * scaled
    return value - value * lost


def erfc(x: Number) -> Number:
    a = x.abs()
    small = 1.0 - x.fma(horner(x * x, _ERF_DOUBLE), x)
    tail = _erfc_tail(at_least(a, 0.45))
    return where(a < 0.45, small, where(x < 0.0, 2.0 - tail, tail))


def erfinv(y: Number) -> Number:
    """A fit to six digits and one step of Halley's method on the smaller tail."""
    a = y.abs()
    complement = 1.0 - a
    w = -log(complement * (a + 1.0))
    x = where(w < 5.0, horner(w - 2.5, _ERFINV_LOW), horner(at_least(w, 5.0).sqrt() - 3.0, _ERFINV_HIGH)) * a
    residual = where(a < 0.5, erf(x) - a, complement - erfc(x))
    step = residual / (exp(-(x * x)) * (2.0 / math.sqrt(math.pi)))
    x = x - step / (x.fma(step, 1.0))
    x = where(a.equals(1.0), math.inf, where(a > 1.0, math.nan, x))
    return x.with_sign_of(y)


def _lgamma_positive(x: Number) -> Number:
    """lgamma for doubles x > 0: a polynomial about 2 reached by recurrence, Stirling's series from 10 on."""
    low = x < 1.5
    tiny = x < 0.5
    y = where(low, 2.0, at_most(x, 10.0))
    product = y.full(1.0)
    for _ in range(8):
        above = y >= 2.5
        y = where(above, y - 1.0, y)
        product = where(above, product * y, product)
    z = where(tiny, x, where(low, x - 1.0, y - 2.0))
    series = z * horner(z, _LGAMMA)
    below = where(tiny, x * (x + 1.0), x)
    near = series + where(low, -log(below), log(product))
    big = at_least(x, 10.0)
    inverse = 1.0 / big
    tail = inverse * horner(inverse * inverse, _STIRLING)
    stirling = (big - 0.5) * (log(big) - 1.0) + (0.5 * math.log(2 * math.pi) - 0.5) + tail
    return where(x < 10.0, near, stirling)


def lgamma(x: Number) -> Number:
    a = x.abs()
    positive = _lgamma_positive(a)
    s, _ = sin_pi(x)
    reflected = log(math.pi / (x * s).abs()) - positive
    result = where(x > 0.0, positive, where(a < 1e-20, -log(a), reflected))
    pole = a.equals(math.inf) | ((x <= 0.0) & x.floor().equals(x))
    return where(x.is_nan(), x, where(pole, math.inf, result))


def digamma(x: Number) -> Number:
    """Below 10 by recurrence to [1, 2), above by the asymptotic series, negative numbers by reflection."""
    reflect = x < 0.0
    y = where(reflect, 1.0 - x, x)
    tiny = y < 1.0
    t = where(tiny, y + 1.0, at_most(y, 10.0))
    total = where(tiny, -1.0 / y, 0.0)
    for _ in range(8):
        above = t >= 2.0
        t = where(above, t - 1.0, t)
        total = where(above, total + 1.0 / t, total)
    near = total + (t - _DIGAMMA_ROOT[0] - _DIGAMMA_ROOT[1]) * horner(t - 1.5, _DIGAMMA)
    inverse = 1.0 / at_least(y, 10.0)
    z = inverse * inverse
    far = log(at_least(y, 10.0)) - inverse * 0.5 - z * horner(z, _DIGAMMA_SERIES)
    value = where(y < 10.0, near, far)
    s, c = sin_pi(x)
    value = where(reflect, value - math.pi * c / s, value)
    value = where(reflect & x.floor().equals(x), math.nan, value)
    value = where(x.equals(0.0), -(x.full(math.inf).with_sign_of(x)), value)
    return where(x.equals(math.inf), math.inf, value)

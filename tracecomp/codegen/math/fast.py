"""Cheaper functions for ``fast_math``: floats only, larger errors.

``x * p(x**2) / q(x**2)``; coefficients are fits of least relative error made for this file (Lawson's weights).
"""

from __future__ import annotations

from tracecomp.codegen.math.numbers import Number, at_least, at_most, horner

# tanh(x)/x on |x| <= 9.01: 2**-25.5
_TANH_TOP = (0.9999999792927494, 0.13380378500765336, 0.0034948181804433853, 2.0596351077820817e-05,
             1.3336885913295784e-08)  # fmt: skip
_TANH_BOTTOM = (1.0, 0.4671369395760142, 0.025874056631424072, 0.00032843731114199937, 7.769312775946976e-07)
# erf(x)/x on |x| <= 3.92: 2**-25.7
_ERF_TOP = (1.128379146226916, 0.19040171282266347, 0.05274796978031764, 0.0037653772041510223, 0.00028487120187036186,
            2.0500438185341747e-06)  # fmt: skip
_ERF_BOTTOM = (1.0, 0.5020718674488681, 0.11410703259479722, 0.014968743943975144, 0.0011624658145321142,
               3.8090662406118045e-05)  # fmt: skip


def tanh(x: Number) -> Number:
    return _odd_quotient(x, 9.02, _TANH_TOP, _TANH_BOTTOM)


def erf(x: Number) -> Number:
    return _odd_quotient(x, 3.92, _ERF_TOP, _ERF_BOTTOM)


def _odd_quotient(x: Number, limit: float, top: tuple[float, ...], bottom: tuple[float, ...]) -> Number:
    """The quotient of an odd and an even polynomial, which reaches 1 at ``limit``."""
    # Beyond the limit the quotient of the fits would leave [-1, 1] again.
    x = at_least(at_most(x, limit), -limit)
    z = x * x
    return at_least(at_most(x * horner(z, top) / horner(z, bottom), 1.0), -1.0)

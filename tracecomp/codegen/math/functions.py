"""The functions of ``ir.scalars``: their error bounds, and their code, inline or as a function of the module.

No function calls the system's math library, so results are the same on every machine with fused multiply-add.
"""

from __future__ import annotations

from collections.abc import Callable

from tracecomp.base.errors import CompileError
from tracecomp.codegen.math import exponential, fast, power, special, trigonometric
from tracecomp.codegen.math import remainder as remainders
from tracecomp.codegen.math.numbers import Number, call_function, where
from tracecomp.codegen.text.emitter import INT_BITS, Emitter, Value
from tracecomp.ir.types import DType

ULP: dict[str, tuple[float, float]] = {
    "exp": (1.01, 1.0), "exp2": (1.01, 1.0), "expm1": (2.0, 2.0), "log": (1.0, 1.0), "log2": (2.0, 2.0),
    "log10": (2.0, 2.0), "log1p": (2.0, 2.0), "sigmoid": (2.5, 2.5), "tanh": (3.0, 3.0), "erf": (1.75, 2.0),
    "pow": (0.51, 1.5), "sin": (1.6, 2.0), "cos": (1.6, 2.0), "tan": (0.51, 3.0), "asin": (0.51, 2.5),
    "acos": (0.51, 2.5), "atan": (0.51, 2.0), "atan2": (0.51, 2.5), "sinh": (0.51, 3.0), "cosh": (0.51, 2.0),
    "asinh": (0.51, 4.0), "acosh": (0.51, 4.0), "atanh": (0.51, 4.0), "erfc": (0.51, 4.0), "erfinv": (0.51, 4.0),
    "lgamma": (0.51, 4.0), "digamma": (0.51, 4.0), "hypot": (0.51, 1.5), "fmod": (0.0, 0.0), "mod": (0.51, 0.5),
    "floordiv": (0.51, 0.5), "nextafter": (0.0, 0.0),
}  # fmt: skip
"""Largest error in units in the last place, (float32, float64). For negative arguments of lgamma the unit is that of
max(|result|, 1), and for digamma that of max(|result|, |digamma(1 - x)|, 1)."""

FAST_ULP = {"tanh": 5.0, "erf": 5.0}
"""Largest errors of floats under ``fast_math``, where they differ."""

_IN_LINE: dict[str, Callable[..., Number]] = {
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "log": exponential.log,
    "sigmoid": exponential.sigmoid,
    "tanh": exponential.tanh,
    "erf": special.erf,
    "nextafter": remainders.nextafter,
}
"""Functions short enough to be inlined, for floats and doubles."""

_OF_BOTH: dict[str, Callable[..., Number]] = {
    "log2": exponential.log2,
    "log10": exponential.log10,
    "log1p": exponential.log1p,
    "pow": power.power,
    "sinh": exponential.sinh,
    "atanh": exponential.atanh,
    "sin": trigonometric.sin,
    "cos": trigonometric.cos,
    "atan2": trigonometric.atan2,
    "erfc": special.erfc,
    "erfinv": special.erfinv,
    "fmod": remainders.fmod,
    "mod": remainders.remainder,
    "floordiv": remainders.floor_divide,
}
"""Functions of the module, for floats and doubles."""

_OF_DOUBLES: dict[str, Callable[..., Number]] = {
    "cosh": exponential.cosh, "asinh": exponential.asinh, "acosh": exponential.acosh, "tan": trigonometric.tan,
    "asin": trigonometric.asin, "acos": trigonometric.acos, "atan": trigonometric.atan, "lgamma": special.lgamma,
    "digamma": special.digamma, "hypot": remainders.hypot,
}  # fmt: skip
"""Functions of the module that compute in double; for floats the result is rounded."""


_FAST: dict[str, Callable[..., Number]] = {"tanh": fast.tanh, "erf": fast.erf}
"""Their replacements for floats under ``fast_math``."""


def emit(e: Emitter, op: str, args: list[Value]) -> Value:
    """The function ``op`` of floats or doubles."""
    in_line = _IN_LINE.get(op)
    if e.module.fast_math and args[0].elem == "float":
        in_line = _FAST.get(op, in_line)
    if in_line is not None:
        return in_line(*[Number(e, a) for a in e.matched(*args)]).v
    build = _OF_BOTH.get(op) or _rounded(_OF_DOUBLES.get(op), op)
    return call_function(e, op, build, args)


def _rounded(build: Callable[..., Number] | None, op: str) -> Callable[..., Number]:
    if build is None:
        raise CompileError(f"scalar operation {op} has no emitter")
    of_doubles = build

    def run(*args: Number) -> Number:
        if args[0].is_double:
            return of_doubles(*args)
        return of_doubles(*[a.convert("fpext", "double") for a in args]).convert("fptrunc", "float")

    return run


def nextafter_half(e: Emitter, a: Value, b: Value, dtype: DType) -> Value:
    """nextafter for half types: neighbours in their own bits, compared as floats."""
    from_bits = dtype.name == "bfloat16"
    a, b = e.matched(a, b)
    x, y = (Number(e, v if from_bits else e.convert("bitcast", v, "i16")) for v in (a, b))
    # Sign and magnitude as one ordered number, so that neighbours differ by one.
    key_x, key_y = (where(n < 0, -(n & 0x7FFF), n) for n in (x, y))
    infinity = 0x7F80 if from_bits else 0x7C00
    # Away from zero or towards it, by the sign.
    step = where((key_x < key_y) ^ (x < 0), x.full(1), x.full(-1))
    # From either zero the neighbour is the smallest number with the other's sign.
    moved = where(key_x.equals(0), (y & -0x8000) | 1, x + step)
    result = where(key_x.equals(key_y), y, moved)
    nan = ((x & 0x7FFF) > infinity) | ((y & 0x7FFF) > infinity)
    result = where(nan, x.full(infinity | 0x40 if from_bits else infinity | 0x200), result)
    return result.v if from_bits else e.convert("bitcast", result.v, "half")


def integer_power(e: Emitter, a: Value, n: Value, signed: bool) -> Value:
    bits = INT_BITS[a.elem]
    # Known powers are expanded: programs mostly use squares and cubes.
    if n.const is not None and n.const >= 0:
        return remainders.known_power(Number(e, a), int(n.const)).v
    name = f"power.{'s' if signed else 'u'}"
    return call_function(e, name, lambda x, k: remainders.integer_power(x, k, bits, signed), [a, n])

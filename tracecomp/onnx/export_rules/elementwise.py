"""Elementwise primitives. Functions that ONNX lacks are formulas, accurate to some units in the last place unless
noted."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tracecomp.ir import error_functions as erf_tables
from tracecomp.ir.graph import Node, Value
from tracecomp.onnx.export_rules.emitter import Emitter, number_of, rule
from tracecomp.onnx.export_rules.formula import Term


def _formula(*primitives: str) -> Callable[[Callable[..., Term]], None]:
    """Make a function of values the rule of these primitives."""

    def put(fn: Callable[..., Term]) -> None:
        @rule(*primitives)
        def write(e: Emitter, node: Node, *xs: str) -> str:
            terms = [Term(e, x, v.dtype.numpy) for x, v in zip(xs, node.inputs, strict=True)]
            return fn(*terms).name

    return put


_SAME = {
    "abs": "Abs", "exp": "Exp", "log": "Log", "sin": "Sin", "cos": "Cos", "tan": "Tan",
    "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh", "asinh": "Asinh",
    "acosh": "Acosh", "atanh": "Atanh", "erf": "Erf", "sqrt": "Sqrt", "sigmoid": "Sigmoid",
    "isnan": "IsNaN", "sub": "Sub", "eq": "Equal",
    "where": "Where",
}  # fmt: skip


def _same(primitive: str, op: str) -> None:
    @rule(primitive)
    def write(e: Emitter, node: Node, *xs: str) -> str:
        return e.node(op, xs)


for _primitive, _op in _SAME.items():
    _same(_primitive, _op)


def _compared(primitive: str, op: str) -> None:
    """Bools are numbers when they are compared."""

    @_formula(primitive)
    def write(a: Term, b: Term) -> Term:
        a, b = (v.cast(np.int32) if v.dtype == np.bool_ else v for v in (a, b))
        return a.of(op, b, dtype=np.bool_)


for _primitive, _op in {"lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}.items():
    _compared(_primitive, _op)


def _of_bools(primitive: str, of_bools: str, of_numbers: str) -> None:
    @rule(primitive)
    def write(e: Emitter, node: Node, *xs: str) -> str:
        return e.node(of_bools if node.inputs[0].dtype.kind == "bool" else of_numbers, xs)


for _names in (
    ("add", "Or", "Add"), ("mul", "And", "Mul"), ("bitwise_and", "And", "BitwiseAnd"),
    ("bitwise_or", "Or", "BitwiseOr"), ("bitwise_xor", "Xor", "BitwiseXor"),
    ("bitwise_not", "Not", "BitwiseNot"),
):  # fmt: skip
    _of_bools(*_names)


def _rounding(primitive: str, op: str) -> None:
    """Whole numbers stay as they are."""

    @rule(primitive)
    def write(e: Emitter, node: Node, x: str) -> str:
        return e.node(op if node.inputs[0].dtype.kind == "float" else "Identity", [x])


for _primitive, _op in {"floor": "Floor", "ceil": "Ceil", "round": "Round"}.items():
    _rounding(_primitive, _op)


def term(e: Emitter, name: str, value: Value) -> Term:
    """A written value to compute with."""
    return Term(e, name, value.dtype.numpy)


_formula("neg")(lambda x: x.number(0) - x if x.dtype.kind == "u" else -x)
_formula("relu")(lambda x: x if x.dtype.kind == "u" else x.of("Relu"))
_formula("sign")(lambda x: x.is_nan().where(0.0, x.of("Sign")) if x.dtype.kind == "f" else x.of("Sign"))
_formula("rsqrt")(lambda x: x.of("Sqrt").of("Reciprocal"))
_formula("log2")(lambda x: x.of("Log") / math.log(2))
_formula("log10")(lambda x: x.of("Log") / math.log(10))
_formula("ne")(lambda a, b: a.equals(b).of("Not"))
_formula("logical_not")(lambda x: x.cast(np.bool_).of("Not"))
_formula("copysign")(lambda a, b: a.with_sign_of(b))


@_formula("pow")
def _pow(a: Term, b: Term) -> Term:
    """ONNX has the wider integers only."""
    if a.dtype.kind in "iu" and a.dtype.itemsize < 4:
        return a.cast(np.int64).of("Pow", b.cast(np.int64)).cast(a.dtype)
    return a.of("Pow", b)


@_formula("exp2")
def _exp2(x: Term) -> Term:
    return x.number(2.0).of("Pow", x)


@_formula("expm1")
def _expm1(x: Term) -> Term:
    """Kahan's way: the error of exp is that of its logarithm."""
    y = x.of("Exp")
    below = y - 1.0
    exact = below * x / y.of("Log")
    plain = (y.equals(1.0)).where(x, (abs(x) < 1.0).where(exact, below))
    return plain


@_formula("log1p")
def _log1p(x: Term) -> Term:
    """Kahan's way: the error of 1 + x is that of its distance from 1."""
    y = x + 1.0
    near = y.of("Log") * (x / (y - 1.0))
    return y.equals(1.0).where(x, (abs(x) < 1.0).where(near, y.of("Log")))


@_formula("erfc")
def _erfc(x: Term) -> Term:
    """Far above 0, where little is left of 1 - erf(x), its absolute error is that of erf."""
    return 1.0 - x.of("Erf")


@_formula("erfinv")
def _erfinv(y: Term) -> Term:
    """By the quantile function of normal numbers, in float64 (Wichura's rational approximations)."""
    y, dtype = y.cast(np.float64), y.dtype
    t = erf_tables
    z = 0.180625 - y * y * 0.25
    middle = y * 0.5 * (z.polynomial(t.MIDDLE_P) / z.polynomial(t.MIDDLE_Q))
    root = (-((1.0 - abs(y)) * 0.5).of("Log")).of("Sqrt")
    near, beyond = root - 1.6, root - 5.0
    side = near.polynomial(t.SIDE_P) / near.polynomial(t.SIDE_Q)
    far = beyond.polynomial(t.FAR_P) / beyond.polynomial(t.FAR_Q)
    tail = (root > 5.0).where(far, side).with_sign_of(y)
    inside = (abs(y) > 0.85).where(tail, middle) / math.sqrt(2.0)
    return abs(y).equals(1.0).where(y * math.inf, inside).cast(dtype)


@_formula("trunc")
def _trunc(x: Term) -> Term:
    if x.dtype.kind in "iub":
        return x
    return x.is_negative().where(x.of("Ceil"), x.of("Floor"))


@_formula("div")
def _div(a: Term, b: Term) -> Term:
    return a / b


@_formula("atan2")
def _atan2(y: Term, x: Term) -> Term:
    """The angle in the first octant, reflected to the point's octant."""
    high, wide = abs(y), abs(x)
    steep = high > wide
    less, more = steep.where(wide, high), steep.where(high, wide)
    ratio = more.equals(0.0).where(0.0, (less.equals(math.inf)).where(1.0, less / more))
    angle = ratio.of("Atan")
    angle = steep.where(math.pi / 2 - angle, angle)
    angle = x.is_negative().where(math.pi - angle, angle).with_sign_of(y)
    return (y.is_nan() | x.is_nan()).where(math.nan, angle)


@_formula("hypot")
def _hypot(a: Term, b: Term) -> Term:
    a, b = abs(a), abs(b)
    larger = a > b
    more, less = larger.where(a, b), larger.where(b, a)
    ratio = less / more
    found = more * (ratio * ratio + 1.0).of("Sqrt")
    found = more.equals(0.0).where(0.0, found)
    found = (a.is_nan() | b.is_nan()).where(math.nan, found)
    return (a.equals(math.inf) | b.equals(math.inf)).where(math.inf, found)


def _propagating(primitive: str, op: str) -> None:
    """ONNX does not say what becomes of NaN: a sum with both operands has it where either is."""

    @rule(primitive)
    def write(e: Emitter, node: Node, a: str, b: str) -> str:
        kind = node.inputs[0].dtype.kind
        if kind == "bool":
            return e.node("Or" if op == "Max" else "And", [a, b])
        x, y = term(e, a, node.inputs[0]), term(e, b, node.inputs[1])
        found = x.of(op, y)
        return found.name if kind != "float" else (x.is_nan() | y.is_nan()).where(x + y, found).name


_propagating("maximum", "Max")
_propagating("minimum", "Min")


@_formula("remainder")
def _remainder(a: Term, b: Term) -> Term:
    if a.dtype.kind != "f":
        return a.of("Mod", b)
    rest = a.of("Mod", b, fmod=1)
    other = rest.equals(0.0).of("Not") & (rest < 0.0).of("Xor", b < 0.0, dtype=np.bool_)
    return other.where(rest + b, rest)


_formula("fmod")(lambda a, b: a.of("Mod", b, fmod=1))


@_formula("floor_divide")
def _floor_divide(a: Term, b: Term) -> Term:
    """Floats as Python does: what the remainder leaves over is divided."""
    if a.dtype.kind != "f":
        return (a - a.of("Mod", b)) / b
    rest = a.of("Mod", b, fmod=1)
    other = rest.equals(0.0).of("Not") & (rest < 0.0).of("Xor", b < 0.0, dtype=np.bool_)
    exact = (a - rest) / b
    exact = other.where(exact - 1.0, exact)
    whole = exact.of("Floor")
    whole = (exact - whole > 0.5).where(whole + 1.0, whole)
    whole = exact.equals(0.0).where(exact.number(0.0).with_sign_of(a / b), whole)
    return b.equals(0.0).where(a / b, whole)


def _shift(primitive: str, direction: str) -> None:
    """ONNX shifts numbers without sign, by less than their width."""

    @_formula(primitive)
    def write(a: Term, b: Term) -> Term:
        width, unsigned = a.dtype.itemsize * 8, np.dtype(f"u{a.dtype.itemsize}")
        count = b.cast(np.int64)
        outside: Term = (count < 0) | (count >= width)

        def shifted(value: Term) -> Term:
            found = value.cast(unsigned).of("BitShift", b.cast(unsigned), direction=direction)
            return outside.where(0.0, found.cast(a.dtype))

        if direction == "LEFT" or a.dtype.kind == "u":
            return shifted(a)
        return (a < 0).where(shifted(a.of("BitwiseNot")).of("BitwiseNot"), shifted(a))


_shift("shift_left", "LEFT")
_shift("shift_right", "RIGHT")


@rule("cast")
def cast(e: Emitter, node: Node, x: str) -> str:
    return e.node("Cast", [x], to=number_of(node.outputs[0].dtype))

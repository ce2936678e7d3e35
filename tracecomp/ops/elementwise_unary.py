"""Elementwise operators of one operand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tracecomp.ir import loops, scalars
from tracecomp.ir.arrays import Array
from tracecomp.ir.loops import Expr
from tracecomp.ir.op import ComplexOperand, Op, Operand, Operands, Pair, Pointwise, Sample, register
from tracecomp.ir.special import converted
from tracecomp.ir.types import DType, TensorType, bool_, compute_dtype, dtype_named, float8_e4m3fn, from_numpy_dtype
from tracecomp.ops.autodiff import zeros_like
from tracecomp.ops.define import elementwise, of
from tracecomp.ops.parts import each
from tracecomp.ops.prim import prim


def _zero(grads: Operands, outs: Operands, ins: Operands) -> Any:
    """Piecewise constant: the derivative is zero, as in PyTorch, and not undefined."""
    return (prim.full(like=grads[0], value=0.0, shape=tuple(grads[0].shape), dtype=grads[0].dtype),)


Rule = Callable[[Operand], Operand]


def _of_input(derivative: Rule) -> dict[str, Any]:
    """``vjp`` and ``saves`` of a rule ``g * derivative(x)``."""
    return {"vjp": lambda g, o, i: (prim.mul(g[0], derivative(i[0])),), "saves": (0,)}


def _of_output(derivative: Rule) -> dict[str, Any]:
    """``vjp`` and ``saves`` of a rule ``g * derivative(y)``."""
    return {"vjp": lambda g, o, i: (prim.mul(g[0], derivative(o[0])),), "saves": ("outs",)}


def _divided_by(denominator: Rule) -> dict[str, Any]:
    """``vjp`` and ``saves`` of a rule ``g / denominator(x)``."""
    return {"vjp": lambda g, o, i: (prim.div(g[0], denominator(i[0])),), "saves": (0,)}


def _one_minus(x: Operand) -> Any:
    return prim.sub(1.0, x)


def _square(x: Operand) -> Any:
    return prim.mul(x, x)


def trigamma(x: Operand) -> Any:
    """The derivative of digamma: recurrence up to 8, then the asymptotic series (Abramowitz and Stegun 6.4.12)."""
    low = prim.lt(x, 0.5)
    y = prim.where(low, prim.sub(1.0, x), x)
    total = prim.div(1.0, _square(y))
    for _ in range(7):
        y = prim.add(y, 1.0)
        total = prim.add(total, prim.div(1.0, _square(y)))
    y = prim.add(y, 1.0)
    z = prim.div(1.0, _square(y))
    series = prim.mul(z, 7 / 6)
    for c in (-691 / 2730, 5 / 66, -1 / 30, 1 / 42, -1 / 30, 1 / 6):
        series = prim.mul(prim.add(series, c), z)
    tail = prim.add(prim.div(prim.add(series, 1.0), y), prim.mul(z, 0.5))
    total = prim.add(total, tail)
    turn = prim.where(low, prim.sub(x, prim.round(x)), 0.5)
    reflected = prim.div(math.pi**2, _square(prim.sin(prim.mul(turn, math.pi))))
    return prim.where(low, prim.sub(reflected, total), total)


elementwise("neg", "-x", "neg", dtypes="ring", vjp=lambda g, o, i: (prim.neg(g[0]),), parts=each("neg"),
            traits=("involution",))  # fmt: skip
elementwise("abs", "|x|; derivative 0 at 0", "abs", dtypes="number", **_of_input(lambda x: prim.sign(x)),
            traits=("idempotent",))  # fmt: skip
elementwise("sign", "-1, 0 or 1; 0 for NaN", "sign", dtypes="number", vjp=_zero, traits=("idempotent",))


def _relu(x: Expr) -> Expr:
    zero = scalars.const(0, x.dtype)
    return scalars.call("select", scalars.call("lt", x, zero), zero, x)


elementwise("relu", "0 where x < 0, else x: zeros keep their sign; its derivative reads the result", _relu,
            dtypes="number", impl=lambda x: np.where(x < 0, x.dtype.type(0), x),
            vjp=lambda g, o, i: (prim.where(prim.le(o[0], 0), 0, g[0]),), saves=("outs",),
            traits=("idempotent", "increasing"))  # fmt: skip

elementwise("exp", "e**x", "exp", **_of_output(lambda y: y), traits=("increasing", "costly"), ulp=2)
elementwise("exp2", "2**x", "exp2", **_of_output(lambda y: prim.mul(y, math.log(2))), traits=("increasing", "costly"),
            ulp=2)  # fmt: skip
elementwise("expm1", "e**x - 1, accurate near 0", "expm1", **_of_output(lambda y: prim.add(y, 1.0)),
            traits=("increasing", "costly"), ulp=2)  # fmt: skip
elementwise("log", "natural logarithm", "log", **_divided_by(lambda x: x), traits=("increasing", "costly"), ulp=2,
            domain="positive")  # fmt: skip
elementwise("log2", "logarithm to base 2", "log2", **_divided_by(lambda x: prim.mul(x, math.log(2))),
            traits=("increasing", "costly"), ulp=2, domain="positive")  # fmt: skip
elementwise("log10", "logarithm to base 10", "log10", **_divided_by(lambda x: prim.mul(x, math.log(10))),
            traits=("increasing", "costly"), ulp=2, domain="positive")  # fmt: skip
elementwise("log1p", "log(1 + x), accurate near 0", "log1p", **_divided_by(lambda x: prim.add(x, 1.0)),
            traits=("increasing", "costly"), ulp=2, domain="positive")  # fmt: skip

elementwise("sin", "sine", "sin", **_of_input(lambda x: prim.cos(x)), traits=("costly",), ulp=4)
elementwise("cos", "cosine", "cos", **_of_input(lambda x: prim.neg(prim.sin(x))), traits=("costly",), ulp=4)
elementwise("tan", "tangent", "tan", **_of_output(lambda y: prim.add(_square(y), 1.0)), traits=("costly",), ulp=4)
elementwise("asin", "inverse sine", "asin", **_divided_by(lambda x: prim.sqrt(_one_minus(_square(x)))),
            traits=("increasing", "costly"), ulp=4, domain="unit")  # fmt: skip
elementwise("acos", "inverse cosine", "acos", **_divided_by(lambda x: prim.neg(prim.sqrt(_one_minus(_square(x))))),
            traits=("costly",), ulp=4, domain="unit")  # fmt: skip
elementwise("atan", "inverse tangent", "atan", **_divided_by(lambda x: prim.add(_square(x), 1.0)),
            traits=("increasing", "costly"), ulp=4)  # fmt: skip
elementwise("sinh", "hyperbolic sine", "sinh", **_of_input(lambda x: prim.cosh(x)), traits=("increasing", "costly"),
            ulp=4)  # fmt: skip
elementwise("cosh", "hyperbolic cosine", "cosh", **_of_input(lambda x: prim.sinh(x)), traits=("costly",), ulp=4)
elementwise("tanh", "hyperbolic tangent", "tanh", **_of_output(lambda y: _one_minus(_square(y))),
            traits=("increasing", "costly"), ulp=4)  # fmt: skip
elementwise("asinh", "inverse hyperbolic sine", "asinh",
            **_divided_by(lambda x: prim.sqrt(prim.add(_square(x), 1.0))),
            traits=("increasing", "costly"), ulp=4)  # fmt: skip
elementwise("acosh", "inverse hyperbolic cosine", "acosh",
            **_divided_by(lambda x: prim.sqrt(prim.sub(_square(x), 1.0))),
            traits=("increasing", "costly"), ulp=4, domain="above_one")  # fmt: skip
elementwise("atanh", "inverse hyperbolic tangent", "atanh", **_divided_by(lambda x: _one_minus(_square(x))),
            traits=("increasing", "costly"), ulp=4, domain="unit")  # fmt: skip

_TWO_OVER_ROOT_PI = 2.0 / math.sqrt(math.pi)
elementwise("erf", "error function", "erf",
            **_of_input(lambda x: prim.mul(prim.exp(prim.neg(_square(x))), _TWO_OVER_ROOT_PI)),
            traits=("increasing", "costly"), ulp=4)  # fmt: skip
elementwise("erfc", "1 - erf(x), accurate for large x", "erfc",
            **_of_input(lambda x: prim.mul(prim.exp(prim.neg(_square(x))), -_TWO_OVER_ROOT_PI)),
            traits=("costly",), ulp=8)  # fmt: skip
elementwise("erfinv", "inverse error function", "erfinv",
            **_of_output(lambda y: prim.mul(prim.exp(_square(y)), 1.0 / _TWO_OVER_ROOT_PI)),
            traits=("increasing", "costly"), ulp=8, domain="unit")  # fmt: skip
elementwise("lgamma", "logarithm of |gamma(x)|", "lgamma", **_of_input(lambda x: prim.digamma(x)),
            traits=("costly",), ulp=8, domain="positive")  # fmt: skip
elementwise("digamma", "derivative of lgamma", "digamma", **_of_input(trigamma), traits=("costly",), ulp=64,
            domain="positive")  # fmt: skip

elementwise("sqrt", "square root; its derivative at 0 is inf", "sqrt",
            vjp=lambda g, o, i: (prim.div(g[0], prim.mul(o[0], 2.0)),), saves=("outs",),
            traits=("increasing",), domain="positive")  # fmt: skip


def _rsqrt(x: Expr) -> Expr:
    return scalars.call("div", scalars.const(1.0, x.dtype), scalars.call("sqrt", x))


def _rsqrt_impl(x: Array) -> Any:
    wide = x.astype(compute_dtype(from_numpy_dtype(x.dtype)).numpy, copy=False)
    with np.errstate(all="ignore"):
        return (1.0 / np.sqrt(wide)).astype(x.dtype, copy=False)


elementwise("rsqrt", "1 / sqrt(x)", _rsqrt, impl=_rsqrt_impl,
            **_of_output(lambda y: prim.mul(prim.mul(_square(y), y), -0.5)), domain="positive")  # fmt: skip
elementwise("sigmoid", "1 / (1 + exp(-x))", "sigmoid", **_of_output(lambda y: prim.mul(y, _one_minus(y))),
            traits=("increasing", "costly"), ulp=4)  # fmt: skip

for _name, _doc in (
    ("floor", "largest integer not above"),
    ("ceil", "smallest integer not below"),
    ("trunc", "integer part, towards zero"),
    ("round", "nearest integer, halves to even"),
):
    elementwise(_name, _doc, _name, vjp=_zero, traits=("idempotent", "increasing"))


def _logical_not(x: Expr) -> Expr:
    if x.dtype is bool_:
        return scalars.call("not", x)
    return scalars.call("eq", x, scalars.const(0, x.dtype))


elementwise("logical_not", "true where x is zero", _logical_not, dtypes="any", result=bool_, impl=np.logical_not)
elementwise("bitwise_not", "bits inverted; logical for bool", "not", dtypes="bits", traits=("involution",))
elementwise("isnan", "true where x is not a number", "isnan", result=bool_)


def _cast_infer(x: TensorType, *, dtype: DType) -> TensorType:
    return TensorType(dtype, x.shape)


def _cast_impl(x: Array, *, dtype: DType) -> Any:
    array = np.asarray(x)
    if array.dtype.kind == "c" and dtype.kind in ("int", "float"):
        array = array.real
    if dtype is float8_e4m3fn:  # no infinities: larger numbers become the largest
        array = np.clip(array, -448, 448)
    return converted(array, dtype.numpy, "K" if _is_dense(array) else "C")


def _is_dense(array: Array) -> bool:
    """Whether the elements are dense in some order of the axes, which copies keep."""
    size = array.itemsize
    for step, extent in sorted(zip(array.strides, array.shape, strict=True)):
        if extent != 1 and step != size:
            return False
        size *= extent
    return True


def _cast_parts(x: ComplexOperand, *, dtype: DType) -> Any:
    if not dtype.is_complex:
        assert isinstance(x, Pair)  # a real to real operator has no parts
        nonzero = dtype is bool_
        return prim.bitwise_or(prim.ne(x.re, 0.0), prim.ne(x.im, 0.0)) if nonzero else prim.cast(x.re, dtype=dtype)
    part = dtype.to_real()
    if isinstance(x, Pair):
        return Pair(prim.cast(x.re, dtype=part), prim.cast(x.im, dtype=part))
    re = prim.cast(x, dtype=part)
    return Pair(re, zeros_like(re))


def _cast_vjp(grads: Operands, outs: Operands, ins: Operands, *, dtype: DType) -> Any:
    source = ins[0].dtype
    if not source.differentiable or not dtype.differentiable:
        return (None,)
    return (prim.cast(grads[0], dtype=source),)


_FROM_TO = [
    (a, b)
    for a in ("f32", "f64", "f16", "i64", "i32", "u8", "b1")
    for b in ("f32", "f64", "f16", "i64", "i16", "b1")
    if a != b
] + [
    *((a, b) for a in ("c64", "c128") for b in ("c64", "c128", "f32", "f64", "f16", "i64", "b1") if a != b),
    *((a, b) for a in ("f32", "f64", "f16", "i64", "b1") for b in ("c64", "c128")),
]  # fmt: skip

register(
    Op(
        name="cast", kind="elementwise", 
        doc="x converted to ``dtype``; floats to integers truncate, complex to real numbers drop the imaginary part",
        infer=_cast_infer, impl=_cast_impl, vjp=_cast_vjp, saves=(),
        loop=Pointwise(lambda x, *, dtype: loops.cast(x, dtype)), parts=_cast_parts, attrs={"dtype": DType},
        samples=tuple(
            Sample((of(a, *shape),), {"dtype": dtype_named(b)}) for a, b in _FROM_TO for shape in ((2, 3), (), (0, 2))
        ),
    )
)  # fmt: skip

"""Elementwise operators of two operands, and ``where``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracecomp.base.errors import at_user_line
from tracecomp.ir import scalars, special
from tracecomp.ir.arrays import Array
from tracecomp.ir.loops import Expr
from tracecomp.ir.op import Impl, Op, Operand, Operands, Pair, Pointwise, Sample, Vjp, register
from tracecomp.ir.types import TensorType, bool_
from tracecomp.ops.define import bad, broadcast, check_dtype, elementwise, is_tensor, of, require
from tracecomp.ops.parts import conj, each, on_arrays, product, quotient
from tracecomp.ops.prim import prim


def _logical(scalar: str, on_bool: str) -> Any:
    """The scalar operation, or its meaning on bool (``add`` is ``or``)."""

    def fn(a: Expr, b: Expr) -> Expr:
        return scalars.call(on_bool if a.dtype is bool_ else scalar, a, b)

    return fn


_Side = Callable[[Operand, Any, Any, Operand], Operand]
"""A rule of ``(g, a, b, out)``; ``a`` or ``b`` may be a Python number."""


def _both(first: _Side, second: _Side) -> Vjp:
    """``vjp`` from two rules of ``(g, a, b, out)``; a Python scalar gets no gradient."""

    def vjp(grads: Operands, outs: Operands, ins: Operands) -> Any:
        a, b = ins
        g = grads[0]
        return (
            first(g, a, b, outs[0]) if is_tensor(a) else None,
            second(g, a, b, outs[0]) if is_tensor(b) else None,
        )

    return vjp


def _by_rule(impl: Impl, parts: Callable[[Pair, Pair], Pair]) -> Impl:
    """Run ``impl``, and for complex numbers the rule ``parts``, so that bits are those of machine code.

    numpy's products may round two terms at once, and its quotients multiply by a rounded reciprocal.
    """

    def run(a: Array, b: Array) -> Any:
        return on_arrays(parts, a, b) if np.result_type(a, b).kind == "c" else impl(a, b)

    return run


_multiplied = product(lambda a, b: prim.mul(a, b))


elementwise("add", "a + b; bools: or", _logical("add", "or"), impl=np.add, arity=2, dtypes="every",
            vjp=_both(lambda g, a, b, o: g, lambda g, a, b, o: g), parts=each("add"),
            traits=("commutative", "associative", "identity:-0.0"))  # fmt: skip
elementwise("sub", "a - b", "sub", arity=2, dtypes="ring", parts=each("sub"),
            vjp=_both(lambda g, a, b, o: g, lambda g, a, b, o: prim.neg(g)),
            traits=("right_identity:0.0",))  # fmt: skip
elementwise("mul", "a * b; bools: and", _logical("mul", "and"), impl=_by_rule(np.multiply, _multiplied), arity=2,
            dtypes="every",
            vjp=_both(lambda g, a, b, o: prim.mul(g, conj(b)), lambda g, a, b, o: prim.mul(g, conj(a))), saves=("ins",),
            parts=_multiplied,
            traits=("commutative", "associative", "identity:1"))  # fmt: skip
elementwise("div", "a / b", "div", arity=2, dtypes="field", impl=_by_rule(np.divide, quotient), parts=quotient,
            domain=("any", "nonzero"), saves=("ins",),
            vjp=_both(lambda g, a, b, o: prim.div(g, conj(b)),
                      lambda g, a, b, o: prim.mul(prim.neg(g), conj(prim.div(prim.div(a, b), b)))),
            traits=("right_identity:1",))  # fmt: skip


def _integer_by_zero(fn: Impl) -> Impl:
    """Integers divided by zero are an error, as in PyTorch."""

    def impl(a: Array, b: Array) -> Any:
        if np.result_type(a, b).kind in "iu" and not np.all(b):
            raise RuntimeError(at_user_line("ZeroDivisionError"))
        return fn(a, b)

    return impl


elementwise("floor_divide", "a / b rounded down; integers by zero: RuntimeError", "floordiv", arity=2, dtypes="number",
            impl=_integer_by_zero(special.floor_divide), domain=("any", "nonzero"))  # fmt: skip
elementwise("remainder", "a - b * floor(a / b), with the sign of b", "mod", arity=2, dtypes="number",
            impl=_integer_by_zero(special.remainder), domain=("any", "nonzero"), saves=("ins",),
            vjp=_both(lambda g, a, b, o: g,
                      lambda g, a, b, o: prim.mul(prim.neg(g), prim.floor_divide(a, b))))  # fmt: skip
elementwise("fmod", "a - b * trunc(a / b), with the sign of a", "fmod", arity=2, dtypes="number",
            impl=_integer_by_zero(special.fmod), domain=("any", "nonzero"), saves=("ins",),
            vjp=_both(lambda g, a, b, o: g,
                      lambda g, a, b, o: prim.mul(prim.neg(g), prim.trunc(prim.div(a, b)))))  # fmt: skip


def _pow_base(g: Operand, a: Operand, b: Operand | float, out: Operand) -> Any:
    if isinstance(b, int | float):
        return prim.mul(g, prim.mul(prim.pow(a, b - 1), b)) if b != 0 else prim.mul(g, 0.0)
    slope = prim.mul(prim.pow(a, prim.sub(b, 1.0)), b)
    return prim.where(prim.eq(b, 0.0), prim.mul(g, 0.0), prim.mul(g, slope))


def _pow_exponent(g: Operand, a: Operand | float, b: Operand, out: Operand) -> Any:
    log = prim.log(prim.full(like=b, value=float(a), shape=(), dtype=b.dtype) if isinstance(a, int | float) else a)
    at_zero = prim.ge(b, 0.0)
    if is_tensor(a):
        at_zero = prim.bitwise_and(prim.eq(a, 0.0), at_zero)
    elif a != 0:
        return prim.mul(g, prim.mul(out, log))
    return prim.where(at_zero, prim.mul(g, 0.0), prim.mul(g, prim.mul(out, log)))


elementwise("pow", "a ** b; integers to negative powers truncate", "pow", arity=2, dtypes="number",
            vjp=_both(_pow_base, _pow_exponent), saves=("ins", "outs"),
            traits=("costly", "right_identity:1"), ulp=4, domain=("positive", "any"))  # fmt: skip


def _over_square(x: Operand, a: Operand, b: Operand) -> Any:
    """``x / (a*a + b*b)``, and 0 at the origin, as in PyTorch."""
    square = prim.add(prim.mul(a, a), prim.mul(b, b))
    return prim.where(prim.eq(square, 0.0), 0.0, prim.div(x, square))


elementwise("atan2", "the angle of the point (b, a)", "atan2", arity=2, saves=("ins",),
            vjp=_both(lambda g, a, b, o: prim.mul(g, _over_square(b, a, b)),
                      lambda g, a, b, o: prim.mul(g, _over_square(prim.neg(a), a, b))),
            traits=("costly",), ulp=4)  # fmt: skip
elementwise("hypot", "sqrt(a*a + b*b) without overflow", "hypot", arity=2, saves=("ins", "outs"),
            vjp=_both(lambda g, a, b, o: prim.mul(g, prim.div(a, o)), lambda g, a, b, o: prim.mul(g, prim.div(b, o))),
            traits=("commutative",), ulp=2)  # fmt: skip


def _larger(smaller_test: str) -> Any:
    """Rule of maximum and minimum: ties share, the losing side gets nothing, NaN goes to both (as in PyTorch)."""

    def one(loses: Operand, tie: Operand, g: Operand) -> Any:
        return prim.where(loses, 0.0, prim.where(tie, prim.mul(g, 0.5), g))

    lost = getattr(prim, smaller_test)
    return _both(
        lambda g, a, b, o: one(lost(a, b), prim.eq(a, b), g),
        lambda g, a, b, o: one(lost(b, a), prim.eq(a, b), g),
    )


elementwise("maximum", "the larger; NaN if either is; ties share the gradient", _logical("max", "or"), impl=np.maximum,
            arity=2, dtypes="any", saves=("ins",), vjp=lambda g, o, i: _larger("lt")(g, o, i),
            traits=("associative", "idempotent"))  # fmt: skip
elementwise("minimum", "the smaller; NaN if either is; ties share the gradient", _logical("min", "and"),
            impl=np.minimum, arity=2, dtypes="any", saves=("ins",), vjp=lambda g, o, i: _larger("gt")(g, o, i),
            traits=("associative", "idempotent"))  # fmt: skip


def _compared(name: str, joined: str) -> Any:
    """Complex numbers by both parts."""

    def parts(a: Pair, b: Pair) -> Any:
        compare = getattr(prim, name)
        return getattr(prim, joined)(compare(a.re, b.re), compare(a.im, b.im))

    return parts


for _name, _sign, _joined in (("eq", "==", "bitwise_and"), ("ne", "!=", "bitwise_or")):
    elementwise(_name, f"a {_sign} b", _name, arity=2, dtypes="every", result=bool_, traits=("commutative",),
                parts=_compared(_name, _joined))  # fmt: skip
for _name, _sign in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")):
    elementwise(_name, f"a {_sign} b", _name, arity=2, dtypes="any", result=bool_)

_BITWISE: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("bitwise_and", "and", ("idempotent",)),
    ("bitwise_or", "or", ("idempotent", "identity:0")),
    ("bitwise_xor", "xor", ("identity:0",)),
)
for _name, _scalar, _traits in _BITWISE:
    elementwise(_name, f"bits of a {_scalar} b; logical for bool", _scalar, arity=2, dtypes="bits",
                traits=("commutative", "associative", *_traits))  # fmt: skip
elementwise("shift_left", "a * 2**b with bits lost at the top", "shl", arity=2, dtypes="int", domain=("any", "small"),
            traits=("right_identity:0",))  # fmt: skip
elementwise("shift_right", "a / 2**b rounded down", "shr", arity=2, dtypes="int", domain=("any", "small"),
            traits=("right_identity:0",))  # fmt: skip


def _copysign_base(g: Operand, a: Operand, b: Operand, out: Operand) -> Any:
    zero = prim.eq(a, 0.0)
    return prim.mul(g, prim.where(zero, 0.0, prim.div(out, prim.where(zero, 1.0, a))))


elementwise("copysign", "|a| with the sign of b", "copysign", arity=2, saves=("ins", "outs"),
            vjp=_both(_copysign_base, lambda g, a, b, o: prim.mul(g, 0.0)))  # fmt: skip
elementwise("nextafter", "the next number after a towards b", "nextafter", arity=2, dtypes="wide", saves=("ins",),
            vjp=_both(lambda g, a, b, o: prim.where(prim.eq(a, b), 0.0, g),
                      lambda g, a, b, o: prim.mul(g, 0.0)))  # fmt: skip


def _where_infer(condition: TensorType, a: TensorType, b: TensorType) -> TensorType:
    require(
        condition.dtype is bool_,
        RuntimeError,
        f"where expected condition to be a boolean tensor, but got a tensor with dtype {condition.dtype}",
    )
    dtype = check_dtype("where", (a, b), "every")
    return TensorType(dtype, broadcast("where", (condition, a, b)))


def _where_vjp(grads: Operands, outs: Operands, ins: Operands) -> Any:
    condition, a, b = ins
    g = grads[0]
    return (
        None,
        prim.where(condition, g, 0.0) if is_tensor(a) else None,
        prim.where(condition, 0.0, g) if is_tensor(b) else None,
    )


register(
    Op(
        name="where", kind="elementwise", doc="a where the condition holds, else b", infer=_where_infer,
        impl=special.select, loop=Pointwise(lambda c, a, b: scalars.call("select", c, a, b)), vjp=_where_vjp,
        saves=(0,), parts=each("where"),
        samples=tuple(
            Sample(((s, "b1", "any"), (t, d, "any"), (u, d, "any")))
            for d in ("f32", "f64", "f16", "i64", "b1", "c64", "c128")
            for s, t, u in (((2, 3), (2, 3), (2, 3)), ((3, 1), (4,), ()), ((), (2,), (1, 2)), ((0,), (1,), ()))
        ),
        errors=(
            bad(RuntimeError, "condition to be a boolean", of("f32", 3), of("f32", 3), of("f32", 3)),
            bad(RuntimeError, "one dtype", of("b1", 3), of("f32", 3), of("f64", 3)),
            bad(RuntimeError, "must match", of("b1", 3), of("f32", 4), of("f32", 4)),
        ),
    )
)  # fmt: skip

"""Simplification of scalar algebra: rules that never change a result's bits.

For example, ``x * 1`` and ``x - 0.0`` are ``x``, but ``x + 0.0`` is not: -0.0 becomes 0.0. ``x * 0`` is not ``0``: the
product of NaN or infinity is NaN. Sums are never regrouped. Division becomes multiplication only for powers of two.
Bits of a NaN (its sign and payload) carry no meaning and are not kept. Rules about shapes are in ``views``. Each
function here is a rewrite rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from tracecomp.ir.graph import Value
from tracecomp.ir.op import Op
from tracecomp.ir.types import DType, bool_
from tracecomp.ops.contraction import parse_spec
from tracecomp.passes.graph.rewrite import Application, Replacement, Rewriter, Rules, constant, made_by

RULES = Rules()

Number = bool | int | float
Test = Callable[[Number, DType], bool]


def _limits(dtype: DType) -> tuple[float, float]:
    if dtype.is_floating_point:
        return -math.inf, math.inf
    # A bool is numpy's, not a number of 8 bits.
    if dtype is bool_:
        return 0, 1
    info = np.iinfo(dtype.numpy)
    return int(info.min), int(info.max)


def _is_all_ones(value: Number, dtype: DType) -> bool:
    # Two's complement: all bits set is -1, or the largest unsigned number.
    return value == (-1 if dtype.signed else _limits(dtype)[1])


TYPED_IDENTITY: dict[str, Test] = {
    "floor_divide": lambda value, dtype: value == 1 and dtype.kind == "int",
    # Valid for floats too: nothing is below minus infinity, and NaN passes through either way.
    "maximum": lambda value, dtype: value == _limits(dtype)[0],
    "minimum": lambda value, dtype: value == _limits(dtype)[1],
    "bitwise_and": _is_all_ones,
}
"""Constants that leave the other operand as it is, depending on its type. Others are traits of the operators."""

MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}

INTEGER_VALUED = ("floor", "ceil", "trunc", "round", "sign")


@cache
def _declared_identity(op: Op) -> float | None:
    """The number that the operator's traits name as its (right) identity."""
    return next((float(t.split(":")[1]) for t in op.traits if t.startswith(("identity:", "right_identity:"))), None)


def same_number(x: Number, y: Number) -> bool:
    """Equality that tells 0.0 from -0.0 and equates NaN with NaN."""
    # Bitwise but for NaN's payload: 0.0 and -0.0 compare equal and are different constants.
    return (x == y and math.copysign(1.0, x) == math.copysign(1.0, y)) or (x != x and y != y)


def is_right_identity(op: Op, value: Number, dtype: DType) -> bool:
    """Whether ``op(x, value)`` is ``x``, bit for bit, for every ``x`` of ``dtype``."""
    declared = _declared_identity(op)
    if declared is not None:
        # For floats the sign of a zero counts: x - 0.0 is x, x + 0.0 is not for -0.0.
        return same_number(value, declared) if dtype.is_floating_point else value == declared
    test = TYPED_IDENTITY.get(op.name)
    return test is not None and test(value, dtype)


def sized_as(g: Rewriter, value: Value, a: Application) -> Value:
    """``value`` in the shape of ``a``'s result."""
    return value if value.shape == a.type.shape else g.apply("expand", value, shape=a.type.shape)


def _filled(g: Rewriter, value: Number, a: Application) -> Value:
    return g.full(value, a.type.shape, a.type.dtype)


@RULES.on_kind("elementwise")
def constant_on_the_right(g: Rewriter, a: Application) -> Replacement:
    """c + x -> x + c; maximum and minimum only for non-zero constants: equal zeros are chosen by position"""
    if len(a.inputs) != 2 or constant(a.inputs[1]) is not None:
        return None
    # Both operands can be equal only at the constant; for zero, the operand order decides between 0.0 and -0.0.
    x, y = a.inputs
    c = constant(x)
    # Constants on the right: later rules look there alone.
    either = "commutative" in a.op.traits or (a.op.name in ("maximum", "minimum") and c != 0)
    return g.apply(a.op.name, y, x) if c is not None and either else None


@RULES.on(*MIRRORED)
def constant_right_of_comparison(g: Rewriter, a: Application) -> Replacement:
    """c < x -> x > c"""
    x, y = a.inputs
    return g.apply(MIRRORED[a.op.name], y, x) if constant(x) is not None and constant(y) is None else None


@RULES.on_kind("elementwise")
def right_identity(g: Rewriter, a: Application) -> Replacement:
    """x * 1 -> x"""
    c = constant(a.inputs[1]) if len(a.inputs) == 2 else None
    return sized_as(g, a.inputs[0], a) if c is not None and is_right_identity(a.op, c, a.type.dtype) else None


@RULES.on("add")
def zero_added_to_no_minus_zero(g: Rewriter, a: Application) -> Replacement:
    """sum(x) + 0.0 -> sum(x): adding 0.0 changes -0.0 alone, which a sum never is"""
    x, y = a.inputs
    # Both signs of zero: -0.0 is an identity anyway.
    return sized_as(g, x, a) if constant(y) == 0 and is_never_minus_zero(x) else None


_NEVER_MINUS_ZERO = ("conv", "conv_transpose", "conv_weight", "fold", "abs", "exp", "exp2", "sigmoid")


def is_never_minus_zero(value: Value, depth: int = 4) -> bool:
    """Whether no element can be -0.0, by simple rules; sums are not, since they start from 0.0."""
    # Four steps back: deep enough for what programs write, and cheap for each addition.
    node = value.node
    if node is None or depth == 0:
        return False
    name = node.op.name
    if name in _NEVER_MINUS_ZERO or name == "iota":
        # These add to 0.0 or are never negative.
        return True
    if name == "full":
        # A constant's own sign is known.
        return not same_number(node.attrs["value"], -0.0)
    if name == "sum":
        # A sum over no axes is the value itself.
        return len(node.attrs["axes"]) > 0
    if name == "contract":
        lhs, _, out = parse_spec(node.attrs["spec"])
        # Without a summed label a contraction is a product, which may be -0.0.
        return not set(lhs) <= set(out)
    if name == "cast":
        # An integer has one zero.
        return not node.inputs[0].dtype.is_floating_point
    if name == "add":
        # x + y is -0.0 only if both are.
        return any(is_never_minus_zero(v, depth - 1) for v in node.inputs)
    if node.op.kind == "view" or name == "concat":
        # Elements are moved, not computed.
        return all(is_never_minus_zero(v, depth - 1) for v in node.inputs)
    return False


@RULES.on("mul", "bitwise_and")
def absorbed_by_zero(g: Rewriter, a: Application) -> Replacement:
    """integer x * 0 -> 0"""
    c = constant(a.inputs[1])
    # Not for floats: NaN and infinity times zero is NaN.
    return _filled(g, c, a) if c is not None and c == 0 and not a.type.dtype.is_floating_point else None


@RULES.on("bitwise_or")
def absorbed_by_ones(g: Rewriter, a: Application) -> Replacement:
    """x | all ones -> all ones"""
    c = constant(a.inputs[1])
    return _filled(g, c, a) if c is not None and _is_all_ones(c, a.type.dtype) else None


@RULES.on_kind("elementwise")
def involution(g: Rewriter, a: Application) -> Replacement:
    """neg(neg(x)) -> x"""
    # On other types than bool, logical_not loses the number.
    if "involution" not in a.op.traits and not (a.op.name == "logical_not" and a.inputs[0].dtype is bool_):
        return None
    inner = made_by(a.inputs[0], a.op.name)
    # With a cast between, the inner value would have another type.
    return inner.inputs[0] if inner and inner.inputs[0].type == a.type else None


@RULES.on_kind("elementwise")
def idempotent_unary(g: Rewriter, a: Application) -> Replacement:
    """abs(abs(x)) -> abs(x)"""
    unary = "idempotent" in a.op.traits and len(a.inputs) == 1
    return a.inputs[0] if unary and made_by(a.inputs[0], a.op.name) else None


@RULES.on("floor", "ceil", "trunc", "round")
def rounding_of_whole_numbers(g: Rewriter, a: Application) -> Replacement:
    """floor(round(x)) -> round(x)"""
    return a.inputs[0] if made_by(a.inputs[0], *INTEGER_VALUED) else None


@RULES.on_kind("elementwise")
def idempotent_binary(g: Rewriter, a: Application) -> Replacement:
    """maximum(x, x) -> x, maximum(maximum(x, y), y) -> maximum(x, y)"""
    if "idempotent" not in a.op.traits or len(a.inputs) != 2:
        return None
    x, y = a.inputs
    if x is y:
        # ``y`` among the inner operands, on either side.
        return x
    inner = made_by(x, a.op.name)
    return sized_as(g, x, a) if inner and y in inner.inputs else None


@RULES.on("abs")
def abs_of_neg(g: Rewriter, a: Application) -> Replacement:
    """abs(neg(x)) -> abs(x); not for unsigned integers, whose negation wraps around"""
    inner = made_by(a.inputs[0], "neg")
    return g.apply("abs", inner.inputs[0]) if inner and a.type.dtype.signed else None


@RULES.on("mul")
def square_of_abs(g: Rewriter, a: Application) -> Replacement:
    """|x| * |x| -> x * x: signs cancel in any case, for integers that wrap around too"""
    x, y = a.inputs
    inner = made_by(x, "abs")
    return g.apply("mul", inner.inputs[0], inner.inputs[0]) if inner and x is y else None


@RULES.on("add", "sub")
def add_of_neg(g: Rewriter, a: Application) -> Replacement:
    """x + -y -> x - y, x - -y -> x + y, -x + y -> y - x"""
    x, y = a.inputs
    right = made_by(y, "neg")
    if right:
        return g.apply("sub" if a.op.name == "add" else "add", x, right.inputs[0])
    left = made_by(x, "neg")
    return g.apply("sub", y, left.inputs[0]) if left and a.op.name == "add" else None


@RULES.on("mul", "div")
def product_of_negs(g: Rewriter, a: Application) -> Replacement:
    """-x * -y -> x * y, -x * c -> x * -c"""
    x, y = a.inputs
    left, right = made_by(x, "neg"), made_by(y, "neg")
    if left and right:
        return g.apply(a.op.name, left.inputs[0], right.inputs[0])
    # Integers have no exact negative of their smallest number, so ``-c`` would wrap around.
    c = constant(y)
    if left and c is not None and a.type.dtype.is_floating_point:
        return g.apply(a.op.name, left.inputs[0], g.full(-c, y.shape, y.dtype))
    return None


@RULES.on("mul")
def mul_by_minus_one(g: Rewriter, a: Application) -> Replacement:
    """x * -1 -> -x"""
    c = constant(a.inputs[1])
    return sized_as(g, g.apply("neg", a.inputs[0]), a) if c == -1 and a.type.dtype.signed else None


@RULES.on("neg")
def neg_of_scaled(g: Rewriter, a: Application) -> Replacement:
    """-(x * c) -> x * -c"""
    inner = made_by(a.inputs[0], "mul", "div")
    # The same: for integers -(x * c) wraps around where x * -c does not, and the reverse.
    if inner is None or not a.type.dtype.is_floating_point:
        return None
    x, y = inner.inputs
    c = constant(y)
    return None if c is None else g.apply(inner.op.name, x, g.full(-c, y.shape, y.dtype))


@RULES.on("div")
def div_by_power_of_two(g: Rewriter, a: Application) -> Replacement:
    """x / 8 -> x * 0.125: both round the same real number"""
    x, y = a.inputs
    c = constant(y)
    # frexp gives +-0.5 for powers of two alone. Their reciprocals are exact.
    if c is None or not math.isfinite(c) or abs(math.frexp(c)[0]) != 0.5:
        return None
    reciprocal = 1.0 / c
    # Within half precision's normal numbers: the reciprocal is then a normal number of any type, so no digit is lost.
    normal = abs(reciprocal) >= 2.0**-14 and abs(reciprocal) <= 2.0**14
    return g.apply("mul", x, g.full(reciprocal, y.shape, y.dtype)) if normal else None


@RULES.on("sub", "bitwise_xor")
def integer_minus_itself(g: Rewriter, a: Application) -> Replacement:
    """integer x - x -> 0"""
    x, y = a.inputs
    # inf - inf and NaN - NaN are NaN, so not for floats.
    same = x is y and not a.type.dtype.is_floating_point
    return _filled(g, False if a.type.dtype is bool_ else 0, a) if same else None


REFLEXIVE = {"eq": True, "le": True, "ge": True, "ne": False, "lt": False, "gt": False}


@RULES.on(*REFLEXIVE)
def comparison_with_itself(g: Rewriter, a: Application) -> Replacement:
    """integer x == x -> true, and x < x -> false even for floats"""
    x, y = a.inputs
    name = a.op.name
    # NaN differs from itself; it is neither below nor above itself, so < and > are false all the same.
    if x is not y or (x.dtype.is_floating_point and name not in ("lt", "gt")):
        return None
    return _filled(g, REFLEXIVE[name], a)


@RULES.on("ne", "eq")
def comparison_of_bool_with_constant(g: Rewriter, a: Application) -> Replacement:
    """cast(b, f32) != 0 -> b"""
    x, y = a.inputs
    inner, c = made_by(x, "cast"), constant(y)
    b = inner.inputs[0] if inner else x
    # A bool is 0 or 1; a comparison with another number is a constant that other rules find.
    if b.dtype is not bool_ or c not in (0, 1):
        return None
    true = (c == 1) == (a.op.name == "eq")
    return sized_as(g, b if true else g.apply("logical_not", b), a)


NEGATED = {"eq": "ne", "ne": "eq"}
NEGATED_INTEGER = NEGATED | {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


@RULES.on("logical_not")
def negated_comparison(g: Rewriter, a: Application) -> Replacement:
    """not (x == y) -> x != y; orderings only where there is no NaN"""
    inner = made_by(a.inputs[0], *NEGATED_INTEGER)
    if inner is None:
        return None
    # With NaN both an ordering and its opposite are false.
    table = NEGATED if inner.inputs[0].dtype.is_floating_point else NEGATED_INTEGER
    name = table.get(inner.op.name)
    return g.apply(name, *inner.inputs) if name else None


@RULES.on("where")
def where_of_constant(g: Rewriter, a: Application) -> Replacement:
    """where(true, x, y) -> x"""
    c = constant(a.inputs[0])
    return None if c is None else sized_as(g, a.inputs[1 if c else 2], a)


@RULES.on("where")
def where_of_equals(g: Rewriter, a: Application) -> Replacement:
    """where(c, x, x) -> x"""
    return sized_as(g, a.inputs[1], a) if a.inputs[1] is a.inputs[2] else None


@RULES.on("where")
def where_of_not(g: Rewriter, a: Application) -> Replacement:
    """where(not c, x, y) -> where(c, y, x)"""
    inner = made_by(a.inputs[0], "logical_not")
    negated = inner is not None and inner.inputs[0].dtype is bool_
    return g.apply("where", inner.inputs[0], a.inputs[2], a.inputs[1]) if inner and negated else None


@RULES.on("where")
def where_of_where(g: Rewriter, a: Application) -> Replacement:
    """where(c, where(c, x, _), y) -> where(c, x, y)"""
    c, x, y = a.inputs
    for position, branch in ((1, x), (2, y)):
        inner = made_by(branch, "where")
        # Broadcasting inside may have changed the shape, and the branch must keep its own.
        if inner and inner.inputs[0] is c and inner.inputs[position].shape == branch.shape:
            chosen = inner.inputs[position]
            return g.apply("where", c, *((chosen, y) if position == 1 else (x, chosen)))
    return None


@RULES.on("where")
def where_of_bools(g: Rewriter, a: Application) -> Replacement:
    """where(c, true, false) -> c, where(c, 1.0, 0.0) -> cast(c)"""
    c, x, y = a.inputs
    pair = (constant(x), constant(y))
    # -0.0 is equal to 0 and would be lost by the cast.
    if pair not in ((1, 0), (0, 1)) or any(v is not None and math.copysign(1.0, v) < 0 for v in pair):
        return None
    chosen = c if pair == (1, 0) else g.apply("logical_not", c)
    return sized_as(g, chosen if a.type.dtype is bool_ else g.apply("cast", chosen, dtype=a.type.dtype), a)

"""Simplification of casts: rules that never change a result's bits."""

from __future__ import annotations

from tracecomp.ir.types import DType, bool_
from tracecomp.passes.graph.rewrite import Application, Replacement, Rewriter, Rules, made_by

RULES = Rules()


def holds_exactly(wide: DType, narrow: DType) -> bool:
    """Whether every value of ``narrow`` is a value of ``wide``."""
    # 0 and 1 are exact in every type.
    if narrow is wide or narrow is bool_:
        return True
    if wide is bool_ or (narrow.is_floating_point and not wide.is_floating_point):
        return False
    # Both more digits and at least the range.
    if narrow.is_floating_point:
        return _MANTISSA[wide.name] >= _MANTISSA[narrow.name] and _EXPONENT[wide.name] >= _EXPONENT[narrow.name]
    bits = narrow.itemsize * 8 - narrow.signed
    if wide.is_floating_point:
        # An integer is exact up to the digits of the significand, and must not
        # overflow to infinity (float16 ends at 65504).
        return bits <= _MANTISSA[wide.name] and bits < 2 ** (_EXPONENT[wide.name] - 1)
    return bits <= wide.itemsize * 8 - wide.signed and (wide.signed or not narrow.signed)


_MANTISSA = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
"""Bits of the significand, with the hidden one."""
_EXPONENT = {"float16": 5, "bfloat16": 8, "float32": 8, "float64": 11}
"""Bits of the exponent."""


@RULES.on("cast")
def cast_to_itself(g: Rewriter, a: Application) -> Replacement:
    """cast(x: f32, f32) -> x"""
    return a.inputs[0] if a.inputs[0].dtype is a.type.dtype else None


@RULES.on("cast")
def cast_of_cast(g: Rewriter, a: Application) -> Replacement:
    """cast(cast(x: f32, f64), f32) -> x: the first cast is exact, or both drop high bits of an integer"""
    inner = made_by(a.inputs[0], "cast")
    if inner is None:
        return None
    first, middle, last = inner.inputs[0].dtype, a.inputs[0].dtype, a.type.dtype
    # Float to integer out of range follows the wider type's rule, so a float in between changes results.
    exact = holds_exactly(middle, first) and not (first.is_floating_point and last.kind == "int")
    # Wrapping twice equals wrapping once to the narrower type.
    wraps = {first.kind, middle.kind, last.kind} == {"int"} and last.itemsize <= middle.itemsize
    return g.apply("cast", inner.inputs[0], dtype=last) if exact or wraps else None


@RULES.on("cast")
def cast_to_bool_of_mask(g: Rewriter, a: Application) -> Replacement:
    """cast(x, bool) -> x != 0, which later rules understand"""
    x = a.inputs[0]
    if a.type.dtype is not bool_:
        return None
    # Rules about masks match comparisons.
    return g.apply("ne", x, g.scalar(0.0 if x.dtype.is_floating_point else 0, x.dtype))


@RULES.on("cast")
def cast_of_iota(g: Rewriter, a: Application) -> Replacement:
    """cast(iota: i64, i32) -> iota: i32"""
    inner = made_by(a.inputs[0], "iota")
    last = inner.attrs["shape"][inner.attrs["axis"]] - 1 if inner else 0
    # Positions that the narrow type holds, so no wrap-around is lost.
    if inner is None or a.type.dtype.kind != "int" or last not in range(2 ** (a.type.dtype.itemsize * 8 - 1)):
        return None
    return g.apply("iota", **{**inner.attrs, "dtype": a.type.dtype})

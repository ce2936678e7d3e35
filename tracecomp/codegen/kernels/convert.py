"""Conversions between element types, and the registers they live in.

Registers: bools are ``i1``, bfloat16 is its bits in ``i16``, the rest LLVM's type of the same name. Conversions from
floating point to integers give what x86 and numpy give out of range: the most negative value.
"""

from __future__ import annotations

import numpy as np

from tracecomp.codegen.text.emitter import Emitter, Value
from tracecomp.ir.types import DType, bfloat16, bool_, compute_dtype, float16, float32, float64, int32, int64

_ELEM = {
    "bool": "i1", "uint8": "i8", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "float16": "half", "bfloat16": "i16", "float32": "float", "float64": "double",
}  # fmt: skip


def register_elem(dtype: DType) -> str:
    """LLVM's scalar type for values of ``dtype`` in registers."""
    return _ELEM[dtype.name]


def memory_elem(dtype: DType) -> str:
    """LLVM's scalar type for values of ``dtype`` in memory."""
    return "i8" if dtype is bool_ else _ELEM[dtype.name]


def from_memory(e: Emitter, value: Value, dtype: DType) -> Value:
    return e.compare("icmp ne", value, e.const("i8", 0)) if dtype is bool_ else value


def to_memory(e: Emitter, value: Value, dtype: DType) -> Value:
    if dtype is not bool_:
        return value
    return e.const("i8", int(value.const), value.width) if value.const is not None else e.convert("zext", value, "i8")


def constant(e: Emitter, value: bool | int | float, dtype: DType) -> Value:
    """A literal of ``dtype``; integers out of range wrap around."""
    if dtype is bfloat16:
        return e.const("i16", _bfloat16_bits(float(value)))
    return e.const(_ELEM[dtype.name], bool(value) if dtype is bool_ else value)


def _bfloat16_bits(value: float) -> int:

    # The upper half of a float's bits, rounded to even: add a half, less one where the last kept bit is 0.
    bits = int(np.float32(value).view(np.uint32))
    if value != value:
        # NaN is kept quiet: its rounding could carry into infinity.
        return 0x7FC0
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) & 0xFFFF


def widen_half(e: Emitter, value: Value, dtype: DType) -> Value:
    """A half value in float; other types unchanged."""
    if dtype is float16:
        return e.convert("fpext", value, "float")
    if dtype is bfloat16:
        # bfloat16 is a float's upper half, so widening is a shift.
        wide = e.convert("zext", value, "i32")
        return e.convert("bitcast", e.binary("shl", wide, e.const("i32", 16)), "float")
    return value


def narrow_half(e: Emitter, value: Value, dtype: DType) -> Value:
    """A float value rounded to a half type; other types unchanged."""
    if dtype is float16:
        return e.convert("fptrunc", value, "half")
    if dtype is not bfloat16:
        return value
    bits = e.convert("bitcast", value, "i32")
    # Round to nearest, ties to even: 0x7FFF plus the last bit that is kept.
    odd = e.binary("and", e.binary("lshr", bits, e.const("i32", 16)), e.const("i32", 1))
    rounded = e.binary("add", e.binary("add", bits, e.const("i32", 0x7FFF)), odd)
    # A quiet NaN, as adding to a NaN's bits could make it infinite or flip its sign.
    quiet = e.const("i32", 0x7FC00000)
    kept = e.select(e.compare("fcmp uno", value, value), quiet, rounded)
    return e.convert("trunc", e.binary("lshr", kept, e.const("i32", 16)), "i16")


def cast(e: Emitter, value: Value, source: DType, target: DType) -> Value:
    """``value`` of type ``source`` as ``target``."""
    if source is target:
        return value
    if target is bool_:
        return _to_bool(e, value, source)
    if source.is_floating_point and target.is_floating_point:
        return _float_to_float(e, value, source, target)
    if source.is_floating_point:
        return _float_to_int(e, widen_half(e, value, source), target)
    if target.is_floating_point:
        # Half types by way of float, in which they compute.
        wide = compute_dtype(target)
        op = "sitofp" if source.signed else "uitofp"
        return narrow_half(e, e.convert(op, value, register_elem(wide)), target)
    elem = register_elem(target)
    if source.itemsize < target.itemsize or source is bool_:
        return e.convert("sext" if source.signed else "zext", value, elem)
    # Equal sizes differ in sign only, which registers do not know.
    return e.convert("trunc", value, elem) if source.itemsize > target.itemsize else value


def _to_bool(e: Emitter, value: Value, source: DType) -> Value:
    if source.is_floating_point:
        wide = widen_half(e, value, source)
        # Unordered: NaN is not zero, so it is true.
        return e.compare("fcmp une", wide, e.const(wide.elem, 0.0))
    return e.compare("icmp ne", value, e.const(value.elem, 0))


def _float_to_float(e: Emitter, value: Value, source: DType, target: DType) -> Value:
    # double to half by way of float would round twice; rounding to odd in between makes that exact.
    if source is float64 and target is not float32:
        return narrow_half(e, _double_to_odd_float(e, value), target)
    wide = widen_half(e, value, source)
    if target is float64:
        return e.convert("fpext", wide, "double")
    if source is float64:
        return e.convert("fptrunc", wide, "float")
    return narrow_half(e, wide, target)


def _double_to_odd_float(e: Emitter, value: Value) -> Value:
    """A double truncated to float with its last bit set when inexact, so that rounding it again rounds only once."""
    near = e.convert("fptrunc", value, "float")
    back = e.convert("fpext", near, "double")
    bits = e.convert("bitcast", near, "i32")
    # fptrunc rounds to nearest. If it rounded away from zero, one unit back truncates.
    away = e.compare("fcmp ogt", e.fabs(back), e.fabs(value))
    truncated = e.select(away, e.binary("sub", bits, e.const("i32", 1)), bits)
    inexact = e.compare("fcmp one", back, value)
    # The last bit set says "a little more", which the second rounding then sees.
    odd = e.select(inexact, e.binary("or", truncated, e.const("i32", 1)), bits)
    return e.convert("bitcast", odd, "float")


def _float_to_int(e: Emitter, value: Value, target: DType) -> Value:
    """Truncation towards zero; through int32 for the small types, as C compilers do it."""
    wide = int64 if target is int64 else int32
    bits = wide.itemsize * 8
    low = -(2.0 ** (bits - 1))
    if value.elem == "double" and wide is int32:
        # int32 from double: -2147483648.9 truncates to a valid number, so the limit is one lower.
        inside_low = e.compare("fcmp ogt", value, e.const("double", low - 1))
    else:
        inside_low = e.compare("fcmp oge", value, e.const(value.elem, low))
    inside = e.binary("and", inside_low, e.compare("fcmp olt", value, e.const(value.elem, -low)))
    # Out of range fptosi is poison in LLVM; the lowest number is what x86 gives, so select it instead.
    safe = e.select(inside, value, e.const(value.elem, low))
    result = e.convert("fptosi", safe, register_elem(wide))
    return result if target.itemsize == wide.itemsize else e.convert("trunc", result, register_elem(target))


def bitcast(e: Emitter, value: Value, target: DType) -> Value:
    """The same bits as another type of the same size."""
    elem = register_elem(target)
    return value if value.elem == elem else e.convert("bitcast", value, elem)

"""Emit the scalar operations of ``ir.scalars``: arithmetic, comparisons and bits; functions are in ``math``.

An emitter takes registers of one element type and returns a register; half types are widened before and narrowed after.
"""

from __future__ import annotations

from collections.abc import Callable

from tracecomp.base.errors import CompileError
from tracecomp.codegen.kernels import convert
from tracecomp.codegen.math import functions
from tracecomp.codegen.text.emitter import INT_BITS, Emitter, Value
from tracecomp.ir.types import DType, bool_

_FLOAT_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INT_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_INT_COMPARE = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
_ROUNDINGS = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "rint", "sqrt": "sqrt"}


def emit(e: Emitter, op: str, args: list[Value], types: list[DType], dtype: DType) -> Value:
    """The value of scalar operation ``op`` on ``args`` of element types ``types``, as ``dtype``."""
    if op == "cast":
        return convert.cast(e, args[0], types[0], dtype)
    if op == "bitcast":
        return convert.bitcast(e, args[0], dtype)
    if op == "select":
        return e.select(args[0], args[1], args[2])
    # Half types compute in float, and are rounded after each operation: as their meaning requires.
    operand = types[-1]
    wide = [convert.widen_half(e, a, t) for a, t in zip(args, types, strict=True)]
    if op in _FLOAT_COMPARE:
        return compare(e, op, wide[0], wide[1], operand.signed)
    if op == "isnan":
        return e.compare("fcmp uno", wide[0], wide[0]) if operand.is_floating_point else e.const("i1", 0)
    # The next float is not the next half.
    if op == "nextafter" and operand.itemsize == 2:
        return functions.nextafter_half(e, args[0], args[1], operand)
    if operand.is_floating_point:
        return convert.narrow_half(e, _float(e, op, wide), dtype)
    return _integer(e, op, wide, operand)


def compare(e: Emitter, op: str, a: Value, b: Value, signed: bool) -> Value:
    if a.elem in INT_BITS:
        # i1 as signed would make true -1.
        sign = "" if op in ("eq", "ne") else "s" if signed and a.elem != "i1" else "u"
        return e.compare(f"icmp {sign}{_INT_COMPARE[op]}", a, b)
    return e.compare(f"fcmp {_FLOAT_COMPARE[op]}", a, b)


def _float(e: Emitter, op: str, args: list[Value]) -> Value:
    if op in _FLOAT_BINARY:
        return e.binary(_FLOAT_BINARY[op] + e.module.fast_flags, args[0], args[1])
    if op in _ROUNDINGS:
        return e.intrinsic(_ROUNDINGS[op], args[0], flags=e.module.fast_flags)
    special = _FLOAT_SPECIAL.get(op)
    if special is not None:
        return special(e, *args)
    return functions.emit(e, op, args)


def maximum(e: Emitter, a: Value, b: Value) -> Value:
    """The larger; NaN when either is NaN; of equal values the second."""
    # A comparison and a select: ``vmaxps`` gives its second operand if one is NaN, which would drop a NaN on the left.
    return _keep_nan(e, e.select(e.compare("fcmp ogt", a, b), a, b), a)


def minimum(e: Emitter, a: Value, b: Value) -> Value:
    """The smaller; NaN when either is NaN; of equal values the second."""
    return _keep_nan(e, e.select(e.compare("fcmp olt", a, b), a, b), a)


def _keep_nan(e: Emitter, chosen: Value, a: Value) -> Value:
    # With a constant that is a number only the other one can be NaN, which the select passes through.
    return chosen if a.const is not None and a.const == a.const else e.select(e.compare("fcmp uno", a, a), a, chosen)


def _float_sign(e: Emitter, a: Value) -> Value:
    """-1, 0 or 1; 0 for NaN."""
    zero = e.const(a.elem, 0.0)
    negative = e.select(e.compare("fcmp olt", a, zero), e.const(a.elem, -1.0), zero)
    return e.select(e.compare("fcmp ogt", a, zero), e.const(a.elem, 1.0), negative)


_FLOAT_SPECIAL: dict[str, Callable[..., Value]] = {
    "fma": lambda e, a, b, c: e.fma(a, b, c),
    "neg": lambda e, a: e.unary("fneg", a),
    "abs": lambda e, a: e.fabs(a),
    "copysign": lambda e, a, b: e.intrinsic("copysign", a, b),
    "max": maximum,
    "min": minimum,
    "sign": _float_sign,
}


def _integer(e: Emitter, op: str, args: list[Value], dtype: DType) -> Value:
    if op in _INT_BINARY:
        if dtype is bool_ and op in ("add", "mul"):
            # bools add and multiply as "or" and "and".
            return e.binary("or" if op == "add" else "and", args[0], args[1])
        return e.binary(_INT_BINARY[op], args[0], args[1])
    if op in ("floor", "ceil", "trunc", "round"):
        return args[0]
    if op in ("max", "min"):
        predicate = "gt" if op == "max" else "lt"
        return e.select(compare(e, predicate, args[0], args[1], dtype.signed), args[0], args[1])
    emitter = _INT_SPECIAL.get(op)
    if emitter is None:
        raise CompileError(f"scalar operation {op} is not defined on {dtype}")
    return emitter(e, dtype, *args)


def _negative(e: Emitter, dtype: DType, a: Value) -> Value:
    return e.binary("sub", e.const(a.elem, 0, a.width), a)


def _absolute(e: Emitter, dtype: DType, a: Value) -> Value:
    if not dtype.signed:
        return a
    return e.select(e.compare("icmp slt", a, e.const(a.elem, 0)), _negative(e, dtype, a), a)


def _sign(e: Emitter, dtype: DType, a: Value) -> Value:
    positive = e.convert("zext", compare(e, "gt", a, e.const(a.elem, 0), dtype.signed), a.elem) if a.elem != "i1" else a
    if not dtype.signed:
        return positive
    return e.select(e.compare("icmp slt", a, e.const(a.elem, 0)), e.const(a.elem, -1), positive)


def _exponent(b: Value) -> int | None:
    """The exponent of a divisor that is a known power of two: quotients are then shifts, and remainders masks."""
    n = b.const
    return n.bit_length() - 1 if type(n) is int and b.elem != "i1" and n > 0 and n & (n - 1) == 0 else None


def _safe_divisor(e: Emitter, dtype: DType, a: Value, b: Value) -> tuple[Value, Value]:
    """A divisor that does not trap, and the condition under which it replaces ``b`` (zero divisor)."""
    if b.const:
        # LLVM multiplies instead, but only if it sees the number itself.
        return b, e.const("i1", 0)
    zero = e.compare("icmp eq", b, e.const(b.elem, 0))
    # Division by zero traps on x86; an earlier check reports it, and the result is not used.
    return e.select(zero, e.const(b.elem, 1), b), zero


def _quotient(e: Emitter, dtype: DType, a: Value, b: Value) -> Value:
    """Truncating division; -1 is a negation because the smallest value divided by it traps."""
    if not dtype.signed:
        return e.binary("udiv", a, b)
    if b.const not in (None, -1):
        return e.binary("sdiv", a, b)
    # The smallest number divided by -1 traps too: it has no positive.
    minus = e.compare("icmp eq", b, e.const(b.elem, -1))
    quotient = e.binary("sdiv", a, e.select(minus, e.const(b.elem, 1), b))
    return e.select(minus, _negative(e, dtype, a), quotient)


def _fmod(e: Emitter, dtype: DType, a: Value, b: Value) -> Value:
    """Remainder with the sign of the dividend; 0 for a zero divisor."""
    safe, _ = _safe_divisor(e, dtype, a, b)
    return e.binary("sub", a, e.binary("mul", _quotient(e, dtype, a, safe), safe))


def _mod(e: Emitter, dtype: DType, a: Value, b: Value) -> Value:
    """Remainder with the sign of the divisor; 0 for a zero divisor."""
    if _exponent(b) is not None:
        assert isinstance(b.const, int)
        return e.binary("and", a, e.const(a.elem, b.const - 1))
    rest = _fmod(e, dtype, a, b)
    if not dtype.signed:
        return rest
    zero = e.const(a.elem, 0)
    nonzero = e.compare("icmp ne", rest, zero)
    # Signs differ if the sign bit of the exclusive or is set.
    differ = e.compare("icmp slt", e.binary("xor", rest, b), zero)
    return e.binary("add", rest, e.select(e.binary("and", nonzero, differ), b, zero))


def _floor_divide(e: Emitter, dtype: DType, a: Value, b: Value) -> Value:
    """Division rounded down; 0 for a zero divisor."""
    exponent = _exponent(b)
    if exponent is not None:
        return e.binary("ashr" if dtype.signed else "lshr", a, e.const(a.elem, exponent))
    # Truncated, and then decremented if inexact and of different signs.
    safe, zero_divisor = _safe_divisor(e, dtype, a, b)
    quotient = _quotient(e, dtype, a, safe)
    zero = e.const(a.elem, 0)
    if dtype.signed:
        rest = e.binary("sub", a, e.binary("mul", quotient, safe))
        down = e.binary(
            "and", e.compare("icmp ne", rest, zero), e.compare("icmp slt", e.binary("xor", rest, safe), zero)
        )
        quotient = e.select(down, e.binary("sub", quotient, e.const(a.elem, 1)), quotient)
    return e.select(zero_divisor, zero, quotient)


def _invert(e: Emitter, dtype: DType, a: Value) -> Value:
    return e.binary("xor", a, e.const(a.elem, 1 if a.elem == "i1" else -1, a.width))


def _shift(e: Emitter, dtype: DType, a: Value, n: Value, op: str) -> Value:
    """A shift; a count that is negative or too large shifts everything out."""
    bits = INT_BITS[a.elem]
    out = e.compare("icmp uge", n, e.const(n.elem, bits))
    if op == "ashr":
        # Shifts by the width or more are poison in LLVM; a negative count is a large unsigned one.
        return e.binary(op, a, e.select(out, e.const(n.elem, bits - 1), n))
    shifted = e.binary(op, a, e.select(out, e.const(n.elem, 0), n))
    return e.select(out, e.const(a.elem, 0), shifted)


def _multiply_high(e: Emitter, dtype: DType, a: Value, b: Value) -> Value:
    """The upper half of the unsigned double-width product."""
    bits = INT_BITS[a.elem]
    # Twice the width, which for 64 bits is one instruction on x86 and AArch64.
    wide = f"i{2 * bits}"
    product = e.binary("mul", e.convert("zext", a, wide), e.convert("zext", b, wide))
    return e.convert("trunc", e.binary("lshr", product, e.const(wide, bits)), a.elem)


_INT_SPECIAL: dict[str, Callable[..., Value]] = {
    "fma": lambda e, dtype, a, b, c: e.binary("add", e.binary("mul", a, b), c),
    "neg": _negative,
    "abs": _absolute,
    "sign": _sign,
    "floordiv": _floor_divide,
    "mod": _mod,
    "fmod": _fmod,
    "div": lambda e, t, a, b: _quotient(e, t, a, _safe_divisor(e, t, a, b)[0]),
    "not": _invert,
    "shl": lambda e, t, a, n: _shift(e, t, a, n, "shl"),
    "shr": lambda e, t, a, n: _shift(e, t, a, n, "ashr" if t.signed else "lshr"),
    "mulhi": _multiply_high,
    "pow": lambda e, t, a, n: functions.integer_power(e, a, n, t.signed),
}

"""Arithmetic notation for LLVM values in math functions: ``x * x + 1.0`` instead of nested emitter calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tracecomp.codegen.text.emitter import FLOAT_BITS, Emitter, Value

Operand = Any
"""A ``Number`` or a Python number."""

_INT_OF = {"half": "i16", "float": "i32", "double": "i64"}
_FLOAT_OF = {"i16": "half", "i32": "float", "i64": "double"}


class Number:
    """A value with operators. Comparisons give masks; ``&``, ``|`` and ``~`` work on masks and integers."""

    __slots__ = ("e", "v")

    def __init__(self, e: Emitter, v: Value) -> None:
        self.e = e
        self.v = v

    def lift(self, other: Operand) -> Value:
        return other.v if isinstance(other, Number) else self.e.const(self.v.elem, other)

    @property
    def is_float(self) -> bool:
        return self.v.elem in FLOAT_BITS

    @property
    def is_double(self) -> bool:
        return self.v.elem == "double"

    def _binary(self, op: str, a: Value, b: Value) -> Number:
        return Number(self.e, self.e.binary(("f" if self.is_float else "") + op, a, b))

    def __add__(self, other: Operand) -> Number:
        return self._binary("add", self.v, self.lift(other))

    __radd__ = __add__

    def __sub__(self, other: Operand) -> Number:
        return self._binary("sub", self.v, self.lift(other))

    def __rsub__(self, other: Operand) -> Number:
        return self._binary("sub", self.lift(other), self.v)

    def __mul__(self, other: Operand) -> Number:
        return self._binary("mul", self.v, self.lift(other))

    __rmul__ = __mul__

    def __truediv__(self, other: Operand) -> Number:
        return self._binary("div", self.v, self.lift(other))

    def __rtruediv__(self, other: Operand) -> Number:
        return self._binary("div", self.lift(other), self.v)

    def __neg__(self) -> Number:
        return Number(self.e, self.e.unary("fneg", self.v)) if self.is_float else 0 - self

    def _compare(self, ordered: str, integer: str, other: Operand) -> Number:
        predicate = f"fcmp {ordered}" if self.is_float else f"icmp {integer}"
        return Number(self.e, self.e.compare(predicate, self.v, self.lift(other)))

    def __lt__(self, other: Operand) -> Number:
        return self._compare("olt", "slt", other)

    def __le__(self, other: Operand) -> Number:
        return self._compare("ole", "sle", other)

    def __gt__(self, other: Operand) -> Number:
        return self._compare("ogt", "sgt", other)

    def __ge__(self, other: Operand) -> Number:
        return self._compare("oge", "sge", other)

    def equals(self, other: Operand) -> Number:
        return self._compare("oeq", "eq", other)

    def differs(self, other: Operand) -> Number:
        return self._compare("une", "ne", other)

    def is_nan(self) -> Number:
        return Number(self.e, self.e.compare("fcmp uno", self.v, self.v))

    def __and__(self, other: Operand) -> Number:
        return Number(self.e, self.e.binary("and", self.v, self.lift(other)))

    def __or__(self, other: Operand) -> Number:
        return Number(self.e, self.e.binary("or", self.v, self.lift(other)))

    def __xor__(self, other: Operand) -> Number:
        return Number(self.e, self.e.binary("xor", self.v, self.lift(other)))

    def __invert__(self) -> Number:
        return self ^ (1 if self.v.elem == "i1" else -1)

    def __lshift__(self, count: int) -> Number:
        return Number(self.e, self.e.binary("shl", self.v, self.lift(count)))

    def __rshift__(self, count: int) -> Number:
        """An arithmetic shift."""
        return Number(self.e, self.e.binary("ashr", self.v, self.lift(count)))

    def shift_logical(self, count: Operand) -> Number:
        return Number(self.e, self.e.binary("lshr", self.v, self.lift(count)))

    def _intrinsic(self, name: str, *others: Operand) -> Number:
        return Number(self.e, self.e.intrinsic(name, self.v, *map(self.lift, others)))

    def fma(self, b: Operand, c: Operand) -> Number:
        """``self * b + c``, rounded once."""
        return self._intrinsic("fma", b, c)

    def abs(self) -> Number:
        return self._intrinsic("fabs")

    def sqrt(self) -> Number:
        return self._intrinsic("sqrt")

    def rint(self) -> Number:
        return self._intrinsic("rint")

    def floor(self) -> Number:
        return self._intrinsic("floor")

    def trunc(self) -> Number:
        return self._intrinsic("trunc")

    def with_sign_of(self, other: Operand) -> Number:
        return self._intrinsic("copysign", other)

    def bits(self) -> Number:
        """The floating-point value's bits as an integer."""
        return Number(self.e, self.e.convert("bitcast", self.v, _INT_OF[self.v.elem]))

    def as_float(self) -> Number:
        """The floating-point value with these bits."""
        return Number(self.e, self.e.convert("bitcast", self.v, _FLOAT_OF[self.v.elem]))

    def to_int(self) -> Number:
        """An integral floating-point value, known to be in range, as an integer of the same size."""
        return Number(self.e, self.e.convert("fptosi", self.v, _INT_OF[self.v.elem]))

    def to_float(self) -> Number:
        return Number(self.e, self.e.convert("sitofp", self.v, _FLOAT_OF[self.v.elem]))

    def convert(self, op: str, elem: str) -> Number:
        return Number(self.e, self.e.convert(op, self.v, elem))

    def to_double(self) -> Number:
        return self if self.is_double else self.convert("fpext", "double")

    def rounded_to(self, like: Number) -> Number:
        """A double as a number of the type of ``like``."""
        return self if like.is_double else self.convert("fptrunc", "float")

    def full(self, value: float | int) -> Number:
        """A constant of this number's type and width."""
        return Number(self.e, self.e.const(self.v.elem, value, self.v.width))

    def any(self) -> Number:
        """For a mask: whether some lane is true, as a scalar."""
        if not self.v.width:
            return self
        # One integer for all lanes: nonzero if any is true.
        bits = self.e.mask_bits(self.v)
        return Number(self.e, self.e.compare("icmp ne", bits, self.e.const(bits.elem, 0)))


def where(condition: Number, a: Operand, b: Operand) -> Number:
    """``a`` where the mask is true, else ``b``; at least one of them is a Number."""
    # The mask's lanes determine the width of a constant; ``select`` widens it.
    like = a if isinstance(a, Number) else b
    return Number(like.e, like.e.select(condition.v, like.lift(a), like.lift(b)))


def at_most(x: Number, limit: float) -> Number:
    """The smaller of ``x`` and a constant; NaN stays."""
    # A comparison and a select: NaN compares false and stays.
    return where(x > limit, limit, x)


def at_least(x: Number, limit: float) -> Number:
    """The larger of ``x`` and a constant; NaN stays."""
    return where(x < limit, limit, x)


LONG = 10
"""Number of coefficients above which a polynomial is two chains."""


def horner(x: Number, coefficients: Sequence[float]) -> Number:
    """The polynomial whose coefficients are given lowest first.

    A long one is the sum of its even and its odd part: the processor's window is too small to fill the latency of one
    long chain with other elements.
    """
    if len(coefficients) < LONG:
        return _chain(x, coefficients)
    square = x * x
    # Even and odd powers: two chains of half the length, which run in parallel.
    return _chain(square, coefficients[1::2]).fma(x, _chain(square, coefficients[::2]))


def _chain(x: Number, coefficients: Sequence[float]) -> Number:
    total = x.full(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total.fma(x, x.full(c))
    return total


def call_function(e: Emitter, name: str, build: Callable[..., Number], args: Sequence[Value]) -> Value:
    """``build(*args)`` as a function of the program, written the first time that it is called."""
    matched = e.matched(*args)
    first = matched[0]
    full = f"@tc.{name}.{first.width}.{first.elem}"
    if not e.module.knows(full):
        declarations = e.module.declarations
        # Its place is reserved first, as its code may declare others.
        declarations[full] = ""
        inner = Emitter(e.module)
        params = [Value(f"%x{i}", a.elem, a.width) for i, a in enumerate(matched)]
        result = build(*[Number(inner, p) for p in params]).v
        result = inner.widen(result, first.width) if first.width else result
        lines = "\n".join(inner.blocks[0].lines)
        signature = ", ".join(map(str, params))
        declarations[full] = f"define {result.type} {full}({signature}) #2 {{\nentry:\n{lines}\n  ret {result}\n}}\n"
    rhs = f"call {first.type} {full}({', '.join(map(str, matched))})"
    return e.pure(rhs, first.elem, first.width, matched)


__all__ = ["Number", "Operand", "at_least", "at_most", "call_function", "horner", "where"]

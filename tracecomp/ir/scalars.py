"""The scalar operations of the loop IR, with their numpy meanings; codegen must be able to emit each.

``call("exp", x)`` builds an expression with the right dtype. To add a scalar function, write one row here (name, result
rule, numpy meaning) and one emitter in ``codegen/``. A function whose uses compose it of others needs no emitter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracecomp.ir import error_functions, special
from tracecomp.ir.immutable import immutable
from tracecomp.ir.loops import Call, Const, Expr
from tracecomp.ir.types import DType, bool_


@immutable
class ScalarOp:
    """``result``: "same" as the last operand (for ``select``, its branches) or "bool". ``numpy`` works on arrays."""

    name: str
    arity: int
    result: str
    numpy: Callable[..., Any]


def _quiet(fn: Callable[..., object]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return fn(*args)

    return run


def _shift(fn: Callable[..., Any], beyond: Callable[[Any], Any]) -> Callable[..., Any]:
    """Shifts by a negative or too large count: like PyTorch on x86, all bits are shifted out."""

    def run(a: Any, n: Any) -> Any:
        dtype = np.result_type(a, n)
        a = np.asarray(a, dtype)
        out = (n < 0) | (n >= dtype.itemsize * 8)
        return np.where(out, beyond(a), fn(a, np.where(out, 0, n).astype(dtype)))

    return run


_SAME: dict[str, tuple[int, Callable[..., Any]]] = {
    # arithmetic; integers wrap around; floordiv and mod round down, fmod truncates
    "add": (2, np.add), "sub": (2, np.subtract), "mul": (2, np.multiply), "div": (2, np.divide),
    "fma": (3, special.fma), "neg": (1, np.negative), "abs": (1, np.abs), "sign": (1, special.sign),
    "floordiv": (2, special.floor_divide), "mod": (2, special.remainder), "fmod": (2, special.fmod),
    "max": (2, np.maximum), "min": (2, np.minimum),
    "floor": (1, np.floor), "ceil": (1, np.ceil), "trunc": (1, np.trunc), "round": (1, np.rint),
    "sqrt": (1, np.sqrt), "copysign": (2, np.copysign), "nextafter": (2, np.nextafter),
    # bits
    "and": (2, np.bitwise_and), "or": (2, np.bitwise_or), "xor": (2, np.bitwise_xor), "not": (1, np.invert),
    "shl": (2, _shift(np.left_shift, lambda a: np.zeros_like(a))),
    "shr": (2, _shift(np.right_shift, lambda a: np.where(a < 0, -1, 0).astype(a.dtype))),
    "mulhi": (2, special.mulhi_unsigned),
    # functions
    "exp": (1, np.exp), "exp2": (1, np.exp2), "expm1": (1, np.expm1),
    "log": (1, np.log), "log2": (1, np.log2), "log10": (1, np.log10), "log1p": (1, np.log1p),
    "sin": (1, np.sin), "cos": (1, np.cos), "tan": (1, np.tan),
    "asin": (1, np.arcsin), "acos": (1, np.arccos), "atan": (1, np.arctan), "atan2": (2, np.arctan2),
    "sinh": (1, np.sinh), "cosh": (1, np.cosh), "tanh": (1, np.tanh),
    "asinh": (1, np.arcsinh), "acosh": (1, np.arccosh), "atanh": (1, np.arctanh),
    "sigmoid": (1, special.sigmoid), "erf": (1, error_functions.erf),
    "erfc": (1, error_functions.erfc), "erfinv": (1, error_functions.erfinv),
    "lgamma": (1, special.lgamma), "digamma": (1, special.digamma), "pow": (2, special.power), "hypot": (2, np.hypot),
    "select": (3, special.select),
}  # fmt: skip

_BOOL: dict[str, tuple[int, Callable[..., Any]]] = {
    "eq": (2, np.equal), "ne": (2, np.not_equal), "lt": (2, np.less), "le": (2, np.less_equal),
    "gt": (2, np.greater), "ge": (2, np.greater_equal), "isnan": (1, np.isnan),
}  # fmt: skip

SCALARS: dict[str, ScalarOp] = {
    name: ScalarOp(name, arity, rule, _quiet(fn))
    for rule, table in (("same", _SAME), ("bool", _BOOL))
    for name, (arity, fn) in table.items()
}


def call(op: str, *args: Expr) -> Expr:
    """The expression ``op(*args)``; ``and``/``or``/``xor``/``not`` on bools are logical."""
    rule = SCALARS[op]
    if len(args) != rule.arity:
        raise TypeError(f"scalar {op} takes {rule.arity} operands, got {len(args)}")
    return Call(op, args, bool_ if rule.result == "bool" else args[-1].dtype)


def const(value: bool | int | float, dtype: DType) -> Const:
    return Const(value, dtype)


def identity(op: str, dtype: DType) -> bool | int | float:
    """The initial value of an accumulator of ``op``: the value that changes no other."""
    if op in ("and", "or"):
        return op == "and"
    if op in ("add", "fma", "mul"):
        return (1.0 if op == "mul" else 0.0) if dtype.kind == "float" else int(op == "mul")
    sign = -1 if op == "max" else 1
    if dtype.kind == "float":
        return sign * float("inf")
    if dtype.kind == "bool":
        return sign > 0
    bits = dtype.itemsize * 8
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dtype.signed else (0, 2**bits - 1)
    return low if sign < 0 else high

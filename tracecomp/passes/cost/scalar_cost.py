"""Cost of an operator per element, in units of one vector addition, computed from its scalar expression.

A cost model: an ordering of choices, not a prediction.
"""

from __future__ import annotations

from collections.abc import Iterable

from tracecomp.ir.graph import Node
from tracecomp.ir.loops import Call, Expr, Let, Read, Stmt, Store
from tracecomp.ir.op import Pointwise
from tracecomp.ir.types import compute_dtype

_CHEAP = frozenset((
    "add", "sub", "mul", "fma", "neg", "abs", "max", "min", "and", "or", "xor", "not", "shl", "shr", "select", "eq",
    "ne", "lt", "le", "gt", "ge", "isnan", "cast", "bitcast", "copysign", "floor", "ceil", "trunc", "round", "sign",
))  # fmt: skip
_OWN = {
    "div": 4.0,
    "sqrt": 5.0,
    **dict.fromkeys(("tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "atanh"), 40.0),
    **dict.fromkeys(("hypot", "fmod", "mod", "floordiv", "erfc", "erfinv", "pow"), 50.0),
    **dict.fromkeys(("asinh", "acosh", "lgamma", "digamma"), 100.0),
}
"""Time of an operation in vector additions, counted from the instructions of its code (``codegen/math``)."""

_FUNCTION = 12.0
"""The same for functions that are not listed: a reduction of the argument and a polynomial of some eight terms."""

MOVING_COST = 3.0
"""Time, in vector additions, of moving an element through memory that no cache holds."""


def op_cost(node: Node) -> float:
    """Cost of one element of an elementwise node."""
    loop = node.op.loop
    assert isinstance(loop, Pointwise)
    operands = [Read(f"x{n}", compute_dtype(v.dtype)) for n, v in enumerate(node.inputs)]
    return expr_cost(loop.fn(*operands, **node.attrs))


def expr_cost(expr: Expr) -> float:
    """Cost of evaluating an expression once."""
    if not isinstance(expr, Call):
        return 0.0
    # Reads and constants are free: loads are counted where memory is the limit, by MOVING_COST.
    own = 1.0 if expr.op in _CHEAP else _OWN.get(expr.op, _FUNCTION)
    return own + sum(expr_cost(a) for a in expr.args)


def stmts_cost(body: Iterable[Stmt]) -> float:
    """Cost of evaluating statements once."""
    # Half for the statement: a let of a load has an expression that costs nothing.
    return sum(0.5 + (expr_cost(s.value) if isinstance(s, Let | Store) else 0.0) for s in body)

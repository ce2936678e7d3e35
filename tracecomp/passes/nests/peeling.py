"""Loop peeling: split a loop where conditions on its variable change, so that each part runs without them.

Padding, concatenation and slice updates choose by position. If one row variable alone decides, its range is split at
the boundaries. In each part the comparisons are constants, and unused statements are dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import prod

from tracecomp.ir.index import Index, Var, index
from tracecomp.ir.loop_copy import Copier
from tracecomp.ir.loops import Call, Const, Expr, IndexValue, Let, Load, Read, Stmt, Store, expressions
from tracecomp.ir.types import bool_

FEW_PARTS = 8
"""Parts of a loop that may each be a copy of its body."""
MAX_PARTS = 64
"""Most parts of a loop whose bodies are short: in a concatenation, each copies one operand.

densenet121 joins up to 25 operands, densenet201 up to 49. Split loops load each element once: a training step of
densenet121 takes 68.3 ms, with 8 parts at most 71.6 ms, and LLVM 14 % less time (AMD EPYC, Zen 4).
"""
MIN_PART = 4
"""Least average iterations per part: in shorter parts the loop overhead dominates."""
MIN_WORK = 64
"""Elements of the inner loops above which parts may be shorter."""


def parts_of(names: Sequence[Var], body: list[Stmt]) -> tuple[Var, list[int]] | None:
    """Return the variable to split, and the boundaries of its parts; None if no condition depends on one.

    Parts should be long, or contain many elements of inner variables.
    """
    found: dict[Var, Counter[int]] = {v: Counter() for v in names}
    for expr in expressions(body):
        # Boundaries are counted: one that many conditions share is worth more than one that a single store has.
        cut = _boundary(expr)
        if cut is not None and cut[0] in found:
            found[cut[0]][cut[1]] += 1
    # One variable only, as the numbers of parts multiply: two variables of three parts each would be nine copies of the
    # body.
    best = max(found, key=lambda v: sum(found[v].values()), default=None)
    if best is None or not found[best]:
        return None
    cuts = sorted({0, best.extent, *(c for c in found[best] if 0 < c < best.extent)})
    sizes = [b - a for a, b in pairwise(cuts)]
    # Copies of a body cost compile time and instruction cache, which only long parts recover (``part_bodies``).
    long = best.extent >= MIN_PART * len(sizes) or prod(v.extent for v in names[names.index(best) + 1 :]) >= MIN_WORK
    return (best, cuts) if 2 <= len(sizes) <= MAX_PARTS and long else None


def part_bodies(var: Var, cuts: Sequence[int], body: list[Stmt]) -> list[tuple[Var, list[Stmt]]]:
    """The bodies of all parts, each with its variable; none if they are many and together much longer than ``body``."""
    found = [part(var, low, high, body) for low, high in pairwise(cuts)]
    # Folding removes statements: a part of a concatenation loads one operand, and names and stores it.
    short = sum(len(stmts) for _, stmts in found) <= 3 * len(body)
    return found if len(found) <= FEW_PARTS or short else []


def part(var: Var, low: int, high: int, body: list[Stmt]) -> tuple[Var, list[Stmt]]:
    """The body for ``low <= var < high``, over a variable that starts at zero."""
    new = Var(f"{var.name}_{low}", high - low)
    # The suffix keeps names of the parts distinct, as they are in one kernel.
    folded = Folding({var: index(new) + low}, f"_{low}").stmts(body)
    return new, list(used(folded))


class Folding(Copier):
    """Copy statements and evaluate comparisons that the bounds of loop variables decide.

    ``constants`` are the names that turned out to be known, ``holding`` conditions (of the copy) known to hold.
    """

    def __init__(self, mapping: Mapping[Var, Index], suffix: str) -> None:
        super().__init__(mapping, suffix)
        self.constants: dict[str, Const] = {}
        self.holding: set[Expr] = set()

    def expr(self, expr: Expr) -> Expr:
        new = super().expr(expr)
        # A name known to be constant is replaced where it is read, so that one decided comparison decides its users.
        if isinstance(new, Read) and new.name in self.constants:
            return self.constants[new.name]
        if isinstance(new, Load) and isinstance(new.where, Const):
            # A masked load that never happens is the mask's zero.
            if not new.where.value:
                return Const(new.dtype.python(0), new.dtype)
            # Bounds of variables, or a surrounding ``if``, made it true. Under an ``if`` the mark stays: the bounds of
            # the position do not show the guarantee of the condition, so code generation must trust the mark.
            return new if self.holding else Load(new.buffer, new.offset)
        # After folding the operands: a condition is known in the copy's names.
        if new in self.holding:
            return Const(True, bool_)
        return fold(new) if isinstance(new, Call) else new

    def stmt(self, stmt: Stmt) -> Stmt:
        new = super().stmt(stmt)
        if isinstance(new, Let) and isinstance(new.value, Const):
            self.constants[new.name] = new.value
        return new


def fold(call: Call) -> Expr:
    """Return the call, or the constant or operand that it is known to equal."""
    a = call.args[0]
    if call.op in ("lt", "ge") and isinstance(a, IndexValue) and isinstance(call.args[1], Const):
        bounds, limit = a.index.bounds, call.args[1].value
        # The range of the index decides: between two boundaries it is on one side of the limit.
        if bounds is not None and bounds[1] < limit:
            return Const(call.op == "lt", bool_)
        if bounds is not None and bounds[0] >= limit:
            return Const(call.op == "ge", bool_)
    # If a number replaced the variable, the position is a number.
    if call.op == "eq" and isinstance(a, IndexValue) and a.index.is_const and isinstance(call.args[1], Const):
        return Const(a.index.const == call.args[1].value, bool_)
    if call.op in ("and", "or") and call.dtype is bool_:
        decisive = call.op == "or"  # the value that decides the result
        # Operands that cannot decide are dropped: true in an ``and``, false in an ``or``.
        rest = [x for x in call.args if not (isinstance(x, Const) and bool(x.value) != decisive)]
        if any(isinstance(x, Const) for x in rest):
            return Const(decisive, bool_)
        if len(rest) < 2:
            return rest[0] if rest else Const(not decisive, bool_)
    # The dropped branch may have been the only use of a load; ``used`` drops that.
    if call.op == "select" and isinstance(a, Const):
        return call.args[1] if a.value else call.args[2]
    return call


def used(body: Iterable[Stmt]) -> list[Stmt]:
    """Drop unread lets from the statements; all must be at one level."""
    needed: set[str] = set()
    kept: list[Stmt] = []
    # Backwards, so that a let which only dropped lets read is dropped too.
    for stmt in reversed(list(body)):
        if isinstance(stmt, Let) and stmt.name not in needed:
            continue
        # Operands of a store that never happens are unused too.
        if isinstance(stmt, Store) and isinstance(stmt.where, Const) and not stmt.where.value:
            continue
        kept.append(stmt)
        for expr in expressions([stmt]):
            if isinstance(expr, Read):
                needed.add(expr.name)
    return kept[::-1]


def boundaries(var: Var, conditions: Iterable[Expr]) -> list[int]:
    """Values of ``var`` at which some of the conditions change, if they depend on ``var`` alone."""
    found = {_boundary(c) for c in conditions}
    return sorted(cut[1] for cut in found if cut is not None and cut[0] == var and 0 < cut[1] < var.extent)


def _boundary(expr: Expr) -> tuple[Var, int] | None:
    """``(v, c)`` for a comparison that depends on ``v`` alone and changes at ``v == c``."""
    # Only conditions on one variable with a positive factor: others have no single boundary.
    if not isinstance(expr, Call) or expr.op not in ("lt", "ge") or not isinstance(expr.args[0], IndexValue):
        return None
    i, limit = expr.args[0].index, expr.args[1]
    if len(i.terms) != 1 or not isinstance(i.terms[0][0], Var) or not isinstance(limit, Const):
        return None
    var, c = i.terms[0]
    assert isinstance(var, Var)
    # The smallest v with ``c * v + const >= limit``, by rounding up.
    return (var, -(-(int(limit.value) - i.const) // c)) if c > 0 else None

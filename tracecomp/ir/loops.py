"""The loop IR: a kernel as data. This is the full grammar (``ir/program.py`` defines programs):

    program = slots, step*                           step  = call kernel(ref*) | repeat var: step*
                                                           | when ref: step* otherwise: step*
                                                           | while (step* ref): step*
    kernel  = params, stmt*
    stmt    = loop kind var: stmt*                   kind  = serial | parallel | opportunistic | tile | vector
            | let name = expr                        names are assigned once
            | store buffer[index] = expr  [where e]
            | stream buffer[index] = expr  [where e] a store to memory without a near read: bypasses caches
            | stream alone buffer[index] = expr  [where e]    a stream where one thread runs the program, else a store
            | accumulate (name: op from init)*: stmt*     ... update name, expr*
            | local buffer
            | if expr: stmt*                         the condition does not vary over tile loops
            | check expr                             false: the call fails with an index error
            | prefetch buffer[index]                 a hint without effect; does not vary over tile and vector loops
    expr    = const | index | load buffer[index] [where e] | name | scalar-op(expr*) : dtype
            | to_line(buffer)                         elements before the first that begins a line of memory

``serial``, ``parallel`` and ``opportunistic`` loops run one iteration after another. Parallel ones may be split among
threads, opportunistic ones among threads that are awake. ``tile`` and ``vector`` loops run all their iterations at
once, as one program over many elements: every statement inside is done for all elements of the surrounding tile loops
before the next one. At most one ``vector`` loop surrounds a statement; it becomes SIMD lanes. ``tile`` loops are
unrolled. Both have small static extents; splitting a long loop into chunks and a remainder is the scheduler's work, not
codegen's.

``accumulate`` declares accumulators, runs its body, after which each name reads as the total. An ``update`` combines
``op(accumulator, expr...)``. Accumulators declared inside a tile or vector loop exist once per element. An update
inside a vector (or tile) loop inside the ``accumulate`` goes to partial accumulator number ``position % lanes``.
``lanes`` is a power of two, position the vector variable's value. Every lane starts from ``init``. Updates of one lane
happen in loop order. At the end the lanes are combined by halving (lane i with lane i + lanes/2, then lanes/4, ...).
The order of a sum is therefore part of the program, not of its execution. The op ``set`` replaces the value (a
loop-carried scalar); ``fma`` takes two expressions. Inside the body an accumulator without lanes reads as its current
value.

Memory: distinct slots do not overlap, except arena slots, which are byte ranges. Between the top-level statements of a
kernel, and between kernels that touch the same bytes, all threads synchronize. An index may be neither provably in
bounds nor guarded by ``where``. If it is out of bounds at run time, a load uses 0 instead and a store is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any, Literal

from tracecomp.ir.immutable import immutable
from tracecomp.ir.index import Computed, FloorDiv, Index, Var, computed, index
from tracecomp.ir.types import DType, bool_, int64


@immutable
class Buffer:
    """Dense memory of ``size`` elements. A kernel's parameters are identified by name."""

    name: str
    dtype: DType
    size: int


@immutable
class Const:
    value: bool | int | float
    dtype: DType

    def _content(self) -> tuple[Any, ...]:
        # Kernels that differ only in the sign of a zero are different.
        sign = math.copysign(1.0, self.value) if self.value == 0 else 0.0
        return self.value, sign, self.dtype

    def substitute(self, mapping: Mapping[Var, Index]) -> Const:
        return self

    def vars(self) -> Iterator[Var]:
        return iter(())


@immutable
class IndexValue:
    """An index used as an int64 scalar."""

    index: Index
    dtype: DType = int64

    def substitute(self, mapping: Mapping[Var, Index]) -> IndexValue:
        return IndexValue(self.index.substitute(mapping))

    def vars(self) -> Iterator[Var]:
        return iter(self.index.vars())


@immutable
class Load:
    """``buffer[offset]``; if ``where`` is false nothing is read and the value is zero."""

    buffer: Buffer
    offset: Index
    where: Expr | None = None

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    def substitute(self, mapping: Mapping[Var, Index]) -> Load:
        where = self.where.substitute(mapping) if self.where else None
        return Load(self.buffer, self.offset.substitute(mapping), where)

    def vars(self) -> Iterator[Var]:
        yield from self.offset.vars()
        if self.where:
            yield from self.where.vars()


@immutable
class Read:
    """The value of a ``let`` or of a finished accumulator; ``over`` are the loop variables of its definition."""

    name: str
    dtype: DType
    over: frozenset[Var] = frozenset()

    def substitute(self, mapping: Mapping[Var, Index]) -> Read:
        over = {w for v in self.over for w in (mapping[v].vars() if v in mapping else (v,))}
        return Read(self.name, self.dtype, frozenset(over))

    def vars(self) -> Iterator[Var]:
        return iter(self.over)


@immutable
class Call:
    """A scalar operation of ``ir.scalars`` (``cast`` and ``bitcast`` go to ``dtype``).

    ``origin`` is its graph node, if known; equality ignores it.
    """

    op: str
    args: tuple[Expr, ...]
    dtype: DType
    origin: object = field(default=None, compare=False)

    def substitute(self, mapping: Mapping[Var, Index]) -> Call:
        return Call(self.op, tuple(a.substitute(mapping) for a in self.args), self.dtype, self.origin)

    def vars(self) -> Iterator[Var]:
        for a in self.args:
            yield from a.vars()


@immutable
class ToLine:
    """The number of elements of ``buffer`` before the first that begins a line of memory; less than a line."""

    buffer: Buffer
    dtype: DType = int64

    def substitute(self, mapping: Mapping[Var, Index]) -> ToLine:
        return self

    def vars(self) -> Iterator[Var]:
        return iter(())


Expr = Const | IndexValue | Load | Read | Call | ToLine


@immutable
class Let:
    name: str
    value: Expr


Stream = Literal["", "alone", "always"]
"""Whether a store may bypass the caches: never, if one thread runs the program, or always."""


@immutable
class Store:
    buffer: Buffer
    offset: Index
    value: Expr
    where: Expr | None = None
    stream: Stream = ""
    origin: object = field(default=None, compare=False)


@immutable
class Loop:
    kind: str
    var: Var
    body: tuple[Stmt, ...]


@immutable
class Acc:
    """One accumulator. ``op``: add, mul, fma, max, min, and, or, set. ``lanes``: partial accumulators (1: none)."""

    name: str
    op: str
    dtype: DType
    init: Expr
    lanes: int = 1


@immutable
class Accumulate:
    accs: tuple[Acc, ...]
    body: tuple[Stmt, ...]


@immutable
class Update:
    name: str
    args: tuple[Expr, ...]
    origin: object = field(default=None, compare=False)


@immutable
class Local:
    """Scratch memory for the statements that follow in the same body; its initial contents are undefined."""

    buffer: Buffer


@immutable
class If:
    condition: Expr
    body: tuple[Stmt, ...]


@immutable
class Check:
    """The call fails when the condition is false for an active element: with ``errors.FAILURES[failure]``, whose text
    may name the integer ``detail``."""

    condition: Expr
    failure: str = "index"
    detail: Expr | None = None


@immutable
class Prefetch:
    """Prefetch the cache line of ``buffer[offset]`` into the second cache. It may be outside the buffer."""

    buffer: Buffer
    offset: Index


SHARED = ("parallel", "opportunistic")
"""The kinds of loops that threads share."""

LINE = 64
"""Bytes of a cache line."""

Stmt = Let | Store | Loop | Accumulate | Update | Local | If | Check | Prefetch


def cast(value: Expr, dtype: DType) -> Expr:
    """``value`` converted to ``dtype``; the value itself when it has it already."""
    return value if value.dtype is dtype else Call("cast", (value,), dtype)


def in_range(i: Index, size: int) -> Expr | None:
    """The condition ``0 <= i < size``; None when it always holds."""
    if len(i.terms) == 1 and isinstance(i.terms[0][0], FloorDiv) and i.terms[0][1] == 1:
        divided = i.terms[0][0]
        return in_range(divided.index + i.const * divided.divisor, size * divided.divisor)
    bounds = i.bounds
    conditions: list[Expr] = []
    if bounds is None or bounds[0] < 0:
        conditions.append(Call("ge", (IndexValue(i), Const(0, int64)), bool_))
    if bounds is None or bounds[1] >= size:
        conditions.append(Call("lt", (IndexValue(i), Const(size, int64)), bool_))
    return both(*conditions) if conditions else None


def index_from(expr: Expr, size: int) -> Index:
    """The Index of a loaded integer that must be in ``range(size)``.

    ``checked_index`` is a marker, not a scalar operation: lowering emits ``check`` for the range before the statement
    that uses the index, and replaces the marker by its first operand.
    """
    return computed(Call("checked_index", (cast(expr, int64), Const(size, int64)), int64), (0, max(size - 1, 0)))


def both(*conditions: Expr | None) -> Expr | None:
    """The conjunction of conditions, where None means true."""
    result: Expr | None = None
    for c in conditions:
        if c is not None:
            result = c if result is None else Call("and", (result, c), bool_)
    return result


def children(stmt: Stmt) -> tuple[Stmt, ...]:
    """The statements nested directly in ``stmt``."""
    return stmt.body if isinstance(stmt, Loop | Accumulate | If) else ()


def with_children(stmt: Any, body: tuple[Stmt, ...]) -> Any:
    """``stmt`` with its nested statements replaced."""
    return replace(stmt, body=body)


def walk(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement, parents before children."""
    for stmt in body:
        yield stmt
        yield from walk(children(stmt))


def operands(x: Expr) -> tuple[Expr, ...]:
    """Expressions inside ``x``, those inside indices included."""
    match x:
        case Call():
            return x.args
        case Load():
            return (*_in_index(x.offset), *((x.where,) if x.where else ()))
        case IndexValue():
            return _in_index(x.index)
    return ()


def _in_index(i: Index) -> tuple[Expr, ...]:
    result: list[Expr] = []
    for atom, _ in i.terms:
        if isinstance(atom, Computed):
            result.append(atom.expr)
        elif not isinstance(atom, Var):
            result.extend(_in_index(atom.index))
    return tuple(result)


def roots(s: Stmt) -> list[Expr]:
    """The expressions of a statement itself, those inside indices included; not of nested ones."""
    match s:
        case Let():
            return [s.value]
        case Store():
            return [*_in_index(s.offset), s.value, *((s.where,) if s.where else ())]
        case Accumulate():
            return [a.init for a in s.accs]
        case Update():
            return list(s.args)
        case If():
            return [s.condition]
        case Check():
            return [s.condition] if s.detail is None else [s.condition, s.detail]
        case Prefetch():
            return list(_in_index(s.offset))
    return []


def expressions(body: Iterable[Stmt]) -> Iterator[Expr]:
    """Yield every expression of the statements and its subexpressions; not of nested statements."""
    stack = [x for s in body for x in roots(s)][::-1]
    while stack:
        x = stack.pop()
        yield x
        stack.extend(operands(x)[::-1])


__all__ = [
    "LINE", "SHARED", "Acc", "Accumulate", "Buffer", "Call", "Check", "Const", "Expr", "If", "Index", "IndexValue",
    "Let", "Load", "Local", "Loop", "Prefetch", "Read", "Stmt", "Store", "ToLine", "Update", "Var", "both", "cast",
    "children", "expressions", "in_range", "index", "index_from", "operands", "roots", "walk", "with_children",
]  # fmt: skip

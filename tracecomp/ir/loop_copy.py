"""Copies of statements: loop variables substituted, names made fresh."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tracecomp.ir.index import Atom, FloorDiv, Index, Mod, Var, computed, total
from tracecomp.ir.loops import (
    Acc,
    Accumulate,
    Buffer,
    Call,
    Check,
    Const,
    Expr,
    If,
    IndexValue,
    Let,
    Load,
    Local,
    Loop,
    Prefetch,
    Read,
    Stmt,
    Store,
    ToLine,
    Update,
    expressions,
    walk,
)

Move = Callable[[Buffer, Index], tuple[Buffer, Index]]


class Copier:
    """Copy statements with ``mapping`` applied to indices and ``suffix`` added to every name bound in them.

    ``move`` may redirect an access (scratch memory kept once per SIMD lane); it receives the mapped index.
    """

    def __init__(self, mapping: Mapping[Var, Index], suffix: str = "", move: Move | None = None) -> None:
        self.mapping = mapping
        self.suffix = suffix
        self.move = move
        self.names: dict[str, str] = {}
        self.indices: dict[Index, Index] = {}
        self.lets: dict[str, Expr] = {}

    def stmts(self, body: Iterable[Stmt]) -> tuple[Stmt, ...]:
        return tuple(self.stmt(s) for s in body)

    def stmt(self, stmt: Stmt) -> Stmt:
        match stmt:
            case Let(name, value):
                value = self.lets[name] = self.expr(value)
                return Let(self._fresh(name), value)
            case Store(buffer, offset, value, where, stream):
                condition = where and self.expr(where)
                return Store(*self.at(buffer, offset), self.expr(value), condition, stream, stmt.origin)
            case Update(name, args):
                return Update(self._name(name), tuple(map(self.expr, args)), stmt.origin)
            case Accumulate(accs, body):
                accs = tuple(Acc(self._fresh(a.name), a.op, a.dtype, self.expr(a.init), a.lanes) for a in accs)
                return Accumulate(accs, self.stmts(body))
            case Loop(kind, var, body):
                return Loop(kind, var, self.stmts(body))
            case If(condition, body):
                return If(self.expr(condition), self.stmts(body))
            case Check(condition, failure, detail):
                return Check(self.expr(condition), failure, None if detail is None else self.expr(detail))
            case Prefetch(buffer, offset):
                return Prefetch(*self.at(buffer, offset))
            case Local(buffer):
                return Local(self.move(buffer, Index())[0]) if self.move else stmt

    def expr(self, expr: Expr) -> Expr:
        match expr:
            case Const() | ToLine():
                return expr
            case IndexValue(i):
                return IndexValue(self.index(i))
            case Load(buffer, offset, where):
                return Load(*self.at(buffer, offset), where and self.expr(where))
            case Read(name, dtype, over):
                return Read(self._name(name), dtype, over if over.isdisjoint(self.mapping) else self._over(name, over))
            case Call(op, args, dtype):
                return Call(op, tuple(map(self.expr, args)), dtype, expr.origin)

    def at(self, buffer: Buffer, offset: Index) -> tuple[Buffer, Index]:
        offset = self.index(offset)
        return self.move(buffer, offset) if self.move else (buffer, offset)

    def _over(self, name: str, over: frozenset[Var]) -> frozenset[Var]:
        """The variables over which a name varies after the mapping: perhaps only some parts of a split variable."""
        if name in self.lets:
            return frozenset(self.lets[name].vars())
        return frozenset(w for v in over for w in (self.mapping[v].vars() if v in self.mapping else (v,)))

    def index(self, i: Index) -> Index:
        if not i.terms:
            return i
        known = self.indices.get(i)
        if known is None:
            known = self._index(i)
            if not i.is_computed:
                self.indices[i] = known
        return known

    def _index(self, i: Index) -> Index:
        if not i.is_computed and i.vars().isdisjoint(self.mapping):
            return i
        return total(i.const, ((self._atom(atom), c) for atom, c in i.terms))

    def _atom(self, atom: Atom) -> Index:
        if isinstance(atom, Var):
            return self.mapping.get(atom, Index(((atom, 1),)))
        if isinstance(atom, FloorDiv):
            return self.index(atom.index) // atom.divisor
        if isinstance(atom, Mod):
            return self.index(atom.index) % atom.divisor
        return computed(self.expr(atom.expr), atom.bounds)

    def _fresh(self, name: str) -> str:
        self.names[name] = name + self.suffix
        return self.names[name]

    def _name(self, name: str) -> str:
        return self.names.get(name, name)


def indices_of(body: Iterable[Stmt]) -> Iterable[Index]:
    """Every index in the statements, run-time integers inside indices included."""
    for stmt in walk(tuple(body)):
        if isinstance(stmt, Store | Prefetch):
            yield from _inside(stmt.offset)
        for x in expressions((stmt,)):
            if isinstance(x, Load):
                yield from _inside(x.offset)
            elif isinstance(x, IndexValue):
                yield from _inside(x.index)


def _inside(i: Index) -> Iterable[Index]:
    yield i
    for atom, _ in i.terms:
        if isinstance(atom, FloorDiv | Mod):
            yield from _inside(atom.index)

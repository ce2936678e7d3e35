"""Parser of the printed form of kernels (``loop_printer.py``); ``ir/loops.py`` has the grammar."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from tracecomp.base.errors import FAILURES
from tracecomp.ir.index import Atom, Computed, FloorDiv, Index, Mod, Var
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
)
from tracecomp.ir.program import Kernel
from tracecomp.ir.scalars import SCALARS
from tracecomp.ir.types import DType, bool_, dtype_named

_INFIX = {
    "+": "add", "-": "sub", "*": "mul", "/": "div",
    "==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge",
}  # fmt: skip
_NAME = re.compile(r"[%A-Za-z_][\w.]*")
_NUMBER = re.compile(r"-?(?:inf|nan|True|False|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)")
_OPERATOR = re.compile(r"\+|-|\*|/|==|!=|<=|>=|<|>")
_WORDS = {"store": "", "stream alone": "alone", "stream": "always"}
_FAILURES = sorted(FAILURES, key=len, reverse=True)
"""The kinds of failures, the longest names first: some begin with a shorter one."""
_UNTIL_BRACKET = re.compile(r"[^(]+")
_INTEGER = re.compile(r"-?\d+")
_LOOP = re.compile(r"(serial|parallel|opportunistic|tile|vector) (\w+) < (\d+):")


def parse_kernel(text: str, first: int = 1) -> Kernel:
    """Return the kernel that ``text`` describes, whose first line is number ``first``; ValueError names an invalid
    line."""
    lines = _KernelLines(text.rstrip("\n").split("\n"), first)
    kernel = lines.kernel()
    if lines.at < len(lines.lines):
        lines.take()
        lines.fail("text after the kernel")
    return kernel


@dataclass
class Lines:
    """Lines nested by two blanks; the first has number ``first``."""

    lines: list[str]
    first: int = 1
    at: int = 0

    def fail(self, message: str) -> NoReturn:
        """Raise an error for the current line."""
        number = max(self.at - 1, 0)
        raise ValueError(f"line {self.first + number}: {message}: {self.lines[number].strip()!r}")

    def level(self) -> int:
        """The nesting level of the next line; -1 after the last."""
        if self.at >= len(self.lines):
            return -1
        line = self.lines[self.at]
        return (len(line) - len(line.lstrip(" "))) // 2

    def take(self) -> str:
        if self.at >= len(self.lines):
            self.fail("the text ends too early")
        self.at += 1
        return self.lines[self.at - 1].strip()


@dataclass
class Scope:
    """Meanings of names at a statement."""

    vars: dict[str, Var] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    names: dict[str, tuple[DType, frozenset[Var]]] = field(default_factory=dict)

    def inner(self) -> Scope:
        return Scope(dict(self.vars), dict(self.buffers), dict(self.names))

    def bind(self, name: str, dtype: DType, over: Iterable[Var]) -> None:
        """Give a name to a value that varies ``over`` variables."""
        self.names[name] = dtype, frozenset(over)


class Text:
    """One line, parsed from the left."""

    def __init__(self, text: str, scope: Scope, shared: Mapping[str, Expr], fail: Callable[[str], NoReturn]) -> None:
        self.text = text
        self.at = 0
        self.scope = scope
        self.shared = shared
        self.fail = fail

    def accept(self, text: str) -> bool:
        if self.text.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.fail(f"expected {text!r} at {self.text[self.at : self.at + 12]!r}")

    def match(self, pattern: re.Pattern[str], what: str) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            self.fail(f"expected {what} at {self.text[self.at : self.at + 12]!r}")
        self.at = found.end()
        return found.group()

    def name(self) -> str:
        return self.match(_NAME, "a name")

    def integer(self) -> int:
        return int(self.match(_INTEGER, "an integer"))

    def dtype(self) -> DType:
        word = self.name()
        try:
            return dtype_named(word)
        except KeyError:
            self.fail(f"unknown element type {word!r}")

    def end(self) -> None:
        if self.at != len(self.text):
            self.fail(f"text after the statement: {self.text[self.at :]!r}")

    def buffer(self) -> Buffer:
        name = self.name()
        if name not in self.scope.buffers:
            self.fail(f"there is no buffer {name}")
        return self.scope.buffers[name]

    def declared(self) -> Buffer:
        """``name: f32[12]``."""
        name = self.name()
        self.expect(": ")
        dtype = self.dtype()
        self.expect("[")
        size = self.integer()
        self.expect("]")
        return Buffer(name, dtype, size)

    # ---- indices

    def index(self) -> Index:
        terms: list[tuple[Atom, int]] = []
        const = 0
        while True:
            number = _INTEGER.match(self.text, self.at)
            factor = 1
            if number is not None:
                self.at = number.end()
                factor = int(number.group())
            if number is None or self.accept("*"):
                terms.append((self.atom(), factor))
            else:
                const += factor
            if not self.accept(" + "):
                return Index(tuple(terms), const)

    def atom(self) -> Atom:
        if self.accept("["):
            expr = self.expr()
            bounds = None
            if self.accept(" in "):
                low = self.integer()
                self.expect("..")
                bounds = low, self.integer()
            self.expect("]")
            return Computed(expr, bounds)
        if self.accept("("):
            inner = self.index()
            kind = FloorDiv if self.accept(" // ") else Mod
            if kind is Mod:
                self.expect(" % ")
            divisor = self.integer()
            self.expect(")")
            return kind(inner, divisor)
        name = self.name()
        if name not in self.scope.vars:
            self.fail(f"there is no loop over {name}")
        return self.scope.vars[name]

    # ---- expressions

    def expr(self) -> Expr:
        if self.accept("("):
            left = self.expr()
            self.expect(" ")
            op = _INFIX[self.match(_OPERATOR, "an operator")]
            self.expect(" ")
            right = self.expr()
            self.expect(")")
            return self.call(op, (left, right))
        number = _NUMBER.match(self.text, self.at)
        if number is not None and self.text.startswith(":", number.end()):
            self.at = number.end() + 1
            return _constant(number.group(), self.dtype())
        name = self.name()
        if name in self.shared:
            return self.shared[name]
        if self.accept("["):
            offset = self.index()
            where = self.expr() if self.accept(" where ") else None
            self.expect("]")
            if name not in self.scope.buffers:
                self.fail(f"there is no buffer {name}")
            return Load(self.scope.buffers[name], offset, where)
        if self.accept("("):
            return self.application(name)
        if name not in self.scope.names:
            self.fail(f"{name} is not bound")
        return Read(name, *self.scope.names[name])

    def application(self, name: str) -> Expr:
        """Parse the rest of an application after ``name(``."""
        if name == "index":
            found: Expr = IndexValue(self.index())
            self.expect(")")
            return found
        if name == "to_line":
            found = ToLine(self.buffer())
            self.expect(")")
            return found
        args = [self.expr()]
        while self.accept(", "):
            args.append(self.expr())
        self.expect(")")
        if name in ("cast", "bitcast"):
            self.expect(":")
            return Call(name, tuple(args), self.dtype())
        return self.call(name, tuple(args))

    def call(self, op: str, args: tuple[Expr, ...]) -> Call:
        if op not in SCALARS:
            self.fail(f"{op} is not a scalar operation")
        return Call(op, args, bool_ if SCALARS[op].result == "bool" else args[-1].dtype)


def _constant(text: str, dtype: DType) -> Const:
    if text in ("True", "False"):
        return Const(text == "True", dtype)
    whole = re.fullmatch(r"-?\d+", text) is not None
    return Const(int(text) if whole else float(text), dtype)


class _KernelLines(Lines):
    """One kernel."""

    def kernel(self) -> Kernel:
        """The kernel of all lines."""
        scope = Scope()
        self.shared: dict[str, Expr] = {}
        head = self.text(scope)
        head.expect("kernel ")
        name = head.match(_UNTIL_BRACKET, "a name")
        head.expect("(")
        params: list[Buffer] = []
        writes: set[str] = set()
        while not head.accept(")"):
            if params:
                head.expect(", ")
            params.append(head.declared())
            if head.accept(" written"):
                writes.add(params[-1].name)
        head.expect(":")
        head.end()
        scope.buffers.update((p.name, p) for p in params)
        return Kernel(name, tuple(params), frozenset(writes), self.body(1, scope))

    def text(self, scope: Scope) -> Text:
        return Text(self.take(), scope, self.shared, self.fail)

    def body(self, level: int, scope: Scope) -> tuple[Stmt, ...]:
        """Parse the statements at nesting level ``level``."""
        scope = scope.inner()
        found: list[Stmt] = []
        while self.level() == level:
            stmt = self.stmt(level, scope)
            if stmt is not None:
                found.append(stmt)
        return tuple(found)

    def stmt(self, level: int, scope: Scope) -> Stmt | None:
        loop = _LOOP.fullmatch(self.lines[self.at].strip())
        if loop is not None:
            self.at += 1
            var = Var(loop.group(2), int(loop.group(3)))
            inner = scope.inner()
            inner.vars[var.name] = var
            return Loop(loop.group(1), var, self.body(level + 1, inner))
        t = self.text(scope)
        if t.text.startswith("%"):
            name = t.name()
            t.expect(" = ")
            self.shared[name] = t.expr()
            t.end()
            return None
        if t.accept("accumulate "):
            return self.accumulate(t, level, scope)
        if t.accept("if "):
            condition = t.expr()
            t.expect(":")
            t.end()
            return If(condition, self.body(level + 1, scope))
        found = self.simple(t, scope)
        t.end()
        return found

    def simple(self, t: Text, scope: Scope) -> Stmt:
        """A statement of one line."""
        if t.accept("let "):
            name = t.name()
            t.expect(" = ")
            value = t.expr()
            scope.bind(name, value.dtype, value.vars())
            return Let(name, value)
        if t.accept("update "):
            name, args = t.name(), []
            while t.accept(", "):
                args.append(t.expr())
            return Update(name, tuple(args))
        if t.accept("local "):
            buffer = t.declared()
            scope.buffers[buffer.name] = buffer
            return Local(buffer)
        if t.accept("check "):
            return self.check(t)
        if t.accept("prefetch "):
            buffer, offset = self.place(t)
            return Prefetch(buffer, offset)
        return self.store(t)

    def check(self, t: Text) -> Check:
        condition = t.expr()
        if not t.accept(" else "):
            return Check(condition)
        failure = next((name for name in _FAILURES if t.accept(name)), None)
        if failure is None:
            self.fail("no such failure")
        return Check(condition, failure, t.expr() if t.accept(", ") else None)

    @staticmethod
    def place(t: Text) -> tuple[Buffer, Index]:
        buffer = t.buffer()
        t.expect("[")
        offset = t.index()
        t.expect("]")
        return buffer, offset

    def store(self, t: Text) -> Store:
        word = next((w for w in _WORDS if t.accept(f"{w} ")), None)
        if word is None:
            self.fail("no such statement")
        buffer, offset = self.place(t)
        t.expect(" = ")
        value = t.expr()
        where = t.expr() if t.accept(" where ") else None
        return Store(buffer, offset, value, where, _WORDS[word])  # type: ignore[arg-type]

    def accumulate(self, t: Text, level: int, scope: Scope) -> Accumulate:
        accs = []
        while True:
            name = t.name()
            t.expect(": ")
            op = t.name()
            t.expect(" ")
            dtype = t.dtype()
            t.expect(" from ")
            init = t.expr()
            lanes = 1
            if t.accept(" in "):
                lanes = t.integer()
                t.expect(" lanes")
            accs.append(Acc(name, op, dtype, init, lanes))
            if not t.accept(", "):
                break
        t.expect(":")
        t.end()
        inner = scope.inner()
        for acc in accs:
            inner.bind(acc.name, acc.dtype, scope.vars.values())
            scope.bind(acc.name, acc.dtype, scope.vars.values())
        return Accumulate(tuple(accs), self.body(level + 1, inner))


__all__ = ["Lines", "Scope", "Text", "parse_kernel"]

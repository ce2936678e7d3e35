"""Random Python functions, cut into parts at random lines, do what they do uncut: values, calls in order, errors."""

from __future__ import annotations

import contextlib
import linecache
import random
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import pytest

from tracecomp.compiled.graph_breaks import split

NAMES = ("a", "b", "c", "n", "items")
VALUES = ("a", "b", "c", "n")
PROGRAMS = 600
"""Programs in one run of the test."""


class Writer:
    """Writes one random function; names may be read before they are set, and errors may be raised."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lines: list[str] = []
        self.fresh = 0

    def source(self) -> str:
        head = self.rng.choice(("def f(a, b=2, *rest, k=3, **more):", "def f(a, b, c=1):", "def f(a, *, b=1):"))
        self.lines = [f"    {head}"]
        if self.rng.random() < 0.2:
            self.emit(2, "global shown")
        if self.rng.random() < 0.2:
            self.emit(2, "nonlocal outer")
        if self.rng.random() < 0.9:
            self.emit(2, "items = []")
            self.emit(2, "n = 0")
        self.block(2, 3, False)
        if self.rng.random() < 0.8:
            self.emit(2, f"return {self.value(2)}, {self.rng.choice(NAMES)}")
        return "\n".join(["def make():", "    outer = 1", *self.lines, "    return f, lambda: outer", ""])

    def emit(self, indent: int, line: str) -> None:
        self.lines.append("    " * indent + line)

    def name(self) -> str:
        if "        nonlocal outer" in self.lines and self.rng.random() < 0.2:
            return "outer"
        if "        global shown" in self.lines and self.rng.random() < 0.2:
            return "shown"
        return self.rng.choice(VALUES)

    def value(self, depth: int) -> str:
        pick, deeper = self.rng.random(), depth - 1
        if depth == 0 or pick < 0.25:
            return self.rng.choice((*VALUES, "1", "2", "5", "outer", "shown"))
        if pick < 0.45:
            return f"call({self.value(deeper)})"
        if pick < 0.6:
            return f"({self.value(deeper)} {self.rng.choice('+-*')} {self.value(deeper)})"
        return self.rng.choice((
            lambda: f"({self.name()} := {self.value(deeper)})" if self.rng.random() < 0.5 else "call(3)",
            lambda: f"sum([{self.name()} + v for v in range(3) if v != {self.value(0)}])",
            lambda: f"sum(last := v + {self.value(0)} for v in range(call(2)))",
            lambda: f"(call({self.value(deeper)}) if {self.value(deeper)} > 2 else {self.value(deeper)})",
            lambda: f"(lambda v: v + {self.value(0)})({self.value(deeper)})",
            lambda: f"call(*[{self.value(deeper)}])",
            lambda: f"call(**{{'x': {self.value(deeper)}}})",
            lambda: f"({self.value(deeper)} and call({self.value(0)}))",
            lambda: f"len(f'{{call({self.value(0)})}}')",
            lambda: "len(items)",
        ))()  # fmt: skip

    def block(self, indent: int, depth: int, in_loop: bool) -> None:
        for _ in range(self.rng.randint(1, 4)):
            if depth and self.rng.random() < 0.45:
                self.compound(indent, depth - 1, in_loop)
            else:
                self.simple(indent, in_loop)

    def simple(self, indent: int, in_loop: bool) -> None:
        pick = self.rng.random()
        if pick < 0.4:
            self.emit(indent, f"{self.name()} = {self.value(3)}")
        elif in_loop and pick < 0.5:
            leave = self.rng.choice(("break", "continue"))
            self.emit(indent, f"if {self.value(1)} > 3: {leave}" if self.rng.random() < 0.7 else leave)
        elif pick < 0.53:
            self.emit(indent, f"if {self.value(2)} > 4: return {self.value(2)}")
        else:
            self.emit(indent, self.rng.choice((
                lambda: f"{self.name()} += {self.value(2)}",
                lambda: f"a, *rest = [{self.value(1)}, call({self.value(1)}), 3]",
                lambda: f"items.append({self.value(2)})",
                lambda: f"[items.append(v) for v in range({self.value(1)} % 3)]",
                lambda: f"items.extend(*[[call({self.value(1)})]])",
                lambda: f"{self.value(1)} and items.append(call(1))",
                lambda: f"del {self.rng.choice(VALUES)}",
                lambda: f"call({self.value(2)})",
                lambda: f"import {self.rng.choice(('math', 'os.path', 'math as c'))}",
                lambda: f"c: int = {self.value(2)}",
                lambda: "b: int",
                lambda: f"n = eval('{self.rng.choice(VALUES)}')",
                lambda: "call(len(locals()) * 0)",
                lambda: f"raise ValueError({self.value(1)})",
                lambda: f"assert call({self.value(1)}) != 3",
            ))())  # fmt: skip

    def compound(self, indent: int, depth: int, in_loop: bool) -> None:
        kind = self.rng.choice(("if", "for", "while", "try", "with", "match", "def", "class"))
        getattr(self, f"_{kind}")(indent, depth, in_loop)

    def _if(self, indent: int, depth: int, in_loop: bool) -> None:
        self.emit(indent, f"if {self.value(2)} > {self.value(1)}:")
        self.block(indent + 1, depth, in_loop)
        if self.rng.random() < 0.5:
            self.emit(indent, "else:")
            self.block(indent + 1, depth, in_loop)

    def _for(self, indent: int, depth: int, in_loop: bool) -> None:
        self.emit(indent, f"for {self.rng.choice(VALUES)} in range({self.value(1)} % 4):")
        self.block(indent + 1, depth, True)
        self._loop_else(indent, depth, in_loop)

    def _while(self, indent: int, depth: int, in_loop: bool) -> None:
        self.fresh += 1
        self.emit(indent, f"t{self.fresh} = 0")
        self.emit(indent, f"while (t{self.fresh} := t{self.fresh} + 1) < {self.value(1)} % 5:")
        self.block(indent + 1, depth, True)
        self._loop_else(indent, depth, in_loop)

    def _loop_else(self, indent: int, depth: int, in_loop: bool) -> None:
        if self.rng.random() < 0.5:
            self.emit(indent, "else:")
            self.block(indent + 1, depth, in_loop)

    def _try(self, indent: int, depth: int, in_loop: bool) -> None:
        star = "*" if self.rng.random() < 0.1 else ""
        in_loop = in_loop and not star
        self.emit(indent, "try:")
        self.block(indent + 1, depth, in_loop)
        if star or self.rng.random() < 0.7:
            self.emit(indent, f"except{star} ValueError as {self.rng.choice(('error', 'b'))}:")
            self.emit(indent + 1, f"call({self.value(1)})" if star else self.rng.choice(("call(5)", "raise")))
        if self.lines[-1].strip().startswith(("call", "raise")) and self.rng.random() < 0.4:
            self.emit(indent, "else:")
            self.emit(indent + 1, f"{self.name()} = {self.value(2)}")
        self.emit(indent, "finally:")
        self.emit(indent + 1, f"n = call({self.value(1)})")

    def _with(self, indent: int, depth: int, in_loop: bool) -> None:
        self.emit(
            indent, f"with {self.rng.choice(('told()', 'swallowing()', 'suppress(ValueError)', 'nullcontext()'))}:"
        )
        self.block(indent + 1, depth, in_loop)

    def _match(self, indent: int, depth: int, in_loop: bool) -> None:
        self.emit(indent, f"match [{self.value(1)}, call({self.value(1)}), 7]:")
        for pattern in ("[1, *c]", "[2 | 3, b, _]", "[n, 2, 7]", "a"):
            self.emit(indent + 1, f"case {pattern}:")
            self.block(indent + 2, min(depth, 1), in_loop)

    def _def(self, indent: int, depth: int, in_loop: bool) -> None:
        self.fresh += 1
        shared = self.rng.choice(("n", "c"))
        if self.rng.random() < 0.5:
            self.emit(indent, "@told_of")
        self.emit(indent, f"def g{self.fresh}(v=call(1)):")
        if self.rng.random() < 0.6:
            self.emit(indent + 1, f"nonlocal {shared}")
        self.emit(indent + 1, f"{shared} = {'v' if self.rng.random() < 0.5 else shared} + {self.value(1)}")
        self.emit(indent + 1, f"return {shared} + v")
        self.emit(indent, f"{self.rng.choice(VALUES)} = g{self.fresh}({self.value(1)}) + {self.name()}")

    def _class(self, indent: int, depth: int, in_loop: bool) -> None:
        self.fresh += 1
        self.emit(indent, f"class G{self.fresh}:")
        self.emit(indent + 1, f"held = call({self.value(1)})")
        self.emit(indent, f"{self.rng.choice(VALUES)} = G{self.fresh}.held")


class Swallowing(contextlib.AbstractContextManager["Swallowing"]):
    def __exit__(self, *error: object) -> bool:
        return True


def made(source: str, seed: int) -> tuple[FunctionType, Callable[[], object], list[object], dict[str, Any]]:
    """The function of a source, what reads the variable around it, the calls that it makes, and its globals."""
    log: list[object] = []

    def call(x: int) -> int:
        log.append(x)
        if len(log) > 300:
            raise MemoryError("too long")
        if x == 9:
            raise ValueError("nine")
        return x % 11

    @contextlib.contextmanager
    def told() -> Iterator[None]:
        log.append("enter")
        yield
        log.append("exit")

    space: dict[str, Any] = {
        "call": call, "told": told, "swallowing": Swallowing, "suppress": contextlib.suppress, "shown": 4,
        "nullcontext": contextlib.nullcontext, "told_of": lambda fn: fn, "__name__": "random_parts",
    }  # fmt: skip
    file = f"<random parts {seed}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    exec(compile(source, file, "exec"), space)
    fn, outer = space["make"]()
    return fn, outer, log, space


def done(fn: Callable[..., object], outer: Callable[[], object], log: list[object], space: dict[str, Any]) -> object:
    """Return the result and effects of a call."""
    ends: object
    try:
        ends = fn(3, b=6)
    except Exception as error:
        ends = (type(error), str(error))
    return repr((ends, outer(), space["shown"], log)).replace(" at 0x", "")


def check(seed: int) -> bool:
    """Compare one program with itself in parts; whether it has any."""
    source = Writer(seed).source()
    try:
        compile(source, "f", "exec")
    except SyntaxError:  # such as a nonlocal name that nothing around sets
        return False
    whole = done(*made(source, seed))
    fn, outer, log, space = made(source, seed)
    rng = random.Random(seed)
    first, last = fn.__code__.co_firstlineno + 1, source.count("\n")
    lines = {rng.randint(first, last) for _ in range(rng.randint(1, 3))} if last > first else set()
    pieces: list[FunctionType] = []

    def piece(made: FunctionType) -> FunctionType:
        pieces.append(made)
        return made

    cut = split(fn, lines, lambda called: called, piece)
    if cut is None:
        return False
    assert done(cut, outer, log, space) == whole, f"{source}\nseed {seed}, cut at {sorted(lines)}"
    return bool(pieces)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_random_functions_in_parts(part: int) -> None:
    cut = sum(check(part * 10**6 + seed) for seed in range(PROGRAMS // 3))
    assert cut > PROGRAMS // 12  # most programs have something to compile

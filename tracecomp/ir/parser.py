"""Parser of the printed form of graphs; ``docs/ir-language.md`` describes the language."""

from __future__ import annotations

import base64
import json
import math
import re
from typing import Any

import numpy as np

from tracecomp.ir.graph import Graph, Value
from tracecomp.ir.op import OPS
from tracecomp.ir.types import DType, TensorType, dtype_named

_REAL = r"(?:inf|nan|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)"
_COMPLEX = re.compile(rf"(-?{_REAL})([-+]{_REAL})j")
_TOKEN = re.compile(
    rf"""(?P<space>[ \t\r]+|\#[^\n]*)|(?P<newline>\n)|(?P<string>"(?:[^"\\]|\\.)*")|(?P<value>%\w+)
    |(?P<complex>-?{_REAL}[-+]{_REAL}j\b)|(?P<number>-?(?:inf\b|nan\b|(?=\d){_REAL}))
    |(?P<word>[A-Za-z_]\w*)|(?P<dots>\.\.\.)
    |(?P<mark>[\[\](){{}}=,:])""",
    re.VERBOSE,
)
_ROLES_IN = ("argument", "state", "host", "room", "constant")
_ROLES_OUT = ("result", "state", "predicate")


def parse_graph(text: str) -> Graph:
    """The graph that ``text`` describes; ValueError with the line number when it is not in the language."""
    parser = _Parser(text)
    parser.expect("graph")
    graph = parser.graph()
    if parser.peek() is not None:
        parser.fail("text after the graph")
    return graph


def _tokens(text: str) -> list[tuple[str, str, int]]:
    found, position, line = [], 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"line {line}: unexpected {text[position]!r}")
        kind = match.lastgroup or ""
        if kind == "newline":
            line += 1
        elif kind != "space":
            found.append((kind, match.group(), line))
        position = match.end()
    return found


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = _tokens(text)
        self.at = 0

    def fail(self, message: str, *, behind: bool = False) -> Any:
        """Reject the text at the next token, or at the last one taken (``behind``)."""
        at = min(self.at - behind, len(self.tokens) - 1)
        line = self.tokens[at][2] if self.tokens else 1
        raise ValueError(f"line {line}: {message}")

    def peek(self) -> str | None:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else None

    def take(self, kind: str = "") -> str:
        if self.at >= len(self.tokens):
            self.fail("the text ends too early")
        have, text, _ = self.tokens[self.at]
        if kind and have != kind:
            self.fail(f"expected a {kind}, found {text!r}")
        self.at += 1
        return text

    def expect(self, text: str) -> None:
        if self.peek() != text:
            self.fail(f"expected {text!r}, found {self.peek()!r}")
        self.at += 1

    def accept(self, text: str) -> bool:
        if self.peek() == text:
            self.at += 1
            return True
        return False

    def string(self) -> str:
        return str(json.loads(self.take("string")))

    def graph(self) -> Graph:
        """After the word ``graph``: its name and block."""
        graph = Graph(self.string())
        self.expect("{")
        names: dict[str, Value] = {}
        while not self.accept("}"):
            if self.peek() in _ROLES_OUT:
                role, name = self.take(), self.string()
                self.expect("=")
                graph.add_output(self.operand(graph, names), name, role)
            else:
                self.definition(graph, names)
        return graph

    def definition(self, graph: Graph, names: dict[str, Value]) -> None:
        targets = [self.take("value")]
        if self.accept(":"):
            type_ = self.type()
            self.expect("=")
            names[targets[0]] = self.input(graph, type_)
            return
        while self.accept(","):
            targets.append(self.take("value"))
        self.expect("=")
        results = self.application(graph, names)
        if len(results) != len(targets):
            self.fail(f"{len(targets)} names for {len(results)} results", behind=True)
        names.update(zip(targets, results, strict=True))

    def input(self, graph: Graph, type_: TensorType) -> Value:
        role = self.take("word")
        if role not in _ROLES_IN:
            self.fail(f"unknown input role {role!r}")
        name = self.string()
        return graph.add_input(type_, name, role, self.data(type_) if role == "constant" else None)

    def data(self, type_: TensorType) -> np.ndarray[Any, Any] | None:
        if self.accept("..."):
            return None
        dtype = type_.dtype.numpy
        if self.accept("base64"):
            return np.frombuffer(base64.b64decode(self.string()), dtype).reshape(type_.shape).copy()
        return np.array(self.literal(), dtype).reshape(type_.shape)

    def application(self, graph: Graph, names: dict[str, Value]) -> tuple[Value, ...]:
        op = OPS.get(self.take("word"))
        if op is None:
            self.at -= 1
            self.fail(f"no operator {self.peek()!r}")
        assert op is not None
        self.expect("(")
        operands: list[Value] = []
        while not self.accept(")"):
            operands.append(self.operand(graph, names))
            if self.peek() != ")":
                self.expect(",")
        attrs = self.attrs()
        self.expect(":")
        types = [self.type()]
        while self.accept(","):
            types.append(self.type())
        results = graph.add(op, operands, attrs)
        if tuple(types) != tuple(v.type for v in results):
            have = ", ".join(str(v.type) for v in results)
            self.fail(f"{op.name} gives {have}, not {', '.join(map(str, types))}", behind=True)
        return results

    def attrs(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.accept("{"):
            while not self.accept("}"):
                name = self.take("word")
                self.expect("=")
                found[name] = self.graph() if self.accept("graph") else self.literal()
                if self.peek() != "}":
                    self.expect(",")
        return found

    def operand(self, graph: Graph, names: dict[str, Value]) -> Value:
        token = self.peek() or ""
        if token.startswith("%"):
            if token not in names:
                self.fail(f"{token} is not defined above")
            return names[self.take()]
        value = self.literal()
        self.expect(":")
        return graph.scalar(value, self.dtype())

    def dtype(self) -> DType:
        word = self.take("word")
        try:
            return dtype_named(word)
        except KeyError:
            return self.fail(f"unknown element type {word!r}")  # type: ignore[no-any-return]

    def type(self) -> TensorType:
        dtype, shape = self.dtype(), []
        self.expect("[")
        while not self.accept("]"):
            shape.append(int(self.take("number")))
            if self.peek() != "]":
                self.expect(",")
        return TensorType(dtype, tuple(shape))

    def literal(self) -> Any:
        kind, text, _ = self.tokens[self.at] if self.at < len(self.tokens) else ("", "", 0)
        if self.accept("["):
            items = []
            while not self.accept("]"):
                items.append(self.literal())
                if self.peek() != "]":
                    self.expect(",")
            return tuple(items)
        if kind == "number" or text in ("inf", "nan"):
            self.at += 1
            is_float = any(c in text for c in ".eE") or "inf" in text or "nan" in text
            return (math.nan if text == "nan" else float(text)) if is_float else int(text)
        if kind == "complex":
            self.at += 1
            real, imag = _COMPLEX.fullmatch(text).groups()  # type: ignore[union-attr]
            return complex(float(real), float(imag))
        if kind == "string":
            return self.string()
        if text in ("true", "false"):
            return self.take() == "true"
        return self.dtype()

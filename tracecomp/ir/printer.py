"""Graphs as text, in the language of ``docs/ir-language.md``; ``ir.parser`` reads it back."""

from __future__ import annotations

import re
from itertools import count
from typing import Any

import numpy as np

from tracecomp.ir.op import Attrs
from tracecomp.ir.types import DType
from tracecomp.ir.values import GraphData, Input, Node, Origin, Value

SHORT = 64
"""Elements of a constant that are printed in full; larger ones are named, or kept as bytes."""


def print_graph(graph: GraphData, *, comments: bool = False, short: bool = False) -> str:
    """The text of ``graph``. ``comments`` adds source line, scope and pass; ``short`` leaves out large constants."""
    return "\n".join(_Printer(graph, comments, short).lines("graph ")) + "\n"


def value_names(graph: GraphData) -> dict[Value, str]:
    """Names of values in the text of ``graph``; values inside bodies have separate names."""
    printer = _Printer(graph, comments=False, short=True)
    printer.lines("graph ")
    values = [i.value for i in graph.inputs] + [v for node in graph.nodes for v in node.outputs]
    return {value: printer.ref(value) for value in values}


def _json(value: object) -> str:
    import json  # loaded on first use, like base64: importing the package stays quick

    return json.dumps(value)


class _Printer:
    def __init__(self, graph: GraphData, comments: bool, short: bool) -> None:
        self.graph = graph
        self.comments = comments
        self.short = short
        self.names: dict[Value, str] = {}
        self.taken: dict[str, int] = {}  # names of inputs, with the last number that was added to each
        self.numbers = count()

    def lines(self, head: str) -> list[str]:
        """The block of one graph, without indentation."""
        body = [self.input_line(i) for i in self.graph.inputs]
        for node in self.graph.nodes:
            body += self.node_lines(node)
        body += [f"{o.role} {_json(o.name)} = {self.ref(o.value)}" for o in self.graph.outputs]
        return [f"{head}{_json(self.graph.name)} {{", *(f"  {line}" for line in body), "}"]

    def input_line(self, given: Input) -> str:
        name = re.sub(r"\W+", "_", given.name)
        name = name if name and not name[0].isdigit() else f"_{name}"
        unique, n = name, self.taken.get(name, 1)
        while unique in self.taken:
            n += 1
            unique = f"{name}_{n}"
        self.taken[unique] = 1
        self.taken[name] = n
        self.names[given.value] = unique
        line = f"%{unique}: {given.value.type} = {given.role} {_json(given.name)}"
        return f"{line} {self.data(given.data)}" if given.role == "constant" else line

    def data(self, array: np.ndarray[Any, Any] | None) -> str:
        if array is None or (self.short and array.size > SHORT):
            return "..."
        if array.size > SHORT or array.dtype.name == "bfloat16":
            import base64

            return "base64 " + _json(base64.b64encode(np.ascontiguousarray(array).tobytes()).decode())
        return "[" + ", ".join(_literal(v) for v in array.reshape(-1)) + "]"

    def node_lines(self, node: Node) -> list[str]:
        if is_literal(node):
            return []
        results = []
        for value in node.outputs:
            self.names[value] = str(next(self.numbers))
            results.append(f"%{self.names[value]}")
        operands = ", ".join(map(self.ref, node.inputs))
        lines = [f"{', '.join(results)} = {node.op.name}({operands})"]
        parts = [self.attr(name, node.attrs[name]) for name in sorted(node.attrs)]
        for number, part in enumerate(parts):
            lines[-1] += (" {" if number == 0 else ", ") + part[0]
            lines += part[1:]
        types = ", ".join(str(v.type) for v in node.outputs)
        lines[-1] += ("} : " if parts else " : ") + types
        origin = self.graph.origin.get(node)
        if self.comments and origin is not None:
            lines[-1] += _comment(origin)
        return lines

    def attr(self, name: str, value: Any) -> list[str]:
        if hasattr(value, "live_nodes"):
            return _Printer(value, self.comments, self.short).lines(f"{name}=graph ")
        return [f"{name}={_literal(value)}"]

    def ref(self, value: Value) -> str:
        node = value.node
        if node is not None and is_literal(node):
            return f"{_literal(value.dtype.python(node.attrs['value']))}:{value.dtype.short}"
        return f"%{self.names[value]}"


def attrs_text(attrs: Attrs) -> str:
    """Attributes in the form between braces, without graphs."""
    return ", ".join(f"{name}={_literal(v)}" for name, v in sorted(attrs.items()) if not hasattr(v, "live_nodes"))


def is_literal(node: Node) -> bool:
    """Whether the node is a 0-d constant, written in place of an operand."""
    return node.op.name == "full" and node.attrs["shape"] == ()


def _literal(value: object) -> str:
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, np.floating):
        return _literal(float(str(value)))
    if isinstance(value, complex | np.complexfloating):
        real, imag = _literal(value.real), _literal(value.imag)
        return f"{real}{'' if imag.startswith('-') else '+'}{imag}j"
    if isinstance(value, int | float | np.integer):
        return repr(value.item() if isinstance(value, np.integer) else value)
    if isinstance(value, str):
        return _json(value)
    if isinstance(value, DType):
        return value.short
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    raise TypeError(f"attribute value {value!r} has no printed form")


def _comment(origin: Origin) -> str:
    parts = [str(origin.source)] if origin.source else []
    if origin.scope:
        parts.append("/".join(origin.scope))
    if origin.made_by:
        parts.append(f"({origin.made_by})")
    return f"  # {' '.join(parts)}" if parts else ""

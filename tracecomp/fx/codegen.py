"""Graphs as the source of a Python function, and what that source refers to."""

from __future__ import annotations

import builtins
import math
import operator
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tracecomp.eager.device import device
from tracecomp.fx.namespace import OWN_GLOBALS, Namespace, snake_case
from tracecomp.fx.node import Node, map_arg, qualified_name, type_repr
from tracecomp.ir.types import DType

Fn = Callable[..., Any]

_SYMBOLS = {
    "eq": "==", "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">=", "add": "+", "sub": "-", "mul": "*",
    "truediv": "/", "floordiv": "//", "mod": "%", "matmul": "@", "lshift": "<<", "rshift": ">>", "and_": "&",
    "or_": "|", "xor": "^", "pow": "**",
}  # fmt: skip
REFLECTED = (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "matmul",
    "lshift",
    "rshift",
    "and_",
    "or_",
    "xor",
    "pow",
)
magic_methods: dict[str, str] = {name: f"{{}} {symbol} {{}}" for name, symbol in _SYMBOLS.items()} | {
    "pos": "+{}", "neg": "-{}", "invert": "~{}", "getitem": "{}[{}]"
}  # fmt: skip
"""Functions of ``operator`` that are written with signs."""
_LITERALS = (bool, int, float, complex, str, bytes, range, type(None), type(...))
inplace_methods = {
    f"i{name.rstrip('_')}": f"{{}} {_SYMBOLS[name]}= {{}}" for name in REFLECTED
}  # fmt: skip


@dataclass
class PythonCode:
    """``src`` and the ``globals`` that it names."""

    src: str
    globals: dict[str, Any]
    _lineno_map: dict[int, int | None] = field(default_factory=dict)


class _Writer:
    """The source of one graph."""

    def __init__(self, root: str, names: Namespace) -> None:
        self.root, self.names = root, names
        self.globals: dict[str, Any] = {}
        self.wrapped: dict[str, None] = {}
        self.free: list[str] = []
        self.returned = ""

    def known(self, hint: str, value: object) -> str:
        """The name by which the source refers to ``value``."""
        if hint.split(".")[0] in ("torch", "_operator", "operator", "builtins"):
            space, _, rest = hint.replace("_operator", "operator").partition(".")
            self.globals[space] = sys.modules["tracecomp"] if space == "torch" else sys.modules[space]
            return f"{space}.{rest}" if rest else space
        for name, own in self.globals.items():
            if own is value:
                return name
        name = self.names.create_name(hint.replace(".", "_"), value)
        self.globals[name] = value
        return name

    def typed(self, kind: object) -> str:
        if kind is None:
            return ""
        if isinstance(kind, type) and kind.__module__ == "builtins":
            return kind.__name__
        return self.known(type_repr(kind), kind) if isinstance(kind, type) else self.known("annotation", kind)

    def shown(self, a: object) -> str:
        """An argument as source."""
        if isinstance(a, tuple):
            inner = ", ".join(map(self.shown, a))
            if hasattr(a, "_fields"):
                return f"{self.known(type_repr(type(a)), type(a))}({inner})"
            return f"({inner},)" if len(a) == 1 else f"({inner})"
        if isinstance(a, list):
            return f"[{', '.join(map(self.shown, a))}]"
        if isinstance(a, dict):
            return f"{{{', '.join(f'{k!r}: {self.shown(v)}' for k, v in a.items())}}}"
        if isinstance(a, slice):
            return f"slice({self.shown(a.start)}, {self.shown(a.stop)}, {self.shown(a.step)})"
        if isinstance(a, Node):
            return repr(a)
        return self.constant(a)

    def constant(self, a: object) -> str:
        if isinstance(a, float) and not math.isfinite(a):
            self.globals |= {"inf": math.inf, "nan": math.nan}
        elif isinstance(a, device):
            self.globals["device"] = device
        elif isinstance(a, DType) or repr(a).startswith("torch."):
            self.globals["torch"] = sys.modules["tracecomp"]
        elif isinstance(a, type) or (callable(a) and hasattr(a, "__name__")):
            name = qualified_name(a) if not isinstance(a, type) else type_repr(a)
            return name if name in vars(builtins) else self.known(name, a)
        elif not isinstance(a, _LITERALS):
            # The repr of any other object (a branch of `cond`, an enum member) is not an expression of Python.
            return self.known(snake_case(type(a).__name__), a)
        return repr(a)

    def call(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
        return ", ".join([*map(self.shown, args), *(f"{k} = {self.shown(v)}" for k, v in kwargs.items())])

    def line(self, node: Node) -> str:
        """The source of one node."""
        typed = f" : {self.typed(node.type)}" if node.type is not None and node.op != "placeholder" else ""
        if node.op == "placeholder":
            return self.placeholder(node)
        if node.op == "call_method":
            owner = self.shown(node.args[0])
            return f"{node!r}{typed} = {_member(owner, node.target)}({self.call(node.args[1:], node.kwargs)})"
        if node.op == "call_function":
            return self.function(node, typed)
        if node.op == "call_module":
            return f"{node!r}{typed} = {_member(self.root, node.target)}({self.call(node.args, node.kwargs)})"
        if node.op == "get_attr":
            return f"{node!r}{typed} = {_member(self.root, node.target)}"
        self.returned = f" -> {self.typed(node.type)}" if node.type is not None else ""
        return f"return {self.shown(node.args[0])}"

    def placeholder(self, node: Node) -> str:
        typed = f" : {self.typed(node.type)}" if node.type is not None else ""
        default = f" = {self.shown(node.args[0])}" if node.args else ""
        self.free.append(f"{node.target}{typed}{default}")
        plain = str(node.target).replace("*", "")
        return f"{node!r} = {plain}\n" if plain != repr(node) else ""

    def function(self, node: Node, typed: str) -> str:
        target: Any = node.target
        name = getattr(target, "__name__", "")
        if getattr(operator, name, None) is target:
            if name in magic_methods and not node.kwargs:
                shown = _grouped(self.shown) if name == "pow" else self.shown
                return f"{node!r}{typed} = {magic_methods[name].format(*map(shown, node.args))}"
            if name in inplace_methods:
                first = self.shown(node.args[0])
                return f"{inplace_methods[name].format(*map(self.shown, node.args))};  {node!r}{typed} = {first}"
        path = qualified_name(target)
        if path == "getattr" and isinstance(node.args[1], str) and node.args[1].isidentifier() and len(node.args) == 2:
            return f"{node!r}{typed} = {_member(self.shown(node.args[0]), node.args[1])}"
        found = path if path in vars(builtins) else self.known(path, target)
        if node.meta.get("is_wrapped", False):
            self.wrapped[found] = None
        return f"{node!r}{typed} = {found}({self.call(node.args, node.kwargs)})"


def _grouped(shown: Callable[[object], str]) -> Callable[[Any], str]:
    """Negative numbers in parentheses: ``-2 ** x`` is not ``(-2) ** x``."""

    def show(a: object) -> str:
        text = shown(a)
        return f"({text})" if isinstance(a, int | float) and text.startswith("-") else text

    return show


def _member(owner: str, path: object) -> str:
    """``owner.a.b``, with ``getattr`` for parts that cannot be written so."""
    for part in str(path).split("."):
        owner = f"{owner}.{part}" if part.isidentifier() else f'getattr({owner}, "{part}")'
    return owner


class CodeGen:
    """Generates source from a graph: the code around the body, and the passing of arguments and results."""

    def __init__(self) -> None:
        self._body_transformer: Callable[[list[str]], list[str]] | None = None
        self._func_name = "forward"

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """The first line of the function."""
        free = free_vars if free_vars[:1] == ["self"] else ["self", *free_vars]
        return f"def {self._func_name}({', '.join(free)}){maybe_return_annotation}:"

    def process_inputs(self, *args: Any) -> Any:
        """Arguments of the function as values of the placeholders."""
        return args

    def process_outputs(self, outputs: object) -> Any:
        """The output's value as the result of the function."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        return []


def generate(nodes: Iterable[Node], root: str, codegen: CodeGen) -> PythonCode:
    """The function that runs ``nodes``; ``root`` is how it names the module."""
    listed = list(nodes)
    names = Namespace()
    for name in OWN_GLOBALS:
        names.associate(name, name)
    for node in listed:
        names.associate(node.name, node)
    writer = _Writer(root, names)
    for name, value in codegen.additional_globals():
        writer.globals[name] = value
    last = _last_uses(listed)
    body = [_with_deletions(writer.line(node), node, last) for node in listed]
    if codegen._body_transformer is not None:
        body = codegen._body_transformer(body)
    if not any(node.op != "placeholder" for node in listed):
        body.append("pass\n")
    head = codegen.gen_fn_def(writer.free, writer.returned)
    text = "\n".join("    " + line for line in "".join(body).lstrip("\n").split("\n"))
    marks = "\n".join(f'torch.fx._symbolic_trace.wrap("{name}")' for name in writer.wrapped)
    if marks:
        writer.globals["torch"] = sys.modules["tracecomp"]
    return PythonCode(f"\n{marks}\n\n{head}\n{text}", writer.globals)


def _last_uses(nodes: list[Node]) -> dict[Node, list[Node]]:
    """Map each node to the values that have no reader after it."""
    seen: set[Node] = set()
    found: dict[Node, list[Node]] = {}
    for user in reversed(nodes):

        def note(n: Node, user: Node = user) -> None:
            if n not in seen:
                seen.add(n)
                found.setdefault(user, []).append(n)

        map_arg(user.args, note)
        map_arg(user.kwargs, note)
    return found


def _with_deletions(line: str, node: Node, last: dict[Node, list[Node]]) -> str:
    if node.op == "placeholder":
        return line
    if node.op == "output":
        return f"{line}\n"
    gone = [*last.get(node, []), *([] if node.users else [node])]
    return f"{line};  {' = '.join([*map(repr, gone), 'None'])}\n" if gone else f"{line}\n"

"""The language of scripts: Python functions that can reach only tensors, numbers, text and collections.

A script is text and may be untrusted. Its syntax tree is checked against the language. Every attribute access is
replaced by a checked call (``guard.attribute``), and the result is compiled as Python. A script therefore runs as fast
as Python, is recorded by ``compile``, and has no access to files, processes or the internals of objects. Like any
program, it can still run forever or use much memory.
"""

from __future__ import annotations

import ast
import linecache
import textwrap
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from itertools import count
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

ATTRIBUTE, SET = "__attribute__", "__set__"
"""Replacements of attribute accesses and assignments; scripts cannot use names with two underscores."""

_NODES = (
    ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For,
    ast.While, ast.If, ast.With, ast.withitem, ast.Raise, ast.Assert, ast.Expr, ast.Pass, ast.Break, ast.Continue,
    ast.Delete, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Dict, ast.Set, ast.ListComp, ast.DictComp,
    ast.comprehension, ast.Compare, ast.Call, ast.keyword, ast.FormattedValue, ast.JoinedStr, ast.Constant,
    ast.Attribute, ast.Subscript, ast.Starred, ast.Name, ast.List, ast.Tuple, ast.Slice, ast.expr_context, ast.boolop,
    ast.operator, ast.unaryop, ast.cmpop,
)  # fmt: skip

_TYPED = frozenset(("annotate", "unchecked_cast"))
"""Calls that give a value a type: the value is what they mean here."""

_numbers = count()
_scripts: WeakKeyDictionary[FunctionType, Script] = WeakKeyDictionary()


@dataclass(frozen=True)
class Script:
    """The source of a function: its text, and the names that it can read."""

    text: str
    names: Mapping[str, Any]


def script_of(fn: FunctionType) -> Script | None:
    """The script of ``fn``, if it has one."""
    return _scripts.get(fn)


class NotSupportedError(RuntimeError):
    """Raised for a function outside the language of scripts; the message names the function, the line and the
    construct."""


def parsed(text: str, name: str) -> ast.FunctionDef:
    """The definition of a function, checked; NotSupportedError where it is not in the language."""
    return checked(defined(text, name), name)


def defined(text: str, name: str) -> ast.FunctionDef:
    """The definition of a function, not checked yet."""
    tree = parsed_module(text, name)
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef):
        raise NotSupportedError(f"{name} must be a function defined by def")
    return tree.body[0]


def parsed_module(text: str, name: str) -> ast.Module:
    """A text as Python's syntax, not checked yet."""
    try:
        return ast.parse(textwrap.dedent(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotSupportedError(f"{name} cannot be read as Python: {error}") from None


def checked(definition: ast.FunctionDef, name: str) -> ast.FunctionDef:
    """A definition that is in the language; NotSupportedError otherwise."""
    for node in _code(definition):
        _check(node, name)
    return definition


def _code(node: ast.AST) -> list[ast.AST]:
    """``node`` and its descendants, without annotations: those are not evaluated."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = [node]
    while waiting:
        one = waiting.pop()
        found.append(one)
        for field, value in ast.iter_fields(one):
            if field in ("annotation", "returns", "decorator_list") or (field == "args" and _is_typed(one)):
                waiting += [one.args[1]] if _is_typed(one) and field == "args" else []  # type: ignore[attr-defined]
                continue
            waiting += [x for x in (value if isinstance(value, list) else [value]) if isinstance(x, ast.AST)]
    return found


def _is_typed(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or len(node.args) != 2 or node.keywords:
        return False
    called = node.func
    return (isinstance(called, ast.Name) and called.id in _TYPED) or (
        isinstance(called, ast.Attribute) and called.attr in _TYPED
    )


def _check(node: ast.AST, name: str) -> None:
    def refuse(what: str) -> NotSupportedError:
        return NotSupportedError(f"{name}, line {getattr(node, 'lineno', 1)}: {what} is not supported in scripts")

    if not isinstance(node, _NODES):
        raise refuse(f"'{type(node).__name__}'")
    if isinstance(node, ast.Name) and node.id.startswith("__"):
        raise refuse(f"the name {node.id!r}")
    if isinstance(node, ast.arg) and node.arg.startswith("__"):
        raise refuse(f"the name {node.arg!r}")
    if isinstance(node, ast.Attribute) and node.attr.startswith("__"):
        raise refuse(f"the attribute {node.attr!r}")
    if isinstance(node, ast.keyword) and node.arg is not None and node.arg.startswith("__"):
        raise refuse(f"the argument {node.arg!r}")
    if isinstance(node, ast.comprehension) and node.is_async:
        raise refuse("'async for'")
    changed = node.target if isinstance(node, ast.AugAssign) else None
    if isinstance(changed, ast.Attribute) and not isinstance(changed.value, ast.Name):
        raise refuse("an in-place change of an attribute of an expression")


def free_names(definition: ast.FunctionDef) -> list[str]:
    """The names that a function reads from outside, in order of appearance; those of annotations are not among them."""
    code = _code(definition)
    bound = {a.arg for a in ast.walk(definition.args) if isinstance(a, ast.arg)}
    bound |= {n.id for n in code if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    read = [n for n in code if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    read.sort(key=lambda n: (n.lineno, n.col_offset))
    return list(dict.fromkeys(n.id for n in read if n.id not in bound and n.id not in _TYPED))


def compiled(
    definition: ast.FunctionDef, name: str, names: Mapping[str, object], declared: Set[str] = frozenset()
) -> Callable[..., Any]:
    """Compile the function, which can read ``names`` and nothing else. Lines in tracebacks are those of the script.

    ``declared`` are attributes that the first argument, a module, is known to have: they are read directly.
    """
    script = Script(ast.unparse(definition), names)
    again = parsed(script.text, name)  # lines are those of the text that tracebacks show
    guarded = _Guarded(_own(again), declared)
    tree = ast.fix_missing_locations(ast.Module([guarded.visit(again)], []))
    _check_guarded(tree, guarded, name)
    file = f"<script {next(_numbers)}: {name}>"
    linecache.cache[file] = (len(script.text), None, script.text.splitlines(True), file)
    scope: dict[str, Any] = {"__builtins__": {}, "__name__": "script", **names}
    exec(compile(tree, file, "exec", dont_inherit=True), scope)
    made: FunctionType = scope.pop(definition.name)
    for key, value in names.items():  # one of the names may be that of the function
        scope[key] = value
    made.__qualname__ = name
    _scripts[made] = script
    return made


def _own(definition: ast.FunctionDef) -> str | None:
    """The name of the first argument, if nothing else gets that name: no variable, function or argument of one."""
    given = [*definition.args.posonlyargs, *definition.args.args]
    if not given:
        return None
    inside = [n for n in ast.walk(definition) if n is not definition and n is not given[0]]
    bound = {n.id for n in inside if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    bound |= {n.arg for n in inside if isinstance(n, ast.arg)}
    bound |= {n.name for n in inside if isinstance(n, ast.FunctionDef)}
    return given[0].arg if given[0].arg not in bound else None


def _check_guarded(tree: ast.Module, guarded: _Guarded, name: str) -> None:
    """NotSupportedError for an access to an attribute that is still Python's own: a target of ``for``, say."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not guarded.may_stay(node):
            what = "reading" if isinstance(node.ctx, ast.Load) else "setting or deleting"
            raise NotSupportedError(
                f"{name}, line {node.lineno}: {what} the attribute {node.attr!r} here is not supported in scripts"
            )


class _Guarded(ast.NodeTransformer):
    """Replace accesses to attributes, and drop type annotations."""

    def __init__(self, own: str | None, declared: Set[str]) -> None:
        self._own = own
        self._declared = declared

    def may_stay(self, node: ast.Attribute) -> bool:
        """Whether it reads what the first argument is known to have."""
        is_own = isinstance(node.value, ast.Name) and node.value.id == self._own and node.attr in self._declared
        return is_own and isinstance(node.ctx, ast.Load)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if self.may_stay(node) or not isinstance(node.ctx, ast.Load):
            return node
        return ast.copy_location(_call(ATTRIBUTE, node.value, ast.Constant(node.attr)), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if _is_typed(node):
            found: ast.AST = self.visit(node.args[1])
            return found
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.AST]:
        self.generic_visit(node)
        targets = [t for t in node.targets if isinstance(t, ast.Attribute)]
        if not targets and not any(isinstance(t, ast.Attribute) for t in ast.walk(node) if _stores(t)):
            return node
        # Every attribute gets its value from a name, also those inside of a tuple that is taken apart.
        stores: list[ast.AST] = []

        def renamed(target: ast.expr) -> ast.expr:
            if isinstance(target, ast.Attribute):
                name = f"__value{len(stores)}__"
                stores.append(ast.Expr(_call(SET, target.value, ast.Constant(target.attr), _name(name))))
                return ast.Name(name, ast.Store())
            if isinstance(target, ast.Tuple | ast.List):
                target.elts = [renamed(t) for t in target.elts]
            return target

        node.targets = [renamed(t) for t in node.targets]
        return [node, *[ast.copy_location(s, node) for s in stores]]

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        target = node.target
        if not isinstance(target, ast.Attribute):
            return node
        old = _call(ATTRIBUTE, target.value, ast.Constant(target.attr))
        new = ast.BinOp(old, node.op, node.value)
        return ast.copy_location(ast.Expr(_call(SET, target.value, ast.Constant(target.attr), new)), node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | list[ast.AST]:
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return self.visit_Assign(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        node.decorator_list = []
        return self.generic_visit(node)


def _stores(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)


def _name(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(_name(name), list(args), [])

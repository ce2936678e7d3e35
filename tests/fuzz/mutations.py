"""Small faults in the package's functions: where there could be one, and planting it in the running process."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_TELLING = ("explain", "__repr__", "__str__", "describe")
"""Functions whose results are texts for people."""


@dataclass(frozen=True)
class Mutation:
    """One fault: the ``number``-th that the file has, on line ``line``."""

    file: Path
    number: int
    line: int
    what: str

    def __str__(self) -> str:
        return f"{'/'.join(self.file.parts[-3:])}:{self.line}, {self.what}"


def mutations(file: Path) -> list[Mutation]:
    """All faults of a file, in order."""
    places = list(_places(ast.parse(file.read_text())))
    return [Mutation(file, n, getattr(node, "lineno", 0), what) for n, (node, what) in enumerate(places)]


def plant(mutation: Mutation) -> int:
    """Change every function of this process that the fault is in; how many there were."""
    tree = ast.parse(mutation.file.read_text())
    node, what = list(_places(tree))[mutation.number]
    _change(node, what)
    ast.fix_missing_locations(tree)
    changed = _codes(compile(tree, str(mutation.file), "exec", dont_inherit=True))
    count = 0
    for function in [x for x in gc.get_objects() if isinstance(x, FunctionType)]:
        old = function.__code__
        if old.co_filename == str(mutation.file):
            new = changed.get((old.co_qualname, old.co_firstlineno))
            if new is not None and new.co_freevars == old.co_freevars and new != old:
                function.__code__ = new
                count += 1
    return count


def _codes(code: CodeType) -> dict[tuple[str, int], CodeType]:
    found = {}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found[inner.co_qualname, inner.co_firstlineno] = inner
            found.update(_codes(inner))
    return found


def _places(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Places inside of functions, and what would be wrong there."""
    for top in tree.body:
        for function in ast.walk(top):
            if isinstance(function, ast.FunctionDef) and function.name not in _TELLING and not _nested(top, function):
                for statement in function.body:
                    yield from _within(statement)


def _nested(top: ast.AST, function: ast.FunctionDef) -> bool:
    """Whether another function is around it, whose places include its own."""
    around = (f for f in ast.walk(top) if isinstance(f, ast.FunctionDef) and f is not function)
    return any(function in ast.walk(f) for f in around)


def _within(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.arg | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.keyword) and node.arg == "strict":  # zip's own check
        return
    yield from ((node, what) for what in _faults(node))
    for field, child in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        for inner in child if isinstance(child, list) else [child]:
            if isinstance(inner, ast.AST):
                yield from _within(inner)


def _faults(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Compare(ops=[op, *_]) if type(op) in _COMPARISONS:
            yield "another comparison"
        case ast.BinOp(op=op) if type(op) in _OPERATORS and not _is_text(node):
            yield "another operator"
        case ast.BoolOp():
            yield "and for or"
        case ast.UnaryOp(op=ast.Not()):
            yield "without not"
        case ast.Constant(value=bool()):
            yield "the other truth"
        case ast.Constant(value=int()):
            yield "one more"
            yield "one less"
        case ast.IfExp() | ast.If() | ast.While():
            yield "the other branch"
        case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
            yield f"{_CALLS[name]} for {name}"
        case ast.Call(args=[first, second, *_]) if not isinstance(first, ast.Starred | ast.Constant):
            if ast.dump(first) != ast.dump(second) and not isinstance(second, ast.Starred):
                yield "arguments exchanged"
        case ast.Expr(value=ast.Call()):
            yield "a call left out"
        case ast.Break() | ast.Continue():
            yield "the other jump"


def _is_text(node: ast.BinOp) -> bool:
    return any(isinstance(x, ast.JoinedStr) or (isinstance(x, ast.Constant) and isinstance(x.value, str))
               for x in (node.left, node.right))  # fmt: skip


def _change(node: ast.AST, what: str) -> None:
    """Make the tree wrong at ``node``."""
    match node:
        case ast.Compare():
            node.ops[0] = _COMPARISONS[type(node.ops[0])]()
        case ast.BinOp():
            node.op = _OPERATORS[type(node.op)]()
        case ast.BoolOp():
            node.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        case ast.UnaryOp():
            twice = ast.UnaryOp(ast.Not(), deepcopy(node.operand))
            node.operand = twice
        case ast.Constant(value=bool() as truth):
            node.value = not truth
        case ast.Constant(value=int() as number):
            node.value = number + (1 if what == "one more" else -1)
        case ast.IfExp() | ast.If() | ast.While():
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case ast.Call(func=ast.Name() as function) if what.endswith(f" for {function.id}"):
            function.id = _CALLS[function.id]
        case ast.Call():
            node.args[0], node.args[1] = node.args[1], node.args[0]
        case ast.Expr():
            node.value = ast.Constant(None)
        case ast.Break() | ast.Continue():
            node.__class__ = ast.Continue if isinstance(node, ast.Break) else ast.Break

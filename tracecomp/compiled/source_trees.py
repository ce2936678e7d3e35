"""The syntax tree of a function, from its source, and functions compiled from trees."""

from __future__ import annotations

import ast
import copy
import dis
import inspect
import textwrap
from collections.abc import Iterable, Mapping
from types import CellType, CodeType, FunctionType
from typing import Any

_trees: dict[CodeType, ast.FunctionDef] = {}
_BESIDE = ("COPY_FREE_VARS", "EXTENDED_ARG", "PUSH_NULL")
"""Instructions that depend on the surroundings of a function: the last from CPython 3.13 on, if the callee is an
attribute of a name that the file imports."""


def tree_of(fn: FunctionType) -> ast.FunctionDef | None:
    """The syntax tree of a function, with the lines of its file; None when the source is not what runs."""
    known = _trees.get(fn.__code__)
    if known is not None:
        return known
    try:
        text = textwrap.dedent(inspect.getsource(fn))
        module = ast.parse(text)
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    ast.increment_lineno(module, fn.__code__.co_firstlineno - 1)
    found = [_asdefinition(n) for n in ast.walk(module) if isinstance(n, ast.FunctionDef | ast.Lambda)]
    alike = [d for d in found if d is not None and _is_source_of(d, fn)]
    if len(alike) != 1:
        return None
    found_tree: ast.FunctionDef = _Mangled(fn.__qualname__).visit(alike[0])
    return found_tree


def _asdefinition(n: ast.FunctionDef | ast.Lambda) -> ast.FunctionDef:
    if isinstance(n, ast.FunctionDef):
        return definition(n.name, n.args, n.body, n)
    result = ast.copy_location(ast.Return(n.body), n.body)
    return definition("<lambda>", n.args, [result], n)


def definition(name: str, args: ast.arguments, body: list[ast.stmt], at: ast.AST) -> ast.FunctionDef:
    bare = ast.arguments(
        posonlyargs=args.posonlyargs, args=args.args, vararg=args.vararg, kwonlyargs=args.kwonlyargs,
        kw_defaults=args.kw_defaults, kwarg=args.kwarg, defaults=args.defaults,
    )  # fmt: skip
    found = ast.FunctionDef(name=name, args=bare, body=body, decorator_list=[], returns=None)
    return ast.copy_location(found, at)


def _is_source_of(tree: ast.FunctionDef, fn: FunctionType) -> bool:
    """Whether compiling ``tree`` gives the code of ``fn``, apart from outer names."""
    try:
        code = _code(_Mangled(fn.__qualname__).visit(copy.deepcopy(tree)), fn, fn.__code__.co_freevars)
    except (SyntaxError, ValueError):
        return False
    return bool(_shape(code) == _shape(fn.__code__))


def _shape(code: CodeType) -> Any:
    """The invariant parts of two compilations of one source: CPython calls imported functions differently."""
    names = [i.opname for i in dis.get_instructions(code)]
    alike = ["LOAD_ATTR" if n == "LOAD_METHOD" else n for n in names if n not in _BESIDE]
    return code.co_varnames, sorted(code.co_names), [c for c in code.co_consts if not isinstance(c, CodeType)], alike


def _named(tree: ast.FunctionDef) -> ast.FunctionDef:
    return definition(tree.name.strip("<>"), tree.args, tree.body, tree)


def _code(tree: ast.FunctionDef, fn: FunctionType, around: Iterable[str]) -> CodeType:
    """The code of a function inside one with the variables ``around``."""
    tree = _named(tree)
    arguments = [ast.arg(name) for name in dict.fromkeys(around)]
    empty = ast.arguments(posonlyargs=[], args=arguments, kwonlyargs=[], kw_defaults=[], defaults=[])
    bare = _without_defaults(tree)
    outer = ast.FunctionDef(name="around", args=empty, body=[bare], decorator_list=[])
    module = ast.Module(body=[ast.copy_location(outer, tree)], type_ignores=[])
    code = compile(ast.fix_missing_locations(module), fn.__code__.co_filename, "exec", dont_inherit=True)
    (outside,) = [c for c in code.co_consts if isinstance(c, CodeType)]
    (inside,) = [c for c in outside.co_consts if isinstance(c, CodeType) and c.co_name == tree.name]
    return inside


def _without_defaults(tree: ast.FunctionDef) -> ast.FunctionDef:
    """Defaults belong to the function, not to its code."""
    args = tree.args
    count = len(args.defaults)
    none: list[ast.expr] = [ast.Constant(None)] * count
    bare = ast.arguments(
        posonlyargs=args.posonlyargs, args=args.args, vararg=args.vararg, kwonlyargs=args.kwonlyargs,
        kw_defaults=[None if d is None else ast.Constant(None) for d in args.kw_defaults], kwarg=args.kwarg,
        defaults=none,
    )  # fmt: skip
    for a in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg):
        if a is not None:
            a.annotation = None
    return ast.copy_location(
        ast.FunctionDef(name=tree.name, args=bare, body=tree.body, decorator_list=[], returns=None), tree
    )


def function_of_tree(
    tree: ast.FunctionDef, like: FunctionType, cells: dict[str, CellType], helpers: Mapping[str, object],
    defaults: Any = None, kwdefaults: Any = None,
) -> FunctionType:  # fmt: skip
    code = _code(tree, like, [*cells, *helpers])
    _trees[code] = tree
    closure = tuple(cells[n] if n in cells else CellType(helpers[n]) for n in code.co_freevars)
    found = FunctionType(code, like.__globals__, like.__name__, defaults, closure)
    found.__kwdefaults__ = kwdefaults
    found.__module__, found.__qualname__ = like.__module__, like.__qualname__
    return found


class _Mangled(ast.NodeTransformer):
    """Apply the compiler's change of private names within a class."""

    def __init__(self, qualname: str) -> None:
        parts = qualname.split(".")
        outer = parts[-2] if len(parts) > 1 else ""
        self._owner = "" if outer == "<locals>" else outer.lstrip("_")

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        self.generic_visit(node)
        node.attr = self._written_out(node.attr)
        return node

    def visit_Name(self, node: ast.Name) -> Any:
        node.id = self._written_out(node.id)
        return node

    def _written_out(self, name: str) -> str:
        private = self._owner and name.startswith("__") and not name.endswith("__")
        return f"_{self._owner}{name}" if private else name

"""Which variables statements read and set, and small pieces of syntax."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence, Set
from typing import Any

PICK = "__pick"
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LOOPS = (ast.For, ast.While)
_GROWS = frozenset({"append", "extend", "insert", "add", "update", "appendleft", "setdefault", "pop"})


def within(s: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement, without those inside of functions that it makes."""
    yield s
    for n in ast.iter_child_nodes(s):
        if isinstance(n, SCOPES):
            yield n
        else:
            yield from within(n)


def leaves_loop(s: ast.AST, depth: int = 0) -> bool:
    """Whether a ``break`` or ``continue`` in a statement belongs to a loop around it."""
    if isinstance(s, ast.Break | ast.Continue):
        return depth == 0
    inner = depth + isinstance(s, _LOOPS)
    return any(leaves_loop(n, inner) for n in ast.iter_child_nodes(s) if not isinstance(n, SCOPES))


def loaded(node: ast.AST, without: Set[int] = frozenset()) -> set[str]:
    """The names that are read in ``node``, the statements ``without`` left out."""
    found: set[str] = set()
    stack = [node]
    while stack:
        n = stack.pop()
        if id(n) in without:
            continue
        if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Store):
            found.add(n.id)
        if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name):
            found.add(n.target.id)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == PICK:
            found |= {str(c.value) for c in ast.walk(n.args[1]) if isinstance(c, ast.Constant)}
        stack.extend(ast.iter_child_nodes(n))
    return found


def stored(run: Sequence[ast.AST]) -> set[str]:
    """The names that are set."""
    found = {n.id for s in run for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    # A comprehension's own variable is not the function's, unless a statement outside sets that name too.
    inner = [c for s in run for n in ast.walk(s) if isinstance(n, COMPREHENSIONS) for c in n.generators]
    targets = {n.id for c in inner for n in ast.walk(c.target) if isinstance(n, ast.Name)}
    plain = {n.id for s in run for n in _outside_comprehensions(s) if isinstance(n, ast.Name)}
    return {n for n in found if n not in targets or n in plain}


def _outside_comprehensions(s: ast.AST) -> Iterator[ast.AST]:
    yield s
    for n in ast.iter_child_nodes(s):
        if not isinstance(n, COMPREHENSIONS):
            yield from _outside_comprehensions(n)


def without_conversion(value: ast.expr, name: ast.expr) -> tuple[ast.expr, ast.expr]:
    """What ``float(value)`` converts, and the conversion of ``name`` in its place."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Name) or len(value.args) != 1:
        return value, name
    if value.func.id not in ("float", "int", "bool") or isinstance(value.args[0], ast.Starred):
        return value, name
    return value.args[0], ast.Call(value.func, [name], [])


def grown(run: Sequence[ast.AST]) -> set[str]:
    """The names of lists and the like that grow."""
    calls = [n.func for s in run for n in _within_run(s) if isinstance(n, ast.Call)]
    return {
        f.value.id for f in calls
        if isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name) and f.attr in _GROWS
    }  # fmt: skip


def _within_run(s: ast.AST) -> Iterator[ast.AST]:
    return (n for n in within(s) if not isinstance(n, SCOPES))


def name_of(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def tuple_of(names: Sequence[str], how: Any) -> ast.Tuple:
    return ast.Tuple([ast.Name(n, how) for n in names], how)


def picked(names: Sequence[str]) -> ast.Call:
    held = ast.Call(name_of("locals"), [], [])
    return ast.Call(name_of(PICK), [held, ast.Tuple([ast.Constant(n) for n in names], ast.Load())], [])


def forget(name: str) -> ast.If:
    """``if name is __unbound: del name``."""
    test = ast.Compare(name_of(name), [ast.Is()], [name_of("__unbound")])
    return ast.If(test, [ast.Delete([ast.Name(name, ast.Del())])], [])


def at_line(made: list[ast.stmt], s: ast.stmt) -> list[ast.stmt]:
    """Give what was made the line of a statement; what has one keeps it."""
    for m in made:
        for n in ast.walk(m):
            if not hasattr(n, "lineno") and isinstance(n, ast.stmt | ast.expr | ast.arg):
                ast.copy_location(n, s)
    return made

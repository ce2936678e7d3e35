"""The variables that statements read and set, and small pieces of syntax."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any

PICK = "__pick"
UNSET = "__unset"
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
    if isinstance(s, SCOPES):
        return False
    if isinstance(s, _LOOPS):  # its ``else`` belongs to the enclosing loop
        return any(leaves_loop(n, depth + 1) for n in s.body) or any(leaves_loop(n, depth) for n in s.orelse)
    return any(leaves_loop(n, depth) for n in ast.iter_child_nodes(s))


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
    """The names that are set, or deleted."""
    return {name for s in run for name in _stored(s, False)}


def _stored(n: ast.AST, in_comprehension: bool) -> Iterator[str]:
    # A comprehension's own variable is not the function's; what ``:=`` sets in one is.
    if isinstance(n, ast.NamedExpr):
        yield n.target.id
    elif not in_comprehension:
        yield from _bound(n)
    for inner in ast.iter_child_nodes(n):
        yield from _stored(inner, in_comprehension or isinstance(n, COMPREHENSIONS))


def _bound(n: ast.AST) -> list[str]:
    """The names that a node itself sets or deletes."""
    if isinstance(n, ast.Name):
        return [] if isinstance(n.ctx, ast.Load) else [n.id]
    if isinstance(n, ast.alias):
        return [n.asname or n.name.partition(".")[0]]
    if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [n.name]
    name = n.rest if isinstance(n, ast.MatchMapping) else getattr(n, "name", None)
    held = isinstance(n, ast.ExceptHandler | ast.MatchAs | ast.MatchStar | ast.MatchMapping)
    return [name] if held and name is not None else []


def always_set(s: ast.stmt) -> set[str]:
    """The names that a statement sets whenever it ends."""
    targets = s.targets if isinstance(s, ast.Assign) else [s.target] if isinstance(s, ast.AnnAssign) and s.value else []
    return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def declared(nodes: Iterable[ast.AST], kind: type[ast.Global] | type[ast.Nonlocal]) -> set[str]:
    """The names that ``global`` or ``nonlocal`` statements speak of."""
    return {name for n in nodes if isinstance(n, kind) for name in n.names}


def without_conversion(value: ast.expr, name: ast.expr) -> tuple[ast.expr, ast.expr]:
    """The operand of ``float(value)``, and the expression with ``name`` instead."""
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
    """``if __unset(name): del name``."""
    test = ast.Call(name_of(UNSET), [name_of(name)], [])
    return ast.If(test, [ast.Delete([ast.Name(name, ast.Del())])], [])


def at_line(made: list[ast.stmt], s: ast.stmt) -> list[ast.stmt]:
    """Give new statements the line of ``s``; statements with a line keep it."""
    for m in made:
        for n in ast.walk(m):
            if not hasattr(n, "lineno") and isinstance(n, ast.stmt | ast.expr | ast.arg):
                ast.copy_location(n, s)
    return made

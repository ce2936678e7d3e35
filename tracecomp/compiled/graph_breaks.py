"""Graph breaks: functions that cannot be one graph are split at the lines that cannot be captured.

A function is rewritten from its source. Statements at such lines stay Python. The runs of statements between them
become separate functions, which are compiled, also inside ``if``, ``for``, ``while`` and ``with``. Modules and
functions of the program that a Python statement calls are compiled too.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from types import FunctionType, ModuleType
from typing import Any

from tracecomp.base.code_origin import is_own
from tracecomp.compiled.ast_names import (
    PICK,
    SCOPES,
    UNSET,
    always_set,
    at_line,
    declared,
    forget,
    grown,
    leaves_loop,
    loaded,
    name_of,
    picked,
    stored,
    tuple_of,
    within,
    without_conversion,
)
from tracecomp.compiled.source_trees import definition, function_of_tree, tree_of

_HELPERS = ("__part", PICK, UNSET)
_WORK = (ast.Call, ast.BinOp)
_SEES_LOCALS = ("locals", "vars", "dir", "eval", "exec")
_SWALLOWS = ("suppress", "ExitStack", "AsyncExitStack")
"""Context managers of Python's library that may end an exception."""


class Unbound:
    """Represents a variable without a value."""

    def __repr__(self) -> str:
        return "unbound"


UNBOUND = Unbound()


def pick(held: Mapping[str, object], names: Sequence[str]) -> list[Any]:
    """The values of variables."""
    return [held.get(name, UNBOUND) for name in names]


def is_unset(value: object) -> bool:
    """Whether this is what ``pick`` gives for a variable without a value."""
    return value is UNBOUND


# One receives all variables and reads few; the other reads no values.
pick.is_unwatched = is_unset.is_unwatched = True  # type: ignore[attr-defined]


def split(
    fn: FunctionType, lines: Set[int], part: Callable[[object], object], piece: Callable[[FunctionType], object]
) -> FunctionType | None:
    """``fn`` with compiled pieces between the statements at ``lines``; at no lines, with Python alone.

    ``part`` is applied to what Python statements call, ``piece`` compiles the functions between them. None when there
    is no source to work on, or nothing to compile.
    """
    tree = tree_of(fn)
    if tree is None or any(isinstance(n, ast.Yield | ast.YieldFrom | ast.Await) for n in ast.walk(tree)):
        return None
    if "locals" in fn.__code__.co_varnames:  # pieces are handed variables by Python's own
        return None
    splitter = _Splitter(fn, tree, lines)
    body = splitter.block(tree.body, True, False)
    if not splitter.pieces and not splitter.calls:
        return None
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    helpers: dict[str, Any] = dict(zip(_HELPERS, (part, pick, is_unset), strict=True))
    for made in splitter.pieces:
        helpers[made.name] = piece(function_of_tree(made, fn, cells, helpers))
    new = definition(tree.name, tree.args, body, tree)
    return function_of_tree(new, fn, cells, helpers, fn.__defaults__, fn.__kwdefaults__)


class _Splitter:
    """Rewrite the statements of one function."""

    def __init__(self, fn: FunctionType, tree: ast.FunctionDef, lines: Set[int]) -> None:
        self.pieces: list[ast.FunctionDef] = []
        self.calls = 0
        self._lines = lines
        self._tree = tree
        self._seen = {**vars(builtins), **fn.__globals__}
        self._locals = {*fn.__code__.co_varnames, *fn.__code__.co_cellvars}
        self._used: set[str] = set()
        inner = [n for n in ast.walk(tree) if isinstance(n, SCOPES) and n is not tree]
        self._captured = {name for n in inner for name in loaded(n)}
        # Inner functions may change variables in the middle of a piece, which has a separate copy.
        self._shared = declared([m for n in inner for m in ast.walk(n)], ast.Nonlocal)
        own = [n for s in tree.body for n in within(s)]
        self._declared = {kind: declared(own, kind) for kind in (ast.Global, ast.Nonlocal)}
        unset = {name for n in own if isinstance(n, ast.Delete | ast.ExceptHandler) for name in stored([n])}
        args = (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs, tree.args.vararg, tree.args.kwarg)
        self._sure = {a.arg for a in args if a is not None} - unset - self._shared
        if any(isinstance(n, ast.Name) and n.id in _SEES_LOCALS for n in own):
            self._used |= self._locals

    def block(self, statements: Sequence[ast.stmt], is_tail: bool, in_loop: bool) -> list[ast.stmt]:
        """The statements of one block; a tail ends with the function itself."""
        found: list[ast.stmt] = []
        run: list[ast.stmt] = []
        stay = [self._breaks(s) or not self._can_move(s, True) for s in statements]
        last = max((k for k, s in enumerate(statements) if stay[k] or grown([s]) & self._locals), default=-1)
        for k, s in enumerate(statements):
            grows = grown([s]) & self._locals - stored(run)
            if stay[k] or grows or not self._can_move(s, is_tail and k > last):
                if grows and not stay[k] and isinstance(s, ast.Expr):
                    run, s = self._computed_first(run, s)
                found += self._outline(run, False, in_loop)
                run = []
                found += self._python(s, is_tail and k == len(statements) - 1, in_loop)
            else:
                run.append(s)
        found += self._outline(run, is_tail, in_loop)
        return found or [ast.Pass()]

    def _computed_first(self, run: list[ast.stmt], s: ast.Expr) -> tuple[list[ast.stmt], ast.stmt]:
        """A list grows in Python; the appended values are computed with the previous run."""
        call = s.value
        if not isinstance(call, ast.Call) or len(call.args) != 1 or call.keywords or not self._can_move(s, False):
            return run, s
        if isinstance(call.args[0], ast.Starred) or not any(isinstance(n, _WORK) for n in ast.walk(call.args[0])):
            return run, s
        name = f"__grown{len(self._locals)}"
        self._locals.add(name)
        self._used.add(name)
        added, kept = without_conversion(call.args[0], name_of(name))
        first = ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], added), s)
        then = ast.copy_location(ast.Expr(ast.Call(call.func, [kept], call.keywords)), s)
        return [*run, *at_line([first], s)], at_line([then], s)[0]

    def _breaks(self, s: ast.stmt) -> bool:
        first, end = s.lineno, s.end_lineno or s.lineno
        return not self._lines or any(first <= line <= end for line in self._lines)

    def _can_move(self, s: ast.stmt, may_return: bool) -> bool:
        """Whether a statement has the same meaning in a separate function."""
        if isinstance(s, (*SCOPES, ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom, ast.Delete, ast.Try)):
            return False
        names = stored([s])
        for n in within(s):
            if isinstance(n, ast.Return) and not may_return:
                return False
            if isinstance(n, (ast.Global, ast.Nonlocal, *SCOPES)):
                return False
            # A piece has separate variables: deleting one there does not affect the function's.
            if isinstance(n, ast.Delete) and any(isinstance(t, ast.Name) for t in n.targets):
                return False
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in ("super", *_SEES_LOCALS):
                return False
        return not leaves_loop(s) and not names & self._captured and not (names | loaded(s)) & self._shared

    def _outline(self, run: list[ast.stmt], is_tail: bool, in_loop: bool) -> list[ast.stmt]:
        """Replace a run of statements by a call of a separate function, if they have code to compile."""
        # Statements that only move Python objects gain nothing from being compiled.
        if not any(isinstance(n, _WORK) for s in run for n in ast.walk(s)):
            return run
        reads, sets = self._live(run)
        outside = loaded(self._tree, set(map(id, run))) | self._used
        # Variables that later statements read; in a loop also those that the piece itself reads in the next iteration.
        left = sorted(n for n in sets & self._locals if n in outside or (in_loop and n in reads))
        returns = [n for s in run for n in within(s) if isinstance(n, ast.Return)]
        name, names = f"__piece{len(self.pieces)}", sorted(reads)
        # A piece that returns for its caller hands on no names.
        if returns or is_tail:
            left = []
        arguments = ast.arguments(
            posonlyargs=[], args=[ast.arg(n) for n in names], kwonlyargs=[], kw_defaults=[], defaults=[]
        )
        # Names that had no value when the piece was called are forgotten first, so that reading them is an error.
        body = [*self._declarations(run), *[forget(n) for n in names if n not in self._sure], *run]
        if left:
            body.append(ast.Return(picked(left)))
        self.pieces.append(definition(name, arguments, at_line(body, run[0]), run[0]))
        call = ast.Call(name_of(name), [ast.Starred(picked(names), ast.Load())], [])
        if returns or is_tail:
            return at_line([ast.Return(call)], run[0])
        if not left:
            return at_line([ast.Expr(call)], run[0])
        after = [forget(n) for n in left]
        return at_line([ast.Assign([tuple_of(left, ast.Store())], call), *after], run[0])

    def _declarations(self, run: Sequence[ast.stmt]) -> list[ast.stmt]:
        """The function's declarations of nonlocal and global names, for a piece."""
        found = {kind: sorted(stored(run) & names) for kind, names in self._declared.items()}
        return [kind(names=names) for kind, names in found.items() if names]

    def _live(self, run: Sequence[ast.stmt]) -> tuple[set[str], set[str]]:
        """The variables that a run needs from before, and those that it sets."""
        needed: set[str] = set()
        sure: set[str] = set()
        for s in run:
            needed |= loaded(s) - sure
            sure |= always_set(s)
        sets = stored(run)
        return ((needed | (sets - sure)) & self._locals), sets

    def _python(self, s: ast.stmt, is_tail: bool, in_loop: bool) -> list[ast.stmt]:
        """A statement that stays Python; its callees, and its blocks, are compiled."""
        if isinstance(s, ast.If):
            new: ast.stmt = ast.If(self._calls(s.test), self.block(s.body, is_tail, in_loop),
                                   self.block(s.orelse, is_tail, in_loop) if s.orelse else [])  # fmt: skip
        elif isinstance(s, ast.For):
            new = ast.For(s.target, self._calls(s.iter), self.block(s.body, False, True),
                          self.block(s.orelse, False, in_loop) if s.orelse else [])  # fmt: skip
        elif isinstance(s, ast.While):
            new = ast.While(self._calls(s.test), self.block(s.body, False, True),
                            self.block(s.orelse, False, in_loop) if s.orelse else [])  # fmt: skip
        elif isinstance(s, ast.With) and not self._loses(s):
            new = ast.With(s.items, self.block(s.body, False, in_loop))
        elif isinstance(s, SCOPES):
            return [s]
        else:
            new = self._calls(s)
        return [ast.copy_location(new, s)]

    def _loses(self, s: ast.With) -> bool:
        """Whether a manager may end an exception, after which the function reads what a piece had set by then."""
        sets = stored(s.body) & self._locals & (loaded(self._tree, set(map(id, s.body))) | self._used)
        return bool(sets) and not all(self._passes_errors(item.context_expr) for item in s.items)

    def _passes_errors(self, manager: ast.expr) -> bool:
        """Whether it is known to end no exception: it is of this package, or of Python's library."""
        made = manager.func if isinstance(manager, ast.Call) else manager
        names = []
        while isinstance(made, ast.Attribute):
            names.append(made.attr)
            made = made.value
        if not isinstance(made, ast.Name) or made.id in self._locals:
            return False
        found = self._seen.get(made.id)
        for name in reversed(names):
            found = getattr(found, name, None) if isinstance(found, ModuleType) else None
        room = str(getattr(found, "__module__", None) or "").partition(".")[0]
        known = is_own(found) or room in sys.stdlib_module_names - {"unittest", "__main__"}
        return known and getattr(found, "__name__", None) not in _SWALLOWS

    def _calls(self, node: Any) -> Any:
        """``node`` with its callees compiled."""
        return _Calls(self).visit(node)


class _Calls(ast.NodeTransformer):
    """Wrap callees in ``__part``."""

    def __init__(self, splitter: _Splitter) -> None:
        self._splitter = splitter

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in ("super", "locals", "vars", *_HELPERS):
            return node
        self._splitter.calls += 1
        func = ast.copy_location(ast.Call(name_of("__part"), [node.func], []), node.func)
        return ast.copy_location(ast.Call(func, node.args, node.keywords), node)

    def visit(self, node: ast.AST) -> Any:
        """Functions and classes that are made are unchanged: functions that they call is compiled when they are."""
        return node if isinstance(node, SCOPES) else super().visit(node)

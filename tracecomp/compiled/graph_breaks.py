"""Programs that cannot be one graph, cut at the lines that cannot be captured.

A function is written anew from its source: statements at such lines stay Python, the runs of statements between them
become functions of their own, which are compiled. Inside of ``if``, ``for``, ``while`` and ``with`` it goes on like
that. What a Python statement calls is compiled too, when it is a module or a function of the program.
"""

from __future__ import annotations

import ast
import copy
import dis
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from types import CellType, CodeType, FunctionType
from typing import Any

_HELPERS = ("__part", "__pick", "__unbound")
_LOOPS = (ast.For, ast.While)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_WORK = (ast.Call, ast.BinOp)
_GROWS = frozenset({"append", "extend", "insert", "add", "update", "appendleft", "setdefault", "pop"})
_trees: dict[CodeType, ast.FunctionDef] = {}


class Unbound:
    """Stands for a variable that has no value yet."""

    def __repr__(self) -> str:
        return "unbound"


UNBOUND = Unbound()


def pick(held: dict[str, Any], names: Sequence[str]) -> list[Any]:
    """The values of variables."""
    return [held.get(name, UNBOUND) for name in names]


def split(
    fn: FunctionType, lines: Set[int], part: Callable[[Any], Any], piece: Callable[[FunctionType], Any]
) -> FunctionType | None:
    """``fn`` with compiled pieces between the statements at ``lines``; at no lines, with Python alone.

    ``part`` is applied to what Python statements call, ``piece`` compiles the functions between them. None when there
    is no source to work on, or nothing to compile.
    """
    tree = tree_of(fn)
    if tree is None or any(isinstance(n, ast.Yield | ast.YieldFrom | ast.Await) for n in ast.walk(tree)):
        return None
    splitter = _Splitter(fn, tree, lines)
    body = splitter.block(tree.body, True, False)
    if not splitter.pieces and not splitter.calls:
        return None
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    helpers: dict[str, Any] = dict(zip(_HELPERS, (part, pick, UNBOUND), strict=True))
    for made in splitter.pieces:
        helpers[made.name] = piece(_function(made, fn, cells, helpers))
    new = _definition(tree.name, tree.args, body, tree)
    return _function(new, fn, cells, helpers, fn.__defaults__, fn.__kwdefaults__)


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
    found = [_as_definition(n) for n in ast.walk(module) if isinstance(n, ast.FunctionDef | ast.Lambda)]
    alike = [d for d in found if d is not None and _is_source_of(d, fn)]
    if len(alike) != 1:
        return None
    found_tree: ast.FunctionDef = _Mangled(fn.__qualname__).visit(alike[0])
    return found_tree


def _as_definition(n: ast.FunctionDef | ast.Lambda) -> ast.FunctionDef:
    if isinstance(n, ast.FunctionDef):
        return _definition(n.name, n.args, n.body, n)
    result = ast.copy_location(ast.Return(n.body), n.body)
    return _definition("<lambda>", n.args, [result], n)


def _definition(name: str, args: ast.arguments, body: list[ast.stmt], at: ast.AST) -> ast.FunctionDef:
    bare = ast.arguments(
        posonlyargs=args.posonlyargs, args=args.args, vararg=args.vararg, kwonlyargs=args.kwonlyargs,
        kw_defaults=args.kw_defaults, kwarg=args.kwarg, defaults=args.defaults,
    )  # fmt: skip
    found = ast.FunctionDef(name=name, args=bare, body=body, decorator_list=[], returns=None)
    return ast.copy_location(found, at)


def _is_source_of(tree: ast.FunctionDef, fn: FunctionType) -> bool:
    """Whether compiling ``tree`` gives the code of ``fn``, the names of what is around it aside."""
    try:
        code = _code(_Mangled(fn.__qualname__).visit(copy.deepcopy(tree)), fn, fn.__code__.co_freevars)
    except (SyntaxError, ValueError):
        return False
    return bool(_shape(code) == _shape(fn.__code__))


def _shape(code: CodeType) -> Any:
    """What is alike in two compilations of one source: CPython calls what it knows to be imported in another way."""
    names = [i.opname for i in dis.get_instructions(code)]
    alike = ["LOAD_ATTR" if n == "LOAD_METHOD" else n for n in names if n not in ("COPY_FREE_VARS", "EXTENDED_ARG")]
    return code.co_varnames, sorted(code.co_names), [c for c in code.co_consts if not isinstance(c, CodeType)], alike


def _named(tree: ast.FunctionDef) -> ast.FunctionDef:
    return _definition(tree.name.strip("<>"), tree.args, tree.body, tree)


def _code(tree: ast.FunctionDef, fn: FunctionType, around: Iterable[str]) -> CodeType:
    """The code of a function that stands in one with the variables ``around``."""
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


def _function(
    tree: ast.FunctionDef, like: FunctionType, cells: dict[str, CellType], helpers: dict[str, Any],
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
    """Writes out what the compiler does to private names within a class."""

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


class _Splitter:
    """Writes the statements of one function anew."""

    def __init__(self, fn: FunctionType, tree: ast.FunctionDef, lines: Set[int]) -> None:
        self.pieces: list[ast.FunctionDef] = []
        self.calls = 0
        self._lines = lines
        self._tree = tree
        self._locals = {*fn.__code__.co_varnames, *fn.__code__.co_cellvars}
        self._used: set[str] = set()
        inner = [n for n in ast.walk(tree) if isinstance(n, _SCOPES) and n is not tree]
        self._captured = {name for n in inner for name in _loaded(n)}

    def block(self, statements: Sequence[ast.stmt], is_tail: bool, in_loop: bool) -> list[ast.stmt]:
        """The statements of one block; a tail ends with the function itself."""
        found: list[ast.stmt] = []
        run: list[ast.stmt] = []
        stay = [self._breaks(s) or not self._can_move(s, True) for s in statements]
        last = max((k for k, stays in enumerate(stay) if stays), default=-1)
        for k, s in enumerate(statements):
            grown = _grown([s]) & self._locals - _stored(run)
            if stay[k] or grown or not self._can_move(s, is_tail and k > last):
                if grown and not stay[k] and isinstance(s, ast.Expr):
                    run, s = self._computed_first(run, s)
                found += self._outline(run, False, in_loop)
                run = []
                found += self._python(s, is_tail and k == len(statements) - 1, in_loop)
            else:
                run.append(s)
        found += self._outline(run, is_tail, in_loop)
        return found or [ast.Pass()]

    def _computed_first(self, run: list[ast.stmt], s: ast.Expr) -> tuple[list[ast.stmt], ast.stmt]:
        """A list grows in Python; what it grows by is computed with the run before."""
        call = s.value
        assert isinstance(call, ast.Call)
        if not any(isinstance(n, _WORK) for a in call.args for n in ast.walk(a)) or len(call.args) != 1:
            return run, s
        name = f"__grown{len(self._locals)}"
        self._locals.add(name)
        self._used.add(name)
        added, kept = _without_conversion(call.args[0], _name(name))
        first = ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], added), s)
        then = ast.copy_location(ast.Expr(ast.Call(call.func, [kept], call.keywords)), s)
        return [*run, *_at([first], s)], _at([then], s)[0]

    def _breaks(self, s: ast.stmt) -> bool:
        first, end = s.lineno, s.end_lineno or s.lineno
        return not self._lines or any(first <= line <= end for line in self._lines)

    def _can_move(self, s: ast.stmt, may_return: bool) -> bool:
        """Whether a statement means the same in a function of its own."""
        if isinstance(s, (*_SCOPES, ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom, ast.Delete, ast.Try)):
            return False
        for n in _within(s):
            if isinstance(n, ast.Return) and not may_return:
                return False
            if isinstance(n, (ast.Global, ast.Nonlocal, *_SCOPES)):
                return False
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in ("locals", "super", "vars"):
                return False
        return not _leaves_loop(s) and not _stored([s]) & self._captured

    def _outline(self, run: list[ast.stmt], is_tail: bool, in_loop: bool) -> list[ast.stmt]:
        """A run of statements as a call of a function of its own, where there is something to compile."""
        if not any(isinstance(n, _WORK) for s in run for n in ast.walk(s)):
            return run
        reads, stored = self._live(run)
        outside = _loaded(self._tree, set(map(id, run))) | self._used
        left = sorted(n for n in stored & self._locals if n in outside or (in_loop and n in reads))
        returns = [n for s in run for n in _within(s) if isinstance(n, ast.Return)]
        name, names = f"__piece{len(self.pieces)}", sorted(reads)
        if returns or is_tail:
            left = []
        arguments = ast.arguments(
            posonlyargs=[], args=[ast.arg(n) for n in names], kwonlyargs=[], kw_defaults=[], defaults=[]
        )
        body = [*[_forget(n) for n in names if n in stored], *run]
        if left:
            body.append(ast.Return(_picked(left)))
        self.pieces.append(_definition(name, arguments, _at(body, run[0]), run[0]))
        call = ast.Call(_name(name), [ast.Starred(_picked(names), ast.Load())], [])
        if returns or is_tail:
            return _at([ast.Return(call)], run[0])
        if not left:
            return _at([ast.Expr(call)], run[0])
        after = [_forget(n) for n in left]
        return _at([ast.Assign([_tuple(left, ast.Store())], call), *after], run[0])

    def _live(self, run: Sequence[ast.stmt]) -> tuple[set[str], set[str]]:
        """The variables that a run needs from before, and those that it sets."""
        needed: set[str] = set()
        sure: set[str] = set()
        for s in run:
            needed |= _loaded(s) - sure
            if isinstance(s, ast.Assign | ast.AnnAssign):
                sure |= _stored([s])
        stored = _stored(run)
        return ((needed | (stored - sure)) & self._locals), stored

    def _python(self, s: ast.stmt, is_tail: bool, in_loop: bool) -> list[ast.stmt]:
        """A statement that stays Python; what it calls, and the blocks in it, are compiled."""
        if isinstance(s, ast.If):
            new: ast.stmt = ast.If(self._calls(s.test), self.block(s.body, is_tail, in_loop),
                                   self.block(s.orelse, is_tail, in_loop) if s.orelse else [])  # fmt: skip
        elif isinstance(s, ast.For):
            new = ast.For(s.target, self._calls(s.iter), self.block(s.body, False, True),
                          self.block(s.orelse, False, in_loop) if s.orelse else [])  # fmt: skip
        elif isinstance(s, ast.While):
            new = ast.While(self._calls(s.test), self.block(s.body, False, True),
                            self.block(s.orelse, False, in_loop) if s.orelse else [])  # fmt: skip
        elif isinstance(s, ast.With):
            new = ast.With(s.items, self.block(s.body, False, in_loop))
        elif isinstance(s, _SCOPES):
            return [s]
        else:
            new = self._calls(s)
        return [ast.copy_location(new, s)]

    def _calls(self, node: Any) -> Any:
        """``node`` with what it calls compiled."""
        return _Calls(self).visit(node)


class _Calls(ast.NodeTransformer):
    """Puts ``__part`` around what is called."""

    def __init__(self, splitter: _Splitter) -> None:
        self._splitter = splitter

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in ("super", "locals", "vars", *_HELPERS):
            return node
        self._splitter.calls += 1
        func = ast.copy_location(ast.Call(_name("__part"), [node.func], []), node.func)
        return ast.copy_location(ast.Call(func, node.args, node.keywords), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        return node


def _within(s: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement, without those inside of functions that it makes."""
    yield s
    for n in ast.iter_child_nodes(s):
        if isinstance(n, _SCOPES):
            yield n
        else:
            yield from _within(n)


def _leaves_loop(s: ast.AST, depth: int = 0) -> bool:
    """Whether a ``break`` or ``continue`` in a statement belongs to a loop around it."""
    if isinstance(s, ast.Break | ast.Continue):
        return depth == 0
    inner = depth + isinstance(s, _LOOPS)
    return any(_leaves_loop(n, inner) for n in ast.iter_child_nodes(s) if not isinstance(n, _SCOPES))


def _loaded(node: ast.AST, without: Set[int] = frozenset()) -> set[str]:
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
        stack.extend(ast.iter_child_nodes(n))
    return found


def _stored(run: Sequence[ast.AST]) -> set[str]:
    """The names that are set."""
    found = {n.id for s in run for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    inner = [c for s in run for n in ast.walk(s) if isinstance(n, _COMPREHENSIONS) for c in n.generators]
    targets = {n.id for c in inner for n in ast.walk(c.target) if isinstance(n, ast.Name)}
    plain = {n.id for s in run for n in _outside_comprehensions(s) if isinstance(n, ast.Name)}
    return {n for n in found if n not in targets or n in plain}


def _outside_comprehensions(s: ast.AST) -> Iterator[ast.AST]:
    yield s
    for n in ast.iter_child_nodes(s):
        if not isinstance(n, _COMPREHENSIONS):
            yield from _outside_comprehensions(n)


def _without_conversion(value: ast.expr, name: ast.expr) -> tuple[ast.expr, ast.expr]:
    """What ``float(value)`` converts, and the conversion of ``name`` in its place."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in ("float", "int", "bool"):
        if len(value.args) == 1 and not isinstance(value.args[0], ast.Starred):
            return value.args[0], ast.Call(value.func, [name], [])
    return value, name


def _grown(run: Sequence[ast.AST]) -> set[str]:
    """The names of lists and the like that grow."""
    calls = [n.func for s in run for n in _within_run(s) if isinstance(n, ast.Call)]
    return {
        f.value.id for f in calls
        if isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name) and f.attr in _GROWS
    }  # fmt: skip


def _within_run(s: ast.AST) -> Iterator[ast.AST]:
    return (n for n in _within(s) if not isinstance(n, _SCOPES))


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _tuple(names: Sequence[str], how: Any) -> ast.Tuple:
    return ast.Tuple([ast.Name(n, how) for n in names], how)


def _picked(names: Sequence[str]) -> ast.Call:
    held = ast.Call(_name("locals"), [], [])
    return ast.Call(_name("__pick"), [held, ast.Tuple([ast.Constant(n) for n in names], ast.Load())], [])


def _forget(name: str) -> ast.If:
    """``if name is __unbound: del name``."""
    test = ast.Compare(_name(name), [ast.Is()], [_name("__unbound")])
    return ast.If(test, [ast.Delete([ast.Name(name, ast.Del())])], [])


def _at(made: list[ast.stmt], s: ast.stmt) -> list[ast.stmt]:
    """Give what was made the line of a statement; what has one keeps it."""
    for m in made:
        for n in ast.walk(m):
            if not hasattr(n, "lineno") and isinstance(n, ast.stmt | ast.expr | ast.arg):
                ast.copy_location(n, s)
    return made

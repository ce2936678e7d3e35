"""The package's annotations: few arguments are of any type at all."""

from __future__ import annotations

import ast
import re

from tests.test_words import modules, read

MOST = 0.05
"""Share of all arguments. Most of them are ``Any`` in PyTorch, too: a module's inputs, a batch, an attribute of any
kind."""


def of_arguments(text: str) -> list[str | None]:
    """Return the annotation of every named argument, except ``self`` and ``cls``."""
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    named = [a for f in functions for a in (*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs)]
    return [None if a.annotation is None else ast.unparse(a.annotation) for a in named if a.arg not in ("self", "cls")]


def says_any(annotation: str | None) -> bool:
    return annotation is not None and re.search(r"\bAny\b", annotation) is not None


def test_the_reader_sees_every_named_argument() -> None:
    code = "class C:\n    async def f(self, a, /, b: list[Any], *args: Any, c: AnyNest): ...\n"
    found = of_arguments(code)
    assert found == [None, "list[Any]", "AnyNest"] and [says_any(a) for a in found] == [False, True, False]


def test_few_arguments_are_of_any_type() -> None:
    found = [a for path in modules() for a in of_arguments(read(path))]
    share = sum(map(says_any, found)) / len(found)
    print(f"{len(found)} arguments, {share:.2%} with Any")
    assert share < MOST, "name the type, a protocol or a TypeVar; object for what is only handed on"

"""Functions fit on a screen: none of the package's has more than 50 lines. Classes and files of capture have limits.

A function's lines are those from its ``def`` to its last statement: its signature, docstring, comments, blank lines and
the functions defined within it count; its decorators do not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.test_words import PACKAGE, modules, read

SCREEN = 50
"""Lines."""
CAPTURE = ("record", "compiled")
"""Packages whose parts call each other in both directions where they grow."""
CLASS, FILE = 300, 450
"""Lines of their classes and files."""


def lengths(text: str) -> Iterator[tuple[int, int, str]]:
    """Lines, first line and name of every function and method."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.end_lineno - node.lineno + 1, node.lineno, node.name


def test_the_reader_counts_from_def_to_the_last_line() -> None:
    body = '    """Text."""\n\n    # why\n    def g(): return (\n        a\n    )\n    return g\n'
    code = "@wrap(\n    1,\n)\ndef f(\n    a,\n):\n" + body
    assert list(lengths(code)) == [(10, 4, "f"), (3, 10, "g")]
    assert list(lengths("class C:\n    async def m(self):\n        pass\n")) == [(2, 2, "m")]


def test_no_function_is_longer_than_a_screen() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}:{line}: {name} has {count} lines"
        for path in modules()
        for count, line, name in lengths(read(path))
        if count > SCREEN
    }
    assert not found, "cut at a place that has a name of its own: " + ", ".join(sorted(found))


def test_classes_and_files_of_capture_have_one_task_each() -> None:
    found = set()
    for path in modules():
        if path.relative_to(PACKAGE).parts[0] in CAPTURE:
            text = read(path)
            sizes = [("the file", len(text.splitlines()), FILE)]
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ClassDef):
                    assert node.end_lineno is not None
                    sizes.append((f"class {node.name}", node.end_lineno - node.lineno + 1, CLASS))
            found |= {f"{path.relative_to(PACKAGE)}: {what} has {n} lines" for what, n, most in sizes if n > most}
    assert not found, "split by meaning: " + ", ".join(sorted(found))

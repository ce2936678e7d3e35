"""Every number by which passes choose says what it is: a sentence stands below it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PASSES = Path(__file__).parents[3] / "tracecomp" / "passes"


def is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def numbers(value: ast.expr | None) -> bool:
    """Whether a number stands in an expression."""
    if value is None:
        return False
    return any(isinstance(c, ast.Constant) and type(c.value) in (int, float) for c in ast.walk(value))


def without_words(tree: ast.Module) -> Iterator[str]:
    """Constants of a module, and fields of its records that have a number, with no text below."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for body, where in ((tree.body, ""), *((c.body, f"{c.name}.") for c in classes if c.name in ("Tuning",))):
        for node, after in zip(body, [*body[1:], ast.Pass()], strict=True):
            if isinstance(node, ast.Assign | ast.AnnAssign) and numbers(node.value) and not is_text(after):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                yield f"{where}{ast.unparse(target)}"


def test_the_reader_sees_constants_without_words() -> None:
    fields = 'class Tuning:\n    a: int = 1\n    b: int = 2\n    """Why."""\n'
    code = 'A = 3\nB = 4\n"""Bytes of something."""\nC = D = f("x")\n' + fields
    assert list(without_words(ast.parse(code))) == ["A", "Tuning.a"]


def test_every_constant_of_the_passes_has_words() -> None:
    found = {
        f"{path.relative_to(PASSES)}: {name}"
        for path in sorted(PASSES.rglob("*.py"))
        for name in without_words(ast.parse(path.read_text(encoding="utf8")))
    }
    assert not found, "say the unit, and why, in a text below: " + ", ".join(sorted(found))


def test_one_name_has_one_value() -> None:
    """Two constants of one name are one decision made twice, or two that should be told apart."""
    known: dict[str, set[str]] = {}
    for path in sorted(PASSES.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf8")).body:
            if isinstance(node, ast.Assign) and numbers(node.value) and isinstance(node.targets[0], ast.Name):
                known.setdefault(node.targets[0].id, set()).add(ast.unparse(node.value))
    assert not {name: values for name, values in known.items() if len(values) > 1}

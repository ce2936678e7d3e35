"""Every tuned number has an explanation next to it, and so has every handler of all errors."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "tracecomp"
PASSES = PACKAGE / "passes"


def modules() -> Iterator[Path]:
    """The package's own, without the stand-ins for torch that it generates."""
    return (path for path in sorted(PACKAGE.rglob("*.py")) if "site" not in path.parts)


def read(path: Path) -> str:
    return path.read_text(encoding="utf8")


def is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def numbers(value: ast.expr | None) -> bool:
    """Return whether an expression contains a number."""
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


def number(value: ast.expr) -> bool:
    """Whether an expression is arithmetic on numbers alone."""
    leaves = [n for n in ast.walk(value) if not isinstance(n, ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop)]
    return all(isinstance(n, ast.Constant) and type(n.value) in (int, float) for n in leaves)


def plain(value: ast.expr | None) -> bool:
    """Whether an expression is a number, or a few: no table of samples, shapes or coefficients."""
    parts = value.elts if isinstance(value, ast.Tuple) else [value] if value else []
    return 0 < len(parts) <= 8 and all(number(p) for p in parts)


def unexplained(text: str) -> Iterator[str]:
    """Yield constants of a module without an explanation: a text below, or a comment above the run of them or on the
    same line."""
    tree, lines = ast.parse(text), text.splitlines()
    explained = 0  # the last line of a run of constants that something above explains
    for node, after in zip(tree.body, [*tree.body[1:], ast.Pass()], strict=True):
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        above = lines[node.lineno - 2].strip().startswith("#") or node.lineno == explained + 1
        if above:
            explained = node.end_lineno or node.lineno
        beside = "  # " in lines[(node.end_lineno or node.lineno) - 1]
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        names = ast.unparse(target)
        if plain(node.value) and names.replace("_", "").isupper() and not (above or beside or is_text(after)):
            yield names


def test_a_comment_above_explains_a_run_of_constants() -> None:
    code = '# What they are.\nA = 1\nB = 2\n\nC = 3\nD = 4  # seconds\nE = (1, 2)\n"""Why."""\nF = ((1, 2), (3, 4))\n'
    assert list(unexplained(code)) == ["C"]


def test_every_constant_of_the_package_has_words() -> None:
    found = {f"{path.relative_to(PACKAGE)}: {name}" for path in modules() for name in unexplained(read(path))}
    assert not found, "say the unit, and why: " + ", ".join(sorted(found))


def catching_all(text: str) -> Iterator[int]:
    """Lines that catch every error, do not only tidy up before they raise it again, and say no word about it."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ExceptHandler):
            every = node.type is None or ast.unparse(node.type) in ("Exception", "BaseException")
            last = node.body[-1]
            if (
                every
                and not (isinstance(last, ast.Raise) and last.exc is None)
                and "  # " not in lines[node.lineno - 1]
            ):
                yield node.lineno


def test_the_reader_sees_what_catches_all() -> None:
    code = "try:\n    a()\nexcept Exception:\n    b()\nexcept BaseException:\n    b()\n    raise\n"
    assert list(catching_all(code)) == [3]
    assert not list(
        catching_all("try:\n    a()\nexcept Exception:  # the program's\n    b()\nexcept OSError:\n    c()\n")
    )


def test_what_catches_all_errors_says_why() -> None:
    found = [f"{path.relative_to(PACKAGE)}:{line}" for path in modules() for line in catching_all(read(path))]
    assert not found, f"catch what is meant, or say beside it why all: {found}"


def test_one_name_has_one_value() -> None:
    """Two constants with one name are one decision made twice, or need different names."""
    known: dict[str, set[str]] = {}
    for path in sorted(PASSES.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf8")).body:
            if isinstance(node, ast.Assign) and numbers(node.value) and isinstance(node.targets[0], ast.Name):
                known.setdefault(node.targets[0].id, set()).add(ast.unparse(node.value))
    assert not {name: values for name, values in known.items() if len(values) > 1}

"""Every import in the package against the order of layers in docs/architecture.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "tracecomp"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def layers() -> dict[str, tuple[int, int]]:
    """Name of a part of the package -> (height, group); groups of one height are separated by ``|``."""
    section = (ROOT / "docs" / "architecture.md").read_text().split("## Layers")[1]
    lines = section.split("```")[1].strip().splitlines()
    return {
        part.strip(): (len(lines) - height, group)
        for height, line in enumerate(lines)
        for group, names in enumerate(line.split("(")[0].split("|"))
        for part in names.split(",")
    }


def imports(tree: ast.AST, package: tuple[str, ...], local: bool = False) -> Iterator[tuple[str, int, bool]]:
    """Every import below ``tree``: dotted name, line, whether it stands inside a function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno, local) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, (base, node.module)))
            if module == "tracecomp":
                yield from ((f"tracecomp.{alias.name}", node.lineno, local) for alias in node.names)
            else:
                yield module, node.lineno, local
        yield from imports(node, package, local or isinstance(node, FUNCTIONS))


def part_of(dotted: str) -> str:
    """The part of the package that ``tracecomp.a.b`` belongs to; names defined in __init__ belong to it."""
    parts = dotted.split(".")
    if len(parts) == 1:
        return "__init__"
    return parts[1] if (PACKAGE / parts[1]).is_dir() or (PACKAGE / f"{parts[1]}.py").is_file() else "__init__"


def own_imports() -> Iterator[tuple[Path, str, str, int, bool]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        dotted = ("tracecomp", *path.relative_to(PACKAGE).with_suffix("").parts)
        for name, line, local in imports(ast.parse(path.read_text()), dotted[:-1]):
            if name.split(".")[0] == "tracecomp":
                yield path.relative_to(ROOT), part_of(".".join(dotted)), part_of(name), line, local


def test_the_reader_sees_relative_and_local_imports() -> None:
    code = "import os\nfrom . import a\nfrom ..ir.types import b\ndef f():\n    from tracecomp import ops\n"
    found = list(imports(ast.parse(code), ("tracecomp", "nn")))
    assert found == [
        ("os", 1, False),
        ("tracecomp.nn", 2, False),
        ("tracecomp.ir.types", 3, False),
        ("tracecomp.ops", 5, True),
    ]


def test_upper_layers_import_lower_ones_only() -> None:
    order = layers()
    wrong = []
    for path, importer, imported, line, _ in own_imports():
        (height, group), (other_height, other_group) = order[importer], order[imported]
        if other_height > height or (other_height == height and other_group != group):
            wrong.append(f"{path}:{line}: {importer} imports {imported}")
    assert not wrong, "\n".join(wrong)


def test_the_package_is_never_imported_inside_a_function() -> None:
    wrong = [f"{path}:{line}" for path, _, _, line, local in own_imports() if local]
    assert not wrong, "\n".join(wrong)


def test_llvmlite_is_imported_under_codegen_only() -> None:
    wrong = [
        str(path)
        for path in PACKAGE.rglob("*.py")
        for name, _, _ in imports(ast.parse(path.read_text()), ("tracecomp",))
        if name.split(".")[0] == "llvmlite" and "codegen" not in path.parts
    ]
    assert not wrong

"""Every import in the package against the order of layers in docs/architecture.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import networkx
import pytest

ROOT = next(p for p in Path(__file__).parents if (p / "pyproject.toml").is_file())
PACKAGE = ROOT / "tracecomp"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
Module = tuple[str, ...]  # ("tracecomp", "ir", "types"); a package is its folder's name


@cache
def modules() -> dict[Module, Path]:
    """Every module of the package, and its file."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[parts[:-1] if parts[-1] == "__init__" else parts] = path
    return found


def imports(tree: ast.AST, package: Module, local: bool = False) -> Iterator[tuple[Module, int, bool]]:
    """Yield every import below ``tree``: the module, line, and whether the import is inside a function.

    ``from a import b`` imports ``a.b``, which may be a module or a name in one.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((tuple(alias.name.split(".")), node.lineno, local) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = (*base, *(node.module.split(".") if node.module else ()))
            yield from (((*module, alias.name), node.lineno, local) for alias in node.names)
        yield from imports(node, package, local or isinstance(node, FUNCTIONS))


@cache
def own_imports() -> Sequence[tuple[Module, Module, str, bool]]:
    """Importing module, imported module, place, whether inside a function."""
    result = []
    for module, path in modules().items():
        package = module if path.name == "__init__.py" else module[:-1]
        for name, line, local in imports(ast.parse(path.read_text()), package):
            if name[0] == "tracecomp":
                found = name if name in modules() else name[:-1]
                result.append((module, found, f"{path.relative_to(ROOT)}:{line}", local))
    return result


def part_of(module: Module, room: Module) -> str | None:
    """Return the file or folder of ``room`` that contains ``module``; None if another room does."""
    if module[: len(room)] != room:
        return None
    return module[len(room)] if len(module) > len(room) else "__init__"


def layers() -> dict[Module, dict[str, int]]:
    """Room -> height of each of its parts; those of one height do not import each other."""
    blocks = (ROOT / "docs" / "architecture.md").read_text().split("## Layers")[1].split("```")
    lines: dict[Module, list[str]] = {("tracecomp",): blocks[1].strip().splitlines()}
    for line in blocks[3].strip().splitlines():
        room, order = line.split(":")
        lines["tracecomp", *room.strip().split("/")] = order.split(">")
    return {
        room: {part.strip(): -depth for depth, line in enumerate(order) for part in line.split("|")}
        for room, order in lines.items()
    }


def arrows(room: Module) -> dict[tuple[str, str], str]:
    """Which part of ``room`` imports which other one, and where first."""
    found: dict[tuple[str, str], str] = {}
    for importer, imported, place, _ in own_imports():
        pair = part_of(importer, room), part_of(imported, room)
        if pair[0] != pair[1] and pair[0] is not None and pair[1] is not None:
            found.setdefault((pair[0], pair[1]), place)
    return found


def rooms() -> Sequence[Module]:
    """The package and every folder in it."""
    return sorted({m for m, path in modules().items() if path.name == "__init__.py"})


def circles(room: Module) -> list[set[str]]:
    """Parts of ``room`` that import each other in a circle."""
    graph = networkx.DiGraph(arrows(room).keys())
    return [c for c in networkx.strongly_connected_components(graph) if len(c) > 1]


def figures(room: Module) -> dict[str, int]:
    """Return the counts of a room whose order is documented."""
    order, found = layers()[room], arrows(room)
    inner = {pair for pair in found if "__init__" in order or "__init__" not in pair}
    return {
        "modules": sum(m[: len(room)] == room for m in modules()),
        "parts": len(order),
        "floors": len(set(order.values())),
        "arrows": len(inner),
        "up": sum(order[imported] >= order[importer] for importer, imported in inner),
        "circles": len(circles(room)),
    }


def test_the_figures_are_those_of_the_document() -> None:
    """Prints them, with ``-s``. Those that every new file changes are not in the document."""
    whole = figures(("tracecomp",))
    for room in layers():
        told = ", ".join(f"{count} {what}" for what, count in figures(room).items())
        print(f"\n{'.'.join(room[1:]) or 'tracecomp':14} {told}", end="")
    print(f"\n{len(rooms())} folders, {sum(len(circles(r)) for r in rooms())} circles in them")
    text = " ".join((ROOT / "docs" / "architecture.md").read_text().split())
    assert f"The package has {whole['parts']} parts on {whole['floors']} layers" in text
    assert whole["up"] == whole["circles"] == 0


def test_the_reader_sees_relative_and_local_imports() -> None:
    code = "import os\nfrom . import a\nfrom ..ir.types import b\ndef f():\n    from tracecomp import ops\n"
    found = list(imports(ast.parse(code), ("tracecomp", "nn")))
    assert found == [
        (("os",), 1, False),
        (("tracecomp", "nn", "a"), 2, False),
        (("tracecomp", "ir", "types", "b"), 3, False),
        (("tracecomp", "ops"), 5, True),
    ]


@pytest.mark.parametrize("room", sorted(layers()), ids=".".join)
def test_the_documented_order_names_every_part_once_and_no_import_goes_up(room: Module) -> None:
    order = layers()[room]
    parts = {part_of(m, room) for m in modules() if m != room} - {None}
    if room == ("tracecomp",) or "__init__" in order:
        parts.add("__init__")
    assert sorted(order) == sorted(filter(None, parts))
    wrong = [
        f"{place}: {importer} imports {imported}"
        for (importer, imported), place in arrows(room).items()
        if "__init__" in order or "__init__" not in (importer, imported)
        if order[imported] >= order[importer]
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("room", rooms(), ids=str)
def test_files_and_folders_of_a_room_import_each_other_in_no_circle(room: Module) -> None:
    found = circles(room)
    told = [f"{a} -> {b} ({place})" for (a, b), place in arrows(room).items() if any({a, b} <= c for c in found)]
    assert not found, "\n".join(told)


def test_the_package_is_never_imported_inside_a_function() -> None:
    wrong = [place for _, _, place, local in own_imports() if local]
    assert not wrong, "\n".join(wrong)


def test_llvmlite_is_imported_under_codegen_only() -> None:
    wrong = [
        str(path)
        for module, path in modules().items()
        for name, _, _ in imports(ast.parse(path.read_text()), module[:-1])
        if name[0] == "llvmlite" and "codegen" not in module
    ]
    assert not wrong

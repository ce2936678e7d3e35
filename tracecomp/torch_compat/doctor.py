"""``tracecomp doctor``: the names of PyTorch that a program uses, and which of them are missing or differ, unrun."""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import tracecomp
from tracecomp.base.differences import DIFFERS
from tracecomp.torch_compat.names import TORCH_VERSION, absent, table, torch_has

_DEVICES = ("cuda", "mps", "xpu")


@dataclass(frozen=True)
class Finding:
    """A name of PyTorch's at a line. ``kind``: here, differs, missing, unknown (not PyTorch's either) or device."""

    path: str
    file: str
    line: int
    kind: str
    words: str = ""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``doctor`` to the command line."""
    line = "list the PyTorch names that a program uses, and those missing or different in tracecomp, without running it"
    parser = commands.add_parser("doctor", help=line, description=line, epilog="exit code: 1 if something is missing")
    parser.add_argument("programs", nargs="+", type=Path, metavar="script.py", help="files, or folders of files")
    parser.add_argument("--all", action="store_true", help="list supported names too")
    parser.add_argument("--json", action="store_true", help="print all findings as JSON")
    parser.set_defaults(run=run_doctor)


def run_doctor(options: argparse.Namespace) -> int:
    """Print the findings; return 1 when a name is missing, 2 for a file that cannot be read."""
    files = [f for p in options.programs for f in (sorted(p.rglob("*.py")) if p.is_dir() else [p])]
    found: list[Finding] = []
    for file in files:
        try:
            found += examine(file.read_text(encoding="utf-8"), str(file))
        except (OSError, SyntaxError, UnicodeDecodeError) as error:
            print(f"error: {file}: {error}", file=sys.stderr)
            return 2
    missing = [f for f in found if f.kind == "missing"]
    if options.json:
        print(json.dumps([asdict(f) for f in found]))
    else:
        print("\n".join(_words(found, options.all)))
    return 1 if missing else 0


def examine(code: str, file: str) -> list[Finding]:
    """Every name of PyTorch's in the text of a program, in order, each once for a line. SyntaxError if it is none."""
    reader = _Reader(file)
    reader.visit(ast.parse(code, file))
    return sorted(dict.fromkeys(reader.found), key=lambda f: f.line)


class _Reader(ast.NodeVisitor):
    """Follows imports of torch through a file; ``names`` are the program's names for parts of it."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.names: dict[str, str] = {}
        self.found: list[Finding] = []

    def visit_Import(self, node: ast.Import) -> None:
        for name in node.names:
            if _is_torch(name.name):
                self.names[name.asname or "torch"] = name.name if name.asname else "torch"
                self._note(name.name, node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level == 0 and node.module is not None and _is_torch(node.module):
            for name in node.names:
                if name.name != "*":
                    self.names[name.asname or name.name] = f"{node.module}.{name.name}"
                    self._note(f"{node.module}.{name.name}", node.lineno)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        path = self._path(node)
        if path is not None:
            self._note(path, node.lineno)
            return
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and self._path(node.func) is None:
            self._method(node.func)
        for word in (*node.args, *(k.value for k in node.keywords)):
            if isinstance(word, ast.Constant) and str(word.value).partition(":")[0] in _DEVICES:
                why = "only the CPU is supported: check torch.cuda.is_available() first"
                self.found.append(Finding(repr(word.value), self.file, word.lineno, "device", why))
        self.generic_visit(node)

    def _path(self, node: ast.expr) -> str | None:
        """``torch.nn.functional.relu`` for any name that the program gives it."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name) and node.id in self.names:
            return ".".join([self.names[node.id], *reversed(parts)])
        return None

    def _method(self, node: ast.Attribute) -> None:
        """A method that only a tensor of PyTorch's has: whether ours has it."""
        name = node.attr
        if name in table()["Tensor"] and not hasattr(tracecomp.Tensor, name):
            path = f"torch.Tensor.{name}"
            self.found.append(Finding(path, self.file, node.lineno, "missing", absent(path)))

    def _note(self, path: str, line: int) -> None:
        kind, words = judge(path)
        self.found.append(Finding(path, self.file, line, kind, words))


def judge(path: str) -> tuple[str, str]:
    """The finding about a name under torch: its kind, and the reason."""
    parts = path.split(".")
    here: Any = tracecomp
    for n, part in enumerate(parts[1:], 1):
        module = ".".join(parts[:n])
        inside = _member(here, module, part)
        if inside is _NOTHING:
            if not isinstance(here, type(sys)):
                # An attribute of an object: its contents are unknown.
                return "unknown", f"{module} has no {part} here"
            known = torch_has(module, part) or ".".join(parts[: n + 1]) in table()
            name = ".".join(parts[: n + 1])
            if known:
                return "missing", absent(name)
            return "unknown", f"PyTorch {TORCH_VERSION.partition('+')[0]} has no {name} either"
        here = inside
    differs = DIFFERS.get(parts[-1], "")
    return ("differs", differs) if differs else ("here", "")


_NOTHING = object()


def _member(here: object, module: str, name: str) -> Any:
    found = getattr(here, name, _NOTHING)
    if found is _NOTHING and isinstance(here, type(sys)):
        with suppress(ImportError):
            return import_module(f"tracecomp{module.removeprefix('torch')}.{name}")
    return found


def _is_torch(module: str) -> bool:
    return module == "torch" or module.startswith("torch.")


def _words(found: list[Finding], everything: bool) -> Iterator[str]:
    names = {f.path for f in found if f.kind != "device"}
    for kind, title in (
        ("missing", "missing here"), ("unknown", "not known"), ("differs", "differs"), ("device", "devices"),
        *([("here", "here")] if everything else []),
    ):  # fmt: skip
        chosen = [f for f in found if f.kind == kind]
        if chosen:
            yield f"{title}:"
            yield from _listed(chosen)
    missing = {f.path for f in found if f.kind == "missing"}
    rest = f"{len(missing)} of them are missing" if missing else "none is missing"
    yield f"{len(names)} names of PyTorch's are used, {rest}"


def _listed(found: Iterable[Finding]) -> Iterator[str]:
    """Each name with its occurrences and finding."""
    places: dict[tuple[str, str], list[str]] = {}
    for f in found:
        places.setdefault((f.path, f.words), []).append(f"{f.file}:{f.line}")
    for (path, words), where in places.items():
        more = f" and {len(where) - 3} more" if len(where) > 3 else ""
        yield f"  {path}  {', '.join(where[:3])}{more}{f': {words}' if words else ''}"

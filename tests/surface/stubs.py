"""The stubs (.pyi) of names that the package publishes at import, written from the functions themselves.

Type checkers and editors read no ``globals().update``; they read these. Annotations come from the source, so every name
in one is found again in the imports of the module that defines the function.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
import textwrap
import typing
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import tracecomp
from tests.ops.samples import samples_of
from tracecomp.functional import NAMESPACES
from tracecomp.ir.op import OPS, Op
from tracecomp.nn import aten

ROOT = Path(tracecomp.__file__).parent
HEAD = "# Written by `python -m tests.surface`; do not edit."
# Parameters of functions that return tensors, which their signatures do not show
OUT = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Tensor | None")
OUTS = OUT.replace(annotation="tuple[Tensor, ...] | None")
REPLACED = ("__eq__", "__ne__")  # object's say bool
FLAG, EITHER = "return_indices", "Tensor | tuple[Tensor, Tensor]"


@cache
def origins(module: str) -> dict[str, tuple[str, str]]:
    """Return the origins of the names at the top of a module's source: name -> (module, name there)."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    found: dict[str, tuple[str, str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {alias.asname or alias.name: (node.module, alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.asname: (alias.name, "") for alias in node.names if alias.asname}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = (module, node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = (module, node.target.id)
    return found


class Stub:
    """The text of one stub. ``taken`` are names that it defines, so that an annotation needs other names for them."""

    def __init__(self, doc: str, taken: Iterable[str] = ()) -> None:
        self.doc, self.taken = doc, set(taken)
        self.imports: set[str] = set()
        self.body: list[str] = []

    def text(self) -> str:
        parts = [HEAD, f'"""{self.doc}"""', "\n".join(sorted(self.imports)), "\n".join(self.body)]
        return "\n\n".join(part for part in parts if part) + "\n"

    def annotation(self, text: str, module: str) -> str:
        """An annotation of ``module``, its names imported here."""
        tree = ast.parse(text, mode="eval")
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                node.id = self._name(node.id, module)
        return ast.unparse(tree)

    def _name(self, name: str, module: str) -> str:
        source, there = origins(module).get(name, ("typing", name) if name == "Literal" else ("", ""))
        if not source:
            if not hasattr(builtins, name):
                raise LookupError(f"{module}: where does {name!r} of an annotation come from?")
            if name not in self.taken:
                return name
            source, there = "builtins", name
        here = f"_{name.strip('_')}" if name in self.taken else name
        if not there:
            self.imports.add(f"import {source} as {here}")
        else:
            self.imports.add(f"from {source} import {there}" + (f" as {here}" if here != there else ""))
        return here

    def function(self, name: str, fn: Callable[..., Any], *, method: bool = False, indent: str = "") -> None:
        """A ``def`` with its docstring; several ``overload`` ones where the source has them."""
        source = inspect.unwrap(fn)
        forms = typing.get_overloads(source) or [source]
        if len(forms) == 1 and source.__annotations__["return"] == EITHER:
            forms = _by_flag(source)
        for k, form in enumerate(forms):
            if len(forms) > 1:
                self.imports.add("from typing import overload")
                self.body.append(f"{indent}@overload")
            ignore = "  # type: ignore[override]" if name in REPLACED and method else ""
            doc = inspect.getdoc(source) if k == 0 else None
            end = ":" if doc else ": ..."
            head = f"{indent}def {name}({self._parameters(form, fn, method)}) -> {self._result(form)}{end}{ignore}"
            self.body += [head, *_docstring(doc, indent + "    ")]

    def _result(self, form: Callable[..., Any]) -> str:
        return self.annotation(form.__annotations__["return"], form.__module__)

    def _parameters(self, form: Callable[..., Any], fn: Callable[..., Any], method: bool) -> str:
        found = list(inspect.signature(form).parameters.values())
        if method:
            found[0] = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        elif fn.__name__.endswith("_"):
            found[0] = found[0].replace(annotation="Tensor")
        elif getattr(fn, "__out__", False):
            found = _with_out(found, form.__annotations__["return"])
        return ", ".join(self._separated(found, form.__module__))

    def _separated(self, parameters: list[inspect.Parameter], module: str) -> Iterator[str]:
        star = False
        for p in parameters:
            if p.kind is p.KEYWORD_ONLY and not star:
                star = True
                yield "*"
            star = star or p.kind is p.VAR_POSITIONAL
            yield self._parameter(p, module)

    def _parameter(self, p: inspect.Parameter, module: str) -> str:
        mark = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
        text = mark + p.name
        if p.annotation is not p.empty:
            text += f": {self.annotation(p.annotation, module)}"
        if p.default is not p.empty:
            text += f" = {p.default!r}" if isinstance(p.default, bool | int | str | type(None)) else " = ..."
        return text

    def property(self, name: str, value: property, indent: str) -> None:
        getter = value.fget
        assert getter is not None
        self.body += [f"{indent}@property", f"{indent}def {name}(self) -> {self._result(getter)}:"]
        self.body += _docstring((inspect.getdoc(value) or f"``{name}``.").partition("\n\n")[0], indent + "    ")
        if value.fset is not None:
            written = list(inspect.signature(value.fset).parameters.values())[1].annotation
            kind = self.annotation(written, value.fset.__module__)
            self.body += [f"{indent}@{name}.setter", f"{indent}def {name}(self, value: {kind}) -> None: ..."]


def _with_out(parameters: list[inspect.Parameter], result: str) -> list[inspect.Parameter]:
    """``out`` added, for functions that give tensors."""
    if any(p.name == "out" or p.kind is p.VAR_KEYWORD for p in parameters):
        return parameters
    if result == "Tensor":
        return [*parameters, OUT]
    return [*parameters, OUTS] if "Result" in result or result.startswith("tuple[Tensor") else parameters


def _by_flag(fn: Callable[..., Any]) -> list[Callable[..., Any]]:
    """The forms of a function that gives a pair where the flag ``return_indices`` is set."""
    found = list(inspect.signature(fn).parameters.values())
    at = next(k for k, p in enumerate(found) if p.name == FLAG)
    unset = found[at].replace(annotation="Literal[False]")
    later = [p.replace(kind=p.KEYWORD_ONLY) for p in found[at:]]
    later[0] = later[0].replace(annotation="Literal[True]", default=later[0].empty)
    return [
        _form(fn, [*found[:at], unset, *found[at + 1 :]], "Tensor"),
        _form(fn, [*found[:at], *later], "tuple[Tensor, Tensor]"),
        fn,
    ]


def _form(fn: Callable[..., Any], parameters: list[inspect.Parameter], result: str) -> Callable[..., Any]:
    """Something with this signature, in the module of ``fn``."""

    def form() -> None: ...

    form.__module__, form.__annotations__ = fn.__module__, {"return": result}
    form.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return form


def _docstring(doc: str | None, indent: str) -> list[str]:
    if doc is None:
        return []
    quoted = ('r"""' if "\\" in doc else '"""') + doc + ('\n"""' if "\n" in doc else '"""')
    return textwrap.indent(quoted, indent).splitlines()


def namespace(space: str, doc: str, leave: Iterable[str] = ()) -> Stub:
    """The stub of a module that shows ``NAMESPACES[space]``."""
    names = {n: v for n, v in sorted(NAMESPACES[space].items()) if n not in leave}
    stub = Stub(doc, names)
    for name, value in names.items():
        if inspect.isclass(value):
            _class(stub, name, value)
        else:
            stub.function(name, value)
    return stub


def _class(stub: Stub, name: str, value: type) -> None:
    """A class: where it is defined, or, made by a loop, what its metaclass says of it."""
    if name in vars(sys.modules[value.__module__]) or value.__module__ == "numpy.linalg":
        stub.imports.add(f"from {value.__module__} import {value.__name__} as {name}")
        return
    meta = type(value)
    stub.imports.add(f"from {meta.__module__} import {meta.__name__} as _{meta.__name__.strip('_')}")
    stub.body.append(f"class {name}(metaclass=_{meta.__name__.strip('_')}): ...")


def methods() -> Stub:
    """``tracecomp/eager/methods.pyi``: the published methods of ``Tensor``."""
    names = {n: v for n, v in sorted(NAMESPACES["Tensor"].items()) if n not in ("__repr__", "__format__")}
    stub = Stub("The methods of ``Tensor`` that are published above.", names)
    stub.imports.add("from tracecomp.eager.tensor_base import TensorBase")
    stub.body.append("class TensorMethods(TensorBase):")
    for name, value in names.items():
        if isinstance(value, property):
            stub.property(name, value, "    ")
        else:
            plain = names.get(f"__{name[3:]}") if name[:3] == "__i" else None  # ``x += y`` takes what ``x + y`` does
            stub.function(name, plain or value, method=True, indent="    ")
    return stub


def primitives() -> Stub:
    """``tracecomp/functional/primitives.pyi``: each operator as a function of tensors, from its ``infer``."""
    stub = Stub("The primitive operators, called with tensors.")
    stub.imports |= {
        "from typing import Any",
        "from tracecomp.eager.tensor import Tensor",
        "from tracecomp.functional.promotion import Operand",
    }
    stub.body.append("class _Primitives:")
    for name, op in sorted(OPS.items()):
        operand = "Operand" if op.kind == "elementwise" else "Tensor"
        given: list[str] = []
        attrs: list[str] = []
        for p in inspect.signature(op.infer).parameters.values():
            if p.kind is p.KEYWORD_ONLY:
                kind = "Any" if p.annotation is p.empty else stub.annotation(p.annotation, op.infer.__module__)
                attrs.append(f"{p.name}: {kind}")
            elif p.kind is p.VAR_KEYWORD:
                attrs.append("**attrs: Any")
            else:
                given.append(f"*operands: {operand}" if p.kind is p.VAR_POSITIONAL else f"{p.name}: {operand}")
        if attrs and attrs[0][0] != "*" and not any(g[0] == "*" for g in given):
            given.append("*")
        if not any(g[0] == "*" for g in given) and given:
            given.append("/")
        like = ["like: Tensor | None = None"] if op.kind == "creation" else []
        stub.body.append(f"    def {name}(self, {', '.join([*given, *like, *attrs])}) -> {_results(op)}: ...")
    stub.body.append("\nprim: _Primitives")
    return stub


def _results(op: Op) -> str:
    """One tensor or several, as many as the operator has results for its first sample."""
    if op.kind == "control":
        return "tuple[Tensor, ...]"
    case = next(samples_of(op))
    found = op.infer(*case.types, **case.attrs)
    return f"tuple[{', '.join(['Tensor'] * len(found))}]" if isinstance(found, tuple) else "Tensor"


def by_nn() -> dict[str, str]:
    """Names of ``torch`` that the layers publish, and the module that has them."""
    functions = NAMESPACES["nn.functional"]
    return {
        name: "tracecomp.nn.functional" if functions.get(name) is value else aten.__name__
        for name, value in NAMESPACES["torch"].items()
        if inspect.unwrap(value).__module__.startswith("tracecomp.nn.")
    }


def _import(module: str | None, name: str, shown: str) -> str:
    """``name`` of a module, as ``shown``; a checker takes an import under another name for a private one."""
    if name == shown:
        return f"from {module} import {name} as {name}"
    return f"from {module} import {name} as _{shown}\n{shown} = _{shown}"


def package() -> Stub:
    """``tracecomp/__init__.pyi``: the package's imports, its published names, and those that it loads on first use."""
    tree = ast.parse((ROOT / "__init__.py").read_text())
    stub = Stub(ast.get_docstring(tree) or "")
    own = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    stub.body.append("from typing import Any")
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module != "__future__":
            for alias in node.names:
                shown = alias.asname or alias.name
                if not shown.startswith("_") and node.module != "typing" and shown not in ("keep_freed",):
                    stub.body.append(_import(node.module, alias.name, shown))
    nn = by_nn()
    for name in sorted(NAMESPACES["torch"]):
        if name not in own:
            there = NAMESPACES["torch"][name].__name__ if nn.get(name) == aten.__name__ else name
            stub.body.append(_import(nn.get(name, "tracecomp.functional.names"), there, name))
    for name, where in sorted(vars(tracecomp)["_LATER"].items()):
        head, _, last = where.rpartition(".")
        module = ".".join(filter(None, ("tracecomp", head))) if last == name else f"tracecomp.{where}"
        inner = f"{module}.{name}"
        if last != name and ROOT.parent.joinpath(*inner.split(".")).with_suffix(".py").is_file():
            module = inner  # a checker may take the module of this name for what its package has by it
        stub.body.append(f"from {module} import {name} as {name}")
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and (node.name == "_assert" or node.name[0] != "_"):
            node.body = [n for n in node.body[:1] if ast.get_docstring(node)] + [ast.Expr(ast.Constant(...))]
            stub.body.append(ast.unparse(node))
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0])[0] not in "_g":
            stub.body.append(ast.unparse(node))
    stub.body.append("__version__: str")
    return stub


def stubs() -> dict[Path, str]:
    """Every stub: its path and text."""
    named = {
        "linalg.pyi": namespace("linalg", "Linear algebra under the names of ``torch.linalg``."),
        "fft.pyi": namespace("fft", "Fourier transforms under the names of ``torch.fft``."),
        "special.pyi": namespace("special", "Special functions under the names of ``torch.special``."),
        "masked.pyi": namespace("masked", "Reductions over unmasked elements, under the names of ``torch.masked``."),
        "signal/windows.pyi": namespace("signal.windows", "Window functions, as in ``torch.signal.windows``."),
        "nn/functional/__init__.pyi": namespace("nn.functional", "The layers as functions, as in torch.nn.functional."),
        "functional/names.pyi": namespace("torch", "The published functions under their torch names.", by_nn()),
        "functional/primitives.pyi": primitives(),
        "eager/methods.pyi": methods(),
        "__init__.pyi": package(),
    }
    return {ROOT / path: stub.text() for path, stub in named.items()}

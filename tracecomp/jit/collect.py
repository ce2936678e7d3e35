"""From functions and modules of Python to scripts: their text, and the meanings of its names."""

from __future__ import annotations

import ast
import inspect
import math
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tracecomp.base.code_origin import is_own, torch_name
from tracecomp.eager.device import device, layout, memory_format
from tracecomp.eager.size import Size
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.types import DType
from tracecomp.jit.guard import BUILTINS, INSIDES, Namespace, namespaces
from tracecomp.jit.language import NotSupportedError, Script, checked, defined, free_names, script_of
from tracecomp.nn.module import Module
from tracecomp.nn.parameter import Parameter

Json = Any
Array = np.ndarray[Any, Any]

_MARKS = frozenset(("export", "script", "script_method", "staticmethod", "property", "_overload_method"))
"""Decorators that affect parsing, but not the behaviour of a function."""

_NO_GRADIENTS = frozenset(("no_grad", "inference_mode"))


class Collector:
    """Scripts, classes, modules and tensors, each once, as lists of what a file says of them."""

    def __init__(self) -> None:
        self.functions: list[Json] = []
        self.classes: list[Json] = []
        self.modules: list[Json] = []
        self.tensors: list[Tensor] = []
        self._places: dict[tuple[str, int], int] = {}
        self._held: list[Any] = []  # keeps objects alive whose ids are keys of _places

    def description(self, root: Any) -> Json:
        """Describe ``root``, a module or function, for a file; NotSupportedError names unsupported parts."""
        what = ["module", self.module(root)] if isinstance(root, Module) else ["function", self.function(root)]
        return {
            "kind": "script", "root": what, "functions": self.functions, "classes": self.classes,
            "modules": self.modules, "tensors": [[isinstance(t, Parameter), t.requires_grad] for t in self.tensors],
        }  # fmt: skip

    def arrays(self) -> dict[str, Array]:
        """The tensors, by the numbers that the description has for them."""
        return {str(k): t.detach()._data for k, t in enumerate(self.tensors)}

    def _place(self, kind: str, value: Any, table: list[Any], entry: Any) -> tuple[int, bool]:
        """The index of ``value`` in ``table``, and whether it was added just now."""
        key = kind, id(value)
        if key in self._places:
            return self._places[key], False
        self._held.append(value)
        table.append(entry)
        self._places[key] = len(table) - 1
        return len(table) - 1, True

    # ---- functions

    def function(self, fn: Callable[..., object], name: str | None = None) -> int:
        """The number of a function."""
        fn = inspect.unwrap(fn)
        entry: dict[str, Json] = {}
        place, new = self._place("function", fn, self.functions, entry)
        if not new:
            return place
        name = name or getattr(fn, "__qualname__", repr(fn)).replace("<locals>.", "")
        if not isinstance(fn, types.FunctionType):
            raise NotSupportedError(f"{name} must be a Python function, not {type(fn).__name__}")
        definition = _definition(fn, name)
        names = free_names(definition)
        entry |= {"name": name, "text": ast.unparse(definition), "names": {}}
        entry["defaults"] = [self._said(x, f"{name}, a default argument") for x in fn.__defaults__ or ()]
        entry["named_defaults"] = {
            key: self._said(x, f"{name}, the default of {key!r}") for key, x in (fn.__kwdefaults__ or {}).items()
        }
        seen = _visible(fn)
        for wanted in names:
            if wanted in seen:
                entry["names"][wanted] = self._said(seen[wanted], f"{name}, {wanted!r}")
            elif wanted in BUILTINS:
                entry["names"][wanted] = ["builtin", wanted]
            else:
                raise NotSupportedError(f"{name}: the name {wanted!r} is not supported in scripts")
        return place

    # ---- modules

    def module(self, module: Module) -> int:
        """The number of a module."""
        entry: dict[str, Json] = {}
        place, new = self._place("module", module, self.modules, entry)
        if not new:
            return place
        kind, name = _kind(module), type(module).__name__
        hooks = [n for n in INSIDES if "hooks" in n and getattr(module, n, None)]
        if hooks:
            raise NotSupportedError(f"{name} has hooks ({', '.join(sorted(hooks))}), which scripts do not support")
        used: dict[str, Any] = {}
        library = _library_class(kind)
        if library is kind or not _overrides(kind, library):
            entry["class"] = library.__name__
        else:
            entry["class"] = self._class(kind, library, used)
        entry["attributes"] = self._attributes(module, used, strict=library is not Module)
        entry["parameters"] = {n: self._tensor(p) for n, p in module._parameters.items()}
        lasting = module._non_persistent_buffers_set
        entry["buffers"] = {n: [self._tensor(b), n not in lasting] for n, b in module._buffers.items()}
        entry["children"] = {n: None if m is None else self.module(m) for n, m in module._modules.items()}
        return place

    def _class(self, kind: type[Module], library: type[Module], used: dict[str, object]) -> int:
        """The number of a class; ``used`` gets its attributes that the scripts read."""
        entry: dict[str, Json] = {"name": kind.__name__, "base": library.__name__, "methods": {}, "properties": {}}
        place, new = self._place("class", kind, self.classes, entry)
        waiting = ["forward", *[n for n, v in inspect.getmembers(kind) if _is_exported(v)]]
        done: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name in done:
                continue
            done.add(name)
            found = inspect.getattr_static(kind, name, None)
            fn = getattr(found, "fget", None) or getattr(found, "__func__", found)
            if isinstance(fn, types.FunctionType):
                if is_own(fn):
                    continue  # a method of the class in the library, which is the base
                if new:
                    where = "properties" if isinstance(found, property) else "methods"
                    number = self.function(fn, f"{kind.__name__}.{name}")
                    entry[where][name] = [number, isinstance(found, staticmethod)]
                waiting += _read_of_first(fn, f"{kind.__name__}.{name}")
            else:
                used[name] = found
        return place

    def _attributes(self, module: Module, used: Mapping[str, object], strict: bool) -> dict[str, Json]:
        own = {n: v for n, v in vars(module).items() if n not in INSIDES}
        held = {*own, *module._parameters, *module._buffers, *module._modules}
        every = own | {n: v for n, v in used.items() if n not in held and v is not None and not hasattr(Module, n)}
        found = {}
        for name, value in every.items():
            try:
                found[name] = self._said(value, f"{type(module).__name__}.{name}")
            except NotSupportedError:
                if strict or name in used:
                    raise
        return found

    def _tensor(self, value: Tensor | None) -> int | None:
        return None if value is None else self._place("tensor", value, self.tensors, value)[0]

    # ---- values

    def _said(self, value: Any, where: str) -> Json:
        """``value`` as a file says it."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) in (float, complex):
            return [type(value).__name__, repr(value)]
        if type(value) in (list, tuple, set, Size):
            return [type(value).__name__, [self._said(x, where) for x in value]]
        if isinstance(value, dict):
            return ["dict", [[self._said(k, where), self._said(x, where)] for k, x in value.items()]]
        if isinstance(value, DType | device | layout | memory_format):
            return [type(value).__name__, str(value).removeprefix("torch.")]
        if isinstance(value, Tensor):
            return ["tensor", self._tensor(value)]
        if isinstance(value, Module):
            return ["module", self.module(value)]
        if isinstance(value, Namespace):
            return ["space", value.name]
        return self._outside(value, where)

    def _outside(self, value: object, where: str) -> Json:
        """A name of the library's or of Python's, or a function of the program's."""
        if isinstance(value, types.ModuleType):
            space = "math" if value is math else torch_name(value.__name__)
            if space in namespaces():
                return ["space", space]
        if getattr(value, "__module__", None) == "typing":
            return ["typing", getattr(value, "_name", None) or "Any"]
        # By identity: an alias under which the program imported it says nothing, where it belongs does.
        for space, members in namespaces().items():
            for name, member in members.members.items():
                if member is value and not isinstance(member, Namespace):
                    return ["of", space, name]
        for name, builtin in BUILTINS.items():
            if builtin is value:
                return ["builtin", name]
        if callable(value) and not isinstance(value, type):
            inner = inspect.unwrap(value)
            if isinstance(inner, types.FunctionType) and not is_own(inner):
                return ["function", self.function(inner)]
        kind = value.__name__ if isinstance(value, type | types.ModuleType) else f"a {type(value).__name__}"
        raise NotSupportedError(f"{where}: {kind} is not supported in scripts")


def _kind(module: Module) -> type[Module]:
    """The original class of a module, without wrappers of this package."""
    return next(c for c in type(module).__mro__ if not torch_name(c.__module__).startswith("torch.jit"))


def _library_class(kind: type[Module]) -> type[Module]:
    """The class of the library that ``kind`` is or derives from."""
    found = [c for c in kind.__mro__ if is_own(c) and issubclass(c, Module)]
    return next(c for c in found if not torch_name(c.__module__).startswith("torch.jit"))


def _overrides(kind: type[Module], library: type[Module]) -> bool:
    """Whether a class says more than its base in the library, but for how it is made and shown."""
    above = kind.__mro__[: kind.__mro__.index(library)]
    said = {n for c in above for n, v in vars(c).items() if callable(v) or isinstance(v, property | staticmethod)}
    return bool(said - {"__init__", "extra_repr", "__repr__"}) or library is Module


def _is_exported(value: object) -> bool:
    return getattr(value, "_exported", False) or (
        isinstance(value, types.FunctionType) and script_of(value) is not None
    )


def _visible(fn: types.FunctionType) -> Mapping[str, Any]:
    """The outer names that a function can read."""
    if isinstance(found := script_of(fn), Script):
        return found.names
    cells = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
    inner = {name: cell.cell_contents for name, cell in cells if _is_filled(cell)}
    return {**fn.__globals__, **inner}


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _definition(fn: types.FunctionType, name: str) -> ast.FunctionDef:
    """The text of a function, read and checked; its defaults and decorators are said apart."""
    script = script_of(fn)
    try:
        text = inspect.getsource(fn) if script is None else script.text
    except (OSError, TypeError):
        raise NotSupportedError(f"{name}: the source of the function is not available") from None
    definition = defined(text, name)
    _take_decorators(definition, name)  # first: removed functions may be in any language
    checked(definition, name)
    for argument in ast.walk(definition.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    definition.returns = None
    definition.args.defaults = [ast.Constant(None) for _ in definition.args.defaults]
    definition.args.kw_defaults = [d and ast.Constant(None) for d in definition.args.kw_defaults]
    return definition


def _take_decorators(definition: ast.FunctionDef, name: str) -> None:
    for decorator in reversed(definition.decorator_list):
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        word = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "?")
        if word in ("ignore", "unused"):
            message = ast.Constant(f"{name} was left out of the script by '{word}'")
            definition.body = [ast.Raise(ast.Call(ast.Name("RuntimeError", ast.Load()), [message], []))]
        elif word in _NO_GRADIENTS:
            block = ast.With([ast.withitem(ast.Call(called, [], []))], definition.body)
            definition.body = [block]
        elif word not in _MARKS:
            raise NotSupportedError(f"{name}: the decorator {ast.unparse(decorator)!r} cannot be kept in a script")
    definition.decorator_list = []
    ast.fix_missing_locations(definition)


def _read_of_first(fn: types.FunctionType, name: str) -> list[str]:
    """The attributes that a method reads of its first argument."""
    definition = _definition(fn, name)
    given = [*definition.args.posonlyargs, *definition.args.args]
    if not given:
        return []
    read = [n for n in ast.walk(definition) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
    return [n.attr for n in read if isinstance(n.value, ast.Name) and n.value.id == given[0].arg]

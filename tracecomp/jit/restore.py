"""Restore modules and functions from a file's description of scripts. The file is not trusted. Nothing in it is
believed without a look."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tracecomp import nn
from tracecomp.eager.device import device
from tracecomp.eager.size import Size
from tracecomp.eager.tensor import Tensor
from tracecomp.jit.guard import BUILTINS, GUARDS, INSIDES, Namespace, Scripted, namespaces, scripted_class, typing_name
from tracecomp.jit.language import compiled, parsed
from tracecomp.nn.module import Module
from tracecomp.nn.parameter import Parameter

Json = Any
Array = np.ndarray[Any, Any]


class Restorer:
    """The functions, classes and modules of a file, made at their first use."""

    def __init__(self, header: Mapping[str, Json], arrays: Sequence[Array], kind: type[Module]) -> None:
        self._header = header
        self._kind = kind
        self._arrays = arrays
        self._tensors: dict[int, Tensor] = {}
        self._functions: dict[int, Any] = {}
        self._modules: dict[int, Module] = {}

    def root(self) -> Any:
        """The saved object."""
        kind, number = self._header["root"]
        return self.module(number) if kind == "module" else self.function(number)

    # ---- functions

    def function(self, number: int) -> Callable[..., Any]:
        """A function, which may call itself."""
        if number not in self._functions:
            self._functions[number] = lambda *args, **kwargs: self._functions[number](*args, **kwargs)
            self._functions[number] = self._compiled(number, frozenset())
        found: Callable[..., Any] = self._functions[number]
        return found

    def _compiled(self, number: int, declared: frozenset[str]) -> Callable[..., Any]:
        entry = self._header["functions"][number]
        names = {str(name): self.value(said) for name, said in entry["names"].items()}
        made: Any = compiled(parsed(entry["text"], entry["name"]), entry["name"], {**names, **GUARDS}, declared)
        made.__defaults__ = tuple(map(self.value, entry["defaults"])) or None
        made.__kwdefaults__ = {str(k): self.value(v) for k, v in entry["named_defaults"].items()} or None
        function: Callable[..., Any] = made
        return function

    # ---- modules

    def module(self, number: int) -> Module:
        """A module, with its children."""
        if number not in self._modules:
            entry = self._header["modules"][number]
            made = self._made(entry)
            Module.__init__(made)
            self._modules[number] = made
            self._fill(made, entry)
        return self._modules[number]

    def _made(self, entry: Json) -> Module:
        if isinstance(entry["class"], str):
            return _new(_library_class(entry["class"]))
        said = self._header["classes"][entry["class"]]
        base = _library_class(said["base"])
        held = {*entry["attributes"], *entry["parameters"], *entry["buffers"], *entry["children"]}
        scripts = {*said["methods"], *said["properties"]}
        _check_names(held | scripts, said["name"])
        declared = frozenset((held - {*dir(self._kind)}) | scripts | {"training"})
        members: dict[str, Any] = {}
        for name, (function, static) in said["methods"].items():
            made = self._compiled(function, frozenset() if static else declared)
            members[name] = staticmethod(made) if static else made
        for name, (function, _) in said["properties"].items():
            members[name] = property(self._compiled(function, declared))
        bases = (Scripted, self._kind) if base is Module else (Scripted, self._kind, base)
        return _new(scripted_class(str(said["name"]), bases, members, declared))

    def _fill(self, made: Module, entry: Json) -> None:
        _check_names({*entry["attributes"], *entry["parameters"], *entry["buffers"], *entry["children"]}, "a module")
        for name, number in entry["parameters"].items():
            made.register_parameter(name, self._maybe(number))
        for name, (number, lasting) in entry["buffers"].items():
            made.register_buffer(name, self._maybe(number), persistent=bool(lasting))
        for name, number in entry["children"].items():
            made._modules[name] = None if number is None else self.module(number)
        for name, said in entry["attributes"].items():
            vars(made)[name] = self.value(said)

    def tensor(self, number: int) -> Tensor:
        """A tensor or parameter."""
        if number not in self._tensors:
            is_parameter, trained = self._header["tensors"][number]
            data = Tensor._wrap(np.array(self._arrays[number]))
            self._tensors[number] = (
                Parameter(data, bool(trained)) if is_parameter else data.requires_grad_(bool(trained))
            )
        return self._tensors[number]

    def _maybe(self, number: int | None) -> Any:
        return None if number is None else self.tensor(number)

    # ---- values

    def value(self, said: Json) -> Any:
        """Restore a value from its description."""
        if said is None or isinstance(said, bool | int | str):
            return said
        kind, *rest = said
        return _KINDS[kind](self, *rest)


def _library_class(name: str) -> type[Module]:
    """A class of ``torch.nn``, by its name."""
    found = Module if name == "Module" else getattr(nn, name, None)
    if name.startswith("_") or not (isinstance(found, type) and issubclass(found, Module)):
        raise ValueError(f"torch.nn has no module {name!r}")
    return found


def _new(kind: type) -> Module:
    made: Module = object.__new__(kind)
    return made


def _check_names(names: set[str], where: str) -> None:
    """ValueError for names that would change what a module is."""
    bad = [n for n in names if n.startswith("__") or n in INSIDES or not isinstance(n, str)]
    if bad:
        raise ValueError(f"{where} cannot have the names {sorted(bad)}")


def _of(restorer: Restorer, space: str, name: str) -> Any:
    found = namespaces()[space].members[name]
    if isinstance(found, Namespace):
        raise ValueError(f"{space}.{name} is not a value")
    return found


_KINDS: dict[str, Callable[..., Any]] = {
    "float": lambda r, text: float(text),
    "complex": lambda r, text: complex(text),
    "list": lambda r, items: [r.value(x) for x in items],
    "tuple": lambda r, items: tuple(r.value(x) for x in items),
    "set": lambda r, items: {r.value(x) for x in items},
    "Size": lambda r, items: Size([int(x) for x in items]),
    "dict": lambda r, items: {r.value(k): r.value(x) for k, x in items},
    "DType": lambda r, name: namespaces()["torch"].members[name],
    "device": lambda r, name: device(name),
    "layout": lambda r, name: namespaces()["torch"].members[name],
    "memory_format": lambda r, name: namespaces()["torch"].members[name],
    "tensor": lambda r, number: r.tensor(number),
    "module": lambda r, number: r.module(number),
    "function": lambda r, number: r.function(number),
    "space": lambda r, name: namespaces()[name],
    "of": _of,
    "builtin": lambda r, name: BUILTINS[name],
    "typing": lambda r, name: typing_name(name),
}
"""Restorers of values by kind."""

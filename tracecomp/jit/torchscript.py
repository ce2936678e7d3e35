"""Archives of PyTorch's ``torch.jit.save``: their code is parsed as scripts, their objects become modules.

An archive holds three parts:

* ``code/__torch__/...py``: classes and functions in TorchScript's own form of Python;
* ``data.pkl``: the objects with their attributes;
* ``constants.pkl``: the ``CONSTANTS.c0`` of the code.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO, NamedTuple

from tracecomp.eager.tensor import Tensor
from tracecomp.jit.aten import PRIM, Aten
from tracecomp.jit.guard import BUILTINS, GUARDS, INSIDES, Namespace, Scripted, namespaces, scripted_class, typing_name
from tracecomp.jit.language import NotSupportedError, checked, compiled, parsed_module
from tracecomp.nn.module import Module
from tracecomp.nn.parameter import Parameter
from tracecomp.serialization.archive import Archive
from tracecomp.serialization.rebuilding import NAMES, call_of, set_attributes
from tracecomp.serialization.unpickling import Allowed, Refused, SafeUnpickler

_CODE = "code/"
_TYPES = ("Any", "Dict", "Final", "List", "Optional", "Tuple", "Union")


def is_archive(names: list[str]) -> bool:
    """Whether an archive with these members holds TorchScript."""
    return any(n.startswith(_CODE) for n in names) and "constants.pkl" in names


def load(file: BinaryIO, kind: type[Module]) -> Any:
    """Load the module in an archive of TorchScript, of a class that derives from ``kind``.

    UnpicklingError describes an invalid file, NotSupportedError unsupported code.
    """
    with closing(Archive(file)) as archive:
        if not is_archive(archive.members):
            raise RuntimeError("the archive is not a TorchScript archive. Use torch.load for files of torch.save")
        code = _Code(archive, kind)
        return code.object(_unpickled(archive.read("data.pkl"), archive, "data"))


@dataclass
class _Object:
    """An object of the pickle: the name of its class, and its attributes."""

    name: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)


def _class_named(name: str) -> type[_Object]:
    return type("Object", (_Object,), {"__init__": lambda self: _Object.__init__(self, name)})


def _listed(items: object, *_: Any) -> Any:
    return items


def _made(kind: type[_Object]) -> Callable[..., _Object]:
    return lambda *_: kind()


_CONTAINER = ("__contains__", "__getitem__", "__iter__", "__len__")
"""Methods of containers of modules, which archives have."""
_HELPERS = ("build_boollist", "build_doublelist", "build_intlist", "build_tensorlist", "restore_type_tag")


def _unpickled(data: bytes, archive: Archive, folder: str) -> Any:
    classes: dict[str, type[_Object]] = {}

    def find(module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if module == "torch.jit._pickle" and name in _HELPERS:
            return _listed
        if module.split(".")[0] == "__torch__":
            return classes.setdefault(full, _class_named(full))
        if full in NAMES:
            return NAMES[full]
        raise Refused(f"{full} is not supported in TorchScript archives")

    def is_object(kind: type) -> bool:
        return issubclass(kind, _Object)

    def set_state(target: Any, state: Any) -> None:
        if not isinstance(state, dict):
            raise NotSupportedError(f"{target.name} stores its state in a custom form")
        target.attributes.update(state)

    def made(named: object) -> Any:
        if named is _listed:
            return _listed
        if isinstance(named, type) and issubclass(named, _Object):
            return _made(named)
        return call_of(named)

    allowed = Allowed(
        find, made, lambda k: set_state if is_object(k) else set_attributes if issubclass(k, Tensor) else None,
        lambda k: False, partial(archive.memory, folder=folder),
    )  # fmt: skip
    return SafeUnpickler(data, allowed, "utf-8").load()


class _Written(NamedTuple):
    """A class as the code has it."""

    methods: dict[str, ast.FunctionDef]
    parameters: list[str]
    buffers: list[str]
    constants: dict[str, Any]
    fields: list[str]
    base: str


class _Code:
    """The classes and functions of an archive, by their qualified names."""

    def __init__(self, archive: Archive, kind: type[Module]) -> None:
        self._kind = kind
        self._written: dict[str, _Written] = {}
        self._definitions: dict[str, ast.FunctionDef] = {}
        self._functions: dict[str, Any] = {}
        self._objects: dict[int, Any] = {}
        self._classes: dict[str, type[Any]] = {}
        self._parameters: dict[Any, Parameter] = {}
        constants = _unpickled(archive.read("constants.pkl"), archive, "constants")
        self._names: dict[str, Any] = {
            "torch": Aten(), "ops": Namespace("ops", {"prim": PRIM, "aten": Aten()}), **BUILTINS, **GUARDS,
            "CONSTANTS": Namespace("CONSTANTS", {f"c{k}": c for k, c in enumerate(constants)}), "Tensor": Tensor,
            "inf": float("inf"), "nan": float("nan"), "NoneType": type(None), "number": (int, float),
            "Device": namespaces()["torch"].members["device"], **{n: typing_name(n) for n in _TYPES},
        }  # fmt: skip
        for member in archive.members:
            if member.startswith(_CODE) and member.endswith(".py"):
                self._read(member, archive.read(member).decode())

    def _read(self, member: str, text: str) -> None:
        module = member.removeprefix(_CODE).removesuffix(".py").replace("/", ".")
        for statement in parsed_module(text, member).body:
            if isinstance(statement, ast.FunctionDef):
                self._definitions[f"{module}.{statement.name}"] = statement
            elif isinstance(statement, ast.ClassDef):
                self._written[f"{module}.{statement.name}"] = _class(statement)

    # ---- functions

    def _qualified(self, name: str) -> Any:
        """The meaning of a name that begins with ``__torch__``."""
        if name in self._functions:
            return self._functions[name]
        if name in self._definitions:
            self._functions[name] = lambda *args, **kwargs: self._functions[name](*args, **kwargs)
            self._functions[name] = self._function(self._definitions[name], name, frozenset())
            return self._functions[name]
        written = self._written.get(name)
        if written is not None and written.base == "NamedTuple":
            made: Any = NamedTuple(name.rpartition(".")[2], [(n, Any) for n in written.fields])  # type: ignore[misc]
            return self._functions.setdefault(name, made)
        raise NotSupportedError(f"the code uses {name}, an object of a custom class, which is not supported")

    def _function(self, definition: ast.FunctionDef, name: str, declared: frozenset[str]) -> Any:
        visitor = _Names()
        definition = visitor.visit(definition)
        names = self._names | {short: self._qualified(full) for full, short in visitor.found.items()}
        return compiled(checked(definition, name), name, names, declared)

    # ---- objects

    def object(self, value: object) -> Any:
        """Convert an object of the pickle, with its contents, to modules."""
        if isinstance(value, list | tuple):
            return type(value)(map(self.object, value))
        if isinstance(value, dict):
            return {k: self.object(v) for k, v in value.items()}
        if isinstance(value, Tensor):
            return self._parameters.get(_memory(value), value)
        if not isinstance(value, _Object):
            return value
        if id(value) not in self._objects:
            self._objects[id(value)] = made = self._new(value)
            self._fill(made, value)
        return self._objects[id(value)]

    def _new(self, value: _Object) -> Module:
        if value.name not in self._classes:
            self._classes[value.name] = self._class(value)
        made: Module = object.__new__(self._classes[value.name])
        Module.__init__(made)
        return made

    def _class(self, value: _Object) -> type[Any]:
        written = self._written.get(value.name)
        if written is None or written.base != "Module":
            raise NotSupportedError(f"the archive holds a {value.name}, which is not a module")
        held = {*value.attributes, *written.constants} - {"_is_full_backward_hook"}  # no hook is in an archive
        bad = sorted(n for n in held | {*written.methods} if not _may_be_held(n))
        if bad:
            raise NotSupportedError(f"{value.name} cannot have the names {bad}")
        declared = frozenset((held - {*dir(self._kind)}) | {*written.methods} | {"training"})
        short = value.name.rpartition(".")[2]
        members: dict[str, Any] = {}
        for name, definition in written.methods.items():
            where = f"{short}.{name}"
            members[name] = self._function(definition, where, declared)
        if "forward__0" in members and "forward" not in members:
            members["forward"] = _overloaded(members)
        found: type[Any] = scripted_class(short, (Scripted, self._kind), members, declared)
        return found

    def _fill(self, made: Module, value: _Object) -> None:
        written = self._written[value.name]
        for name in written.parameters:
            x = value.attributes.get(name)
            if isinstance(x, Tensor):  # lists of weights, which recurrent layers keep, are to hold the parameters
                x = self._parameters.setdefault(_memory(x), Parameter(x, x.requires_grad))
            made.register_parameter(name, x)
        for name, x in {**written.constants, **value.attributes}.items():
            if name in written.parameters:
                continue
            x = self.object(x)
            if name in written.buffers:
                made.register_buffer(name, x)
            elif isinstance(x, Module):
                made._modules[name] = x
            else:
                vars(made)[name] = x


def _may_be_held(name: str) -> bool:
    """Whether a module can have the name without being another thing than a module: ``__setattr__`` is none."""
    special = name.startswith("__") and name not in _CONTAINER
    return (name.isidentifier() or name.isdigit()) and name not in INSIDES and not special


def _memory(x: Tensor) -> tuple[Any, ...]:
    """The memory address of a tensor: tensors with one address are one parameter."""
    return x.data_ptr(), tuple(x.shape), x.stride(), x.dtype


def _overloaded(members: Mapping[str, Any]) -> Callable[..., Any]:
    """``forward`` of a recurrent layer: of tensors, or of packed sequences."""

    def forward(self: Any, input: object, *args: Any, **kwargs: Any) -> Any:
        return members["forward__1" if isinstance(input, tuple) else "forward__0"](self, input, *args, **kwargs)

    return forward


def _class(statement: ast.ClassDef) -> _Written:
    methods, fields, constants = {}, [], {}
    lists: dict[str, list[str]] = {}
    for part in statement.body:
        if isinstance(part, ast.FunctionDef):
            methods[part.name] = part
        elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            fields.append(part.target.id)
            if part.value is not None:
                constants[part.target.id] = _constant(part.value)
        elif isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name):
            lists[part.targets[0].id] = _constant(part.value)
    base = statement.bases[0].id if statement.bases and isinstance(statement.bases[0], ast.Name) else ""
    known = lists.get("__parameters__", []), lists.get("__buffers__", [])
    return _Written(methods, *known, constants, fields, base)


def _constant(node: ast.AST) -> Any:
    """A constant of a class; ``annotate(type, value)`` is its value."""
    if isinstance(node, ast.Call) and len(node.args) == 2:
        return _constant(node.args[1])
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None  # a device or an object: read by no code of modules, which has its constants in its text


class _Names(ast.NodeTransformer):
    """Gives short names to what begins with ``__torch__``, and names without underscores to operators."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        full = _dotted(node)
        if full.startswith("__torch__."):
            short = self.found.setdefault(full, f"torch_{len(self.found)}")
            return ast.copy_location(ast.Name(short, ast.Load()), node)
        self.generic_visit(node)
        if node.attr.startswith("__"):
            node.attr = "op_" + node.attr[2:]
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == "uninitialized":
            return ast.copy_location(ast.Constant(None), node)
        if isinstance(node.func, ast.Name) and node.func.id in ("annotate", "unchecked_cast"):
            found: ast.AST = self.visit(node.args[1])
            return found
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"

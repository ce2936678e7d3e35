"""Access rules of scripts: permitted attributes of values, functions, and names of Python."""

from __future__ import annotations

import builtins
import math
import re
import typing
from collections.abc import Callable, Mapping
from functools import cache
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

import tracecomp.nn.aten  # noqa: F401  publishes functions of the torch namespace
from tracecomp import fft, linalg, special
from tracecomp.amp import autocast
from tracecomp.base.code_origin import is_own
from tracecomp.eager.device import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    device,
    layout,
    memory_format,
    preserve_format,
    strided,
)
from tracecomp.eager.modes import enable_grad, inference_mode, no_grad, set_grad_enabled
from tracecomp.eager.size import Size
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import NAMESPACES
from tracecomp.ir import types
from tracecomp.ir.types import DType
from tracecomp.jit.language import ATTRIBUTE, SET
from tracecomp.nn import functional
from tracecomp.nn.module import Module

_PLAIN = (str, list, tuple, dict, set, bool, int, float, complex, range, Size, DType, device, layout, memory_format)
"""Values of Python's whose methods touch nothing but themselves."""

_PROCESS = re.compile(r"^set_(?!grad_enabled)|^use_|^from_|^frombuffer$|^(manual_)?seed$|^get_rng|^_")
"""Functions that change settings of the process, or take memory or files from elsewhere: no script's business."""

_TREE = frozenset(
    (
        "buffers", "children", "forward", "items", "keys", "modules", "named_buffers", "named_children",
        "named_modules", "named_parameters", "parameters", "training", "values",
    )
)  # fmt: skip
"""Attributes of every module that a script may read."""

INSIDES = frozenset(vars(Module())) - {"training"}
"""How modules keep what they hold."""

_FIELD = re.compile(r"\{[^{}!:]*[.\[]")
"""A place in a format that reads an attribute or an element."""

_ERRORS = tuple(
    value for value in vars(builtins).values() if isinstance(value, type) and issubclass(value, Exception)
)  # fmt: skip


class Namespace:
    """Namespaces of dotted names: ``torch``, ``F``, ``math``."""

    def __init__(self, name: str, members: Mapping[str, Any]) -> None:
        self.name = name
        self.members = members

    def __repr__(self) -> str:
        return f"<{self.name}>"


_declared: WeakKeyDictionary[type, frozenset[str]] = WeakKeyDictionary()
"""Attributes of restored modules that scripts may read. They are separate from the classes: names in a file are never
looked up there."""


class Scripted:
    """Base of the classes of modules made from scripts."""


def scripted_class(name: str, bases: tuple[type, ...], members: Mapping[str, Any], declared: frozenset[str]) -> Any:
    """A class of modules, which have ``members``, and of which scripts may read the names ``declared``."""
    made = type(name, bases, {**members, "__module__": "script"})
    _declared[made] = declared
    return made


def attribute(value: object, name: str) -> Any:
    """``value.name`` in a script; AttributeError where scripts have no business."""
    if isinstance(value, Namespace):
        if name in value.members:
            return value.members[name]
        raise AttributeError(f"{value.name}.{name} is not supported in scripts")
    if name.startswith("__") or not _is_open(value, name):
        raise AttributeError(f"a script cannot read {name!r} of a value of type {type(value).__name__}")
    if isinstance(value, str) and name in ("format", "format_map"):
        return safe_format(value)
    return getattr(value, name)


def _is_open(value: object, name: str) -> bool:
    if isinstance(value, Tensor) or value is Tensor:
        return not name.startswith("_") and hasattr(Tensor, name)
    if isinstance(value, Scripted):
        return name in _TREE or any(name in _declared.get(c, ()) for c in type(value).__mro__)
    if isinstance(value, Module):
        return name in _TREE or name in held_names(value) or name in _methods(_class_of(value))
    return isinstance(value, _PLAIN) and not name.startswith("_")


def held_names(module: Module) -> set[str]:
    """The names of what a module holds: tensors, modules, and the attributes that are its own."""
    return {*module._parameters, *module._buffers, *module._modules, *(vars(module).keys() - INSIDES)}


def _class_of(value: Module) -> Any:
    return type(value)


@cache
def _methods(kind: Any) -> frozenset[str]:
    """The functions of a module of the library, but for those that all modules have."""
    classes = kind.__mro__[: kind.__mro__.index(Module)]
    return frozenset(n for c in classes for n, v in vars(c).items() if isinstance(v, FunctionType) and n[0] != "_")


def set_attribute(value: object, name: str, new: object) -> None:
    """``value.name = new`` in a script: for what a module of scripts was made with."""
    if not (isinstance(value, Scripted) and isinstance(value, Module) and name in held_names(value)):
        raise AttributeError(f"a script cannot set {name!r} of a value of type {type(value).__name__}")
    setattr(value, name, new)


def safe_format(text: str) -> Callable[..., str]:
    def formatted(*args: Any, **kwargs: Any) -> str:
        if _FIELD.search(text.replace("{{", "").replace("}}", "")):
            raise ValueError("formats in scripts cannot read attributes")
        return text.format(*args, **kwargs)

    return formatted


def _getattr(value: object, name: str, *default: Any) -> Any:
    try:
        return attribute(value, name)
    except AttributeError:
        if default:
            return default[0]
        raise


def _hasattr(value: object, name: str) -> bool:
    try:
        attribute(value, name)
    except AttributeError:
        return False
    return True


def _isinstance(value: object, kinds: object) -> bool:
    """``isinstance`` that takes ``List[int]`` for ``list``."""
    asked: tuple[Any, ...] = kinds if isinstance(kinds, tuple) else (kinds,)
    origins: list[Any] = [k if isinstance(k, type) else typing.get_origin(k) for k in asked]
    return any(isinstance(value, k) for k in origins if k is not None)


BUILTINS: dict[str, Any] = {
    name: getattr(builtins, name)
    for name in (
        "abs", "all", "any", "bin", "bool", "chr", "complex", "dict", "divmod", "enumerate", "float", "hex", "int",
        "len", "list", "max", "min", "ord", "pow", "print", "range", "repr", "reversed", "round", "set", "slice",
        "sorted", "str", "sum", "tuple", "zip",
    )
} | {
    **{error.__name__: error for error in _ERRORS}, "getattr": _getattr, "hasattr": _hasattr,
    "isinstance": _isinstance,
}  # fmt: skip
"""The names of Python that scripts have."""

GUARDS = {ATTRIBUTE: attribute, SET: set_attribute}


def typing_name(name: str) -> Any:
    """A name of ``typing``: scripts ask with them whether a value is a list, and give types to empty ones."""
    if name not in ("Any", "Dict", "Final", "List", "Optional", "Set", "Tuple", "Union"):
        raise ValueError(f"typing.{name} is not supported in scripts")
    return getattr(typing, name)


def _public(members: Mapping[str, object]) -> dict[str, Any]:
    return {n: v for n, v in members.items() if callable(v) and not isinstance(v, type) and not _PROCESS.search(n)}


def _own_functions(module: object) -> dict[str, Any]:
    found = _public({n: getattr(module, n) for n in dir(module)})
    return {n: v for n, v in found.items() if is_own(v)}


@cache
def namespaces() -> dict[str, Namespace]:
    """The names behind dots, by their dotted names; they are those of PyTorch."""
    deep = {
        "torch.nn.functional": _own_functions(functional),
        "torch.linalg": _own_functions(linalg),
        "torch.fft": _own_functions(fft),
        "torch.special": _own_functions(special),
        "torch.jit": {"is_scripting": lambda: True, "is_tracing": lambda: False},
        "torch.amp": {"autocast": autocast},
        "math": {n: v for n, v in vars(math).items() if n[0] != "_"},
    }
    spaces = {name: Namespace(name, members) for name, members in deep.items()}
    spaces["torch.nn"] = Namespace("torch.nn", {"functional": spaces["torch.nn.functional"]})
    own: dict[str, Any] = _public(NAMESPACES["torch"])
    own |= {n: v for n, v in vars(types).items() if isinstance(v, DType)}
    own |= {n.removeprefix("torch."): s for n, s in spaces.items() if n.count(".") == 1 and n.startswith("torch.")}
    own |= {
        "Tensor": Tensor, "Size": Size, "device": device, "no_grad": no_grad, "enable_grad": enable_grad,
        "inference_mode": inference_mode, "set_grad_enabled": set_grad_enabled, "autocast": autocast,
        "inf": math.inf, "nan": math.nan, "pi": math.pi, "e": math.e, "strided": strided,
        "contiguous_format": contiguous_format, "preserve_format": preserve_format, "channels_last": channels_last,
        "channels_last_3d": channels_last_3d, "float": types.float32, "double": types.float64, "half": types.float16,
        "cfloat": types.complex64, "cdouble": types.complex128, "short": types.int16, "int": types.int32,
        "long": types.int64, "bool": types.bool_,
    }  # fmt: skip
    spaces["torch"] = Namespace("torch", own)
    return spaces

"""Stand-ins for PyTorch's names that tracecomp lacks: they can be imported and named, and raise when used.

Libraries import far more than they use. A stand-in is a class without instances that raises when it is called. ``from
torch.x import Y`` returns one. So does a name that is read while a module is being imported: an annotation, a base
class or a default. Everywhere else, and for ``hasattr`` and ``getattr``, the name does not exist.
"""

from __future__ import annotations

import dis
import inspect
from abc import ABCMeta
from importlib import import_module
from importlib.util import find_spec
from types import FrameType, ModuleType
from typing import Any, NoReturn

from tracecomp.base.code_origin import torch_name
from tracecomp.torch_compat.names import absent, table, torch_has

_IMPORT_FROM = dis.opmap["IMPORT_FROM"]
_READS = {code for name, code in dis.opmap.items() if name in ("LOAD_ATTR", "LOAD_METHOD")}


class StandIn(ABCMeta):
    """The class of stand-ins."""

    path: str

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(absent(cls.path))

    def __bool__(cls) -> NoReturn:
        raise NotImplementedError(absent(cls.path))

    def __iter__(cls) -> NoReturn:
        raise NotImplementedError(absent(cls.path))

    def __getitem__(cls, item: object) -> StandIn:
        return cls

    def __getattr__(cls, name: str) -> StandIn:
        if not name.startswith("_") and while_importing(inspect.currentframe()):
            return stand_in(f"{cls.path}.{name}")
        raise AttributeError(absent(f"{cls.path}.{name}"))


def stand_in(path: str) -> StandIn:
    """The stand-in for ``path``."""
    return StandIn(path.rpartition(".")[2], (), {"path": path, "__module__": path.rpartition(".")[0]})


def while_importing(frame: FrameType | None) -> bool:
    """Whether the function of ``frame`` was called by an import or an attribute read in the body of a module."""
    asking = None if frame is None else frame.f_back
    if asking is None or asking.f_lasti < 0:
        return False
    code = asking.f_code
    operation = code.co_code[asking.f_lasti]
    in_body = not code.co_flags & inspect.CO_OPTIMIZED  # bodies of modules and classes
    return operation == _IMPORT_FROM or (operation in _READS and in_body)


class TorchModule(ModuleType):
    """A module of tracecomp under its torch name: a missing name is a stand-in, or an error with an explanation."""

    def __getattr__(self, name: str) -> Any:
        return missing(torch_name(self.__name__), name, while_importing(inspect.currentframe()))

    def __setattr__(self, name: str, value: Any) -> None:
        # The import of ``torch.autograd.gradcheck`` would put the module in the place of the function of that name.
        own = isinstance(value, ModuleType) and value.__name__.endswith(f".{name}")
        if not (own and name in vars(self) and not isinstance(vars(self)[name], ModuleType)):
            super().__setattr__(name, value)


def missing(module: str, name: str, importing: bool) -> Any:
    """The result of reading the missing ``module.name``: a stand-in, or AttributeError."""
    path = f"{module}.{name}"
    if path in table() and (importing or find_spec(path) is not None):  # a module, which torch has imported itself
        return import_module(path)
    if path not in table() and (name.startswith("__") or not torch_has(module, name)):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    if importing:
        return stand_in(path)
    raise AttributeError(absent(path))


def stand_in_module(name: str) -> ModuleType:
    """A module of torch that tracecomp does not have."""
    module = TorchModule(name, absent(name))
    if any(other.startswith(name + ".") for other in table()):
        module.__path__ = []
    return module

"""The owner of code and classes: the program's own with the libraries it uses, Python's, or this package's."""

from __future__ import annotations

import argparse
import enum
import sys
from collections.abc import Mapping
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

from tracecomp.base.code_origin import file_of, is_own, is_program_file

_NAMESPACES = (argparse.Namespace, SimpleNamespace)  # of the standard library, but for values of the program
_BUILTIN = (type, BaseException, enum.Enum)


def is_program_code(code: CodeType, space: Mapping[str, object]) -> bool:
    """Whether the code belongs to the program; code generated at run time belongs to its module."""
    return not str(space.get("__name__")).startswith("namedtuple_") and is_program_file(file_of(code, space))


def is_program_function(fn: object) -> bool:
    """Whether ``fn`` is a function of the program, whose instructions are recorded themselves."""
    return isinstance(fn, FunctionType) and is_program_code(fn.__code__, fn.__globals__)


def is_program_class(kind: type) -> bool:
    """Whether the program defines this class."""
    module: Any = kind.__module__  # programs may set it to anything
    if not isinstance(module, str):
        return False
    home = sys.modules.get(module)
    name = getattr(home, "__file__", None)
    made_by_program = module == "__main__" or (home is not None and name is None and home.__spec__ is None)
    return made_by_program or (isinstance(name, str) and is_program_file(name))


def is_opened(kind: type) -> bool:
    """Whether objects of this class are values of the program, which are what their attributes are."""
    if kind in _NAMESPACES:
        return True
    return is_program_class(kind) and not issubclass(kind, _BUILTIN) and not of_package(kind)


def of_package(kind: type) -> bool:
    """Whether a class is a subclass of one of this package's: a module, an optimizer, a tensor."""
    return any(map(is_own, kind.__mro__))


def is_module(value: object) -> bool:
    """Whether ``value`` is a neural network's module."""
    if isinstance(value, type):
        return False
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return False
    return isinstance(found, dict) and "_parameters" in found and "_buffers" in found

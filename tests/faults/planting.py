"""Plant a fault: replace the body of a function of the package everywhere it is used.

The code object is replaced, so tables of functions get the faulty one. The change is never undone: a fault is planted
in a separate process.
"""

from __future__ import annotations
import __future__

import importlib
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from tracecomp.ir.op import OPS


@dataclass(frozen=True)
class Edit:
    """In the function ``where`` (``module:name`` below the package) the text ``old`` becomes ``new``."""

    where: str
    old: str
    new: str

    def plant(self) -> None:
        """Change the function."""
        function = find(self.where)
        source = textwrap.dedent(inspect.getsource(function))
        if self.old not in source:
            raise LookupError(f"{self.where} does not contain {self.old!r}")
        replace_body(function, source.replace(self.old, self.new, 1))

    def __str__(self) -> str:
        return f"`{self.where.replace('|', '.')}`: `{short(self.old)}` is `{short(self.new)}`"


@dataclass(frozen=True)
class Derivative:
    """The derivative rule of an operator is ``rule(old)``."""

    op: str
    what: str
    rule: Callable[[Any], Any]

    def plant(self) -> None:
        """Change the operator's record."""
        op = OPS[self.op]
        object.__setattr__(op, "vjp", self.rule(op.vjp))

    def __str__(self) -> str:
        return f"the derivative of `{self.op}`: {self.what}"


@dataclass(frozen=True)
class Constant:
    """A name of a module (``module:name``) has another value."""

    where: str
    value: Any

    def plant(self) -> None:
        """Change the value."""
        module, _, name = self.where.partition(":")
        setattr(importlib.import_module(f"tracecomp.{module}"), name, self.value)

    def __str__(self) -> str:
        return f"`{self.where}` is {self.value!r}"


@dataclass(frozen=True)
class Entry:
    """Replace the entry at ``key`` in a table of a module (``module:name``) by the one at ``other``."""

    where: str
    key: str
    other: str

    def plant(self) -> None:
        """Change the entry."""
        module, _, name = self.where.partition(":")
        table = getattr(importlib.import_module(f"tracecomp.{module}"), name)
        table[self.key] = table[self.other]

    def __str__(self) -> str:
        return f"`{self.where}`: {self.key} is {self.other}"


Plant = Edit | Derivative | Constant | Entry


def short(text: str) -> str:
    """A text on one line, with no signs that end a table's cell."""
    return " ".join(text.split()).replace("|", "or")


def find(where: str) -> FunctionType:
    """The function ``module:name``; ``name`` may lead through classes."""
    module, _, name = where.partition(":")
    found: Any = importlib.import_module(f"tracecomp.{module}")
    for part in name.split("."):
        found = inspect.getattr_static(found, part) if isinstance(found, type) else getattr(found, part)
    found = getattr(found, "fget", None) or getattr(found, "__func__", found)
    found = inspect.unwrap(found)
    closure = getattr(found, "__closure__", None) or ()
    inner = [c.cell_contents for c in closure if isinstance(c.cell_contents, FunctionType)]
    if inner and "decorated" not in where and found.__qualname__.endswith(".<locals>.run"):
        found = inner[0]  # a lowering step, which runs everywhere in a frame
    assert isinstance(found, FunctionType), where
    return found


def replace_body(function: FunctionType, source: str) -> None:
    """Give ``function`` the code of the one function in ``source``."""
    function.__code__ = code_of(function, source)


def code_of(function: FunctionType, source: str) -> CodeType:
    """``source`` compiled as the code of ``function``; LookupError where that changes nothing but a comment."""
    lines = source.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("def "))
    text = "\n".join(lines[start:])
    space: dict[str, Any] = {}
    code = compile(text, function.__code__.co_filename, "exec", __future__.annotations.compiler_flag)
    exec(code, function.__globals__, space)
    old = function.__code__
    new: CodeType = space[function.__name__].__code__.replace(co_firstlineno=old.co_firstlineno)
    if (new.co_code, new.co_consts, new.co_names) == (old.co_code, old.co_consts, old.co_names):
        raise LookupError(f"{function.__qualname__} is as before: the text stands in a comment")
    return new

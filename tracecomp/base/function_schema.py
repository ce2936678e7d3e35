"""Schemas of operators: names, types, defaults and aliases of arguments and results, parsed from PyTorch's notation.

``aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)`` has the name ``aten::add_``, the
overload ``Tensor``, three arguments and one result. ``(a!)`` says that the operator writes to an argument, and that the
result is the same tensor.
"""

from __future__ import annotations

import ast
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

_SHORT = {"Layout": "int", "MemoryFormat": "int", "Scalar": "number", "ScalarType": "int", "SymInt": "int",
          "SymBool": "bool", "SymFloat": "float"}  # fmt: skip
"""PyTorch's printed form of types that differs from their word in schemas."""
_KINDS = {"AnyEnumType": "AnyEnum", "Device": "DeviceObj", "Stream": "StreamObj", "bool": "Bool", "complex": "Complex",
          "float": "Float", "int": "Int", "number": "Number", "str": "String"}  # fmt: skip
"""Types whose class in PyTorch has another name."""
_TOKEN = re.compile(r"\s*(->|\.\.\.|[A-Za-z_][\w.]*|[?,*()\[\]=!|]|\d+)")


class Type:
    """The type of an argument: a name, or an optional type, a list, a tuple or a dict of other types."""

    def __init__(self, kind: str, parts: Sequence[Type] = ()) -> None:
        self._kind, self._parts = kind, tuple(parts)

    def kind(self) -> str:
        """The name of PyTorch's class: ``TensorType``, ``OptionalType``, ..."""
        name = self._kind if self._parts or self._kind == "SymBool" else str(self)
        if not self._parts and re.fullmatch(r"t\d*", name):
            return "VarType"
        return f"{_KINDS.get(name, name)}Type"

    def getElementType(self) -> Type:
        """The type of elements, or of a value that is there."""
        return self._parts[0]

    def __str__(self) -> str:
        if self._parts:
            return f"{self._kind}[{', '.join(map(str, self._parts))}]"
        return _SHORT.get(self._kind, self._kind)

    __repr__ = __str__

    @property
    def real(self) -> Type:
        """The type by its word in schemas, such as ``ScalarType``."""
        return _Real(self._kind, [part.real for part in self._parts])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Type) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


class _Real(Type):
    def __str__(self) -> str:
        shown = self._parts or self._kind == "Scalar" or self._kind.startswith("Sym")
        return super().__str__() if shown else self._kind

    __repr__ = __str__


class AliasInfo:
    """The memory that an argument and a result share, by letters, and whether the operator writes to it."""

    def __init__(self, before: Iterable[str], after: Iterable[str], is_write: bool) -> None:
        self.before_set, self.after_set, self.is_write = set(before), set(after), is_write


class Argument:
    """An argument or a result of an operator."""

    def __init__(self, name: str, type: Type, alias_info: AliasInfo | None, N: int | None) -> None:
        self.name, self.type, self.alias_info, self.N = name, type, alias_info, N
        self.kwarg_only = False
        self.default_value: object = None
        self._has_default = False

    @property
    def real_type(self) -> Type:
        """The type without PyTorch's change of enumerations to ints."""
        return self.type.real

    @property
    def is_write(self) -> bool:
        """Whether the operator writes to it."""
        return self.alias_info is not None and self.alias_info.is_write

    @property
    def is_out(self) -> bool:
        """Whether it receives the result."""
        return self.kwarg_only and self.is_write

    def has_default_value(self) -> bool:
        """Whether it may be left out."""
        return self._has_default

    def set_default(self, value: object) -> None:
        """Let it be left out, with ``value`` in its place."""
        self.default_value, self._has_default = value, True

    def __repr__(self) -> str:
        return f"<Argument {self.type} {self.name}>"


class FunctionSchema:
    """The schema of one overload. It is parsed when its parts are first read."""

    def __init__(self, text: str) -> None:
        self._text = text
        full, bracket, _ = text.partition("(")
        if not bracket or not full.strip():
            raise RuntimeError(f"schema {text!r} must have the form 'namespace::name(Tensor x) -> Tensor'")
        self.name, _, self.overload_name = full.strip().partition(".")

    @cached_property
    def _parts(self) -> tuple[list[Argument], list[Argument]]:
        return _Parser(self._text).schema()

    @property
    def arguments(self) -> list[Argument]:
        return self._parts[0]

    @property
    def returns(self) -> list[Argument]:
        return self._parts[1]

    @property
    def is_mutable(self) -> bool:
        """Whether it writes to an argument."""
        return any(a.is_write for a in self.arguments)

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionSchema) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


class _Parser:
    """A reader of one schema."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = text.index("(")

    def schema(self) -> tuple[list[Argument], list[Argument]]:
        arguments = self._list()
        self._take("->")
        if self._next() == "...":  # unknown results
            return arguments, []
        if self._next() == "(":
            return arguments, self._list()
        return arguments, [self._argument()]

    def _next(self) -> str:
        match = _TOKEN.match(self.text, self.at)
        return match[1] if match else ""

    def _take(self, wanted: str = "") -> str:
        match = _TOKEN.match(self.text, self.at)
        if match is None or (wanted and match[1] != wanted):
            raise RuntimeError(f"schema {self.text!r}: expected {wanted or 'a name'!r} at {self.text[self.at :]!r:.40}")
        self.at = match.end()
        return match[1]

    def _list(self) -> list[Argument]:
        found: list[Argument] = []
        by_keyword = False
        self._take("(")
        while self._next() != ")":
            if self._next() == "...":  # any further arguments
                self._take("...")
            elif self._next() == "*":
                self._take("*")
                by_keyword = True
            else:
                found.append(self._argument())
                found[-1].kwarg_only = by_keyword
            if self._next() != ")":
                self._take(",")
        self._take(")")
        return found

    def _argument(self) -> Argument:
        type, alias, count = self._type()
        name = self._take() if self._next().isidentifier() else ""
        made = Argument(name, type, alias, count)
        if self._next() == "=":
            self._take("=")
            value = self._value()
            made.set_default([value] * count if count and isinstance(value, int | float) else value)
        return made

    def _type(self) -> tuple[Type, AliasInfo | None, int | None]:
        alias, count = None, None
        if self._next() == "(":  # a tuple
            type = Type("Tuple", self._types())
        else:
            word = self._take()
            if self._next() == "(" and word in ("Dict", "Future", "RRef", "Await"):
                type = Type(word, self._types())
            else:
                type = Type(word)
        while self._next() in ("(", "[", "?"):
            opened = self._take()
            if opened == "?":
                type = Type("Optional", [type])
            elif opened == "[":
                count = int(self._take()) if self._next().isdigit() else None
                self._take("]")
                type = Type("List", [type])
                if alias is not None:  # of the elements
                    alias = AliasInfo((), (), alias.is_write)
            else:
                alias = self._alias()
        return type, alias, count

    def _types(self) -> list[Type]:
        self._take("(")
        found = [self._type()[0]]
        while self._next() == ",":
            self._take(",")
            found.append(self._type()[0])
        self._take(")")
        return found

    def _alias(self) -> AliasInfo:
        before = self._letters()
        is_write = self._next() == "!"
        if is_write:
            self._take("!")
        after = before
        if self._next() == "->":
            self._take("->")
            after = self._letters()
        self._take(")")
        return AliasInfo(before, after, is_write)

    def _letters(self) -> list[str]:
        found = [self._take()]
        while self._next() == "|":
            self._take("|")
            found.append(self._take())
        return found

    def _value(self) -> object:
        """A default: the text up to a comma or bracket outside of lists and quotes."""
        start, depth, quote = self.at, 0, ""
        while self.at < len(self.text) and (quote or depth or self.text[self.at] not in ",)"):
            c = self.text[self.at]
            if quote:
                self.at += c == "\\"
                quote = "" if c == quote else quote
            elif c in "\"'":
                quote = c
            else:
                depth += (c == "[") - (c == "]")
            self.at += 1
        text = self.text[start : self.at].strip()
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return float(text) if text in ("inf", "-inf", "nan") else text


# ---- schemas of Python functions


_ANNOTATIONS = {"Tensor": "Tensor", "int": "SymInt", "float": "float", "bool": "bool", "str": "str",
                "dtype": "ScalarType", "DType": "ScalarType", "device": "Device"}  # fmt: skip
"""Types in schemas by the names of Python's."""


def infer_schema(
    prototype_function: Callable[..., object], /, *, mutates_args: object, op_name: str | None = None
) -> str:
    """The schema of a function by its annotations: ``"(Tensor x, SymInt n=3) -> Tensor"``, after ``op_name``.

    ``mutates_args`` are the names of arguments that the function writes to, or "unknown" for all tensors. ValueError
    for an argument without an annotation, or with one that no operator takes.
    """
    signature = inspect.signature(prototype_function, eval_str=True)
    parts: list[str] = []
    names = set(signature.parameters)
    written = names if mutates_args == "unknown" else set(typing.cast("Iterable[str]", mutates_args))
    if unknown := written - names:
        raise ValueError(
            f"infer_schema(func): {sorted(unknown)} in mutates_args were not found in the custom op's signature. "
            "mutates_args should contain the names of all args that the custom op mutates, or just the string "
            '"unknown" if you don\'t know.'
        )
    starred = False
    for i, (name, parameter) in enumerate(signature.parameters.items()):
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ValueError(f"infer_schema(func): argument {name} must have a name and no star")
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            starred = True
            parts.append("*")
        kind = _in_schema(parameter.annotation, name)
        if name in written:
            if kind.startswith("Tensor"):
                kind = kind.replace("Tensor", f"Tensor(a{i}!)", 1)
            elif mutates_args != "unknown":
                raise ValueError(f"infer_schema(func): argument {name} is in mutates_args, but is not a tensor")
        parts.append(f"{kind} {name}{_default(parameter.default)}")
    return f"{op_name or ''}({', '.join(parts)}) -> {_results(signature.return_annotation)}"


def _default(value: object) -> str:
    if value is inspect.Parameter.empty:
        return ""
    return f'="{value}"' if isinstance(value, str) else f"={value}"


def _in_schema(annotation: object, name: str) -> str:
    if annotation is inspect.Parameter.empty:
        raise ValueError(f"infer_schema(func): argument {name} must have a type annotation")
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        rest = [x for x in inner if x is not type(None)]
        if len(rest) == 1 < len(inner):
            return f"{_in_schema(rest[0], name)}?"
        if set(rest) <= {int, float, bool}:
            return "Scalar" + "?" * (len(rest) < len(inner))
    if origin in (list, Sequence) and len(inner) == 1:
        return f"{_in_schema(inner[0], name)}[]"
    found = _ANNOTATIONS.get(getattr(annotation, "__name__", ""))
    if found is None:
        raise ValueError(
            f"infer_schema(func): argument {name} has the type {annotation}, which no operator takes. Use Tensor, int, "
            "float, bool, str, torch.dtype, torch.device, or a list or an optional value of these"
        )
    return found


def _results(annotation: object) -> str:
    if annotation is None or annotation is type(None):
        return "()"
    if annotation is inspect.Signature.empty:
        raise ValueError("infer_schema(func): the result must have a type annotation")
    if typing.get_origin(annotation) is tuple:
        return f"({', '.join(_in_schema(x, 'return') for x in typing.get_args(annotation))})"
    return _in_schema(annotation, "return")

"""Checks of arguments: if a function declares numbers, texts, tensors or lists of them, others are rejected, as in
PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from typing import get_overloads

import numpy as np

from tracecomp.base.errors import fits_64_bits, integer_text, type_name
from tracecomp.eager.device import layout, memory_format
from tracecomp.eager.rng import Generator
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.types import DType

Test = Callable[[object], bool]
Tests = Mapping[str, tuple[str, Test]]

BY_TRUTH = frozenset(("istft", "lu", "norm", "pca_lowrank", "stft", "unique", "unique_consecutive"))
"""Functions that PyTorch implements in Python, like layers: any truth value is a bool, a text is compared."""
_MAY_BE_LEFT = ("pin_memory", "requires_grad")
"""Arguments that may be None, too."""
_EVERYWHERE = frozenset(("axis", "keepdims", "out"))
"""Keywords that are checked elsewhere."""
_INTEGERS = frozenset(("int", "Sequence[int]", "Sizes", "Dim", "Target"))
"""Kinds whose integers have 64 bits."""
_DOUBLES = frozenset(("float", "Sequence[float]", "Number", "complex"))
"""Kinds whose integers become doubles."""
_REPEATED = frozenset(("interpolate", "local_response_norm", "unfold", "upsample_bilinear", "upsample_nearest"))
"""Functions of ``nn.functional`` for which PyTorch's Python code makes a list of a single size."""
_DOUBLE_BITS = 1024
"""Integers of more bits do not fit a double."""


def _is_int(x: object) -> bool:
    if isinstance(x, Tensor):
        return not x._data.ndim and x._data.dtype.kind in "iu"
    return hasattr(type(x), "__index__") and type(x).__name__ not in ("bool", "bool_")


def _is_float(x: object) -> bool:
    return not x._data.ndim if isinstance(x, Tensor) else hasattr(type(x), "__float__") or hasattr(type(x), "__index__")


def _is_number(x: object) -> bool:
    return isinstance(x, bool | complex) or (_is_float(x) and not isinstance(x, np.ndarray))


def _are_ints(x: object) -> bool:
    """Whether ``x`` is an int or a sequence of ints. PyTorch rejects a bool only at the first position."""
    if isinstance(x, Tensor):
        return x._data.dtype.kind in "iu"
    if not isinstance(x, tuple | list):
        return _is_int(x) or (hasattr(type(x), "__iter__") and not isinstance(x, str | bytes | Mapping))
    return not x or (_is_int(x[0]) and all(isinstance(n, bool) or _is_int(n) for n in x[1:]))


def _are_floats(x: object) -> bool:
    return isinstance(x, tuple | list) and all(map(_is_float, x))


def _are_tensors(x: object) -> bool:
    return isinstance(x, tuple | list) and all(isinstance(y, Tensor) for y in x)


_TESTS: Mapping[str, Test] = {
    "DType": lambda x: isinstance(x, DType) or (isinstance(x, type) and x in (bool, int, float, complex)),
    "Dim": lambda x: x is None or isinstance(x, tuple | list | str) or _is_int(x),
    "Generator": lambda x: isinstance(x, Generator),
    "Layout": lambda x: x is None or isinstance(x, layout),
    "MemoryFormat": lambda x: x is None or isinstance(x, memory_format),
    "None": lambda x: x is None,
    "Number": _is_number,
    "Sequence[Tensor]": _are_tensors,
    "Sequence[float]": _are_floats,
    "Sequence[int]": lambda x: _are_ints(x) and not _is_int(x),
    "Sizes": _are_ints,
    "Target": lambda x: x is None or _are_ints([n or 0 for n in x] if isinstance(x, tuple | list) else x),
    "Tensor": lambda x: isinstance(x, Tensor),
    "bool": lambda x: isinstance(x, bool),
    "complex": _is_number,
    "float": _is_float,
    "int": _is_int,
    "str": lambda x: isinstance(x, str),
}
"""Whether a value is one that a kind of argument takes. Dynamic numbers of a recording count as numbers."""
_WORDS: Mapping[str, str] = {
    "DType": "torch.dtype", "Dim": "tuple of ints", "Layout": "torch.layout", "MemoryFormat": "torch.memory_format",
    "Sequence[Tensor]": "tuple of Tensors", "Sequence[float]": "tuple of floats", "Sequence[int]": "tuple of ints",
    "Sizes": "tuple of ints", "Target": "tuple of ints",
}  # fmt: skip
"""The kinds in messages, if they differ."""


@cache
def fitting(kind: str) -> Test | None:
    """A test whether a value fits an annotation of plain kinds alone (``int | None``); None for other annotations."""
    tests = [_TESTS.get(part) for part in kind.split(" | ")]
    if None in tests or kind == "None":
        return None
    return lambda x: any(test(x) for test in tests if test is not None)


def need_tensor(name: str, value: object, argument: str = "input", place: int = 1) -> None:
    """TypeError unless ``value`` is a tensor; ``place`` counts from one."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}(): argument '{argument}' (position {place}) must be Tensor, not {type_name(value)}")


class PlainArguments:
    """Tests of a function's plain arguments, by position and by name; built on the first call.

    For a function with overloads, the names and the number of arguments are those of its forms.
    """

    def __init__(self, fn: Callable[..., object], name: str, space: str) -> None:
        self.fn, self.name = fn, name
        self.repeats = space == "nn.functional" and name in _REPEATED
        self.by_truth = space == "nn.functional" or name in BY_TRUTH

    @cached_property
    def tests(self) -> Tests:
        """The tests by name."""
        kinds: dict[str, str] = {}
        for form in self._forms or [self.fn]:
            for p, kind in form.__annotations__.items():
                kinds[p] = kind if kinds.get(p, kind) == kind else f"{kinds[p]} | {kind}"
        own = ("bool", "str") if self.by_truth else ()  # checked by PyTorch's Python code
        said = {p: kind for p, kind in kinds.items() if p != "return" and not any(k in kind for k in own)}
        said |= {p: f"{said[p]} | None" for p in _MAY_BE_LEFT if p in said}
        return {p: (kind, test) for p, kind in said.items() if (test := fitting(kind)) is not None}

    @cached_property
    def places(self) -> Sequence[tuple[int, str, str, Test]]:
        """The tests by position."""
        code = self.fn.__code__
        named = code.co_varnames[: code.co_argcount]
        return [(i, p, *self.tests[p]) for i, p in enumerate(named) if p in self.tests]

    @property
    def rest_name(self) -> str:
        """The name of further positional arguments, or an empty string."""
        code = self.fn.__code__
        return code.co_varnames[code.co_argcount + code.co_kwonlyargcount] if code.co_flags & 0x04 else ""  # *args

    @cached_property
    def rest(self) -> tuple[int, str, str, Test] | None:
        """The test of further positional arguments if these are tensors, and the first such position."""
        code, name = self.fn.__code__, self.rest_name
        if not name:
            return None
        kind, test = self.tests.get(name, ("", None))
        return (code.co_argcount, name, kind, test) if test is not None and "Tensor" in kind else None

    @cached_property
    def _forms(self) -> Sequence[Callable[..., object]]:
        takes_all = self.fn.__code__.co_flags & 0x08  # **kwargs
        return get_overloads(self.fn) if takes_all else ()

    @cached_property
    def _limits(self) -> tuple[frozenset[str], float] | None:
        """The keywords and the number of positions of the overloads, if the function itself takes any."""
        if not self._forms:
            return None
        codes = [form.__code__ for form in self._forms]
        names = {n for c in codes for n in c.co_varnames[: c.co_argcount + c.co_kwonlyargcount]}
        most = max(float("inf") if c.co_flags & 0x04 else c.co_argcount for c in codes)  # *args
        return frozenset(names | _EVERYWHERE), most

    def refuse(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """TypeError for the first argument of a wrong kind."""
        for i, argument, kind, test in self.places:
            if i < len(args) and not test(args[i]):
                raise self._error(f"'{argument}' (position {i + 1})", kind, args[i], test)
        if self.rest is not None:
            start, argument, kind, test = self.rest
            for i in range(start, len(args)):
                if not test(args[i]):
                    raise self._error(f"'{argument}' (position {i + 1})", kind, args[i], test)
        limits = self._limits
        if limits is not None and len(args) > limits[1]:
            raise TypeError(f"{self.name}() takes {limits[1]} positional arguments but {len(args)} were given")
        for key, value in kwargs.items():
            kind, found = self.tests.get(key, ("", None))
            if found is not None and not found(value):
                raise self._error(f"'{key}'", kind, value, found)
            if limits is not None and key not in limits[0]:
                raise TypeError(f"{self.name}() got an unexpected keyword argument '{key}'")

    def refuse_too_large(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """PyTorch's error for the first integer of more bits than its argument takes.

        For calls that raised an error: a check before each call would cost more than it is worth.
        """
        given = [(f"'{p}' (position {i + 1})", kind, args[i]) for i, p, kind, _ in self.places if i < len(args)]
        given += [(f"'{p}'", self.tests[p][0], x) for p, x in kwargs.items() if p in self.tests]
        for which, kind, value in given:
            values = value if isinstance(value, tuple | list) else (value,)
            large = next((x for x in values if type(x) is int and not fits_64_bits(x)), None)
            if large is None:
                continue
            said = f"{self.name}(): argument {which} must fit %s, but got {integer_text(large)}"
            in_list = values is value or self.repeats
            parts = kind.split(" | ")
            if not _INTEGERS.isdisjoint(parts):
                raise (TypeError if in_list else ValueError)(said % "64 bits") from None
            if not _DOUBLES.isdisjoint(parts) and large.bit_length() > _DOUBLE_BITS:
                raise (TypeError if in_list else OverflowError)(said % "a double") from None

    def _error(self, which: str, kind: str, value: object, test: Test) -> TypeError:
        wanted = " or ".join(_WORDS.get(part, part) for part in kind.split(" | ") if part != "None")
        found = f"not {type_name(value)}"
        for i, x in enumerate(value if isinstance(value, tuple | list) else ()):
            if not test((x,)):
                found = f"but found element of type {type_name(x)} at pos {i}"
                break
        return TypeError(f"{self.name}(): argument {which} must be {wanted}, {found}")

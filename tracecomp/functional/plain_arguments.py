"""Checks of Python arguments: if a function declares bool, int, float or str, others are rejected, as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from typing import get_overloads

from tracecomp.eager.tensor import Tensor

Test = Callable[[object], bool]
Tests = Mapping[str, tuple[str, Test]]

BY_TRUTH = frozenset(("istft", "lu", "norm", "pca_lowrank", "stft", "unique", "unique_consecutive"))
"""Functions that PyTorch implements in Python, like layers: any truth value is a bool, a text is compared."""
_MAY_BE_LEFT = ("pin_memory", "requires_grad")
"""Arguments that may be None, too."""
_EVERYWHERE = frozenset(("axis", "keepdims", "out"))
"""Keywords that are checked elsewhere."""


def _is_int(x: object) -> bool:
    if isinstance(x, Tensor):
        return not x._data.ndim and x._data.dtype.kind in "iu"
    return hasattr(type(x), "__index__") and type(x).__name__ not in ("bool", "bool_")


def _is_float(x: object) -> bool:
    return not x._data.ndim if isinstance(x, Tensor) else hasattr(type(x), "__float__") or hasattr(type(x), "__index__")


_TESTS: Mapping[str, Test] = {
    "Dim": lambda x: x is None or isinstance(x, tuple | list | str) or _is_int(x),
    "None": lambda x: x is None,
    "bool": lambda x: isinstance(x, bool),
    "float": _is_float,
    "int": _is_int,
    "str": lambda x: isinstance(x, str),
}
"""Whether a value is one that a kind of argument takes. Dynamic numbers of a recording count as numbers."""


@cache
def fitting(kind: str) -> Test | None:
    """A test whether a value fits an annotation of plain kinds alone (``int | None``); None for other annotations."""
    tests = [_TESTS.get(part) for part in kind.split(" | ")]
    if None in tests or kind == "None":
        return None
    return lambda x: any(test(x) for test in tests if test is not None)


class PlainArguments:
    """Tests of a function's plain arguments, by position and by name; built on the first call.

    For a function with overloads, the names and the number of arguments are those of its forms.
    """

    def __init__(self, fn: Callable[..., object], name: str, space: str) -> None:
        self.fn, self.name = fn, name
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
                raise self._error(f"'{argument}' (position {i + 1})", kind, args[i])
        limits = self._limits
        if limits is not None and len(args) > limits[1]:
            raise TypeError(f"{self.name}() takes {limits[1]} positional arguments but {len(args)} were given")
        for key, value in kwargs.items():
            kind, found = self.tests.get(key, ("", None))
            if found is not None and not found(value):
                raise self._error(f"'{key}'", kind, value)
            if limits is not None and key not in limits[0]:
                raise TypeError(f"{self.name}() got an unexpected keyword argument '{key}'")

    def _error(self, which: str, kind: str, value: object) -> TypeError:
        wanted = kind.removesuffix(" | None").replace(" | ", " or ").replace("Dim", "tuple of ints")
        return TypeError(f"{self.name}(): argument {which} must be {wanted}, not {type(value).__name__}")

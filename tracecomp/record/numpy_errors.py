"""Floating-point errors of numpy in code that is not recorded: its error state decides what each of them does.

The state may differ between calls, and a warning is shown by every call. A recording repeats neither, so a computation
with such an error runs as Python. Other computations do not depend on the state.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodWrapperType
from typing import Any

import numpy as np

from tracecomp.base.capture_guide import Section
from tracecomp.base.user_warnings import silenced
from tracecomp.eager.modes import unrecorded
from tracecomp.eager.tensor import Tensor
from tracecomp.record.same_values import PLAIN
from tracecomp.record.watching import Watching

_PURE_METHODS = frozenset({
    "all", "any", "argmax", "argmin", "argsort", "astype", "clip", "cumprod", "cumsum", "dot", "max", "mean", "min",
    "prod", "ptp", "round", "std", "sum", "trace", "var",
})  # fmt: skip
_OPERATORS: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "@": operator.matmul,
}  # fmt: skip
_PLAIN = (*PLAIN, np.generic, np.dtype, type, list, tuple, slice)


def try_numpy(observer: Watching, callee: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse a call of numpy that has a floating-point error."""
    if isinstance(callee, BuiltinFunctionType | MethodWrapperType) and isinstance(callee.__self__, np.ndarray):
        if callee.__name__ not in _PURE_METHODS:
            return
        args, callee = [callee.__self__, *args], getattr(type(callee.__self__), callee.__name__)
    elif isinstance(callee, MethodDescriptorType):
        if callee.__objclass__ is not np.ndarray or callee.__name__ not in _PURE_METHODS:
            return
    elif not isinstance(callee, np.ufunc):
        module = getattr(callee, "__module__", None)
        is_numpys = isinstance(module, str) and module.partition(".")[0] == "numpy"
        if not is_numpys or not isinstance(callee, FunctionType | BuiltinFunctionType):
            return
    if "out" not in kwargs:
        _try(observer, callee, args, kwargs)


def try_operator(observer: Watching, sign: str, a: object, b: object) -> None:
    """Refuse an operator of numpy's numbers and arrays that has a floating-point error."""
    run = _OPERATORS.get(sign)
    if run is not None and not isinstance(a, Tensor) and not isinstance(b, Tensor):
        _try(observer, run, (a, b), {})


def _try(observer: Watching, run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    given = [*args, *kwargs.values()]
    if not any(isinstance(x, np.generic | np.ndarray) for x in given) or not all(map(_is_plain, given)):
        return
    copies = [x.copy() if isinstance(x, np.ndarray) else x for x in args]  # the function may change them
    named = {k: x.copy() if isinstance(x, np.ndarray) else x for k, x in kwargs.items()}
    try:
        with unrecorded(), silenced(), np.errstate(all="raise"):
            run(*copies, **named)
    except FloatingPointError as error:
        observer.recorder.refuse_here(f"has a floating-point error in numpy ({error})", Section.NUMBERS)
    except Exception:  # any exception of the call, which raises it again
        return


def _is_plain(x: object) -> bool:
    """Whether ``x`` leads to no code of the program."""
    if isinstance(x, np.ndarray):
        return type(x) is np.ndarray and x.dtype.kind in "biufc"
    return isinstance(x, _PLAIN) and (not isinstance(x, list | tuple) or all(map(_is_plain, x)))

"""PyTorch's names for symbolic sizes and for conditions on them; sizes are plain numbers here."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn

from tracecomp.eager.absent_device import names_of
from tracecomp.eager.tensor import Tensor
from tracecomp.functional.publish import publish


class SymInt:
    """A symbolic size in PyTorch's graphs; no object here has this class."""


class SymFloat:
    """A symbolic number in PyTorch's graphs; no object here has this class."""


class SymBool:
    """A symbolic truth value in PyTorch's graphs; no object here has this class."""


class OutOfMemoryError(RuntimeError):
    """Raised when a device is out of memory."""


def sym_int(a: Any) -> int:
    return int(a)


def sym_float(a: Any) -> float:
    return float(a)


def sym_max(a: Any, b: Any) -> Any:
    return max(a, b)


def sym_min(a: Any, b: Any) -> Any:
    return min(a, b)


def sym_not(a: object) -> bool:
    return not a


def sym_ite(b: object, t: object, f: object) -> Any:
    return t if b else f


def sym_sum(args: Any) -> Any:
    return sum(args)


def sym_sqrt(a: Any) -> float:
    return math.sqrt(a)


def _raise(error: type[Exception], message: Callable[[], object] | None) -> NoReturn:
    raise error("Expected cond to be True" if message is None else str(message()))


def _checking(error: type[Exception]) -> Callable[..., None]:
    def check(cond: object, message: Callable[[], object] | None = None) -> None:
        """Raise with ``message()`` unless ``cond`` is true."""
        if not cond:
            _raise(error, message)

    return check


def _check_is_size(i: Any, message: Callable[[], object] | None = None, **options: Any) -> None:
    """RuntimeError unless ``i`` is a valid size."""
    if i < 0:
        _raise(RuntimeError, message)


def _check_tensor_all(cond: Tensor, message: Callable[[], object] | None = None) -> None:
    """RuntimeError unless all elements are true."""
    if not bool(cond.all()):
        _raise(RuntimeError, message)


def _check_with(error: type[Exception], cond: object, message: Callable[[], object] | None = None) -> None:
    """Raise ``error`` unless ``cond`` is true."""
    if not cond:
        _raise(error, message)


def _check_tensor_all_with(error: type[Exception], cond: Tensor, message: Callable[[], object] | None = None) -> None:
    """Raise ``error`` unless all elements are true."""
    _check_with(error, bool(cond.all()), message)


def _assert_async(input: Tensor, assert_msg: str = "Expected Tensor with single nonzero value, but got zero") -> None:
    """RuntimeError unless the single element of ``input`` is true."""
    if not bool(input):
        raise RuntimeError(assert_msg)


for _name, _error in (
    ("_check", RuntimeError), ("_check_value", ValueError), ("_check_type", TypeError), ("_check_index", IndexError),
    ("_check_not_implemented", NotImplementedError),
):  # fmt: skip
    publish(_checking(_error), f"torch.{_name}")
for _value in (
    SymInt, SymFloat, SymBool, OutOfMemoryError, sym_int, sym_float, sym_max, sym_min, sym_not, sym_ite, sym_sum,
    sym_sqrt, _check_is_size, _check_tensor_all, _check_with, _check_tensor_all_with, _assert_async,
):  # fmt: skip
    publish(_value, f"torch.{_value.__name__}")
for _name in ("Stream", "Event"):
    publish(names_of("cuda")[_name], f"torch.{_name}")

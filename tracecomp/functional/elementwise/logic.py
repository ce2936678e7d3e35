"""Comparison, logical and bitwise functions."""

from __future__ import annotations

import functools
import math
import typing
from collections.abc import Callable
from typing import Any

from tracecomp.eager.overrides import overrides
from tracecomp.eager.tensor import Tensor
from tracecomp.functional.dtype_support import ALL, REAL
from tracecomp.functional.elementwise.arithmetic import install_operators
from tracecomp.functional.elementwise.complexes import modulus
from tracecomp.functional.plain_arguments import need_tensor
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import Operand, cast, common, not_implemented, operand, result_dtype
from tracecomp.functional.publish import function, in_place_doc, publish, store_inplace
from tracecomp.ir.types import bool_, type_word


def _operands(name: str, input: Operand, other: Operand) -> tuple[Any, ...]:
    if not isinstance(other, Tensor):
        need_tensor(name, input)
    return common(operand(input, name, "input"), operand(other, name, "other"))


_COMPARISONS = {
    "eq": (), "ne": ("not_equal",), "lt": ("less",), "le": ("less_equal",),
    "gt": ("greater",), "ge": ("greater_equal",),
}  # fmt: skip


def _publish_comparison(name: str, aliases: tuple[str, ...]) -> None:
    def compare(input: Tensor, other: Operand) -> Tensor:
        found: Tensor = getattr(prim, name)(*_operands(name, input, other))
        return found

    compare.__name__ = name
    compare.__doc__ = f"Elementwise comparison {name}, as bools."
    public = function(*aliases, takes=ALL if name in ("eq", "ne") else REAL)(compare)

    def run(self: Tensor, other: Operand) -> Tensor:
        try:
            other = other if overrides(type(other)) else operand(other, name)
        except TypeError:
            return typing.cast("Tensor", NotImplemented)
        return public(self, other)

    publish(run, f"Tensor.__{name}__")
    for each in (name, *aliases):
        publish(_stored(public), f"Tensor.{each}_")


def _stored(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """In-place form of a function with a bool result: the target keeps its dtype."""

    @functools.wraps(fn)
    def run(input: Tensor, *args: Any) -> Tensor:
        return store_inplace(input, cast(fn(input, *args), input.dtype))

    run.__name__ = run.__qualname__ = f"{fn.__name__}_"
    run.__doc__ = in_place_doc(fn, run.__name__)

    return run


for _name, _aliases in _COMPARISONS.items():
    _publish_comparison(_name, _aliases)


def truth(x: Operand) -> Any:
    """``x`` as bools: whether it differs from zero."""
    if not isinstance(x, Tensor):
        return bool(x)
    return x if x.dtype is bool_ else prim.ne(x, 0)


@function(takes=ALL)
def logical_not(input: Tensor) -> Tensor:
    """Whether each element is zero."""
    return prim.logical_not(truth(input))


@function(takes=ALL)
def logical_and(input: Tensor, other: Tensor) -> Tensor:
    """Whether both are nonzero."""
    return prim.bitwise_and(truth(input), truth(other))


@function(takes=ALL)
def logical_or(input: Tensor, other: Tensor) -> Tensor:
    """Whether either is nonzero."""
    return prim.bitwise_or(truth(input), truth(other))


@function(takes=ALL)
def logical_xor(input: Tensor, other: Tensor) -> Tensor:
    """Whether exactly one is nonzero."""
    return prim.bitwise_xor(truth(input), truth(other))


for _fn in (logical_not, logical_and, logical_or, logical_xor):
    publish(_stored(_fn), f"Tensor.{_fn.__name__}_")


@function(inplace=True)
def bitwise_not(input: Tensor) -> Tensor:
    """Bits inverted; logical not on bools."""
    if input.dtype.is_floating_point:
        raise not_implemented("bitwise_not_cpu", input.dtype)
    return prim.logical_not(input) if input.dtype is bool_ else prim.bitwise_not(input)


def _invert(self: Tensor) -> Tensor:
    if self.dtype.is_floating_point:
        raise TypeError("~ (operator.invert) is only implemented on integer and Boolean-type tensors")
    return bitwise_not(self)


publish(_invert, "Tensor.__invert__")


def _publish_bits(name: str, primitive: str, *, shift: bool = False) -> Callable[..., Tensor]:
    def apply(input: Operand, other: Operand) -> Tensor:
        if not isinstance(other, Tensor):
            need_tensor(name, input)
        a, b = common(operand(input, name), operand(other, name))
        dtype = a.dtype if isinstance(a, Tensor) else b.dtype
        if dtype.is_floating_point or (shift and dtype is bool_):
            raise not_implemented(f"{name}_cpu", dtype)
        found: Tensor = getattr(prim, primitive)(a, b)
        return found

    apply.__name__, apply.__doc__ = name, f"Elementwise {name.replace('_', ' ')} of integers or bools."
    return function(inplace=True)(apply)


install_operators(
    {
        "and": _publish_bits("bitwise_and", "bitwise_and"),
        "or": _publish_bits("bitwise_or", "bitwise_or"),
        "xor": _publish_bits("bitwise_xor", "bitwise_xor"),
        "lshift": _publish_bits("bitwise_left_shift", "shift_left", shift=True),
        "rshift": _publish_bits("bitwise_right_shift", "shift_right", shift=True),
    }
)


@function(takes=ALL, composite=True)
def isclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """|input - other| <= atol + rtol * |other|, infinities equal to themselves."""
    need_tensor("isclose", other, "other", 2)
    if input.dtype is not other.dtype:
        raise RuntimeError(f"{type_word(input.dtype)} did not match {type_word(other.dtype)}")
    if rtol < 0 or atol < 0:
        raise RuntimeError(f"rtol and atol must be greater than or equal to zero, but got {rtol} and {atol}")
    close = prim.eq(input, other)
    if equal_nan and input.dtype.differentiable:
        close = prim.bitwise_or(close, prim.bitwise_and(_isnan(input), _isnan(other)))
    if rtol == 0 and atol == 0:
        return close
    a, b = input, other
    if not a.dtype.differentiable:
        a, b = cast(a, _float(a)), cast(b, _float(b))
    size = modulus if a.dtype.is_complex else prim.abs
    error = size(prim.sub(a, b))
    allowed = prim.add(size(prim.mul(b, rtol)), atol)
    finite = prim.lt(error, math.inf)
    return prim.bitwise_or(close, prim.bitwise_and(finite, prim.le(error, allowed)))


def _isnan(x: Tensor) -> Tensor:
    return prim.ne(x, x) if x.dtype.is_complex else prim.isnan(x)


def _float(x: Tensor) -> Any:
    return result_dtype(x, 1.0)


@function(takes=ALL, composite=True)
def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether every pair is close (:func:`isclose`)."""
    close = isclose(input, other, rtol=rtol, atol=atol, equal_nan=equal_nan)
    return bool(prim.all(close, axes=tuple(range(close.ndim))))


@function(takes=ALL)
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether both have the same shape and elements."""
    need_tensor("equal", other, "other", 2)
    if tuple(input.shape) != tuple(other.shape):
        return False
    same = prim.eq(*common(input, other))
    return bool(prim.all(same, axes=tuple(range(same.ndim))))

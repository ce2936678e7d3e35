"""Binary arithmetic: promotion, scalars, and the operators of ``Tensor``."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np

from tracecomp.eager.overrides import overrides
from tracecomp.eager.tensor import Tensor, create
from tracecomp.functional.dtype_support import ALL, COMPLEX, FLOATS, NUMBERS
from tracecomp.functional.elementwise.complexes import power as complex_power
from tracecomp.functional.plain_arguments import need_tensor
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import (
    Number,
    Operand,
    bring,
    cast,
    common,
    common_float,
    not_implemented,
    operand,
    result_dtype,
    rounded,
    scalar_dtype,
    wide,
    with_zero_gradient,
)
from tracecomp.functional.publish import function, in_place, publish
from tracecomp.ir.types import DType, bool_, complex128, compute_dtype, float32, float64


def two(name: str, a: Operand, b: Operand, numbers: bool = False) -> tuple[Operand, Operand]:
    """Checked operands, at least one of them a tensor; with ``numbers``, two numbers are valid."""
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        if not numbers or not isinstance(a, bool | int | float | complex):
            need_tensor(name, a)
        a = create("full", value=a, shape=(), dtype=scalar_dtype(a))
    return operand(a, name, "input"), operand(b, name, "other")


def _scaled(name: str, other: Operand, alpha: object, *operands: Operand) -> Operand:
    """``alpha * other`` in the dtype of the result."""
    dtype, factor = result_dtype(*operands), operand(alpha, name, "alpha")
    if not dtype.differentiable and isinstance(factor, float):
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
    if dtype.kind != "bool" and isinstance(factor, bool):
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if isinstance(factor, complex) and not dtype.is_complex:
        raise RuntimeError("For non-complex input tensors, argument alpha must not be a complex number.")
    if dtype.kind == "bool":
        factor = bool(factor)
    if not isinstance(other, Tensor):
        return bool(other * factor) if dtype.kind == "bool" else other * factor
    return prim.mul(wide(cast(other, dtype)), in_half(bring(factor, dtype), dtype))


def _with_alpha(name: str, a: Operand, b: Operand, alpha: object) -> Tensor:
    """``a + alpha * b`` or ``a - alpha * b``; half types round ``alpha``, and then only the result, as in PyTorch."""
    dtype, scaled, by = result_dtype(a, b), _scaled(name, b, alpha, a, b), getattr(prim, name)
    if isinstance(scaled, Tensor) and scaled.dtype is not dtype:
        found: Tensor = cast(by(in_half(bring(a, dtype), dtype), scaled), dtype)
        return found
    result: Tensor = by(*common(a, scaled))
    return result


def in_half(x: Operand, dtype: DType) -> Operand:
    """Round ``x`` to ``dtype`` and return it in its computing type: they differ for half types."""
    if compute_dtype(dtype) is dtype:
        return x
    return wide(x) if isinstance(x, Tensor) else float(np.asarray(x, dtype.numpy))


@function(takes=ALL, inplace=True, primitive="add")
def add(input: Operand, other: Operand, *, alpha: Number = 1) -> Tensor:
    """``input + alpha * other``, broadcast."""
    a, b = two("add", input, other, numbers=True)
    return prim.add(*common(a, b)) if alpha == 1 and alpha is not True else _with_alpha("add", a, b, alpha)


@function("subtract", takes=ALL, inplace=True, primitive="sub")
def sub(input: Operand, other: Operand, *, alpha: Number = 1) -> Tensor:
    """``input - alpha * other``, broadcast; RuntimeError for bools."""
    a, b = two("sub", input, other, numbers=True)
    if _is_bool(a) or _is_bool(b):
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, "
            "use the `~` or `logical_not()` operator instead; for two masks use `^` or `logical_xor()`."
        )
    return prim.sub(*common(a, b)) if alpha == 1 and alpha is not True else _with_alpha("sub", a, b, alpha)


@function(takes=ALL)
def rsub(input: Tensor, other: Operand, *, alpha: Number = 1) -> Tensor:
    """``other - alpha * input``."""
    return sub(other, input, alpha=alpha)


def _is_bool(x: Operand) -> bool:
    return x.dtype.kind == "bool" if isinstance(x, Tensor) else isinstance(x, bool)


@function("multiply", takes=ALL, inplace=True, primitive="mul")
def mul(input: Operand, other: Operand) -> Tensor:
    """``input * other``, broadcast."""
    a, b = two("mul", input, other, numbers=True)
    if not isinstance(a, Tensor) and _is_number_to_half(b, a):
        a, b = b, a
    if _is_number_to_half(a, b):
        return rounded(prim.mul(wide(a), bring(b, float32)), a)
    return prim.mul(*common(a, b))


def _is_number_to_half(a: Operand, b: Operand) -> TypeGuard[Any]:
    """Whether ``b`` is a number and ``a`` has a half type: products and quotients do not round such a number.

    PyTorch uses it in float32 in that case only: sums round it first.
    """
    if not isinstance(a, Tensor) or compute_dtype(a.dtype) is a.dtype or result_dtype(a, b) is not a.dtype:
        return False
    return not isinstance(b, Tensor) or (b.ndim == 0 and b.dtype is not a.dtype)


@function("divide", takes=ALL, inplace=True, primitive="div")
def div(input: Operand, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """True division; with ``rounding_mode`` ``"trunc"`` or ``"floor"`` in the promoted dtype."""
    a, b = two("div", input, other, numbers=True)
    if rounding_mode is None:
        if _is_number_to_half(a, b):
            return rounded(prim.div(wide(a), bring(b, float32)), a)
        if not isinstance(a, Tensor) and _is_number_to_half(b, a):
            return mul(prim.div(1.0, b), a)  # rounded twice, as in PyTorch
        return prim.div(*common_float(a, b))
    if rounding_mode == "floor":
        return with_zero_gradient(floor_divide(a, b), a, b)
    if rounding_mode != "trunc":
        raise RuntimeError(
            f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{rounding_mode}'"
        )
    dtype = result_dtype(a, b)
    if dtype.is_floating_point:
        return prim.trunc(prim.div(*common(a, b)))
    x, y = common(a, b)
    return prim.floor_divide(prim.sub(x, prim.fmod(x, y)), y)


@function(takes=ALL, inplace=True)
def true_divide(input: Operand, other: Operand) -> Tensor:
    """:func:`div` without rounding."""
    return div(input, other)


def _divided(self: Tensor, other: Operand) -> Tensor:
    return div(other, self)


publish(_divided, "Tensor.__rdiv__")


@function(inplace=True)
def floor_divide(input: Operand, other: Operand) -> Tensor:
    """Division rounded down."""
    a, b = two("floor_divide", input, other)
    _no_bool("div_floor_cpu", a, b)
    return prim.floor_divide(*common(a, b))


@function(inplace=True)
def remainder(input: Operand, other: Operand) -> Tensor:
    """Remainder with the divisor's sign."""
    a, b = two("remainder", input, other)
    _no_bool("remainder_cpu", a, b)
    return prim.remainder(*common(a, b))


@function(inplace=True)
def fmod(input: Tensor, other: Operand) -> Tensor:
    """Remainder with the dividend's sign."""
    a, b = two("fmod", input, other)
    _no_bool("fmod_cpu", a, b)
    return prim.fmod(*common(a, b))


def _no_bool(kernel: str, *operands: Operand) -> None:
    if result_dtype(*operands).kind == "bool":
        raise not_implemented(kernel, bool_)


@function(takes=ALL, inplace=True)
def pow(input: Operand, exponent: Operand) -> Tensor:
    """``input ** exponent``; RuntimeError for an integer to a negative Python power."""
    base, power = two("pow", input, exponent)
    dtype = result_dtype(base, power)
    if dtype.is_complex:
        x = bring(base, dtype)
        x = x if isinstance(x, Tensor) else create("full", value=x, shape=(), dtype=dtype)
        return complex_power(x, bring(power, dtype))
    assert not isinstance(base, complex) and not isinstance(power, complex)
    if dtype is bool_:
        if isinstance(base, Tensor) and not isinstance(power, Tensor):
            return prim.bitwise_or(base, not power)
        raise not_implemented("pow", dtype)
    if isinstance(power, Tensor):
        return prim.pow(*common(base, power))
    if dtype.kind == "int" and power < 0:
        raise RuntimeError("Integers to negative integer powers are not allowed.")
    assert isinstance(base, Tensor)
    return _scalar_power(cast(base, dtype), power)


def _scalar_power(x: Tensor, power: Number) -> Tensor:
    """Small exponents are exact compositions, as in PyTorch's kernels."""
    if power == 2:
        return prim.mul(x, x)
    if power == 3:
        return prim.mul(prim.mul(x, x), x)
    if x.dtype.is_floating_point:
        if power == 0.5:
            return prim.sqrt(x)
        if power == -0.5:
            return prim.rsqrt(x)
        if power == -1:
            return prim.div(1.0, x)
        if power == -2:
            return prim.div(1.0, prim.mul(x, x))
    return prim.pow(x, bring(power, x.dtype))


@function(takes=ALL, inplace=True)
def float_power(input: Operand, exponent: Operand) -> Tensor:
    """:func:`pow` computed in float64."""
    base, power = two("float_power", input, exponent)
    wide = complex128 if result_dtype(base, power).is_complex else float64
    return pow(*(cast(x, wide) if isinstance(x, Tensor) else wide.python(x) for x in (base, power)))


@function("arctan2", inplace=True)
def atan2(input: Tensor, other: Tensor) -> Tensor:
    """The angle of the point (other, input)."""
    return prim.atan2(*common_float(*two("atan2", input, other)))


@function(takes=FLOATS, inplace=True)
def hypot(input: Tensor, other: Tensor) -> Tensor:
    """``sqrt(input^2 + other^2)`` without overflow."""
    a, b = two("hypot", input, other)
    return prim.hypot(*common(a, b))


@function(inplace=True)
def copysign(input: Tensor, other: Operand) -> Tensor:
    """The magnitude of ``input`` with the sign of ``other``."""
    return prim.copysign(*common_float(*two("copysign", input, other)))


@function(takes=FLOATS, inplace=True)
def nextafter(input: Tensor, other: Tensor) -> Tensor:
    """The next representable float after ``input`` towards ``other``."""
    return prim.nextafter(*common(*two("nextafter", input, other)))


@function(takes=NUMBERS + COMPLEX, inplace=True, composite=True)
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """``input + value * tensor1 * tensor2``."""
    dtype = result_dtype(input, tensor1, tensor2)
    like = cast(input, dtype)
    x, a, b = (wide(cast(t, dtype)) for t in (like, tensor1, tensor2))
    product = prim.mul(a, b)
    if value != 1:
        product = prim.mul(prim.mul(a, bring(_fitting("addcmul", value, dtype.kind), x.dtype)), b)
    return rounded(prim.add(x, product), like)


@function(takes=ALL, inplace=True, composite=True)
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """``input + value * tensor1 / tensor2``; RuntimeError on integer operands."""
    if not result_dtype(tensor1, tensor2).differentiable:
        raise RuntimeError(
            "Integer division with addcdiv is no longer supported, and in a future release addcdiv will perform "
            "a true division of tensor1 and tensor2."
        )
    dtype = result_dtype(input, tensor1, tensor2)
    like = cast(input, dtype)
    x, a, b = (wide(cast(t, dtype)) for t in (like, tensor1, tensor2))
    scaled = a if value == 1 else prim.mul(a, bring(value, x.dtype))
    return rounded(prim.add(x, prim.div(scaled, b)), like)


def _fitting(name: str, value: Number, kind: str) -> Number:
    if kind not in ("float", "complex") and isinstance(value, float):
        raise RuntimeError(f"{name}: value cannot be converted to an integer type without loss: {value}")
    return value


@function(takes=FLOATS + COMPLEX, inplace=True, composite=True)
def lerp(input: Tensor, end: Tensor, weight: Tensor | Number) -> Tensor:
    """``input + weight * (end - input)``, accurate at both ends."""
    if input.dtype is not end.dtype:
        raise RuntimeError(f"expected dtype {input.dtype} for `end` but got dtype {end.dtype}")
    x, y, w = wide(input), wide(end), weight
    difference = prim.sub(y, x)
    if isinstance(w, Tensor):
        if w.dtype is not input.dtype and w.ndim:
            raise RuntimeError(f"expected dtype {input.dtype} for `weight` but got dtype {w.dtype}")
        w = wide(cast(w, input.dtype))
        near = prim.lt(w.abs(), 0.5)
        first, second = prim.mul(w, difference), prim.mul(difference, prim.sub(1.0, w))
        return rounded(prim.where(near, prim.add(x, first), prim.sub(y, second)), input)
    if abs(w) < 0.5:
        return rounded(prim.add(x, prim.mul(difference, bring(w, x.dtype))), input)
    return rounded(prim.sub(y, prim.mul(difference, bring(1.0 - w, x.dtype))), input)


@function(primitive="maximum")
def maximum(input: Tensor, other: Tensor) -> Tensor:
    """The greater of each pair; NaN wins."""
    return prim.maximum(*common(*two("maximum", input, other)))


@function(primitive="minimum")
def minimum(input: Tensor, other: Tensor) -> Tensor:
    """The smaller of each pair; NaN wins."""
    return prim.minimum(*common(*two("minimum", input, other)))


def _prefer_number(name: str, before: Any, input: Tensor, other: Tensor) -> Tensor:
    """Return ``a`` where it comes before ``b`` or ``b`` is NaN, else ``b``; for equal elements the gradient goes to
    ``a``."""
    a, b = common(*two(name, input, other))
    first = before(a, b)
    return prim.where(prim.bitwise_or(first, prim.isnan(b)) if a.dtype.is_floating_point else first, a, b)


@function(composite=True)
def fmax(input: Tensor, other: Tensor) -> Tensor:
    """The greater of each pair; a number wins over NaN."""
    return _prefer_number("fmax", prim.ge, input, other)


@function(composite=True)
def fmin(input: Tensor, other: Tensor) -> Tensor:
    """The smaller of each pair; a number wins over NaN."""
    return _prefer_number("fmin", prim.le, input, other)


_OPERANDS = frozenset((Tensor, bool, int, float))


def _operator(fn: Callable[..., Tensor], name: str, reverse: bool = False) -> Callable[[Tensor, Any], Any]:
    """``fn`` as a binary operator method: foreign operands return NotImplemented."""

    def run(self: Tensor, other: Operand) -> Tensor:
        if type(other) in _OPERANDS:
            return fn(other, self) if reverse else fn(self, other)
        try:
            other = other if overrides(type(other)) else operand(other, fn.__name__)
        except TypeError:
            return typing.cast("Tensor", NotImplemented)
        return fn(other, self) if reverse else fn(self, other)

    # As in PyTorch: ``__torch_function__`` of ``other - self`` receives the operands in this order.
    run.__name__ = run.__qualname__ = f"__r{name}__" if reverse else fn.__name__
    return run


def install_operators(table: dict[str, Callable[..., Tensor]]) -> None:
    """Set ``__name__``, ``__rname__`` and ``__iname__`` on Tensor for each function."""
    for name, fn in table.items():
        publish(_operator(fn, name), f"Tensor.__{name}__")
        publish(_operator(fn, name, reverse=True), f"Tensor.__r{name}__")
        publish(in_place(fn, f"__i{name}__"), f"Tensor.__i{name}__")


install_operators(
    {
        "add": add, "sub": sub, "mul": mul, "truediv": div, "floordiv": floor_divide,
        "mod": remainder, "pow": pow,
    }
)  # fmt: skip

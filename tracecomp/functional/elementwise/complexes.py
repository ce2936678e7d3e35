"""Complex tensors: parts, views and conjugates, and functions of them as compositions of functions of the parts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.functional.dtype_support import ALL
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import Operand, cast, choose, not_implemented
from tracecomp.functional.publish import function, publish
from tracecomp.ir.types import DType, float32, float64, type_word

Parts = tuple[Tensor, Tensor]


def parts(z: Tensor) -> Parts:
    """The real and the imaginary part of a complex tensor."""
    return prim.real(z), prim.imag(z)


# ---- putting together and taking apart


def _check_parts(a: Tensor, b: Tensor) -> None:
    for x in (a, b):
        if x.dtype not in (float32, float64):
            raise RuntimeError(
                f"Expected both inputs to be Half, Float or Double tensors but got {type_word(a.dtype)} and "
                f"{type_word(b.dtype)}"
            )
    if a.dtype is not b.dtype:
        raise RuntimeError(
            f"Expected object of scalar type {type_word(a.dtype)} but got scalar type {type_word(b.dtype)} for second "
            "argument"
        )


@function(to="torch", takes=ALL)
def complex_(real: Tensor, imag: Tensor) -> Tensor:
    """real + i imag, of float32 or float64 tensors, broadcast."""
    _check_parts(real, imag)
    return prim.complex(real, imag)


@function(to="torch", takes=ALL, composite=True)
def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """abs * (cos(angle) + i sin(angle)), broadcast."""
    _check_parts(abs, angle)
    return prim.complex(prim.mul(abs, prim.cos(angle)), prim.mul(abs, prim.sin(angle)))


@function(to="torch", takes=ALL)
def view_as_real(input: Tensor) -> Tensor:
    """The same memory as real numbers: real and imaginary part along a new last dimension of size 2."""
    if not input.dtype.is_complex:
        raise RuntimeError("view_as_real is only supported for complex tensors")
    return prim.view_as_real(input)


@function(to="torch", takes=ALL)
def view_as_complex(input: Tensor) -> Tensor:
    """The same memory as complex numbers; the last dimension, of size 2, holds their parts."""
    if input.dtype not in (float32, float64):
        raise RuntimeError(
            f"view_as_complex is only supported for half, float and double tensors, but got a tensor of {input.dtype}"
        )
    return prim.view_as_complex(input)


def real(input: Tensor) -> Tensor:
    """The real part, as a view; of real tensors themselves."""
    return prim.real(input) if input.dtype.is_complex else input


def imag(input: Tensor) -> Tensor:
    """The imaginary part, as a view; RuntimeError for real tensors."""
    if not input.dtype.is_complex:
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return prim.imag(input)


def _written(part: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Any], None]:
    def write(self: Tensor, value: Operand) -> None:
        seen = part(self)
        if isinstance(value, Tensor):
            seen.copy_(value)
        else:
            seen.fill_(value)

    return write


for _name, _part in (("real", real), ("imag", imag)):
    publish(property(_part, _written(_part), doc=_part.__doc__), f"Tensor.{_name}")
    publish(_part, f"torch.{_name}")


@function("resolve_neg", takes=ALL)
def resolve_conj(input: Tensor) -> Tensor:
    """``input`` itself: neither conjugation nor negation is lazy."""
    return input


@function(takes=ALL)
def conj(input: Tensor) -> Tensor:
    """The conjugate, computed at once; real tensors themselves."""
    return prim.conj(input) if input.dtype.is_complex else input


@function(takes=ALL, inplace=True)
def conj_physical(input: Tensor) -> Tensor:
    """The conjugate, a copy also of real tensors."""
    return prim.conj(input) if input.dtype.is_complex else prim.cast(input, dtype=input.dtype)


@function(takes=ALL)
def is_complex(input: Tensor) -> bool:
    """Whether the dtype is complex."""
    return input.dtype.is_complex


# ---- functions of complex numbers


def modulus(z: Tensor) -> Tensor:
    """|z|; its derivative at 0 is 0."""
    re, im = parts(z)
    zero = prim.bitwise_and(prim.eq(re, 0.0), prim.eq(im, 0.0))
    return prim.where(zero, 0.0, prim.hypot(prim.where(zero, 1.0, re), im))


def argument(z: Tensor) -> Tensor:
    """The angle of z, in (-pi, pi]."""
    re, im = parts(z)
    return prim.atan2(im, re)


def _sgn(z: Tensor) -> Tensor:
    size = modulus(z)
    size = prim.where(prim.eq(size, 0.0), 1.0, size)
    re, im = parts(z)
    return prim.complex(prim.div(re, size), prim.div(im, size))


def _exp(z: Tensor) -> Tensor:
    re, im = parts(z)
    size = prim.exp(re)
    return prim.complex(prim.mul(size, prim.cos(im)), prim.mul(size, prim.sin(im)))


def _log(z: Tensor) -> Tensor:
    re, im = parts(z)
    return prim.complex(prim.log(prim.hypot(re, im)), prim.atan2(im, re))


def _sqrt(z: Tensor) -> Tensor:
    """The root with a real part that is not negative, without cancellation (Abramowitz and Stegun 3.7.27)."""
    re, im = parts(z)
    zero = prim.bitwise_and(prim.eq(re, 0.0), prim.eq(im, 0.0))
    safe = prim.where(zero, 1.0, re)
    left = prim.lt(safe, 0.0)
    far = prim.where(left, prim.neg(safe), safe)
    large = prim.sqrt(prim.mul(prim.add(prim.hypot(safe, im), far), 0.5))
    large = prim.where(left, prim.copysign(large, im), large)
    small = prim.div(im, prim.mul(large, 2.0))
    root = prim.where(zero, 0.0, prim.where(left, small, large))
    return prim.complex(root, prim.where(left, large, small))


def _product_of(first: str, second: str, third: str, fourth: str, minus: bool) -> Callable[[Tensor], Tensor]:
    """first(re) * second(im) + i third(re) * fourth(im), the imaginary part negated if ``minus``."""

    def run(z: Tensor) -> Tensor:
        re, im = parts(z)
        f, g, h, k = (getattr(prim, name) for name in (first, second, third, fourth))
        lower = prim.mul(h(re), k(im))
        return prim.complex(prim.mul(f(re), g(im)), prim.neg(lower) if minus else lower)

    return run


def _tanh(z: Tensor) -> Tensor:
    """By the addition theorem, whose terms stay finite."""
    re, im = parts(z)
    t, u = prim.tanh(re), prim.tan(im)
    square, other = prim.mul(t, t), prim.mul(u, u)
    scale = prim.add(prim.mul(square, other), 1.0)
    return prim.complex(
        prim.div(prim.mul(t, prim.add(other, 1.0)), scale), prim.div(prim.mul(u, prim.sub(1.0, square)), scale)
    )


def _tan(z: Tensor) -> Tensor:
    turned = _tanh(prim.mul(z, 1j))
    return prim.complex(prim.imag(turned), prim.neg(prim.real(turned)))


def _either(test: Callable[[Tensor], Tensor], join: str = "bitwise_or") -> Callable[[Tensor], Tensor]:
    return lambda z: getattr(prim, join)(*map(test, parts(z)))


OF_COMPLEX: dict[str, Callable[[Tensor], Tensor]] = {
    "abs": modulus, "angle": argument, "sgn": _sgn, "exp": _exp, "log": _log, "sqrt": _sqrt,
    "tan": _tan, "tanh": _tanh, "exp2": lambda z: _exp(prim.mul(z, math.log(2))),
    "log2": lambda z: prim.mul(_log(z), 1 / math.log(2)), "log10": lambda z: prim.mul(_log(z), 1 / math.log(10)),
    "rsqrt": lambda z: prim.div(1.0, _sqrt(z)),
    "sin": _product_of("sin", "cosh", "cos", "sinh", False), "cos": _product_of("cos", "cosh", "sin", "sinh", True),
    "sinh": _product_of("sinh", "cos", "cosh", "sin", False), "cosh": _product_of("cosh", "cos", "sinh", "sin", False),
    "sigmoid": lambda z: prim.div(1.0, prim.add(_exp(prim.neg(z)), 1.0)),
    "isnan": _either(lambda x: prim.isnan(x)),
    "isinf": _either(lambda x: prim.eq(prim.abs(x), float("inf"))),
    "isfinite": _either(lambda x: prim.lt(prim.abs(x), float("inf")), "bitwise_and"),
}  # fmt: skip


def of_complex(name: str, z: Tensor) -> Tensor:
    """The function called ``name`` of a complex tensor; NotImplementedError when there is none."""
    found = OF_COMPLEX.get(name)
    if found is None:
        raise not_implemented(f"{name}_cpu", z.dtype)
    return found(z)


def power(base: Tensor, exponent: Any) -> Tensor:
    """``base ** exponent`` for complex operands of one dtype; small whole exponents by repeated multiplication."""
    if not isinstance(exponent, Tensor):
        number = complex(exponent)
        if number.imag == 0 and number.real.is_integer() and abs(number.real) <= 64:
            return _whole_power(base, int(number.real))
        if number == 0.5:
            return _sqrt(base)
    zero = prim.eq(base, 0.0)
    found = _exp(prim.mul(_log(prim.where(zero, 1.0, base)), exponent))
    return prim.where(zero, _power_of_zero(_filled(exponent, zero, base.dtype)), found)


def _power_of_zero(exponent: Tensor) -> Tensor:
    """``0 ** exponent``: 1, 0 or infinite as the exponent is zero or has a positive or negative real part."""
    re, im = parts(exponent)
    none = prim.bitwise_and(prim.eq(re, 0.0), prim.eq(im, 0.0))
    above, dtype = prim.gt(re, 0.0), re.dtype
    size = prim.where(above, 0.0, choose(prim.lt(re, 0.0), math.inf, math.nan, dtype))
    made: Tensor = prim.complex(prim.where(none, 1.0, size), prim.where(none, 0.0, choose(above, 0.0, math.nan, dtype)))
    return made


def _filled(x: Operand, like: Tensor, dtype: DType) -> Tensor:
    return x if isinstance(x, Tensor) else prim.full(like=like, value=x, shape=(), dtype=dtype)


def _whole_power(z: Tensor, n: int) -> Tensor:
    if n < 0:
        return prim.div(1.0, _whole_power(z, -n))
    found: Tensor | None = None
    while n:
        if n % 2:
            found = z if found is None else prim.mul(found, z)
        n //= 2
        z = prim.mul(z, z) if n else z
    return prim.add(prim.mul(z, 0.0), 1.0) if found is None else cast(found, z.dtype)

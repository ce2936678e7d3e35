"""Complex tensors: parts, views and conjugates, and functions of them as compositions of functions of the parts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.functional.dtype_support import ALL
from tracecomp.functional.plain_arguments import need_tensor
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import Operand, cast, choose, not_implemented
from tracecomp.functional.publish import function, publish
from tracecomp.ir.types import DType, float32, float64, type_word

Parts = tuple[Tensor, Tensor]


def parts(z: Tensor) -> Parts:
    """The real and the imaginary part of a complex tensor."""
    return prim.real(z), prim.imag(z)


# ---- construction and parts


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
    """View the same memory as real numbers: real and imaginary part along a new last dimension of size 2."""
    if not input.dtype.is_complex:
        raise RuntimeError("view_as_real is only supported for complex tensors")
    return prim.view_as_real(input)


@function(to="torch", takes=ALL)
def view_as_complex(input: Tensor) -> Tensor:
    """View the same memory as complex numbers; the last dimension, of size 2, has their parts."""
    if input.dtype not in (float32, float64):
        raise RuntimeError(
            f"view_as_complex is only supported for half, float and double tensors, but got a tensor of {input.dtype}"
        )
    if not input.ndim:
        raise RuntimeError("Input tensor must have one or more dimensions")
    if input.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    return prim.view_as_complex(input)


def real(input: Tensor) -> Tensor:
    """The real part, as a view; real tensors are returned unchanged."""
    need_tensor("real", input)
    return prim.real(input) if input.dtype.is_complex else input


def imag(input: Tensor) -> Tensor:
    """The imaginary part, as a view; RuntimeError for real tensors."""
    need_tensor("imag", input)
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
    """The conjugate, computed at once; real tensors are returned unchanged."""
    return prim.conj(input) if input.dtype.is_complex else input


@function(takes=ALL, inplace=True)
def conj_physical(input: Tensor) -> Tensor:
    """The conjugate, also a copy for real tensors."""
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
    """The root with a non-negative real part, without cancellation (Abramowitz and Stegun 3.7.27)."""
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


def _log1p(z: Tensor) -> Tensor:
    """log(1 + z), by log1p(|1 + z|^2 - 1) / 2 near 1, where the logarithm of the modulus has few digits."""
    re, im = parts(z)
    near = prim.lt(prim.maximum(prim.abs(re), prim.abs(im)), 0.5)
    a, b = prim.where(near, re, 0.0), prim.where(near, im, 0.0)
    excess = prim.add(prim.mul(a, prim.add(a, 2.0)), prim.mul(b, b))
    whole = prim.add(re, 1.0)
    size = prim.hypot(prim.where(near, 1.0, whole), prim.where(near, 0.0, im))
    return prim.complex(prim.where(near, prim.mul(prim.log1p(excess), 0.5), prim.log(size)), prim.atan2(im, whole))


def _expm1(z: Tensor) -> Tensor:
    """e^z - 1; its real part expm1(x) cos(y) - 2 sin(y / 2)^2 keeps its digits near 0."""
    re, im = parts(z)
    half = prim.sin(prim.mul(im, 0.5))
    real = prim.sub(prim.mul(prim.expm1(re), prim.cos(im)), prim.mul(prim.mul(half, half), 2.0))
    return prim.complex(real, prim.mul(prim.exp(re), prim.sin(im)))


# Inverse functions by Kahan's formulas, whose branch cuts and signed zeros are C99's:
# "Branch cuts for complex elementary functions, or much ado about nothing's sign bit" (1987).


def _turned(z: Tensor) -> Tensor:
    """i z, exactly."""
    re, im = parts(z)
    return prim.complex(prim.neg(im), re)


def _turned_back(z: Tensor) -> Tensor:
    """-i z, exactly."""
    re, im = parts(z)
    return prim.complex(im, prim.neg(re))


def _one_minus(z: Tensor) -> Tensor:
    """1 - z, where a zero imaginary part has the sign of that of -z."""
    re, im = parts(z)
    return prim.complex(prim.sub(1.0, re), prim.neg(im))


def _plus(z: Tensor, number: float) -> Tensor:
    """z + number, with an unchanged imaginary part."""
    re, im = parts(z)
    return prim.complex(prim.add(re, number), im)


def _asin(z: Tensor) -> Tensor:
    (a, b), (c, d) = parts(_sqrt(_one_minus(z))), parts(_sqrt(_plus(z, 1.0)))
    across = prim.sub(prim.mul(a, d), prim.mul(b, c))
    along = prim.sub(prim.mul(a, c), prim.mul(b, d))
    return prim.complex(prim.atan2(prim.real(z), along), prim.asinh(across))


def _acos(z: Tensor) -> Tensor:
    (a, b), (c, d) = parts(_sqrt(_one_minus(z))), parts(_sqrt(_plus(z, 1.0)))
    across = prim.sub(prim.mul(c, b), prim.mul(d, a))
    return prim.complex(prim.mul(prim.atan2(a, c), 2.0), prim.asinh(across))


def _acosh(z: Tensor) -> Tensor:
    (a, b), (c, d) = parts(_sqrt(_plus(z, -1.0))), parts(_sqrt(_plus(z, 1.0)))
    along = prim.add(prim.mul(a, c), prim.mul(b, d))
    return prim.complex(prim.asinh(along), prim.mul(prim.atan2(b, c), 2.0))


def _atanh(z: Tensor) -> Tensor:
    """log((1 + z) / (1 - z)) / 2 by its parts; the real one, which is odd, is computed on the side without
    cancellation."""
    re, im = parts(z)
    size = prim.copysign(re, 1.0)
    below, square = prim.sub(1.0, size), prim.mul(im, im)
    quotient = prim.div(prim.mul(size, 4.0), prim.add(prim.mul(below, below), square))
    real = prim.copysign(prim.mul(prim.log1p(quotient), 0.25), re)
    angle = prim.atan2(prim.mul(im, 2.0), prim.sub(prim.mul(below, prim.add(size, 1.0)), square))
    return prim.complex(real, prim.mul(angle, 0.5))


def _sinc(z: Tensor) -> Tensor:
    zero = prim.eq(z, 0.0)
    turn = prim.mul(prim.where(zero, 1.0, z), math.pi)
    return prim.where(zero, 1.0, prim.div(of_complex("sin", turn), turn))


def log_of_sum(a: Tensor, b: Tensor) -> Tensor:
    """log(e^a + e^b) of complex numbers, relative to the one with the larger real part, whose imaginary part is
    kept."""
    below = prim.lt(prim.real(a), prim.real(b))
    low, high = prim.where(below, a, b), prim.where(below, b, a)
    size = prim.real(low)
    same = prim.bitwise_and(prim.eq(size, prim.real(high)), prim.eq(prim.abs(size), math.inf))
    gap = prim.where(same, 0.0, prim.sub(low, high))
    return prim.where(same, low, prim.add(_log1p(_exp(gap)), high))


def _either(test: Callable[[Tensor], Tensor], join: str = "bitwise_or") -> Callable[[Tensor], Tensor]:
    return lambda z: getattr(prim, join)(*map(test, parts(z)))


OF_COMPLEX: dict[str, Callable[[Tensor], Tensor]] = {
    "abs": modulus, "angle": argument, "sgn": _sgn, "exp": _exp, "log": _log, "sqrt": _sqrt,
    "log1p": _log1p, "expm1": _expm1, "asin": _asin, "acos": _acos, "acosh": _acosh, "atanh": _atanh,
    "asinh": lambda z: _turned_back(_asin(_turned(z))), "atan": lambda z: _turned_back(_atanh(_turned(z))),
    "sinc": _sinc, "tan": _tan, "tanh": _tanh, "exp2": lambda z: _exp(prim.mul(z, math.log(2))),
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
    """The function called ``name`` of a complex tensor; NotImplementedError if it does not exist."""
    found = OF_COMPLEX.get(name)
    if found is None:
        raise not_implemented(f"{name}_cpu", z.dtype)
    return found(z)


def of_number(name: str, x: Tensor) -> Tensor:
    """The function called ``name`` of a floating or complex tensor."""
    found: Tensor = of_complex(name, x) if x.dtype.is_complex else getattr(prim, name)(x)
    return found


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
    """``0 ** exponent``: 1, 0 or infinite for an exponent that is zero, or has a positive or negative real part."""
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

"""Elementwise functions of one tensor, clamping and selection."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, overload

from tracecomp.eager.tensor import Tensor, create
from tracecomp.functional.creation.creation import constant
from tracecomp.functional.dims import as_index
from tracecomp.functional.dtype_support import ALL, REAL, Kinds
from tracecomp.functional.elementwise.complexes import OF_COMPLEX, of_complex, of_number
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import Operand, as_float, bring_exact, cast, not_implemented, operand, result_dtype
from tracecomp.functional.publish import function, publish
from tracecomp.ir.types import DType, bool_, int64, type_word, uint8

_FLOAT_UNARY = {
    "exp": (), "exp2": ("special.exp2",), "expm1": ("special.expm1",), "log": (), "log2": (), "log10": (),
    "log1p": ("special.log1p",),
    "sin": (), "cos": (), "tan": (), "asin": ("arcsin",), "acos": ("arccos",), "atan": ("arctan",),
    "sinh": (), "cosh": (), "tanh": (),
    "asinh": ("arcsinh",), "acosh": ("arccosh",), "atanh": ("arctanh",), 
    "erf": ("special.erf",), "erfc": ("special.erfc",), "erfinv": ("special.erfinv",),
    "lgamma": ("special.gammaln",), "digamma": ("special.digamma", "special.psi"),
    "sqrt": (), "rsqrt": (), "sigmoid": ("special.expit",),
}  # fmt: skip


def _publish_unary(name: str, aliases: tuple[str, ...]) -> None:
    def apply(input: Tensor) -> Tensor:
        return of_number(name, as_float(input))

    apply.__name__ = name
    apply.__doc__ = f"Elementwise {name}; integers and bools become the default float dtype."
    function(*aliases, takes=ALL if name in OF_COMPLEX else REAL, inplace=True, primitive=name)(apply)


for _name, _aliases in _FLOAT_UNARY.items():
    _publish_unary(_name, _aliases)


def magnitude(x: Tensor) -> Tensor:
    """|x| whose derivative at 0 is 1, for formulas of |x| that are smooth there: the slope of either side is valid."""
    return prim.where(prim.lt(x, 0), prim.neg(x), x)


def _float_composite(takes: Kinds = REAL) -> Callable[[Callable[[Tensor], Tensor]], Callable[[Tensor], Tensor]]:
    """Publish a function of one floating tensor; integers are converted first."""

    def decorate(fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def apply(input: Tensor) -> Tensor:
            return fn(as_float(input))

        apply.__name__, apply.__doc__ = fn.__name__, fn.__doc__
        return function(takes=takes, inplace=True, composite=True)(apply)

    return decorate


@_float_composite(ALL)
def reciprocal(x: Tensor) -> Tensor:
    """1 / x."""
    return prim.div(1.0, x)


@function("negative", takes=ALL, inplace=True)
def neg(input: Tensor) -> Tensor:
    """Return -input; RuntimeError on bools."""
    if input.dtype is bool_:
        raise RuntimeError(
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, "
            "use the `~` or `logical_not()` operator instead."
        )
    return prim.neg(input)


@function(takes=ALL)
def positive(input: Tensor) -> Tensor:
    """Return ``input``; RuntimeError on bools."""
    if input.dtype is bool_:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


def _rounding(name: str, doc: str, *aliases: str) -> None:
    """Publish a primitive that is the identity on integers."""

    def apply(input: Tensor) -> Tensor:
        if input.dtype is bool_:
            raise not_implemented(name, bool_)
        if not input.dtype.is_floating_point:
            return prim.cast(input, dtype=input.dtype)
        found: Tensor = getattr(prim, name)(input)
        return found

    apply.__name__, apply.__doc__ = name, doc
    function(*aliases, inplace=True)(apply)


_rounding("floor", "Rounded down.")
_rounding("ceil", "Rounded up.")
_rounding("trunc", "Rounded towards zero.", "fix")


@function("absolute", takes=ALL, inplace=True)
def abs(input: Tensor) -> Tensor:
    """Absolute value."""
    if input.dtype is bool_:
        raise not_implemented("abs_cpu", bool_)
    return of_number("abs", input)


@function(takes=ALL, inplace=True)
def sgn(input: Tensor) -> Tensor:
    """:func:`sign`; of complex numbers the number of size 1 in their direction, 0 for 0."""
    return of_complex("sgn", input) if input.dtype.is_complex else sign(input)


@function(inplace=True)
def sign(input: Tensor) -> Tensor:
    """Return -1, 0 or 1 with the sign of ``input``."""
    return prim.cast(input, dtype=bool_) if input.dtype is bool_ else prim.sign(input)


@function("special.round", inplace=True)
def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """Rounded half to even, at ``decimals`` digits after the point."""
    if not input.dtype.is_floating_point:
        if decimals or input.dtype is bool_:
            raise not_implemented("round_cpu", input.dtype)
        return prim.cast(input, dtype=input.dtype)
    if decimals == 0:
        return prim.round(input)
    digits = max(as_index(decimals), -decimals)
    factor = 10.0**digits if digits <= sys.float_info.max_10_exp else math.inf
    if decimals > 0:
        return prim.div(prim.round(prim.mul(input, factor)), factor)
    return prim.mul(prim.round(prim.div(input, factor)), factor)


@function(inplace=True)
def frac(input: Tensor) -> Tensor:
    """The part after the point, with the sign of ``input``."""
    if not input.dtype.is_floating_point:
        raise not_implemented("frac_cpu", input.dtype)
    return prim.sub(input, prim.trunc(input))


@function(takes=ALL, inplace=True)
def square(input: Tensor) -> Tensor:
    """input * input."""
    if input.dtype is bool_:
        return prim.cast(input, dtype=int64)
    return prim.mul(input, input)


@_float_composite()
def deg2rad(x: Tensor) -> Tensor:
    """Degrees to radians."""
    return prim.mul(x, math.pi / 180)


@_float_composite()
def rad2deg(x: Tensor) -> Tensor:
    """Radians to degrees."""
    return prim.mul(x, 180 / math.pi)


@function(takes=ALL)
def angle(input: Tensor) -> Tensor:
    """The angle in the complex plane: of real numbers pi for negative ones, 0 for others, NaN for NaN."""
    if input.dtype.is_complex:
        return of_complex("angle", input)
    x = as_float(input)
    turned = prim.where(prim.lt(x, 0.0), prim.mul(prim.abs(prim.sign(x)), math.pi), prim.mul(x, 0.0))
    return prim.where(prim.isnan(x), x, prim.where(prim.ge(x, 0.0), 0.0, turned))


@function("special.logit", inplace=True, composite=True)
def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), with x first clamped to [eps, 1 - eps]."""
    x = as_float(input)
    if eps is not None:
        x = clamp(x, eps, 1 - eps)
    return prim.log(prim.div(x, prim.sub(1.0, x)))


def _float_test(name: str, doc: str, test: Callable[[Tensor], Tensor], otherwise: bool = False) -> None:
    """Publish a bool test that is constant for integers."""

    def apply(input: Tensor) -> Tensor:
        if input.dtype.is_complex:
            return of_complex(name, input)
        if not input.dtype.is_floating_point:
            return create("full", value=otherwise, shape=tuple(input.shape), dtype=bool_)
        return test(input)

    apply.__name__, apply.__doc__ = name, doc
    function(takes=ALL if name in OF_COMPLEX else REAL)(apply)


_float_test("isnan", "Whether each element is NaN.", lambda x: prim.isnan(x))
_float_test("isinf", "Whether each element is infinite.", lambda x: prim.eq(prim.abs(x), math.inf))
_float_test("isfinite", "Whether each is neither infinite nor NaN.", lambda x: prim.lt(prim.abs(x), math.inf), True)
_float_test("isposinf", "Whether each element is positive infinity.", lambda x: prim.eq(x, math.inf))
_float_test("isneginf", "Whether each element is negative infinity.", lambda x: prim.eq(x, -math.inf))


@function(takes=ALL)
def isreal(input: Tensor) -> Tensor:
    """Whether the imaginary part is 0."""
    if input.dtype.is_complex:
        return prim.eq(prim.imag(input), 0.0)
    return create("full", value=True, shape=tuple(input.shape), dtype=bool_)


@function()
def signbit(input: Tensor) -> Tensor:
    """Whether the sign bit is set (also of -0.0)."""
    if input.dtype is bool_:
        return create("full", value=False, shape=tuple(input.shape), dtype=bool_)
    if input.dtype.is_floating_point:
        ones = create("full", value=1.0, shape=tuple(input.shape), dtype=input.dtype)
        return prim.lt(prim.copysign(ones, input), 0.0)
    return prim.lt(input, 0)


@function(inplace=True, composite=True)
def nan_to_num(
    input: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """NaN and infinities replaced (by 0 and the extreme finite numbers unless given)."""
    if not input.dtype.is_floating_point:
        return prim.cast(input, dtype=input.dtype)
    top = largest(input.dtype)
    x = prim.where(prim.isnan(input), 0.0 if nan is None else float(nan), input)
    x = prim.where(prim.eq(x, math.inf), top if posinf is None else float(posinf), x)
    return prim.where(prim.eq(x, -math.inf), -top if neginf is None else float(neginf), x)


_LARGEST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38,
            "float64": 1.7976931348623157e308}  # fmt: skip


def largest(dtype: DType) -> float:
    """The largest finite number of a floating dtype."""
    return _LARGEST[dtype.name]


@function("clip", inplace=True, composite=True)
def clamp(input: Tensor, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """Limit ``input`` to [min, max], which are numbers or tensors. Gradients are zero outside; NaN propagates."""
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    if min is not None and max is not None and isinstance(min, Tensor) is not isinstance(max, Tensor):
        kinds = f"{type(min).__name__} and {type(max).__name__}"
        raise TypeError(f"clamp(): min and max must both be numbers or both tensors, but got {kinds}")
    bounds = [operand(b, "clamp", "min") for b in (min, max) if b is not None]
    dtype = result_dtype(input, *bounds)
    x = cast(input, dtype)
    if min is not None:
        x = _limit(x, bring_exact(operand(min, "clamp"), dtype), prim.lt, prim.ge)
    if max is not None:
        x = _limit(x, bring_exact(operand(max, "clamp"), dtype), prim.gt, prim.le)
    return x


def _limit(x: Tensor, bound: Operand, beyond: Callable[..., Tensor], within: Callable[..., Tensor]) -> Tensor:
    """Return ``bound`` where ``x`` is beyond it (or it is NaN), ``x`` elsewhere."""
    if not x.dtype.is_floating_point or (isinstance(bound, float) and not math.isnan(bound)):
        return prim.where(beyond(x, bound), bound, x)
    return prim.where(prim.bitwise_or(within(x, bound), prim.isnan(x)), x, bound)


@function(inplace=True)
def clamp_min(input: Tensor, min: Operand) -> Tensor:
    """:func:`clamp` from below."""
    return clamp(input, min=min)


@function(inplace=True)
def clamp_max(input: Tensor, max: Operand) -> Tensor:
    """:func:`clamp` from above."""
    return clamp(input, max=max)


@function(inplace=True)
def relu(input: Tensor) -> Tensor:
    """max(0, input); the gradient at 0 is 0."""
    if input.dtype is bool_:
        raise RuntimeError("Boolean inputs not supported for relu")
    return prim.relu(input)


@overload
def where(condition: Tensor) -> tuple[Tensor, ...]: ...
@overload
def where(condition: Tensor, input: Operand, other: Operand) -> Tensor: ...
@function(to="torch", takes=ALL, composite=True)
def where(condition: Tensor, input: Operand | None = None, other: Operand | None = None) -> Any:
    """``input`` where ``condition`` holds, else ``other``; with the condition alone, its nonzero positions."""
    if input is None or other is None:
        return condition.nonzero(as_tuple=True)
    if condition.dtype not in (bool_, uint8):
        raise RuntimeError(
            f"where expected condition to be a boolean tensor, but got a tensor with dtype {type_word(condition.dtype)}"
        )
    mask = cast(condition, bool_)
    a, b = operand(input, "where"), operand(other, "where")
    dtype = result_dtype(a, b)
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        a = constant((), a, dtype)
    return prim.where(mask, bring_exact(a, dtype), bring_exact(b, dtype))


def _where_method(self: Tensor, condition: Tensor, other: Operand) -> Tensor:
    """``self`` where ``condition`` holds, else ``other``."""
    return where(condition, self, other)


publish(_where_method, "Tensor.where")

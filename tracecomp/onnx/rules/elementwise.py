"""Elementwise operators, and conversions of types."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import onnx

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.special import converted
from tracecomp.ir.types import DType, bool_, float64, from_numpy_dtype, int64, uint32, uint64
from tracecomp.nn import functional as F
from tracecomp.onnx.registry import Call, Value, rule
from tracecomp.onnx.small_types import SMALL, dtype_of_small, to_float8, to_small


def _sign(x: Tensor) -> Tensor:
    """The sign of NaN is NaN; PyTorch's is 0."""
    return T.where(T.isnan(x), x, T.sign(x)) if x.is_floating_point() else T.sign(x)


_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "Abs": T.abs, "Acos": T.acos, "Acosh": T.acosh, "Asin": T.asin, "Asinh": T.asinh, "Atan": T.atan, "Atanh": T.atanh,
    "BitwiseNot": T.bitwise_not, "Ceil": T.ceil, "Cos": T.cos, "Cosh": T.cosh, "Erf": T.erf, "Exp": T.exp,
    "Floor": T.floor, "IsNaN": T.isnan, "Log": T.log, "Neg": T.neg, "Not": T.logical_not, "Reciprocal": T.reciprocal,
    "Relu": T.relu, "Round": T.round, "Sigmoid": T.sigmoid, "Sign": _sign, "Sin": T.sin, "Sinh": T.sinh,
    "Softplus": F.softplus, "Softsign": F.softsign, "Sqrt": T.sqrt, "Tan": T.tan, "Tanh": T.tanh, "Mish": F.mish,
    "HardSwish": F.hardswish,
}  # fmt: skip

_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Add": T.add, "Sub": T.sub, "Mul": T.mul, "And": T.logical_and, "Or": T.logical_or, "Xor": T.logical_xor,
    "BitwiseAnd": T.bitwise_and, "BitwiseOr": T.bitwise_or, "BitwiseXor": T.bitwise_xor,
    "Greater": T.gt, "GreaterOrEqual": T.ge, "Less": T.lt, "LessOrEqual": T.le,
}  # fmt: skip


def _unary(name: str) -> None:
    fn = _UNARY[name]

    @rule(name)
    def run(call: Call, x: Tensor) -> Tensor:
        return fn(x)


def _binary(name: str) -> None:
    fn = _BINARY[name]

    @rule(name)
    def run(call: Call, a: Tensor, b: Tensor) -> Tensor:
        return fn(a, aligned(call, a, b))


for _name in _UNARY:
    _unary(_name)
for _name in _BINARY:
    _binary(_name)


def aligned(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """``b`` as operators before version 7 spread it: from dimension ``axis`` of ``a`` on."""
    axis = call.attr("axis")
    if axis is None or call.opset >= 7 or not call.attr("broadcast", 0):
        return b
    return b.reshape([*b.shape, *[1] * (a.dim() - axis % a.dim() - b.dim())])


@rule("Equal", raw=True)
def equal(call: Call, a: Value, b: Value) -> Value:
    """Equality, of text too."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.asarray(a == b, np.bool_)
    first, second = (v if isinstance(v, Tensor) else T.from_numpy(np.array(v)) for v in (a, b))
    return T.eq(first, aligned(call, first, second))


@rule("Div")
def div(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """Division; of integers: towards zero."""
    b = aligned(call, a, b)
    return T.div(a, b) if a.dtype.is_floating_point else T.div(a, b, rounding_mode="trunc")


@rule("Mod")
def mod(call: Call, a: Tensor, b: Tensor) -> Tensor:
    return T.fmod(a, b) if call.attr("fmod", 0) else T.remainder(a, b)


@rule("Pow")
def power(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """The result is of the base's type."""
    if b.dtype in (uint32, uint64) and a.dtype is not b.dtype:  # PyTorch has no powers of these
        b = b.to(float64 if a.is_floating_point() else int64)
    return T.pow(a, aligned(call, a, b)).to(a.dtype)


def _several(name: str, fn: Callable[[Tensor, Tensor], Tensor]) -> None:
    @rule(name)
    def run(call: Call, *xs: Tensor) -> Tensor:
        return reduce(fn, xs)


_several("Max", T.maximum)
_several("Min", T.minimum)
_several("Sum", T.add)


@rule("Mean")
def mean(call: Call, *xs: Tensor) -> Tensor:
    return reduce(T.add, xs) / len(xs)


@rule("Where")
def where(call: Call, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return T.where(condition, a, b)


@rule("Clip")
def clip(call: Call, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    low, high = call.attr("min", low), call.attr("max", high)
    x = x if low is None else T.maximum(x, T.as_tensor(low, dtype=x.dtype))
    return x if high is None else T.minimum(x, T.as_tensor(high, dtype=x.dtype))


@rule("BitShift")
def bit_shift(call: Call, a: Tensor, b: Tensor) -> Tensor:
    wide = a.to(dtype=T.tensor(0).dtype), b.to(dtype=T.tensor(0).dtype)
    shift = T.bitwise_left_shift if call.attr("direction") == "LEFT" else T.bitwise_right_shift
    return shift(*wide).to(a.dtype)


@rule("IsInf")
def is_inf(call: Call, x: Tensor) -> Tensor:
    found = T.isinf(x)
    if not call.attr("detect_negative", 1):
        found = found & (x > 0)
    return found if call.attr("detect_positive", 1) else found & (x < 0)


@rule("LeakyRelu")
def leaky_relu(call: Call, x: Tensor) -> Tensor:
    return F.leaky_relu(x, call.attr("alpha", 0.01))


@rule("Elu")
def elu(call: Call, x: Tensor) -> Tensor:
    return F.elu(x, call.attr("alpha", 1.0))


@rule("Celu")
def celu(call: Call, x: Tensor) -> Tensor:
    return F.celu(x, call.attr("alpha", 1.0))


@rule("Selu")
def selu(call: Call, x: Tensor) -> Tensor:
    alpha = float(call.attr("alpha", 1.67326319217681884765625))
    gamma = float(call.attr("gamma", 1.05070102214813232421875))
    if (np.float32(alpha), np.float32(gamma)) == (np.float32(1.6732632423543772), np.float32(1.0507009873554805)):
        return F.selu(x)
    return gamma * T.where(x > 0, x, alpha * T.expm1(x))


@rule("HardSigmoid")
def hard_sigmoid(call: Call, x: Tensor) -> Tensor:
    if np.float32(call.attr("alpha", 0.2)) == np.float32(1 / 6) and call.attr("beta", 0.5) == 0.5:
        return F.hardsigmoid(x)
    return T.clamp(call.attr("alpha", 0.2) * x + call.attr("beta", 0.5), 0, 1)


@rule("Gelu")
def gelu(call: Call, x: Tensor) -> Tensor:
    return F.gelu(x, approximate=call.attr("approximate", "none"))


@rule("PRelu")
def prelu(call: Call, x: Tensor, slope: Tensor) -> Tensor:
    if call.opset < 7 and slope.dim() == 1 and x.dim() > 1:
        slope = slope.reshape([-1] + [1] * (x.dim() - 2))
    return T.where(x < 0, x * slope, x)


@rule("ThresholdedRelu")
def thresholded_relu(call: Call, x: Tensor) -> Tensor:
    return T.where(x > call.attr("alpha", 1.0), x, T.zeros_like(x))


def dtype_of(call: Call, number: int) -> DType:
    """The dtype with ONNX's number. UnsupportedError for one that there is not."""
    if number in SMALL:
        return dtype_of_small(number)
    try:
        return from_numpy_dtype(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number)))
    except (KeyError, TypeError, ValueError):
        raise call.refuse(f"type {onnx.TensorProto.DataType.Name(number)}") from None


@rule("Cast", raw=True)
def cast(call: Call, x: Value) -> Value:
    return _cast(call, x, call.attr("to"))


@rule("CastLike", raw=True)
def cast_like(call: Call, x: Value, like: Value) -> Value:
    small = call.small_type(1)
    if small is not None:
        return _cast(call, x, small)
    if isinstance(like, np.ndarray):
        return _cast(call, x, onnx.helper.np_dtype_to_tensor_dtype(like.dtype))
    x = x if isinstance(x, Tensor) else T.from_numpy(np.array(x))
    return _cast(call, x, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(like.dtype.numpy)))


def _cast(call: Call, x: Value, number: Any) -> Value:
    """Names of types were strings before version 6. Text is known when a model is read, or not at all."""
    number = onnx.TensorProto.DataType.Value(number) if isinstance(number, str) else number
    if number in SMALL:
        return to_small(x if isinstance(x, Tensor) else T.from_numpy(np.array(x)), number)
    if isinstance(x, np.ndarray):
        wanted = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number))
        if x.dtype.kind in "OSU" or wanted.kind in "OSU":
            return _text(x, wanted)
        return converted(x, wanted)
    dtype = dtype_of(call, number)
    if dtype.name.startswith("float8"):
        return to_float8(x, dtype, bool(call.attr("saturate", 1)), call.attr("round_mode", "up"))
    return x.contiguous() if x.dtype is dtype else x.to(dtype)  # a copy is exported so; sums follow memory


def _text(x: np.ndarray[Any, Any], wanted: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if wanted.kind in "OSU":
        return np.array([f"{v:.9g}" if x.dtype.kind == "f" else str(v) for v in x.reshape(-1)], object).reshape(x.shape)
    return np.array([v.decode() if isinstance(v, bytes) else v for v in x.reshape(-1)]).reshape(x.shape).astype(wanted)


@rule("BitCast")
def bit_cast(call: Call, x: Tensor) -> Tensor:
    return x.view(dtype_of(call, call.attr("to")))


@rule("Identity", raw=True)
def identity(call: Call, x: Value) -> Value:
    return x


@rule("Dropout", static=(1, 2))
def dropout(call: Call, x: Tensor, ratio: Value = None, training: Value = None) -> Any:
    """Drops in training mode only: as the model says, or as the module does."""
    rate = float(call.attr("ratio", 0.5) if ratio is None else np.asarray(ratio).item())
    on = call.training or (training is not None and bool(np.asarray(training).item()))
    if not on or not rate:
        kept, found = T.ones(x.shape, dtype=bool_), x
    else:
        kept = T.rand(x.shape) >= rate
        found = T.where(kept, x / (1 - rate), T.zeros_like(x))
    if call.opset < 10:  # the mask had the operand's type
        kept = kept.to(x.dtype)
    return (found, kept) if call.results > 1 else found

"""Quantization: integers that represent floats."""

from __future__ import annotations

from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import uint8
from tracecomp.onnx.registry import Call, rule
from tracecomp.onnx.rules.elementwise import dtype_of
from tracecomp.onnx.rules.window import conv_integer
from tracecomp.onnx.small_types import FLOAT4, bounds, to_float8, to_small


def _spread(call: Call, v: Tensor, x: Tensor) -> Tensor:
    """``v`` reshaped to broadcast with ``x``: one for all, one for each index along ``axis``, or one for each block
    there."""
    if v.dim() == 0 or (v.numel() == 1 and not call.attr("block_size", 0)):
        return v.reshape([])
    axis = call.attr("axis", 1) % x.dim()
    if v.dim() == 1 and x.dim() > 1:
        return v.reshape([-1 if n == axis else 1 for n in range(x.dim())])
    size = call.attr("block_size", 0) or -(-x.shape[axis] // v.shape[axis])
    return v.repeat_interleave(size, axis).narrow(axis, 0, x.shape[axis])


@rule("QuantizeLinear")
def quantize(call: Call, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """Round half to even; values beyond the integers' range are clamped."""
    number = call.attr("output_dtype") or call.small_type(2)
    dtype = dtype_of(call, number) if number else (uint8 if zero is None else zero.dtype)
    if dtype.name.startswith("float8"):
        return to_float8(x.to(scale.dtype) / _spread(call, scale, x), dtype, bool(call.attr("saturate", 1)), "up")
    if number == FLOAT4:
        return to_small(x.to(scale.dtype) / _spread(call, scale, x), FLOAT4)
    found = T.round(x.to(scale.dtype) / _spread(call, scale, x)).double()
    if zero is not None:
        found = found + _spread(call, zero, x).double()
    low, high = bounds(number or 0) or (T.iinfo(dtype).min, T.iinfo(dtype).max)
    return T.clamp(found, low, high).to(dtype)


@rule("DequantizeLinear")
def dequantize(call: Call, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    wide = x.to(T.tensor(0).int().dtype) if not x.dtype.is_floating_point else x
    if zero is not None:
        wide = wide - _spread(call, zero, x).to(wide.dtype)
    found = wide.to(scale.dtype) * _spread(call, scale, x)
    return found.to(dtype_of(call, call.attr("output_dtype"))) if call.attr("output_dtype") else found


@rule("DynamicQuantizeLinear")
def dynamic_quantize(call: Call, x: Tensor) -> Any:
    low, high = T.clamp(T.amin(x, [*range(x.dim())]), max=0), T.clamp(T.amax(x, [*range(x.dim())]), min=0)
    scale = T.where(high == low, 1.0, (high - low) / 255)  # of zeros alone: as onnxruntime has it
    zero = T.clamp(T.round(-low / scale), 0, 255)
    return T.clamp(T.round(x / scale) + zero, 0, 255).to(uint8), scale, zero.to(uint8)


@rule("QLinearConv")
def qlinear_conv(
    call: Call, x: Tensor, x_scale: Tensor, x_zero: Tensor, w: Tensor, w_scale: Tensor, w_zero: Tensor, y_scale: Tensor,
    y_zero: Tensor, b: Tensor | None = None,
) -> Tensor:  # fmt: skip
    total = conv_integer(call, x, w, x_zero, w_zero)
    rank = x.dim() - 2
    if b is not None:
        total = total + b.reshape([-1] + [1] * rank)
    scale = x_scale.double() * w_scale.double().reshape([-1] + [1] * rank) / y_scale.double()
    info = T.iinfo(y_zero.dtype)
    return T.clamp(T.round(total.double() * scale) + y_zero.double(), info.min, info.max).to(y_zero.dtype)

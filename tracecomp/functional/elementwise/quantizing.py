"""Rounding to a quantized type's values and back, for training with the rounding of inference."""

from __future__ import annotations

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.dims import wrap_dim
from tracecomp.functional.publish import function


def _fake_quantized(
    x: Tensor, scale: float | Tensor, zero_point: int | Tensor, low: int, high: int, name: str
) -> Tensor:
    if not x.is_floating_point():
        raise RuntimeError(f"{name}: expected a floating point tensor, got {x.dtype} of shape {tuple(x.shape)}")
    if low > high:
        raise RuntimeError(f"{name}: `quant_min` ({low}) should be less than or equal to `quant_max` ({high})")
    inverse = scale.reciprocal() if isinstance(scale, Tensor) else 1.0 / scale
    steps = T.round(x.detach() * inverse) + zero_point
    inside = (steps >= low) & (steps <= high)
    rounded = (steps.clamp(low, high) - zero_point) * scale
    passing = T.where(inside, x, x.detach())
    return rounded + (passing - passing.detach())  # a value of exactly zero, with the gradient of x inside


@function(to="torch")
def fake_quantize_per_tensor_affine(
    input: Tensor, scale: float | Tensor, zero_point: int | Tensor, quant_min: int, quant_max: int
) -> Tensor:  # fmt: skip
    """``input`` in steps of ``scale`` from ``quant_min`` to ``quant_max`` around ``zero_point``.

    Gradients pass where nothing is clamped. RuntimeError for integers and when ``quant_min > quant_max``.
    """
    return _fake_quantized(input, scale, zero_point, quant_min, quant_max, "fake_quantize_per_tensor_affine")


@function(to="torch")
def fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:  # fmt: skip
    """:func:`fake_quantize_per_tensor_affine` with a scale and a zero point for every index of ``axis``."""
    axis = wrap_dim(axis, input.ndim)
    if tuple(scale.shape) != (input.shape[axis],) or tuple(zero_point.shape) != (input.shape[axis],):
        raise RuntimeError(
            f"fake_quantize_per_channel_affine: dimensions of scale {tuple(scale.shape)} and zero-point "
            f"{tuple(zero_point.shape)} should match the {input.shape[axis]} channels of input {tuple(input.shape)}"
        )
    shape = [-1 if d == axis else 1 for d in range(input.ndim)]
    zero = zero_point.to(input.dtype).reshape(shape)
    return _fake_quantized(input, scale.reshape(shape), zero, quant_min, quant_max, "fake_quantize_per_channel_affine")

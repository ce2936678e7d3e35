"""Normalisation layers as functions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tracecomp.eager.modes import no_grad, scope
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.dtype_support import COMPLEX, FLOATS, NUMBERS
from tracecomp.functional.promotion import is_half, not_implemented, rounded, wide
from tracecomp.functional.publish import function
from tracecomp.ir.types import float32, type_word
from tracecomp.nn.functional.padding import constant_pad
from tracecomp.nn.functional.pooling import avg_pool


def _standardize(input: Tensor, dims: Sequence[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """``(x - mean) / sqrt(var + eps)`` over ``dims``, with the mean and the biased variance (dims kept)."""
    mean = input.mean(dims, keepdim=True)
    centred = input - mean
    var = (centred * centred).mean(dims, keepdim=True)
    return centred * (var + eps).rsqrt(), mean, var


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None, shape: Sequence[int]) -> Tensor:
    if weight is not None:
        x = x * weight.reshape(*shape)
    return x if bias is None else x + bias.reshape(*shape)


def _check_dtypes(name: str, input: Tensor, *parameters: Tensor | None) -> None:
    """RuntimeError unless all parameters have the input's dtype, or float32 for an input of half precision."""
    kinds = {p.dtype for p in parameters if p is not None}
    if kinds - {input.dtype} and (not is_half(input) or kinds != {float32}):
        words = ", ".join(sorted(type_word(kind) for kind in kinds))
        raise RuntimeError(
            f"{name}(): mixed dtype (CPU): parameters and statistics must have the dtype of the input, "
            f"{type_word(input.dtype)}, or Float if that is half precision; they have {words}. Convert them first"
        )


def _update(running: Tensor | None, value: Tensor, momentum: float | Tensor) -> None:
    if running is not None:
        with no_grad():
            running.copy_(running * (1 - momentum) + value.detach().to(running.dtype) * momentum)


@function(to="nn.functional", takes=FLOATS)
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel (axis 1) by batch statistics, which update the running ones, or by the running ones.

    Ioffe and Szegedy 2015. ValueError in training when a channel has one value only.
    """
    if not input.dtype.differentiable:
        raise not_implemented("batch_norm", input.dtype)
    if input.ndim == 1 and input.numel() == 0:
        return input.clone()
    if input.ndim < 2:
        raise RuntimeError(f"batch_norm: expected at least a 2D input, got shape {list(input.shape)}")
    channels = input.shape[1]
    for name, value in (
        ("weight", weight),
        ("bias", bias),
        ("running_mean", running_mean),
        ("running_var", running_var),
    ):
        if value is not None and value.numel() != channels:
            raise RuntimeError(f"{name} should contain {channels} elements not {value.numel()}")
    _check_dtypes("batch_norm", input, running_mean, running_var, weight, bias)
    shape = (1, channels, *[1] * (input.ndim - 2))
    with scope("batch_norm"):
        if not training:
            if running_mean is None or running_var is None:
                raise RuntimeError("Expected running_mean and running_var to be defined when training=False")
            x = wide(input)
            scale = (running_var.to(x.dtype) + eps).rsqrt()
            x = (x - running_mean.to(x.dtype).reshape(*shape)) * scale.reshape(*shape)
            return rounded(_affine(x, weight, bias, shape), input)
        count = input.numel() // max(channels, 1)
        if count == 1:
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {_size(input)}")
        x, mean, var = _standardize(wide(input), [0, *range(2, input.ndim)], eps)
        if count:  # an empty batch has no statistics
            _update(running_mean, mean.reshape(-1), momentum)
            _update(running_var, var.reshape(-1) * (count / max(count - 1, 1)), momentum)
        return rounded(_affine(x, weight, bias, shape), input)


def _size(input: Tensor) -> str:
    return f"torch.Size({list(input.shape)})"


@function(to="nn.functional")
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel of each sample over the spatial axes (Ulyanov et al. 2016)."""
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    _check_dtypes("instance_norm", input, running_mean, running_var, weight, bias)
    spatial = input.shape[2:]
    if math.prod(spatial) == 1:
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {_size(input)}")
    shape = (1, input.shape[1], *[1] * len(spatial))
    with scope("instance_norm"):
        x, mean, var = _standardize(wide(input), list(range(2, input.ndim)), eps)
        count = math.prod(spatial)
        _update(running_mean, mean.mean(0).reshape(-1), momentum)
        _update(running_var, var.mean(0).reshape(-1) * (count / max(count - 1, 1)), momentum)
        return rounded(_affine(x, weight, bias, shape), input).contiguous()


@function(to="nn.functional torch")
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise over the last axes, whose sizes are ``normalized_shape`` (Ba et al. 2016). RuntimeError otherwise."""
    shape = _trailing("layer_norm", input, normalized_shape, weight, bias)
    _check_dtypes("layer_norm", input, weight, bias)
    with scope("layer_norm"):
        dims = tuple(range(input.ndim - len(shape), input.ndim))
        x, _, _ = _standardize(wide(input.contiguous()), dims, eps)
        return rounded(_affine(x, weight, bias, shape), input)


@function(to="nn.functional torch", takes=FLOATS + COMPLEX)
def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """``x / sqrt(mean(x^2) + eps)`` over the last axes (Zhang and Sennrich 2019)."""
    shape = _trailing("rms_norm", input, normalized_shape, weight, None)
    with scope("rms_norm"):
        dims = tuple(range(input.ndim - len(shape), input.ndim))
        x = wide(input.contiguous())
        eps = T.finfo(x.dtype).eps if eps is None else eps
        x = x * ((x * x).mean(dims, keepdim=True) + eps).rsqrt()
        return rounded(_affine(x, weight, None, shape), input)


def _trailing(
    name: str, input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None
) -> tuple[int, ...]:
    if not isinstance(normalized_shape, Sequence):
        raise TypeError(
            f"{name}(): argument 'normalized_shape' (position 2) must be tuple of ints, not "
            f"{type(normalized_shape).__name__}"
        )
    shape = tuple(normalized_shape)
    if not shape:
        raise RuntimeError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got "
            "normalized_shape = []"
        )
    for word, value in (("weight", weight), ("bias", bias)):
        if value is not None and tuple(value.shape) != shape:
            raise RuntimeError(
                f"Expected {word} to be of same shape as normalized_shape, but got {word} of shape "
                f"{list(value.shape)} and normalized_shape = {list(shape)}"
            )
    if tuple(input.shape[max(input.ndim - len(shape), 0) :]) != shape:
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape [*, {', '.join(map(str, shape))}], "
            f"but got input of size{list(input.shape)} ({name})"
        )
    return shape


@function(to="nn.functional torch")
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Normalise each of ``num_groups`` groups of channels of each sample (Wu and He 2018)."""
    if input.ndim < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {input.ndim}")
    n, channels = input.shape[:2]
    if num_groups <= 0 or channels % num_groups:
        raise RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, "
            f"but got input of shape {list(input.shape)} and num_groups={num_groups}"
        )
    for word, value in (("weight", weight), ("bias", bias)):
        if value is not None and tuple(value.shape) != (channels,):
            raise RuntimeError(
                f"Expected {word} to be a vector of size equal to the number of channels in input, but got {word} of "
                f"shape {list(value.shape)} and input of shape {list(input.shape)}"
            )
    _check_dtypes("group_norm", input, weight, bias)
    with scope("group_norm"):
        members = channels // num_groups
        grouped = input.reshape(n, num_groups, members, math.prod(input.shape[2:]))
        x, _, _ = _standardize(wide(grouped), [2, 3], eps)
        # Scaled last, so that the result is a new tensor, as in PyTorch, and not a view.
        return rounded(_affine(x.reshape(*input.shape), weight, bias, (1, channels, *[1] * (input.ndim - 2))), input)


@function(to="nn.functional", takes=NUMBERS)
def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """``x / (k + alpha * mean of x^2 over size neighbouring channels) ** beta`` (Krizhevsky et al. 2012)."""
    if input.ndim < 3:
        raise ValueError(f"Expected 3D or higher dimensionality input (got {input.ndim} dimensions)")
    if input.numel() == 0:
        return input
    n, channels = input.shape[:2]
    squares = (input * input).reshape(n, 1, channels, -1)
    padded = constant_pad(squares, [0, 0, size // 2, (size - 1) // 2])
    mean = avg_pool(2, padded, (size, 1), (1, 1), 0, False, True, None)
    return input / (mean.reshape(*input.shape) * alpha + k).pow(beta)

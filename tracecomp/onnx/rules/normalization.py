"""Normalization."""

from __future__ import annotations

from typing import Any

from tracecomp.eager.modes import no_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.nn import functional as F
from tracecomp.onnx.registry import Call, rule


def _channels(v: Tensor, x: Tensor) -> Tensor:
    """``v``, one for each channel, reshaped to broadcast with ``x``."""
    return v.reshape([1, -1, *[1] * (x.dim() - 2)])


@rule("BatchNormalization")
def batch_norm(call: Call, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> Any:
    """In training mode the running values are results; a module in training keeps them itself."""
    epsilon, momentum = call.attr("epsilon", 1e-5), call.attr("momentum", 0.9)
    stated = bool(call.attr("training_mode", 0))
    if call.opset < 9 and not call.attr("spatial", 1):  # every element of an image is a separate channel
        flat = [v.reshape(-1) for v in (scale, bias, mean, var)]
        return F.batch_norm(x.flatten(1), flat[2], flat[3], flat[0], flat[1], False, 0.0, epsilon).reshape(x.shape)
    training = stated or call.training or (call.opset < 7 and not call.attr("is_test", 0) and call.results > 1)
    if not training:
        return F.batch_norm(x, mean, var, scale, bias, False, 0.0, epsilon)
    axes = [n for n in range(x.dim()) if n != 1]
    seen = T.mean(x, axes)
    spread = T.mean(T.square(x - _channels(seen, x)), axes)
    found = (x - _channels(seen, x)) / T.sqrt(_channels(spread, x) + epsilon) * _channels(scale, x) + _channels(bias, x)
    running = mean * momentum + seen * (1 - momentum), var * momentum + spread * (1 - momentum)
    if not stated:
        with no_grad():
            mean.copy_(running[0])
            var.copy_(running[1])
    return (found, *running)[: call.results]


@rule("InstanceNormalization")
def instance_norm(call: Call, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    if x.shape[2:].numel() == 1:
        return (x - x) * _channels(scale, x) + _channels(bias, x)
    return F.instance_norm(x, None, None, scale, bias, True, 0.1, call.attr("epsilon", 1e-5))


@rule("LayerNormalization")
def layer_norm(call: Call, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Any:
    axes = [*range(call.attr("axis", -1) % x.dim(), x.dim())]
    if call.results == 1 and scale.shape == x.shape[axes[0] :] and (bias is None or bias.shape == scale.shape):
        return F.layer_norm(x, scale.shape, scale, bias, call.attr("epsilon", 1e-5))
    wide = x.float() if x.dtype.itemsize < 4 else x
    mean = T.mean(wide, axes, True)
    inverse = 1 / T.sqrt(T.mean(T.square(wide - mean), axes, True) + call.attr("epsilon", 1e-5))
    found = ((wide - mean) * inverse).to(x.dtype) * scale
    return (found if bias is None else found + bias, mean, inverse)[: call.results]


@rule("RMSNormalization")
def rms_norm(call: Call, x: Tensor, scale: Tensor) -> Tensor:
    axes = [*range(call.attr("axis", -1) % x.dim(), x.dim())]
    if scale.shape == x.shape[axes[0] :]:
        return F.rms_norm(x, scale.shape, scale, call.attr("epsilon", 1e-5))
    wide = x.float() if x.dtype.itemsize < 4 else x
    return (wide / T.sqrt(T.mean(T.square(wide), axes, True) + call.attr("epsilon", 1e-5))).to(x.dtype) * scale


@rule("GroupNormalization")
def group_norm(call: Call, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Scale and bias are one for each channel; before version 21, for each group."""
    groups = call.attr("num_groups")
    if scale.shape[0] == groups != x.shape[1]:
        scale, bias = (v.repeat_interleave(x.shape[1] // groups) for v in (scale, bias))
    return F.group_norm(x, groups, scale, bias, call.attr("epsilon", 1e-5))


@rule("LRN")
def local_response_norm(call: Call, x: Tensor) -> Tensor:
    size = call.attr("size")
    before = (size - 1) // 2
    squares = F.pad(T.square(x), [0, 0] * (x.dim() - 2) + [before, size - 1 - before])
    total = squares.narrow(1, 0, x.shape[1])
    for k in range(1, size):
        total = total + squares.narrow(1, k, x.shape[1])
    alpha, beta, bias = (float(call.attr(n, d)) for n, d in (("alpha", 0.0001), ("beta", 0.75), ("bias", 1.0)))
    found: Tensor = x / (bias + alpha / size * total) ** beta
    return found


@rule("LpNormalization")
def lp_normalization(call: Call, x: Tensor) -> Tensor:
    norm = T.norm(x, call.attr("p", 2), call.attr("axis", -1), True)
    return T.where(norm == 0, T.zeros_like(x), x / norm)


@rule("MeanVarianceNormalization")
def mean_variance_norm(call: Call, x: Tensor) -> Tensor:
    axes = call.attr("axes", [0, 2, 3])
    centred = x - T.mean(x, axes, True)
    return centred / (T.sqrt(T.mean(T.square(x), axes, True) - T.square(T.mean(x, axes, True))) + 1e-9)

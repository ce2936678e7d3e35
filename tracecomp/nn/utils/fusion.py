"""Folding batch normalisation into the layer before it, for inference."""

from __future__ import annotations

import copy
from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.nn.module import Module
from tracecomp.nn.parameter import Parameter

Maybe = Tensor | None


def _scale(running_var: Tensor, eps: float, weight: Maybe) -> Tensor:
    factor = (running_var + eps).rsqrt()
    return factor if weight is None else factor * weight


def _fuse(
    weight: Tensor, bias: Maybe, mean: Tensor, var: Tensor, eps: float, bn_weight: Maybe, bn_bias: Maybe,
    channel_axis: int,
) -> tuple[Parameter, Parameter]:  # fmt: skip
    scale = _scale(var, eps, bn_weight)
    start = T.zeros_like(mean) if bias is None else bias
    shift = (start - mean) * scale
    view = [1] * weight.ndim
    view[channel_axis] = -1
    fused = weight * scale.reshape(*view)
    moved = shift if bn_bias is None else shift + bn_bias
    return (
        Parameter(fused.detach().to(weight.dtype), weight.requires_grad),
        Parameter(moved.detach().to(weight.dtype), weight.requires_grad if bias is None else bias.requires_grad),
    )


def fuse_conv_bn_weights(
    conv_w: Tensor, conv_b: Maybe, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Maybe, bn_b: Maybe,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:  # fmt: skip
    """Weight and bias of a convolution that is equivalent to the convolution and the batch norm."""
    return _fuse(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 1 if transpose else 0)


def fuse_linear_bn_weights(
    linear_w: Tensor, linear_b: Maybe, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor, bn_b: Tensor
) -> tuple[Parameter, Parameter]:
    """Weight and bias of a linear layer that is equivalent to the layer and the batch norm."""
    return _fuse(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 0)


def _fused_module(layer: Any, bn: Any, axis: int) -> Any:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    fused = copy.deepcopy(layer)
    fused.weight, fused.bias = _fuse(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, axis
    )
    return fused


def fuse_conv_bn_eval(conv: Module, bn: Module, transpose: bool = False) -> Module:
    """The convolution with the batch norm folded in. AssertionError unless both are in evaluation mode."""
    return _fused_module(conv, bn, 1 if transpose else 0)


def fuse_linear_bn_eval(linear: Module, bn: Module) -> Module:
    """The linear layer with the batch norm folded in. AssertionError unless both are in evaluation mode."""
    return _fused_module(linear, bn, 0)

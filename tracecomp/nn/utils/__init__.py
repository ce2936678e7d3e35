"""Helpers for modules and parameters under the names of torch.nn.utils."""

from tracecomp.nn.utils import parametrizations, parametrize, rnn
from tracecomp.nn.utils.clip_grad import (
    clip_grad_norm,
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from tracecomp.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters
from tracecomp.nn.utils.fusion import (
    fuse_conv_bn_eval,
    fuse_conv_bn_weights,
    fuse_linear_bn_eval,
    fuse_linear_bn_weights,
)
from tracecomp.nn.utils.init import skip_init
from tracecomp.nn.utils.weight_norm import remove_spectral_norm, remove_weight_norm, spectral_norm, weight_norm

__all__ = [
    "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "fuse_conv_bn_eval",
    "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights", "get_total_norm",
    "parameters_to_vector", "parametrizations", "parametrize", "remove_spectral_norm", "remove_weight_norm", "rnn",
    "skip_init", "spectral_norm", "vector_to_parameters", "weight_norm",
]  # fmt: skip

"""tracecomp: a tensor library with PyTorch's names, whose programs are captured whole and run as native code."""

from __future__ import annotations

import sys
from math import e, inf, nan, pi
from typing import Any

import tracecomp.ops
from tracecomp import autograd, functional
from tracecomp.base.lazy_names import later as _later
from tracecomp.eager.device import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    device,
    layout,
    memory_format,
    preserve_format,
    sparse_coo,
    strided,
)
from tracecomp.eager.modes import (
    enable_grad,
    inference_mode,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from tracecomp.eager.modes import grad_enabled as is_grad_enabled
from tracecomp.eager.rng import (
    Generator,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)
from tracecomp.eager.size import Size
from tracecomp.eager.tensor import Tensor
from tracecomp.interop import einops as _einops
from tracecomp.ir.types import DType as dtype
from tracecomp.ir.types import (
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
)
from tracecomp.ir.types import bool_ as bool
from tracecomp.runtime.malloc import keep_freed

# Pickles made by version 0.1.0 name these modules, which stand in ``eager`` now.
for _old in ("device", "size", "tensor"):
    sys.modules[f"{__name__}.{_old}"] = sys.modules[f"{__name__}.eager.{_old}"]

globals().update(functional.PUBLIC)
keep_freed()

# Loaded when first used, so that importing the package and running eagerly stays cheap.
_LATER = {
    "compiled": "compiled", "Compiled": "compiled", "compile": "compiled", "compare": "inspect", "explain": "inspect",
    "save": "serialization", "load": "serialization",
    "config": "base.config", "random": "random", "nn": "nn", "optim": "optim", "utils": "utils",
    "special": "special", "linalg": "linalg", "fft": "fft",
    "signal": "signal", "masked": "masked", "cuda": "cuda", "backends": "backends",
    "accelerator": "accelerator", "jit": "jit", "fx": "fx", "serialization": "serialization",
    "version": "version", "testing": "testing", "profiler": "profiler",
    "get_num_threads": "runtime.threads", "set_num_threads": "runtime.threads",
    "distributions": "distributions", "func": "func", "vmap": "func",
    "cond": "func.control", "while_loop": "func.control", "scan": "func.control", "amp": "amp", "autocast": "amp",
    "get_autocast_dtype": "amp", "is_autocast_enabled": "amp",
}  # fmt: skip
_LATER |= dict.fromkeys(
    (
        "adaptive_avg_pool1d", "adaptive_max_pool1d", "alpha_dropout", "avg_pool1d", "bilinear",
        "binary_cross_entropy_with_logits", "celu", "celu_", "channel_shuffle", "conv1d", "conv2d", "conv3d",
        "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_embedding_loss", "cosine_similarity",
        "ctc_loss", "dropout", "feature_alpha_dropout", "group_norm", "hardshrink", "hinge_embedding_loss", "kl_div",
        "layer_norm", "margin_ranking_loss", "max_pool1d", "max_pool2d", "max_pool3d", "pairwise_distance", "pdist",
        "pixel_shuffle", "pixel_unshuffle", "poisson_nll_loss", "prelu", "rms_norm", "rrelu", "rrelu_", "selu",
        "selu_", "threshold", "threshold_", "triplet_margin_loss",
    ),
    "nn.functional",
)  # fmt: skip
_LATER |= dict.fromkeys(
    (
        "batch_norm", "constant_pad_nd", "embedding", "embedding_bag", "grid_sampler", "grid_sampler_2d",
        "grid_sampler_3d", "instance_norm",
    ),
    "nn.aten",
)  # fmt: skip


__getattr__ = _later(__name__, _LATER)


def _assert(condition: Any, message: str) -> None:
    """AssertionError with ``message`` unless ``condition`` holds."""
    assert condition, message


def trace(first: Any, *args: Any, **kwargs: Any) -> Any:
    """The trace of a matrix; of a function, the graph of ``first(*args, **kwargs)`` (see ``compiled.trace``)."""
    if isinstance(first, Tensor):
        return functional.PUBLIC["trace"](first)
    return __getattr__("compiled").trace(first, *args, **kwargs)


float, double, half = float32, float64, float16
cfloat, cdouble = complex64, complex128
short, int, long = int16, int32, int64
newaxis = None
__version__ = "0.1.0"

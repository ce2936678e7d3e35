"""Calls and their ONNX operators (``whole.py``): one function for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.dims import Sizes
from tracecomp.ir.types import float32, int64
from tracecomp.nn import functional as F
from tracecomp.nn.functional.conv import ntuple
from tracecomp.nn.rnn import layer
from tracecomp.onnx.whole import Spelling, Whole

_SLOPE, _SCALE = 1.6732632423543772, 1.0507009873554805
"""Those of SELU (Klambauer et al. 2017)."""


def _vector(like: Tensor, length: int, value: Tensor | None, other: float) -> Tensor:
    """``value``, or so many times ``other``."""
    return T.full((length,), other, dtype=like.dtype) if value is None else value


def _batch_norm(
    version: int, input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None,
    bias: Tensor | None, training: bool, momentum: object, eps: float,
) -> Whole | None:  # fmt: skip
    if training or running_mean is None or running_var is None or input.ndim < 2:
        return None
    scale, shift = (_vector(input, input.shape[1], v, other) for v, other in ((weight, 1.0), (bias, 0.0)))
    return Whole("BatchNormalization", (input, scale, shift, running_mean, running_var), {"epsilon": eps})


def _layer_norm(
    version: int, input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Whole | None:
    if version < 17:
        return None
    scale = T.ones(tuple(normalized_shape), dtype=input.dtype) if weight is None else weight
    return Whole("LayerNormalization", (input, scale, bias), {"axis": -len(normalized_shape), "epsilon": eps})


def _rms_norm(
    version: int, input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, eps: float | None
) -> Whole | None:
    if version < 23:
        return None
    scale = T.ones(tuple(normalized_shape), dtype=input.dtype) if weight is None else weight
    eps = T.finfo(float32).eps if eps is None else eps
    return Whole("RMSNormalization", (input, scale), {"axis": -len(normalized_shape), "epsilon": eps})


def _group_norm(
    version: int, input: Tensor, num_groups: int, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Whole | None:
    if version < 21 or input.ndim < 3:
        return None
    scale, shift = (_vector(input, input.shape[1], v, other) for v, other in ((weight, 1.0), (bias, 0.0)))
    return Whole("GroupNormalization", (input, scale, shift), {"num_groups": num_groups, "epsilon": eps})


def _instance_norm(
    version: int, input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None,
    bias: Tensor | None, use_input_stats: bool, momentum: float, eps: float,
) -> Whole | None:  # fmt: skip
    if running_mean is not None or not use_input_stats or input.ndim < 3 or math.prod(input.shape[2:]) == 1:
        return None
    scale, shift = (_vector(input, input.shape[1], v, other) for v, other in ((weight, 1.0), (bias, 0.0)))
    return Whole("InstanceNormalization", (input, scale, shift), {"epsilon": eps})


def _softmax(op: str, version: int, input: Tensor, dim: int, dtype: object) -> Whole | None:
    if not input.is_floating_point() or dtype is not None or not -input.ndim <= dim < input.ndim:
        return None
    if version < 13 and dim % input.ndim != input.ndim - 1:  # it took all later axes, too
        return None
    return Whole(op, (input,), {"axis": dim})


def _gelu(version: int, input: Tensor, approximate: str) -> Whole | None:
    if version < 20 or approximate not in ("none", "tanh"):
        return None
    return Whole("Gelu", (input,), {"approximate": approximate})


def _simple(op: str, since: int, attrs: dict[str, float], version: int, input: Tensor) -> Whole | None:
    return Whole(op, (input,), attrs) if version >= since else None


def _sloped(op: str, since: int, version: int, input: Tensor, **slope: float) -> Whole | None:
    (alpha,) = slope.values()
    return Whole(op, (input,), {"alpha": float(alpha)}) if version >= since else None


def _softplus(version: int, input: Tensor, beta: float, threshold: float) -> Whole | None:
    return Whole("Softplus", (input,)) if beta == 1 and threshold == 20 else None


def _clip(version: int, input: Tensor, min_val: float = 0.0, max_val: float = 6.0) -> Whole | None:
    if not input.is_floating_point():
        return None
    low, high = (T.full((), float(v), dtype=input.dtype) for v in (min_val, max_val))
    return Whole("Clip", (input, low, high))


def _prelu(version: int, input: Tensor, weight: Tensor) -> Whole | None:
    if input.ndim < 2 or weight.ndim != 1:
        return None
    return Whole("PRelu", (input, weight.reshape(-1, *[1] * (input.ndim - 2))))


def _windows(n: int, kernel: Sizes, stride: Sizes | None, padding: Sizes) -> dict[str, tuple[int, ...]]:
    """Attributes of a pool."""
    kernel = ntuple(kernel, n, "kernel_size")
    strides = kernel if stride is None or stride in ((), []) else ntuple(stride, n, "stride")
    return {"kernel_shape": kernel, "strides": strides, "pads": ntuple(padding, n, "padding") * 2}


def _max_pool(
    n: int, version: int, input: Tensor, kernel_size: Sizes, stride: Sizes | None, padding: Sizes, dilation: Sizes,
    ceil_mode: bool, return_indices: bool,
) -> Whole | None:  # fmt: skip
    if ceil_mode or return_indices or input.ndim != n + 2 or not input.is_floating_point():
        return None
    stated = _windows(n, kernel_size, stride, padding)
    return Whole("MaxPool", (input,), {**stated, "dilations": ntuple(dilation, n, "dilation")})


def _avg_pool(
    n: int, version: int, input: Tensor, kernel_size: Sizes, stride: Sizes | None, padding: Sizes, ceil_mode: bool,
    count_include_pad: bool, divisor_override: int | None = None,
) -> Whole | None:  # fmt: skip
    if ceil_mode or divisor_override is not None or input.ndim != n + 2:
        return None
    stated = _windows(n, kernel_size, stride, padding)
    return Whole("AveragePool", (input,), {**stated, "count_include_pad": int(count_include_pad)})


def _global_pool(
    op: str, n: int, version: int, input: Tensor, output_size: int | Sequence[int], return_indices: bool = False
) -> Whole | None:
    sizes = [output_size] if isinstance(output_size, int) else [*output_size]
    if any(s != 1 for s in sizes) or return_indices or input.ndim != n + 2:
        return None
    return Whole(op, (input,))


def _pads(n: int, padding: Sizes | str, dilation: Sizes, kernel: Sequence[int]) -> tuple[int, ...]:
    """Padding before and after, as a convolution has it."""
    if padding == "valid":
        return (0,) * 2 * n
    if not isinstance(padding, str):
        return ntuple(padding, n, "padding") * 2
    both = [d * (k - 1) for d, k in zip(ntuple(dilation, n, "dilation"), kernel, strict=True)]
    return (*[b // 2 for b in both], *[b - b // 2 for b in both])


def _conv(
    n: int, version: int, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Sizes, padding: Sizes | str,
    dilation: Sizes, groups: int,
) -> Whole | None:  # fmt: skip
    if input.ndim != n + 2 or not input.is_floating_point():
        return None
    kernel = tuple(weight.shape[2:])
    return Whole("Conv", (input, weight, bias), {
        "kernel_shape": kernel, "strides": ntuple(stride, n, "stride"), "pads": _pads(n, padding, dilation, kernel),
        "dilations": ntuple(dilation, n, "dilation"), "group": groups,
    })  # fmt: skip


def _conv_transpose(
    n: int, version: int, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Sizes, padding: Sizes,
    output_padding: Sizes, groups: int, dilation: Sizes,
) -> Whole | None:  # fmt: skip
    if input.ndim != n + 2 or not input.is_floating_point():
        return None
    return Whole("ConvTranspose", (input, weight, bias), {
        "kernel_shape": tuple(weight.shape[2:]), "strides": ntuple(stride, n, "stride"),
        "pads": ntuple(padding, n, "padding") * 2, "dilations": ntuple(dilation, n, "dilation"),
        "output_padding": ntuple(output_padding, n, "output_padding"), "group": groups,
    })  # fmt: skip


def _interpolate(
    version: int, input: Tensor, size: Sizes | None, scale_factor: float | Sequence[float] | None, mode: str,
    align_corners: bool | None, recompute_scale_factor: bool | None, antialias: bool,
) -> Whole | None:  # fmt: skip
    kinds = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}
    if version < 13 or antialias or mode not in kinds or (size is None) == (scale_factor is None):
        return None
    n = input.ndim - 2
    if scale_factor is None:
        assert size is not None
        new = ntuple(size, n, "size")
        factors = [a / b for a, b in zip(new, input.shape[2:], strict=True)]
    else:
        factors = [float(scale_factor)] * n if isinstance(scale_factor, int | float) else [*map(float, scale_factor)]
        new = tuple(math.floor(a * s) for a, s in zip(input.shape[2:], factors, strict=True))
        inferred = [math.floor(np.float32(a) * np.float32(s)) for a, s in zip(input.shape[2:], factors, strict=True)]
        if inferred != [*new]:  # ONNX infers sizes in float32
            return None
    if mode == "nearest" and any(s != int(s) for s in factors):  # which is nearer may hang on the last bit
        return None
    stated: dict[str, Any] = {"mode": kinds[mode], "coordinate_transformation_mode": "half_pixel"}
    if mode == "nearest":
        stated |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    elif align_corners:
        stated["coordinate_transformation_mode"] = "align_corners"
    if mode == "bicubic":
        stated["cubic_coeff_a"] = -0.75
    if scale_factor is None or align_corners or recompute_scale_factor:
        return Whole("Resize", (input, None, None, (*input.shape[:2], *new)), stated)
    return Whole("Resize", (input, None, T.tensor([1.0, 1.0, *factors], dtype=float32)), stated)


def _one_hot(version: int, tensor: Tensor, num_classes: int) -> Whole | None:
    if num_classes < 1:
        return None
    return Whole("OneHot", (tensor, T.full((1,), num_classes, dtype=int64), T.tensor([0, 1])), {"axis": -1})


def _grid_sample(
    version: int, input: Tensor, grid: Tensor, mode: str, padding_mode: str, align_corners: bool | None
) -> Whole | None:
    if version < (16 if input.ndim == 4 else 20) or input.dtype is not grid.dtype:
        return None
    if version >= 20:
        mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    stated = {"mode": mode, "padding_mode": padding_mode, "align_corners": int(bool(align_corners))}
    return Whole("GridSample", (input, grid), stated)


def _attention(
    version: int, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, dropout_p: float,
    is_causal: bool, scale: float | None, enable_gqa: bool,
) -> Whole | None:  # fmt: skip
    if version < 23 or dropout_p or any(x.ndim != 4 for x in (query, key, value)):
        return None
    if attn_mask is not None and (attn_mask.dtype is not query.dtype or attn_mask.ndim not in (2, 4)):
        return None  # a row of a boolean mask may leave nothing: zero here, NaN there
    if key.shape[1] != query.shape[1] and not enable_gqa:
        return None
    stated: dict[str, Any] = {"is_causal": int(is_causal)}
    if scale is not None:
        stated["scale"] = float(scale)
    return Whole("Attention", (query, key, value, attn_mask), stated)


def _linear(version: int, input: Tensor, weight: Tensor, bias: Tensor | None) -> Whole | None:
    if input.ndim != 2 or weight.ndim != 2 or not input.is_floating_point():
        return None
    return Whole("Gemm", (input, weight, bias), {"transB": 1})


def _pixel_shuffle(version: int, input: Tensor, upscale_factor: int) -> Whole | None:
    if input.ndim != 4 or not input.is_floating_point():
        return None
    return Whole("DepthToSpace", (input,), {"blocksize": upscale_factor, "mode": "CRD"})


def _recurrent(
    version: int, mode: str, x: Tensor, mask: Tensor | None, states: Sequence[Tensor] | None,
    weights: Sequence[Sequence[Tensor | None]], recurrent: Sequence[Sequence[Tensor | None]], names: Sequence[str],
) -> Whole | None:  # fmt: skip
    if mask is not None or x.dtype is not float32 or any(out is not None for _, _, out in recurrent):
        return None
    count = 2 if mode == "LSTM" else 1
    first = (None,) * count if states is None else (*states,)
    of_both = [w for k in range(len(names)) for w in (*weights[k], *recurrent[k][:2])]
    op = "RNN" if mode.startswith("RNN") else mode
    return Whole(op, (x, *first, *of_both), {"mode": mode, "states": count}, _layer)


def _layer(x: Tensor, *operands: Tensor | None, mode: str, states: int) -> Any:
    """A recurrent layer on the operands that ``_recurrent`` gives it."""
    first, weights = operands[:states], [operands[k : k + 4] for k in range(states, len(operands), 4)]
    given = None if first[0] is None else tuple(s for s in first if s is not None)
    return layer(
        mode, x, None, given, [w[:2] for w in weights], [(*w[2:], None) for w in weights],
        ["forwards", "backwards"][: len(weights)],
    )  # fmt: skip


@cache
def spellings() -> dict[Callable[..., object], Spelling]:
    """By the function that is called."""
    found: dict[Any, Any] = {
        F.batch_norm: _batch_norm, F.layer_norm: _layer_norm, F.rms_norm: _rms_norm, F.group_norm: _group_norm,
        F.instance_norm: _instance_norm, T.softmax: partial(_softmax, "Softmax"),
        T.log_softmax: partial(_softmax, "LogSoftmax"), F.gelu: _gelu, F.softplus: _softplus, F.prelu: _prelu,
        F.selu: partial(_simple, "Selu", 6, {"alpha": _SLOPE, "gamma": _SCALE}),
        F.mish: partial(_simple, "Mish", 18, {}), F.softsign: partial(_simple, "Softsign", 1, {}),
        F.hardsigmoid: partial(_simple, "HardSigmoid", 6, {"alpha": 1 / 6, "beta": 0.5}),
        F.hardswish: partial(_simple, "HardSwish", 14, {}), F.elu: partial(_sloped, "Elu", 6),
        F.celu: partial(_sloped, "Celu", 12), F.leaky_relu: partial(_sloped, "LeakyRelu", 6), F.relu6: _clip,
        F.hardtanh: _clip, F.interpolate: _interpolate, F.one_hot: _one_hot, F.grid_sample: _grid_sample,
        F.scaled_dot_product_attention: _attention, F.linear: _linear, F.pixel_shuffle: _pixel_shuffle,
        layer: _recurrent,
    }  # fmt: skip
    for n in (1, 2, 3):
        found |= {
            getattr(F, f"conv{n}d"): partial(_conv, n), getattr(F, f"conv_transpose{n}d"): partial(_conv_transpose, n),
            getattr(F, f"max_pool{n}d"): partial(_max_pool, n), getattr(F, f"avg_pool{n}d"): partial(_avg_pool, n),
            getattr(F, f"adaptive_avg_pool{n}d"): partial(_global_pool, "GlobalAveragePool", n),
            getattr(F, f"adaptive_max_pool{n}d"): partial(_global_pool, "GlobalMaxPool", n),
        }  # fmt: skip
    return found

"""Functions of the torch namespace that take the arguments of their ``nn.functional`` form in another order."""

from __future__ import annotations

from collections.abc import Sequence

from tracecomp.eager.tensor import Tensor
from tracecomp.functional.dtype_support import FLOATS
from tracecomp.functional.publish import function
from tracecomp.nn import functional as F

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")
_BAGS = ("sum", "mean", "max")


@function(to="torch")
def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    """Rows of ``weight``; ``padding_idx`` (none if negative) gets no gradient."""
    return F.embedding(indices, weight, padding_idx if padding_idx >= 0 else None)


@function(to="torch")
def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
) -> Tensor:
    """Sums (mode 0), means (1) or maxima (2) of bags of rows."""
    return F.embedding_bag(
        indices, weight, offsets, mode=_BAGS[mode], per_sample_weights=per_sample_weights,
        include_last_offset=include_last_offset,
    )  # fmt: skip


@function(to="torch", takes=FLOATS)
def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = False,
) -> Tensor:
    """:func:`nn.functional.batch_norm`."""
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


@function(to="torch")
def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = False,
) -> Tensor:
    """:func:`nn.functional.instance_norm`."""
    return F.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


@function("grid_sampler_2d", "grid_sampler_3d", to="torch", takes=FLOATS)
def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """:func:`nn.functional.grid_sample` with numbered modes."""
    return F.grid_sample(input, grid, _MODES[interpolation_mode], _PADDINGS[padding_mode], align_corners)


@function(to="torch")
def constant_pad_nd(input: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    """:func:`nn.functional.pad` with a constant."""
    return F.pad(input, tuple(pad), "constant", value)

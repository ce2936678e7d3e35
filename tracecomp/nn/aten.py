"""Functions of the torch namespace that take the arguments of their ``nn.functional`` form in another order."""

from __future__ import annotations

from collections.abc import Sequence

from tracecomp.eager.tensor import Tensor
from tracecomp.functional.dtype_support import ALL, FLOATS
from tracecomp.functional.publish import function
from tracecomp.nn import functional as F
from tracecomp.nn.functional.padding import constant_pad

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
    """Sums (mode 0), means (1) or maxima (2) of bags of rows; without PyTorch's bookkeeping results."""
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


@function(to="torch", takes=ALL)
def constant_pad_nd(input: Tensor, pad: Sequence[int], value: complex = 0) -> Tensor:
    """:func:`nn.functional.pad` with a constant."""
    return constant_pad(input, tuple(pad), value)


# The torch namespace numbers reductions, and does not reduce by default.
_REDUCTIONS = ("none", "mean", "sum")


@function(to="torch", takes=FLOATS)
def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None, reduction: int = 0
) -> Tensor:
    """:func:`nn.functional.binary_cross_entropy_with_logits` with a numbered reduction."""
    return F.binary_cross_entropy_with_logits(
        input, target, weight, reduction=_REDUCTIONS[reduction], pos_weight=pos_weight
    )


@function(to="torch", takes=FLOATS)
def kl_div(input: Tensor, target: Tensor, reduction: int = 0, *, log_target: bool = False) -> Tensor:
    """:func:`nn.functional.kl_div` with a numbered reduction."""
    return F.kl_div(input, target, reduction=_REDUCTIONS[reduction], log_target=log_target)


@function(to="torch")
def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int) -> Tensor:
    """:func:`nn.functional.poisson_nll_loss` with a numbered reduction."""
    return F.poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=_REDUCTIONS[reduction])


@function(to="torch")
def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 0) -> Tensor:
    """:func:`nn.functional.hinge_embedding_loss` with a numbered reduction."""
    return F.hinge_embedding_loss(input, target, margin, reduction=_REDUCTIONS[reduction])


@function(to="torch")
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    """:func:`nn.functional.margin_ranking_loss` with a numbered reduction."""
    return F.margin_ranking_loss(input1, input2, target, margin, reduction=_REDUCTIONS[reduction])


@function(to="torch")
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    """:func:`nn.functional.cosine_embedding_loss` with a numbered reduction."""
    return F.cosine_embedding_loss(input1, input2, target, margin, reduction=_REDUCTIONS[reduction])


@function(to="torch")
def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6,
    swap: bool = False, reduction: int = 0,
) -> Tensor:  # fmt: skip
    """:func:`nn.functional.triplet_margin_loss` with a numbered reduction."""
    return F.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=_REDUCTIONS[reduction])


@function(to="torch", takes=FLOATS)
def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor | Sequence[int], target_lengths: Tensor | Sequence[int],
    blank: int = 0, reduction: int = 0, zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """:func:`nn.functional.ctc_loss` with a numbered reduction."""
    return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, _REDUCTIONS[reduction], zero_infinity)


@function(to="torch", takes=FLOATS)
def adaptive_max_pool1d(input: Tensor, output_size: int | Sequence[int]) -> tuple[Tensor, Tensor]:
    """(values, indices) of :func:`nn.functional.adaptive_max_pool1d`."""
    return F.adaptive_max_pool1d(input, output_size, return_indices=True)

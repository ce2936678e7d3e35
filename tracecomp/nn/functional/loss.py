"""Losses of regression and of binary targets; the ``reduction`` argument of all."""

from __future__ import annotations

import math
from collections.abc import Callable

from tracecomp.base.user_warnings import warn_as_pytorch
from tracecomp.eager.modes import scope
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.dtype_support import ALL, FLOATS
from tracecomp.functional.elementwise.pointwise import magnitude
from tracecomp.functional.promotion import can_cast, cast, common, rounded, wide
from tracecomp.functional.publish import function
from tracecomp.functional.value_checks import is_fraction, required
from tracecomp.ir.types import type_word
from tracecomp.nn.functional.activation import logsigmoid
from tracecomp.nn.functional.linear import pairwise_distance


def check_reduction(reduction: str) -> None:
    """ValueError if ``reduction`` is not 'none', 'mean' or 'sum'."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")


def reduce(loss: Tensor, reduction: str) -> Tensor:
    """Mean, sum or all of ``loss``. ValueError for another reduction."""
    if reduction == "mean":
        return loss.mean()
    check_reduction(reduction)
    return loss.sum() if reduction == "sum" else loss


_reduced = reduce  # for functions with an argument named reduce


def legacy_reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """Return the reduction that the two older arguments select, or ``reduction``."""
    if size_average is None and reduce is None:
        return reduction
    chosen = "none" if reduce is False else "sum" if size_average is False else "mean"
    warn_as_pytorch(f"size_average and reduce args will be deprecated, please use reduction='{chosen}' instead.")
    return chosen


def _same_size(name: str, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    if input.shape != target.shape:
        warn_as_pytorch(
            f"Using a target size ({_size(target)}) that is different to the input size ({_size(input)}) in {name}. "
            f"This "
            "will likely lead to incorrect results due to broadcasting. Please ensure they have the same size.",
        )
        input, target = T.broadcast_tensors(input, target)
    return input, target


def _size(x: Tensor) -> str:
    return f"torch.Size({list(x.shape)})"


def _weighted(loss: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    if weight is None:
        return reduce(loss, reduction)
    loss = loss * weight
    return loss.sum() / weight.expand(*loss.shape).sum() if reduction == "mean" else reduce(loss, reduction)


@function(to="nn.functional", takes=FLOATS)
def mse_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Squared difference."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    with scope("mse_loss"):
        input, target = _same_size("mse_loss", input, target)
        a, b = common(input, target)
        difference = a - b
        return _weighted(difference * difference, weight, reduction)


@function(to="nn.functional", takes=ALL)
def l1_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Absolute difference."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    with scope("l1_loss"):
        input, target = _same_size("l1_loss", input, target)
        return _weighted((input - target).abs(), weight, reduction)


@function(to="nn.functional", takes=FLOATS)
def smooth_l1_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", beta: float = 1.0,
) -> Tensor:  # fmt: skip
    """``0.5 d^2 / beta`` where ``|d| < beta``, else ``|d| - beta / 2``."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    if beta == 0:
        return l1_loss(input, target, reduction=reduction)
    with scope("smooth_l1_loss"):
        input, target = _same_size("smooth_l1_loss", input, target)
        a, b = common(input, target)
        d = magnitude(wide(a) - wide(b))
        return _reduced(rounded(T.where(d < beta, d * d * 0.5 / beta, d - 0.5 * beta), a), reduction)


@function(to="nn.functional", takes=FLOATS)
def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """``0.5 d^2`` where ``|d| < delta``, else ``delta (|d| - delta / 2)``, in the dtype of ``input``."""
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    with scope("huber_loss"):
        input, target = _same_size("huber_loss", input, target)
        a, b = common(input, target)
        if not can_cast(a.dtype, input.dtype):
            raise RuntimeError(f"result type {a.dtype} can't be cast to the desired output type {input.dtype}")
        d = magnitude(wide(a) - wide(b))
        found = T.where(d < delta, d * d * 0.5, (d - 0.5 * delta) * delta)
        return _weighted(cast(found, input.dtype), weight, reduction)


def _log(x: Tensor, inside: Tensor, logarithm: Callable[[Tensor], Tensor]) -> Tensor:
    """``logarithm(x)`` where ``inside``, else -100 without a gradient (and without NaN)."""
    return T.where(inside, logarithm(T.where(inside, x, 0.5)), -100.0)


@function(to="nn.functional", takes=FLOATS)
def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Cross entropy of probabilities, with logarithms of at least -100.

    ValueError when sizes differ. RuntimeError when dtypes differ or when numbers are not between 0 and 1 (checked in
    eager calls and during recording, not in compiled calls).
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    if input.shape != target.shape:
        raise ValueError(
            f"Using a target size ({_size(target)}) that is different to the input size ({_size(input)}) is "
            "deprecated. Please ensure they have the same size."
        )
    if target.dtype is not input.dtype:
        raise RuntimeError(f"Found dtype {type_word(target.dtype)} but expected {type_word(input.dtype)}")
    input = required(input, is_fraction, "all elements of input should be between 0 and 1")
    target = required(target, is_fraction, "all elements of target should be between 0 and 1")
    with scope("binary_cross_entropy"):
        log_p = _log(input, input > math.exp(-100.0), lambda x: x.log())
        log_q = _log(input, input < 1, lambda x: (-x).log1p())
        loss = (target - 1) * log_q - target * log_p
        return _reduced(loss if weight is None else loss * weight, reduction)


@function(to="nn.functional", takes=FLOATS)
def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean", pos_weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """``binary_cross_entropy`` of ``sigmoid(input)`` without overflow. ValueError when sizes differ."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if input.shape != target.shape:
        raise ValueError(f"Target size ({_size(target)}) must be the same as input size ({_size(input)})")
    if not target.dtype.is_floating_point:
        found = type_word(target.dtype)
        raise RuntimeError(
            f"binary_cross_entropy_with_logits(): target must be floating point, but has the type {found}. Convert it: "
            "target.float()"
        )
    with scope("binary_cross_entropy_with_logits"):
        log_weight = 1 if pos_weight is None else (pos_weight - 1) * target + 1
        loss = (1 - target) * input - log_weight * logsigmoid(input)
        return _reduced(loss if weight is None else loss * weight, reduction)


@function(to="nn.functional", takes=FLOATS)
def kl_div(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", log_target: bool = False,
) -> Tensor:  # fmt: skip
    """``target (log target - input)``, ``input`` in logarithms; ``batchmean`` divides the sum by the batch size."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if not (input.dtype.is_floating_point and target.dtype.is_floating_point):
        raise RuntimeError("kl_div: Integral inputs not supported. Convert them first, as with target.float()")
    with scope("kl_div"):
        loss = target.exp() * (target - input) if log_target else T.xlogy(target, target) - target * input
        if reduction == "batchmean":
            return loss.sum() / input.shape[0] if input.ndim else loss.sum()
        return _reduced(loss, reduction)


@function(to="nn.functional")
def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool = True, full: bool = False, size_average: bool | None = None,
    eps: float = 1e-8, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Negative log likelihood of a Poisson target, ``input`` the (log) rate."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        safe = T.where(target > 1, target, 1.0)
        stirling = safe * safe.log() - safe + (safe * (2 * math.pi)).log() * 0.5
        loss = loss + T.where(target > 1, stirling, 0.0)
    return _reduced(loss, reduction)


@function(to="nn.functional", takes=FLOATS)
def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """Negative log likelihood of a Gaussian target with mean ``input`` and variance ``var``, at least ``eps``."""
    if not isinstance(var, Tensor):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        try:
            var = T.full_like(input, float(var))
        except OverflowError:
            raise TypeError("gaussian_nll_loss(): var is an integer that is too large for a float") from None
    elif bool((var < 0).any()):
        raise ValueError("var has negative entry/entries")
    if var.shape != input.shape:
        if input.shape[:-1] == var.shape:
            var = var.unsqueeze(-1)
        elif input.ndim != var.ndim or [n for have, n in zip(input.shape, var.shape, strict=True) if n != have] != [1]:
            raise ValueError("var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    limited = var + (var.detach().clamp(min=eps) - var.detach())
    loss = (limited.log() + (input - target) ** 2 / limited) * 0.5
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return _reduced(loss, reduction)


@function(to="nn.functional")
def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """``x`` where the target is 1, ``max(0, margin - x)`` where it is -1."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    margin_part = T.where(target != 1, (margin - input).clamp_min(0), 0)
    same_part = T.where(target != -1, input, 0)
    return _reduced(margin_part + same_part, reduction)


@function(to="nn.functional")
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """``max(0, -y (x1 - x2) + margin)``."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if not input1.ndim == input2.ndim == target.ndim:
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {_size(input1)}, input2: {_size(input2)}, target: {_size(target)} "
        )
    return _reduced((-target * (input1 - input2) + margin).clamp_min(0), reduction)


@function(to="nn.functional")
def soft_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """``log(1 + exp(-y x))``."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    return _reduced((-target * input).exp().log1p(), reduction)


@function(to="nn.functional")
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """``1 - cos`` where the target is 1, ``max(0, cos - margin)`` where it is -1."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if target.ndim not in (0, 1):
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if input1.ndim != target.ndim + 1 or input2.ndim != target.ndim + 1:
        raise RuntimeError(
            f"{target.ndim}D target tensor expects {target.ndim + 1}D input tensors, but found inputs with sizes "
            f"{list(input1.shape)} and {list(input2.shape)}."
        )
    eps = 1e-12
    product = (input1 * input2).sum(-1)
    first, second = (input1 * input1).sum(-1) + eps, (input2 * input2).sum(-1) + eps
    cosine = product / (first * second).sqrt()
    loss = T.where(target == 1, 1 - cosine, 0) + T.where(target == -1, (cosine - margin).clamp_min(0), 0)
    return _reduced(loss, reduction)


@function(to="nn.functional", takes=ALL)
def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2, eps: float = 1e-6,
    swap: bool = False, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """``max(0, d(anchor, positive) - d(anchor, negative) + margin)``."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise RuntimeError(
            f"The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {anchor.ndim}D, positive {positive.ndim}D, and negative {negative.ndim}D inputs"
        )
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    return triplet_margin_with_distance_loss(
        anchor, positive, negative, distance_function=lambda a, b: pairwise_distance(a, b, p, eps),
        margin=margin, swap=swap, reduction=reduction,
    )  # fmt: skip


@function(to="nn.functional", takes=ALL)
def triplet_margin_with_distance_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None, margin: float = 1.0, swap: bool = False,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """``triplet_margin_loss`` with a custom distance."""
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    distance = distance_function or pairwise_distance
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise RuntimeError(
            f"The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {anchor.ndim}D, positive {positive.ndim}D, and negative {negative.ndim}D inputs"
        )
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = T.minimum(far, distance(positive, negative))
    return _reduced((near - far + margin).clamp_min(0), reduction)


@function(to="nn.functional", takes=FLOATS)
def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Mean over classes of binary cross entropy with logits."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    loss = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        loss = loss * weight
    return _reduced(loss.sum(-1) / input.shape[-1], reduction)

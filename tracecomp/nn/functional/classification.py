"""Losses of class targets: negative log likelihood, cross entropy, margins, CTC."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tracecomp.eager.modes import scope
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.dtype_support import FLOATS
from tracecomp.functional.primitives import prim
from tracecomp.functional.publish import function
from tracecomp.ir.types import DType, int64, type_word
from tracecomp.nn.functional.activation import log_softmax
from tracecomp.nn.functional.linear import linear
from tracecomp.nn.functional.loss import check_reduction, legacy_reduction, reduce

_reduced = reduce


def _check_classes(input: Tensor, target: Tensor, weight: Tensor | None) -> int:
    """The class axis of ``input``. ValueError or RuntimeError when shapes do not match."""
    if input.ndim == 0:
        raise ValueError(f"Expected 1 or more dimensions (got {input.ndim})")
    axis = 1 if input.ndim > 1 else 0
    batch, rest = input.shape[:axis], input.shape[axis + 1 :]
    if target.shape[: len(batch)] != batch:
        raise ValueError(
            f"Expected input batch_size ({input.shape[0]}) to match target batch_size "
            f"({target.shape[0] if target.ndim else 0})."
        )
    if tuple(target.shape) != (*batch, *rest):
        raise RuntimeError(f"Expected target size {[*batch, *rest]}, got {list(target.shape)}")
    if target.dtype.name not in ("int64", "uint8"):
        raise RuntimeError(f"expected target dtype to be Long or Byte, but got {type_word(target.dtype)}")
    if weight is not None and weight.dtype is not input.dtype:
        raise RuntimeError(
            f"expected weight of the dtype of the input, {type_word(input.dtype)}, but got {type_word(weight.dtype)}"
        )
    if weight is not None and tuple(weight.shape) != (input.shape[axis],):
        raise RuntimeError(
            f"weight tensor should be defined either for all {input.shape[axis]} classes or no classes but got weight "
            f"tensor of shape: {list(weight.shape)}"
        )
    return axis


@function(to="nn.functional", takes=FLOATS)
def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """``-weight[y] x[y]`` of log-probabilities (N, C, *) and classes (N, *), the mean over the weights.

    Targets equal to ``ignore_index`` are ignored. IndexError for a class out of range.
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    axis = _check_classes(input, target, weight)
    with scope("nll_loss"):
        counted = target != ignore_index
        index = T.where(counted, target, 0).to(int64)
        picked = prim.gather(input, index.unsqueeze(axis), axis=axis).squeeze(axis)
        if weight is None:
            loss = T.where(counted, -picked, 0)
            total = counted.to(input.dtype)
        else:
            total = T.where(counted, weight.index_select(0, index.reshape(-1)).reshape(*index.shape), 0)
            loss = T.where(counted, -picked * total, 0)
        return loss.sum() / total.sum() if reduction == "mean" else _reduced(loss, reduction)


@function(to="nn.functional")
def cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean", label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    """Cross entropy of logits (N, C, *) with classes (N, *) or class probabilities (N, C, *)."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    with scope("cross_entropy"):
        axis = 1 if input.ndim > 1 else 0
        if input.shape == target.shape and input.ndim:
            if not target.is_floating_point():
                raise RuntimeError(
                    f"Expected floating point type for target with class probabilities, got {target.dtype}"
                )
            return _soft_cross_entropy(input, target, weight, reduction, label_smoothing, axis)
        if target.is_floating_point():
            raise RuntimeError(f"expected scalar type Long but found {target.dtype}")
        log_p = log_softmax(input, axis)
        if label_smoothing == 0.0:
            return nll_loss(log_p, target, weight, None, ignore_index, None, reduction)
        return _smooth_cross_entropy(log_p, target, weight, ignore_index, reduction, label_smoothing, axis)


@dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """PyTorch's chunking of the batch of :func:`linear_cross_entropy`. It has no effect here."""

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: DType | None = None


@function(to="nn.functional")
def linear_cross_entropy(
    input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Tensor | None = None,
    weight: Tensor | None = None, reduction: str = "mean", ignore_index: int | None = None,
    label_smoothing: float = 0.0, options: LinearCrossEntropyOptions | None = None,
) -> Tensor:  # fmt: skip
    """Cross entropy of the logits ``linear(input, linear_weight, linear_bias)``.

    ``input`` is (I) or (N, I), ``linear_weight`` (C, *, I), ``linear_bias`` (C, *), ``target`` classes (N, *) or class
    probabilities (N, C, *). RuntimeError for other shapes, and for ``ignore_index`` with probabilities. ``options``
    have no effect here.
    """
    if not 1 <= input.ndim <= 2:
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.ndim}")
    if linear_weight.ndim < 2:
        raise RuntimeError(f"expected linear_weight with dimensionality at least 2, got {linear_weight.ndim}")
    (*batch, features), (*rows, columns) = input.shape, linear_weight.shape
    if features != columns:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), "
            f"got {features} and {columns}, respectively"
        )
    if linear_bias is not None and list(linear_bias.shape) != rows:
        raise RuntimeError(f"expected linear_bias shape {tuple(rows)}, got {tuple(linear_bias.shape)}")
    if len(rows) > 1 and not batch:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} requires batched input, "
            f"(N, {features}), got unbatched input with shape {tuple(input.shape)}"
        )
    if list(target.shape) == [*batch, *rows] and ignore_index is not None:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    with scope("linear_cross_entropy"):
        bias = None if linear_bias is None else linear_bias.reshape(-1)
        logits = linear(input, linear_weight.reshape(-1, features), bias).reshape(*batch, *rows)
        return cross_entropy(
            logits, target, weight, ignore_index=-100 if ignore_index is None else ignore_index, reduction=reduction,
            label_smoothing=label_smoothing,
        )  # fmt: skip


def _soft_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float, axis: int
) -> Tensor:
    if smoothing:
        target = target * (1 - smoothing) + smoothing / input.shape[axis]
    loss = log_softmax(input, axis) * target
    if weight is not None:
        loss = loss * weight.reshape(-1, *[1] * (input.ndim - 1 - axis))
    loss = -loss.sum(axis)
    return loss.sum() / max(math.prod(loss.shape), 1) if reduction == "mean" else _reduced(loss, reduction)


def _smooth_cross_entropy(
    log_p: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str, smoothing: float, axis: int
) -> Tensor:
    hard = nll_loss(log_p, target, weight, None, ignore_index, None, "none")
    counted = target != ignore_index
    weighted = log_p if weight is None else log_p * weight.reshape(-1, *[1] * (log_p.ndim - 1 - axis))
    smooth = T.where(counted, -weighted.sum(axis), 0)
    loss = hard * (1 - smoothing) + smooth * (smoothing / log_p.shape[axis])
    if reduction != "mean":
        return _reduced(loss, reduction)
    if weight is None:
        return loss.sum() / counted.to(log_p.dtype).sum()
    index = T.where(counted, target, 0).to(int64)
    total = T.where(counted, weight.index_select(0, index.reshape(-1)).reshape(*index.shape), 0).sum()
    return loss.sum() / total


@function(to="nn.functional", takes=FLOATS)
def multi_margin_loss(
    input: Tensor, target: Tensor, p: float = 1, margin: float = 1.0, weight: Tensor | None = None,
    size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Mean over wrong classes of ``max(0, margin - x[y] + x[i]) ** p``, times the weight of class y."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    check_reduction(reduction)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.ndim != 1:
        raise ValueError("weight must be one-dimensional")
    if input.ndim > 2 or not input.shape[-1:].numel():
        raise RuntimeError(
            f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: {list(input.shape)}"
        )
    single = input.ndim < 2
    x, y = (input.reshape(1, -1), target.reshape(1)) if single else (input, target)
    if tuple(y.shape) != (x.shape[0],):
        raise RuntimeError(f"inconsistent target size, expected {x.shape[0]} but got {list(target.shape)}")
    if weight is not None and tuple(weight.shape) != (x.shape[1],):
        raise RuntimeError(f"inconsistent weight size, expected {x.shape[1]} but got {list(weight.shape)}")
    right = x.gather(1, y.unsqueeze(1))
    terms = (margin - right + x).clamp_min(0)
    terms = terms * terms if p == 2 else terms
    if weight is not None:
        terms = terms * weight.index_select(0, y).unsqueeze(1)
    wrong = T.arange(x.shape[1]) != y.unsqueeze(1)
    loss = T.where(wrong, terms, 0).sum(1) / x.shape[1]
    return _reduced(loss.squeeze(0) if single and reduction == "none" else loss, reduction)


@function(to="nn.functional", takes=FLOATS)
def multilabel_margin_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Sum over target and other classes of ``max(0, 1 - (x[y] - x[i])) / C``; targets end at the first -1."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    check_reduction(reduction)
    if input.shape != target.shape or input.ndim > 2:
        raise RuntimeError(f"inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}")
    single = input.ndim < 2
    x, y = (input.reshape(1, -1), target.reshape(1, -1)) if single else (input, target)
    present = (y < 0).to(int64).cumsum(1) == 0
    index = T.where(present, y, 0)
    classes = x.shape[1]
    hit = (index.unsqueeze(2) == T.arange(classes)) & present.unsqueeze(2)
    is_target = hit.any(1)
    right = x.gather(1, index)
    terms = (1 - right.unsqueeze(2) + x.unsqueeze(1)).clamp_min(0)
    used = present.unsqueeze(2) & ~is_target.unsqueeze(1)
    loss = T.where(used, terms, 0).sum((1, 2)) / classes
    return _reduced(loss.squeeze(0) if single and reduction == "none" else loss, reduction)


@function(to="nn.functional", takes=FLOATS)
def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor | Sequence[int], target_lengths: Tensor | Sequence[int],
    blank: int = 0, reduction: str = "mean", zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """Connectionist temporal classification (Graves et al. 2006): (T, N, C) and (N, S) or concatenated targets."""
    single = log_probs.ndim == 2
    lp = log_probs.unsqueeze(1) if single else log_probs
    steps, batch, classes = lp.shape
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    t_len = _ctc_lengths("input_lengths", input_lengths, batch)
    s_len = _ctc_lengths("target_lengths", target_lengths, batch)
    if batch and t_len._data.max() > steps:
        raise RuntimeError(f"Expected input_lengths to have value at most {steps}, but got value {t_len._data.max()}")
    t_len = T.arange(steps + 1).index_select(0, t_len)  # in later calls of a recording lengths are checked as indices
    labels = _ctc_labels(targets.reshape(1, -1) if single and targets.ndim == 1 else targets, s_len)
    nll = _ctc_forward(lp, labels, t_len, s_len, blank)
    # PyTorch's gradient is that of log_softmax followed by this loss: it includes the softmax's normalisation.
    used = (T.arange(steps).unsqueeze(1) < t_len).unsqueeze(2)
    mass = T.where(used, lp.exp(), 0).sum((0, 2))
    nll = nll + (mass - mass.detach())
    if zero_infinity:
        nll = T.where(nll == math.inf, 0, nll)
    if reduction == "mean":
        return (nll / s_len.clamp_min(1).to(nll.dtype)).mean()
    return nll.sum() if reduction == "sum" else nll.squeeze(0) if single else nll


def _ctc_lengths(name: str, given: Any, batch: int) -> Tensor:
    """Lengths in int64. RuntimeError unless there is one for each sequence."""
    lengths = given.reshape(-1).to(int64) if isinstance(given, Tensor) else T.tensor([int(v) for v in given])
    if lengths.numel() != batch:
        raise RuntimeError(f"{name} must be of size batch_size, got {lengths.numel()} for batch size {batch}")
    return lengths


def _ctc_labels(targets: Tensor, lengths: Tensor) -> Tensor:
    """Targets by rows, with the given lengths."""
    if targets.ndim == 2:
        longest = int(lengths._data.max(initial=0))
        if longest > targets.shape[1]:
            raise RuntimeError(
                f"Expected tensor to have size at least {longest} at dimension 1, but got size {list(targets.shape)}"
            )
        return targets
    width = int(lengths.max()) if lengths.numel() else 0
    places = (lengths.cumsum(0) - lengths).unsqueeze(1) + T.arange(width)
    return targets[places.clamp_max(max(targets.numel() - 1, 0))]


def _ctc_forward(lp: Tensor, labels: Tensor, t_len: Tensor, s_len: Tensor, blank: int) -> Tensor:
    """Negative log of the total probability of all alignments; states alternate blanks and labels."""
    steps, batch, _ = lp.shape
    width = 2 * labels.shape[1] + 1
    states = T.full((batch, labels.shape[1], 2), blank, dtype=int64)
    states[:, :, 1] = labels.to(int64)
    states = T.cat([states.reshape(batch, width - 1), T.full((batch, 1), blank, dtype=int64)], 1)
    skip = (states[:, 2:] != blank) & (states[:, 2:] != states[:, :-2])
    never = T.full((batch, 1), -math.inf, dtype=lp.dtype)
    emit = lp.gather(2, states.unsqueeze(0).expand(steps, batch, width))
    first = T.arange(width) < 2
    alpha = T.where(first & (T.arange(width) <= 2 * s_len.unsqueeze(1)), emit[0], -math.inf)
    for t in range(1, steps):
        one = T.cat([never, alpha[:, :-1]], 1)
        two = T.cat([never, never, T.where(skip, alpha[:, :-2], -math.inf)], 1)[:, :width]
        moved = _log_add(alpha, one, two) + emit[t]
        alpha = T.where((t < t_len).unsqueeze(1), moved, alpha)
    last = 2 * s_len.unsqueeze(1)
    final = alpha.gather(1, last)
    before = T.where(last > 0, alpha.gather(1, (last - 1).clamp_min(0)), -math.inf)
    total = _log_add(final, before, T.full_like(final, -math.inf)).squeeze(1)
    nothing = T.where(s_len == 0, 0.0, math.inf).to(lp.dtype)
    return T.where(t_len > 0, -total, nothing)


def _log_add(*terms: Tensor) -> Tensor:
    """log of the sum of exponentials, without NaN in value or gradient if every term is -inf."""
    stacked = T.stack(terms)
    top = stacked.detach().amax(0)
    safe = T.where(top == -math.inf, 0, top)
    total = (stacked - safe).exp().sum(0)
    possible = total > 0
    return T.where(possible, T.where(possible, total, 1).log() + safe, -math.inf)

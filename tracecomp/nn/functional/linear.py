"""Linear and bilinear maps, embeddings, distances."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracecomp.eager.device import use
from tracecomp.eager.modes import modes, no_grad, scope
from tracecomp.eager.tensor import Tensor, wrap
from tracecomp.functional import names as T
from tracecomp.functional.default_dtype import default_dtype
from tracecomp.functional.dtype_support import ALL, COMPLEX, FLOATS, NUMBERS
from tracecomp.functional.promotion import common, is_half, rounded, wide
from tracecomp.functional.publish import function
from tracecomp.functional.sampling import kept
from tracecomp.ir.types import int64, type_word
from tracecomp.sparse.embedding import rows_with_sparse_gradient


@function(to="nn.functional", takes=NUMBERS + COMPLEX)
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x @ weight.T + bias``: (*, in), (out, in), (out) -> (*, out). RuntimeError when sizes do not fit."""
    with scope("linear"):
        if not input.ndim or not weight.ndim:
            raise RuntimeError(
                f"both arguments to linear need to be at least 1D, but they are {input.ndim}D and {weight.ndim}D"
            )
        if input.shape[-1:] != weight.shape[-1:]:
            rows = input.numel() // max(input.shape[-1], 1)
            raise RuntimeError(
                f"linear(): mat1 and mat2 shapes cannot be multiplied "
                f"({rows}x{input.shape[-1]} and {weight.shape[-1]}x{weight.shape[0]})"
            )
        if bias is not None and bias.dtype is not weight.dtype:
            raise RuntimeError(
                f"linear(): self and mat2 must have the same dtype, but got {type_word(bias.dtype)} and "
                f"{type_word(weight.dtype)}"
            )
        if bias is not None and is_half(input, weight, bias):  # rounded once, as in PyTorch
            return rounded(wide(input) @ wide(weight).t() + wide(bias), input)
        out = input @ weight.t()
        return out if bias is None else out + bias


@function(to="nn.functional torch", takes=NUMBERS)
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x1[i] W[o, i, j] x2[j]``: (*, in1), (*, in2), (out, in1, in2) -> (*, out)."""
    if input1.shape[:-1] != input2.shape[:-1]:
        raise RuntimeError(
            f"bilinear(): input batch dimensions do not match: got {tuple(input1.shape)} and {tuple(input2.shape)}"
        )
    for k, x in enumerate((input1, input2), 1):
        if x.shape[-1] != weight.shape[k]:
            raise RuntimeError(
                f"bilinear(): input{k} size does not match weight size: got {x.shape[-1]} but expected "
                f"{weight.shape[k]}"
            )
    if not input1.dtype is input2.dtype is weight.dtype:
        found = ", ".join(type_word(x.dtype) for x in (input1, input2, weight))
        raise RuntimeError(f"bilinear(): All tensors must have the same dtype, got {found}")
    out = T.einsum("...i,oij,...j->...o", input1, weight, input2)
    return out if bias is None else out + bias


def _rows(weight: Tensor, index: Tensor) -> Tensor:
    return weight.index_select(0, index)


@function(to="nn.functional")
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of ``weight`` (number, size) at ``input`` of any shape -> (*input.shape, size).

    ``padding_idx`` names a row that gets no gradient; ``max_norm`` first shortens, in place, the rows that are read.
    IndexError for an index out of range, RuntimeError unless ``weight`` is 2-d and ``input`` holds integers.
    """
    if weight.ndim != 2:
        raise RuntimeError("'weight' must be 2-D")
    if input.dtype.kind != "int":
        raise RuntimeError(
            f"Expected tensor for argument #1 'indices' to have scalar type Long or Int; got {input.type()} instead"
        )
    padding_idx = check_padding_idx(padding_idx, weight.shape[0])
    if max_norm is not None:
        renormalize(weight, input, max_norm, norm_type)
    with scope("embedding"):
        read = rows_with_sparse_gradient if sparse else _rows
        rows = read(weight, input.reshape(-1)).reshape(*input.shape, weight.shape[1])
        if padding_idx is not None:
            rows = T.where((input == padding_idx).unsqueeze(-1), rows.detach(), rows)
        if scale_grad_by_freq:
            counts = T.bincount(input.reshape(-1), minlength=weight.shape[0])
            frequency = counts.index_select(0, input.reshape(-1)).reshape(*input.shape, 1)
            rows = scale_gradient(rows, 1.0 / frequency.to(rows.dtype))
        return rows


def scale_gradient(x: Tensor, factor: Tensor) -> Tensor:
    """``x`` itself, whose gradient is multiplied by ``factor``."""
    scaled = x * factor
    return x.detach() + (scaled - scaled.detach())


def check_padding_idx(padding_idx: int | None, rows: int) -> int | None:
    """``padding_idx`` counted from 0. AssertionError when out of range."""
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise AssertionError("padding_idx must be within num_embeddings")
    return padding_idx % rows


def renormalize(weight: Tensor, index: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale, in place, the rows of ``weight`` at ``index`` whose norm exceeds ``max_norm``."""
    with no_grad():
        norm = weight.norm(norm_type, 1, keepdim=True)
        read = T.zeros(weight.shape[0], dtype=index.dtype).scatter_add(
            0, index.reshape(-1), T.ones_like(index.reshape(-1))
        )
        scale = T.where((read > 0).unsqueeze(1) & (norm > max_norm), max_norm / (norm + 1e-7), 1.0)
        weight.mul_(scale)


@function(to="nn.functional")
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Integers -> int64 vectors with a 1 at that place, on a new last axis."""
    if tensor.dtype.name != "int64":
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    array = tensor._data
    if modes.recorder is None and not use.begun and array.size and array.min() >= 0:
        count = int(array.max()) + 1
        if num_classes == -1 or count <= num_classes:
            # Integers have no history, so numpy can compare at once.
            places = np.arange(count if num_classes == -1 else num_classes)
            return wrap((array[..., None] == places).astype(np.int64, order="C"))
    if num_classes == -1:
        if tensor.numel() == 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        num_classes = int(tensor.max().item()) + 1
    elif tensor.numel() and not bool(tensor.max() < num_classes):
        raise RuntimeError("Class values must be smaller than num_classes.")
    if tensor.numel() and bool(tensor.min() < 0):
        raise RuntimeError("Class values must be non-negative.")
    return (tensor.contiguous().unsqueeze(-1) == T.arange(num_classes)).to(tensor.dtype)


@function(to="nn.functional")
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Sum, mean or max of the embeddings of each bag: (bags, n) or flat indices with ``offsets`` -> (bags, size)."""
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum or mean or max")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            f"embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' "
            f"(got mode='{mode}')."
        )
    if per_sample_weights is not None and per_sample_weights.shape != input.shape:
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({tuple(per_sample_weights.shape)}) is not None, then it must have "
            f"the same shape as the input ({tuple(input.shape)})"
        )
    if per_sample_weights is not None and per_sample_weights.dtype is not weight.dtype:
        raise RuntimeError(
            f"embedding_bag: expected per_sample_weights to have the same type as weight ({weight.dtype}), but got "
            f"{per_sample_weights.dtype}"
        )
    flat = input.reshape(-1)
    try:
        rows = embedding(flat, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq)
    except IndexError as error:
        raise RuntimeError(f"embedding_bag: Expected idx >= 0 && idx < num_embeddings: {error}") from None
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.reshape(-1, 1)
    kept = T.ones_like(flat) if padding_idx is None else (flat != padding_idx % weight.shape[0]).to(flat.dtype)
    bag, bags = _bags(input, offsets)
    if bag is None:
        shape = tuple(input.shape)
        return _combine_equal_bags(rows.reshape(*shape, -1), kept.reshape(*shape, 1), padding_idx is None, mode)
    try:
        combined = _combine_bags(rows, bag, kept, bags, mode)
    except IndexError as error:
        raise RuntimeError(f"embedding_bag: offsets[0] has to be 0, as every index belongs to a bag: {error}") from None
    return combined[:-1] if include_last_offset else combined  # the last bag has the rows after the last offset


def _bags(input: Tensor, offsets: Tensor | None) -> tuple[Tensor | None, int]:
    """Return the bag of each index (None if each row is one), and the number of bags."""
    if input.ndim == 2:
        if offsets is not None:
            raise ValueError(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length "
                "sequences."
            )
        return None, input.shape[0]
    if input.ndim != 1:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}")
    if offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    if offsets.ndim != 1:
        raise ValueError("offsets has to be a 1D Tensor")
    bags = offsets.shape[0]
    begun = T.zeros(input.shape[0] + 1, dtype=int64)
    try:
        begun = begun.index_add(0, offsets, T.ones(bags, dtype=int64))
    except IndexError as error:
        raise RuntimeError(
            f"embedding_bag: offsets[-1] can not be greater than input's length {input.shape[0]}: {error}"
        ) from None
    return begun.cumsum(0)[:-1] - 1, bags


def _combine_equal_bags(rows: Tensor, kept: Tensor, all_kept: bool, mode: str) -> Tensor:
    """(bags, n, size) -> (bags, size)"""
    count = kept.sum(1)
    if mode == "max":
        if rows.shape[1] == 0:
            return rows.sum(1)
        top = (rows if all_kept else T.where(kept > 0, rows, -float("inf"))).amax(1)
        return T.where(count > 0, top, 0.0)
    total = (rows if all_kept else T.where(kept > 0, rows, 0.0)).sum(1)
    return total if mode == "sum" else total / count.clamp_min(1).to(rows.dtype)


def _combine_bags(rows: Tensor, bag: Tensor, kept: Tensor, bags: int, mode: str) -> Tensor:
    mask = (kept > 0).unsqueeze(1)
    shape = (bags, rows.shape[1])
    count = T.zeros(bags, dtype=bag.dtype).index_add(0, bag, kept.to(bag.dtype)).unsqueeze(1)
    if mode == "max":
        lowest = T.full(shape, -float("inf"), dtype=rows.dtype)
        top = lowest.index_reduce(0, bag, T.where(mask, rows, -float("inf")), "amax")
        return T.where(count > 0, top, 0.0)
    total = T.zeros(shape, dtype=rows.dtype).index_add(0, bag, T.where(mask, rows, 0.0))
    return total if mode == "sum" else total / count.clamp_min(1).to(rows.dtype)


@function(to="nn.functional torch")
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Cosine of the angle between vectors along ``dim``, each norm at least ``eps``."""
    x1, x2 = T.broadcast_tensors(*common(x1, x2))
    first = x1 / T.norm(x1, 2, dim, keepdim=True).clamp_min(eps)
    second = x2 / T.norm(x2, 2, dim, keepdim=True).clamp_min(eps)
    return (first * second).sum(dim)


@function(to="nn.functional torch", takes=ALL)
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """p-norm of ``x1 - x2 + eps`` along the last axis."""
    return T.norm(x1 - x2 + eps, p, -1, keepdim=keepdim)


@function(to="nn.functional torch", takes=FLOATS)
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """p-norm distances of every pair of rows (N, M) -> (N (N - 1) / 2)."""
    if input.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    if p < 0:
        raise RuntimeError("pdist only supports non-negative p values")
    n = input.shape[0]
    if n < 2:
        return input.sum() * 0 + T.empty(0, dtype=input.dtype)
    first, second = T.triu_indices(n, n, 1)
    every = T.cdist(input, input, p, "donot_use_mm_for_euclid_dist")
    return every.flatten().index_select(0, first * n + second)


@function(to="nn.functional torch", draws=True)
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In training, zero each element with probability ``p`` and scale the rest by ``1 / (1 - p)``."""
    return _drop(input, input.shape, p, training, inplace)


def _drop(input: Tensor, shape: Any, p: float, training: bool, inplace: bool) -> Tensor:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0:
        return input
    if input.dtype.kind in ("int", "bool"):
        raise RuntimeError(f"result type Float can't be cast to the desired output type {type_word(input.dtype)}")
    with scope("dropout"):
        factor = kept(tuple(shape), p, default_dtype(), input.dtype)
        return input.mul_(factor) if inplace else input * factor


def _drop_channels(name: str, input: Tensor, ndims: tuple[int, ...], p: float, training: bool, inplace: bool) -> Tensor:
    if input.ndim not in ndims:
        raise RuntimeError(f"{name}: Expected a {' or '.join(map(str, ndims))}D input, but received {input.ndim}D")
    batched = input.ndim == ndims[-1]
    kept = input.shape[:2] if batched else input.shape[:1]
    return _drop(input, (*kept, *[1] * (input.ndim - len(kept))), p, training, inplace)


@function(to="nn.functional", draws=True)
def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """``dropout`` of whole channels of (N, C, L) or (C, L)."""
    return _drop_channels("dropout1d", input, (2, 3), p, training, inplace)


@function(to="nn.functional", draws=True)
def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """``dropout`` of whole channels of (N, C, H, W); (N, C, L) counts as batched."""
    if input.ndim == 3:
        return _drop(input, (*input.shape[:2], 1), p, training, inplace)
    return _drop(input, (*input.shape[:2], *[1] * (input.ndim - 2)), p, training, inplace)


@function(to="nn.functional", draws=True)
def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """``dropout`` of whole channels of (N, C, D, H, W) or (C, D, H, W)."""
    return _drop_channels("dropout3d", input, (4, 5), p, training, inplace)


@function(to="nn.functional torch", draws=True)
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout that keeps mean and variance of SELU activations (Klambauer et al. 2017)."""
    return _alpha_drop(input, input.shape, p, training, inplace)


@function(to="nn.functional torch", takes=ALL, draws=True)
def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """``alpha_dropout`` of whole channels."""
    return _alpha_drop(input, (*input.shape[:2], *[1] * (input.ndim - 2)), p, training, inplace)


def _alpha_drop(input: Tensor, shape: Any, p: float, training: bool, inplace: bool) -> Tensor:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0:
        return input
    if p == 1.0:
        return input.mul_(0.0) if inplace else input * 0.0
    alpha = 1.7580993408473766
    a = ((alpha**2 * p + 1) * (1 - p)) ** -0.5
    mask = (T.rand(tuple(shape)) >= p).to(input.dtype)
    shift = (mask - 1.0) * (alpha * a) + alpha * a * p
    result = input * (mask * a) + shift
    return input.copy_(result) if inplace else result

"""Scaled dot-product attention and multi-head attention."""

from __future__ import annotations

import math
from typing import Any

from tracecomp.eager.modes import scope
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.promotion import rounded, wide
from tracecomp.functional.publish import function
from tracecomp.ir.types import bool_
from tracecomp.nn.functional.linear import dropout, linear


@function(to="nn.functional")
def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """``softmax(Q K^T scale + mask) V``: (*, L, E), (*, S, E), (*, S, Ev) -> (*, L, Ev).

    A boolean mask selects keys; any other mask is added to the scores. ``scale`` defaults to ``1 / sqrt(E)``.
    RuntimeError when both a mask and ``is_causal`` are given.
    """
    if is_causal and attn_mask is not None:
        raise RuntimeError("_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True")
    for x in (query, key, value):
        if x.ndim < 2:
            raise RuntimeError(
                "scaled_dot_product_attention: Expected query, key, and value to all be at least 2 dimensional, "
                f"but got shapes {list(query.shape)}, {list(key.shape)}, {list(value.shape)}"
            )
    if not query.dtype is key.dtype is value.dtype:
        raise RuntimeError(
            f"Expected query, key, and value to have the same dtype, but got query.dtype: {query.dtype} key.dtype: "
            f"{key.dtype} and value.dtype: {value.dtype} instead."
        )
    with scope("attention"):
        if enable_gqa:
            key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
            value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
        # Scores of half types stay in float32 until softmax, as in PyTorch: float16 cannot represent values above
        # 65504.
        scores = (wide(query) * _scale(query, scale)) @ wide(key).transpose(-2, -1)
        if is_causal:
            lengths = query.shape[-2], key.shape[-2]
            attn_mask = T.arange(lengths[0]).unsqueeze(1) >= T.arange(lengths[1])
        weights = rounded(_masked_softmax(scores, attn_mask), query)
        return dropout(weights, dropout_p, training=True) @ value if dropout_p else weights @ value


def _scale(query: Tensor, scale: float | None) -> float:
    return 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale


def _masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax of masked scores. Fully masked rows have weights 0, for which softmax alone gives NaN.

    Softmax gets zeros for such a row, so that its derivative is free of NaN as well.
    """
    if mask is None:
        return T.softmax(scores, -1)
    if mask.dtype is bool_:
        empty = ~mask.any(-1, keepdim=True)
        scores = T.where(mask, scores, T.where(empty, 0.0, -math.inf).to(scores.dtype))
    else:
        scores = scores + mask
        empty = scores.detach().amax(-1, keepdim=True) == -math.inf
        scores = scores.masked_fill(empty, 0.0)
    return T.softmax(scores, -1).masked_fill(empty, 0.0)


def _float_mask(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """Convert a boolean mask (True: leave out) to one that is added."""
    if mask is None:
        return None
    if mask.dtype is bool_:
        return T.zeros(mask.shape, dtype=like.dtype).masked_fill(mask, -math.inf)
    if not mask.is_floating_point():
        raise RuntimeError(f"only bool and floating types of attn_mask are supported, got {mask.dtype}")
    return mask


@function(to="nn.functional")
def multi_head_attention_forward(
    query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int, in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None, bias_k: Tensor | None, bias_v: Tensor | None, add_zero_attn: bool, dropout_p: float,
    out_proj_weight: Tensor, out_proj_bias: Tensor | None, training: bool = True,
    key_padding_mask: Tensor | None = None, need_weights: bool = True, attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False, q_proj_weight: Tensor | None = None, k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None, static_k: Tensor | None = None, static_v: Tensor | None = None,
    average_attn_weights: bool = True, is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Multi-head attention (Vaswani et al. 2017) of (L, N, E), (S, N, E), (S, N, E), or without N."""
    single = query.ndim == 2
    if query.ndim not in (2, 3) or key.ndim != query.ndim or value.ndim != query.ndim:
        raise AssertionError(
            f"For batched (3-D) `query`, expected `key` and `value` to be 3-D but found {key.ndim}-D and "
            f"{value.ndim}-D tensors respectively (query is {query.ndim}-D)"
        )
    if single:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    embed = query.shape[2]
    if embed != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {embed}")
    alike = key.shape[:2] == value.shape[:2] if use_separate_proj_weight else key.shape == value.shape
    if not alike:
        raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")
    # Only a hint about the given mask: this formula does not build one.
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    if use_separate_proj_weight:
        weights: Any = (q_proj_weight, k_proj_weight, v_proj_weight)
    else:
        weights = (None,) * 3 if in_proj_weight is None else in_proj_weight.chunk(3, 0)
    with scope("multi_head_attention"):
        biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3, 0)
        q, k, v = (linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
        mask = _heads_mask(attn_mask, key_padding_mask, q, num_heads, key.shape[0])
        k, v, mask = _extend(k, v, mask, bias_k, bias_v, add_zero_attn)
        dropped = dropout_p if training else 0.0
        out, attention = _attend(q, k, v, num_heads, mask, dropped, static_k, static_v, need_weights)
        out = linear(out, out_proj_weight, out_proj_bias)
    if not need_weights:
        return (out.squeeze(1) if single else out), None
    shown = attention.mean(1) if average_attn_weights else attention
    return (out.squeeze(1), shown.squeeze(0)) if single else (out, shown)


def _heads_mask(
    attn_mask: Tensor | None, key_padding_mask: Tensor | None, q: Tensor, heads: int, sources: int
) -> Tensor | None:
    """Combine both masks into one that is added to scores (N, heads, L, S)."""
    length, batch = q.shape[:2]
    mask = _float_mask(attn_mask, q)
    if mask is not None:
        allowed = ((length, sources), (batch * heads, length, sources))
        if tuple(mask.shape) not in allowed:
            raise RuntimeError(
                f"The shape of the {mask.ndim}D attn_mask is {tuple(mask.shape)}, but should be "
                f"{allowed[mask.ndim == 3]}."
            )
        mask = mask.reshape(batch, heads, length, sources) if mask.ndim == 3 else mask.reshape(1, 1, length, sources)
    padding = _float_mask(key_padding_mask, q)
    if padding is None:
        return mask
    if tuple(padding.shape) != (batch, sources):
        raise AssertionError(f"key_padding_mask: expected shape {(batch, sources)}, but got {tuple(padding.shape)}")
    padding = padding.reshape(batch, 1, 1, sources)
    return padding if mask is None else mask + padding


def _extend(
    k: Tensor, v: Tensor, mask: Tensor | None, bias_k: Tensor | None, bias_v: Tensor | None, add_zero: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Keys and values with the learnable entry and the zero entry of the layer's options."""
    batch, embed = k.shape[1:]
    extra = []
    if bias_k is not None and bias_v is not None:
        extra.append((bias_k.expand(1, batch, embed), bias_v.expand(1, batch, embed)))
    if add_zero:
        extra.append((k.new_zeros((1, batch, embed)), v.new_zeros((1, batch, embed))))
    for more_k, more_v in extra:
        k, v = T.cat([k, more_k]), T.cat([v, more_v])
        if mask is not None:
            mask = T.cat([mask, mask.new_zeros((*mask.shape[:-1], 1))], -1)
    return k, v, mask


def _attend(
    q: Tensor, k: Tensor, v: Tensor, heads: int, mask: Tensor | None, dropout_p: float,
    static_k: Tensor | None, static_v: Tensor | None, shown: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    length, batch, embed = q.shape
    size = embed // heads

    def split(x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], batch, heads, size).permute(1, 2, 0, 3)

    keys = split(k) if static_k is None else static_k.reshape(batch, heads, -1, size)
    values = split(v) if static_v is None else static_v.reshape(batch, heads, -1, size)
    scores = (split(q) * math.sqrt(1.0 / size)) @ keys.transpose(-2, -1)
    # PyTorch uses scaled_dot_product_attention if weights are not requested, and softmax alone otherwise.
    attention = T.softmax(scores if mask is None else scores + mask, -1) if shown else _masked_softmax(scores, mask)
    dropped = dropout(attention, dropout_p) if dropout_p else attention
    out = (dropped @ values).permute(2, 0, 1, 3).reshape(length, batch, embed)
    return out, attention

"""Selecting and setting elements where a mask is true."""

from __future__ import annotations

import math

from tracecomp.eager.tensor import Tensor
from tracecomp.functional.dtype_support import ALL
from tracecomp.functional.indexing.positions import true_positions
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import Operand, bring_exact, cast
from tracecomp.functional.publish import function
from tracecomp.functional.shape.shaping import row_major, to_shape
from tracecomp.ir.types import bool_, broadcast_shapes, int64, type_word


@function(takes=ALL, composite=True)
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where ``mask`` (broadcast) is true, in one dimension."""
    if mask.dtype is not bool_:
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    shape = broadcast_shapes(tuple(input.shape), tuple(mask.shape))
    x, m = prim.expand(input, shape=shape), prim.expand(mask, shape=shape)
    count = math.prod(shape)
    return prim.take(to_shape(x, (count,)), true_positions(to_shape(m, (count,))), axis=0)


def _need_mask(name: str, mask: Tensor) -> Tensor:
    if mask.dtype is not bool_:
        raise RuntimeError(f"{name} only supports boolean masks, but got mask with dtype {mask.dtype}")
    return mask


@function(takes=ALL, inplace=True)
def masked_fill(input: Tensor, mask: Tensor, value: Operand) -> Tensor:
    """``value`` where ``mask`` (broadcast) is true."""
    mask = _need_mask("masked_fill", mask)
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(
                "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with "
                f"{value.ndim} dimension(s)."
            )
        if value.dtype.is_complex and not input.dtype.is_complex:
            raise RuntimeError(f"value cannot be converted to type {input.dtype.name} without overflow")
        return row_major(prim.where(mask, cast(value, input.dtype), input))
    if not input.dtype.differentiable and isinstance(value, float) and not value.is_integer():
        raise RuntimeError(f"value cannot be converted to type {input.dtype.name} without overflow")
    return row_major(prim.where(mask, bring_exact(value, input.dtype), input))


@function(takes=ALL, inplace=True, composite=True)
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Elements of ``source``, in order, where ``mask`` (broadcast) is true."""
    if input.dtype is not source.dtype:
        raise RuntimeError(
            f"masked_scatter: expected self and source to have same dtypes but got {type_word(input.dtype)} and "
            f"{type_word(source.dtype)}"
        )
    shape = broadcast_shapes(tuple(input.shape), tuple(_need_mask("masked_scatter_", mask).shape))
    x, m = prim.expand(input, shape=shape), prim.expand(mask, shape=shape)
    count = math.prod(shape)
    if source.numel() == 0 or count == 0:
        return prim.cast(x, dtype=x.dtype)
    order = prim.sub(prim.cumsum(cast(to_shape(m, (count,)), int64), axis=0), 1)
    if source.numel() < count and int(order[-1]) >= source.numel():
        raise RuntimeError(
            f"masked_scatter: expected source to have at least as many elements ({source.numel()}) as the mask has ones"
        )
    order = prim.maximum(prim.minimum(order, source.numel() - 1), 0)
    taken = prim.take(to_shape(source, (source.numel(),)), order, axis=0)
    return prim.where(m, to_shape(taken, shape), x)

"""Insertion positions among sorted values, and membership tests."""

from __future__ import annotations

import numpy as np

from tracecomp.eager.tensor import Tensor, wrap
from tracecomp.functional.creation.creation import tensor_of
from tracecomp.functional.dtype_support import NUMBERS
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import Number, cast, common, operand
from tracecomp.functional.publish import function
from tracecomp.functional.shape.shaping import cut_range, to_shape
from tracecomp.ir.types import bool_, int32

FEW = 64
"""Most elements that are compared with each searched one directly."""


@function(to="torch", takes=NUMBERS, composite=True)
def searchsorted(
    sorted_sequence: Tensor,
    input: Tensor | Number,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Positions at which to insert values so that the last axis of ``sorted_sequence`` stays sorted."""
    if side not in (None, "left", "right"):
        raise RuntimeError(f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise RuntimeError(
            "torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True"
        )
    sequence = sorted_sequence
    if sorter is not None:
        if tuple(sorter.shape) != tuple(sequence.shape):
            raise RuntimeError(
                f"torch.searchsorted(): boundary and sorter must have the same size, but got boundary tensor "
                f"{list(sequence.shape)} and got sorter tensor {list(sorter.shape)}"
            )
        sequence = prim.gather(sequence, sorter, axis=sequence.ndim - 1)
    if sequence.ndim == 0:
        raise RuntimeError("torch.searchsorted(): boundaries tensor should have positive dimension")
    given = operand(input, "searchsorted")
    values = given if isinstance(given, Tensor) else tensor_of(given, None)
    if sequence.ndim > 1 and tuple(sequence.shape[:-1]) != tuple(values.shape[:-1]):
        raise RuntimeError(
            "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries "
            f"tensor and input value tensor must match, but we got boundaries tensor {list(sequence.shape)} and input "
            f"value tensor {list(values.shape)}"
        )
    shape = tuple(values.shape)
    a, b = common(sequence, values)
    if sequence.ndim == 1:
        b = to_shape(b, (values.numel(),))
    elif values.ndim == 0:
        b = to_shape(b, (1,))
    found = to_shape(prim.searchsorted(a, b, right=right or side == "right"), shape)
    return cast(found, int32) if out_int32 else found


@function(to="torch", takes=NUMBERS, composite=True)
def bucketize(input: Tensor | Number, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """:func:`searchsorted` of ``input`` in 1-d ``boundaries``."""
    if boundaries.ndim != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


@function(to="torch", takes=NUMBERS, composite=True)
def isin(
    elements: Tensor | Number, test_elements: Tensor | Number, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Whether each element is among ``test_elements``."""
    a, b = (x if isinstance(x, Tensor) else wrap(np.asarray(x)) for x in (elements, test_elements))
    if bool_ in (a.dtype, b.dtype):
        raise RuntimeError("isin(): bool tensors are not supported. Convert both operands, as with x.to(torch.uint8)")
    a, b = common(a, b)
    found = (_among_few if b.numel() <= FEW else _among)(a, to_shape(b, (b.numel(),)))
    return prim.logical_not(found) if invert else found


def _among_few(a: Tensor, b: Tensor) -> Tensor:
    return prim.any(prim.eq(to_shape(a, (*a.shape, 1)), b), axes=(a.ndim,))


def _among(a: Tensor, b: Tensor) -> Tensor:
    known = prim.sort(b, axis=0, descending=False)[0]
    if b.dtype.is_floating_point:  # NaN, which equals nothing, breaks a search
        known = prim.where(prim.isnan(b), cut_range(known, 0, 0, 1), b)
        known = prim.sort(known, axis=0, descending=False)[0]
    place = prim.searchsorted(known, to_shape(a, (a.numel(),)), right=False)
    nearest = prim.take(known, prim.minimum(place, b.numel() - 1), axis=0)
    return prim.eq(to_shape(nearest, tuple(a.shape)), a)

"""Memory: strides, contiguity, and changing a tensor in place into another view of itself."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracecomp.eager.device import MemoryFormat
from tracecomp.eager.modes import grad_enabled
from tracecomp.eager.tensor import Tensor, wrap
from tracecomp.eager.tensor_base import blank, take_fields
from tracecomp.functional.dims import Sizes, as_shape
from tracecomp.functional.dtype_support import ALL
from tracecomp.functional.primitives import prim
from tracecomp.functional.publish import function, publish
from tracecomp.functional.shape.shaping import row_major, squeeze, t, transpose, unsqueeze


def strided_positions(size: Sequence[int], stride: Sequence[int], offset: int) -> np.ndarray[Any, Any]:
    """Memory positions, in elements, of a strided tensor."""
    places = np.asarray(offset)
    for n, s in zip(size, stride, strict=True):
        places = places[..., None] + np.arange(n) * s
    return places


@function(takes=ALL, composite=True)
def as_strided(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """A copy of the elements at the given strides of ``input``'s memory; gradients reach what ``input`` shows."""
    places = _checked_places(input, size, stride, storage_offset)
    shown = strided_positions(input.shape, input.stride(), input.storage_offset()).reshape(-1)
    order = np.argsort(shown, kind="stable")
    found = np.searchsorted(shown[order], places).clip(max=max(len(shown) - 1, 0))
    if not shown.size:
        return prim.take(_root(input), wrap(places), axis=0)
    seen = prim.take(prim.reshape(input, shape=(input.numel(),)), wrap(order[found]), axis=0)
    inside = shown[order][found] == places
    if inside.all():
        return seen
    return prim.where(wrap(inside), seen, prim.take(_root(input), wrap(places), axis=0))


def _root(x: Tensor) -> Tensor:
    """All of the memory that ``x`` is a view of."""
    while x._base is not None:
        x = x._base
    return wrap(x._data.reshape(-1))


def _checked_places(
    x: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None
) -> np.ndarray[Any, Any]:
    offset = x.storage_offset() if storage_offset is None else storage_offset
    if len(size) != len(stride):
        raise RuntimeError("mismatch in length of strides and shape")
    if any(s < 0 for s in stride):
        raise RuntimeError(f"as_strided: Negative strides are not supported at the moment, got strides: {list(stride)}")
    places = strided_positions(size, stride, offset)
    extent = _root(x).numel()
    if places.size and places.max() >= extent:
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset} are out of bounds for "
            f"storage of size {extent} elements"
        )
    return places


@function(takes=ALL, composite=True)
def as_strided_scatter(
    input: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """A copy of ``input`` with the elements :func:`as_strided` sees replaced by ``src``."""
    places = _checked_places(input, size, stride, storage_offset or 0).reshape(-1)
    flat = prim.reshape(input, shape=(input.numel(),))
    written = prim.put(flat, wrap(places), prim.reshape(src, shape=(src.numel(),)), axis=0, mode="set")
    return prim.reshape(written, shape=tuple(input.shape))


@function(to="Tensor", takes=ALL)
def contiguous(input: Tensor, memory_format: MemoryFormat = None) -> Tensor:
    """``input`` in row-major memory; itself when it is already."""
    return row_major(input)


def _shape_inplace(name: str, fn: Any) -> None:
    """Publish the in-place form of a view function: the tensor becomes that view of its former self."""

    @functools.wraps(fn)
    def run(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if input.requires_grad and input.is_leaf and grad_enabled():
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        former = blank(type(input))
        take_fields(former, input)
        take_fields(input, fn(former, *args, **kwargs))
        return input

    run.__name__ = run.__qualname__ = f"{name}_"
    run.__doc__ = f"In-place form of :func:`{name}`."
    publish(run, f"Tensor.{name}_")


for _name, _fn in (("squeeze", squeeze), ("unsqueeze", unsqueeze), ("transpose", transpose), ("t", t),
                   ("swapaxes", transpose), ("swapdims", transpose)):  # fmt: skip
    _shape_inplace(_name, _fn)


@function(to="Tensor", takes=ALL)
def resize__(input: Tensor, *sizes: Sizes, memory_format: MemoryFormat = None) -> Tensor:
    """Another size over the same elements in row-major order; new elements are zero."""
    shape = as_shape(sizes)
    flat = np.ravel(input._data)
    count = math.prod(shape)
    if count > flat.size:
        flat = np.concatenate([flat, np.zeros(count - flat.size, flat.dtype)])
    input._data = flat[:count].reshape(shape)
    input._shared_storage().share()
    return input


@function(takes=ALL)
def resize_as__(input: Tensor, other: Tensor, memory_format: MemoryFormat = None) -> Tensor:
    """:func:`resize_` to the size of ``other``."""
    return resize__(input, tuple(other.shape))

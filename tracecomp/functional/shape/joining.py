"""Joining and splitting of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracecomp.eager.aliasing import several_views
from tracecomp.eager.device import contiguous_format, use
from tracecomp.eager.modes import modes
from tracecomp.eager.size import Size
from tracecomp.eager.tensor import Tensor, wrap
from tracecomp.functional.dims import Sizes, as_index, as_shape, clamped, wrap_dim
from tracecomp.functional.dtype_support import ALL
from tracecomp.functional.memory_formats import common_format, copied
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import cast, result_dtype
from tracecomp.functional.publish import function, publish
from tracecomp.functional.shape.shaping import cut_range, flatten, listed, select
from tracecomp.ir.op import OPS
from tracecomp.ir.types import broadcast_shapes

_concat = OPS["concat"].impl


def tensor_list(tensors: object, name: str) -> list[Tensor]:
    """A non-empty list of tensors; PyTorch's errors otherwise."""
    if isinstance(tensors, Tensor) or not isinstance(tensors, Sequence):
        raise TypeError(
            f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not {type(tensors).__name__}"
        )
    for i, x in enumerate(tensors):
        if not isinstance(x, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type(x).__name__}")
    if not tensors:
        if name in ("stack", "hstack", "vstack", "dstack", "column_stack"):
            raise RuntimeError(f"{name} expects a non-empty TensorList")
        raise ValueError(f"torch.{name}(): expected a non-empty list of Tensors")
    return list(tensors)


@function("concat", "concatenate", to="torch", takes=ALL)
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Joined along an existing dimension, in the promoted dtype; 1-d empty tensors are skipped."""
    parts = tensor_list(tensors, "cat")
    if modes.recorder is None and type(dim) is int and _fit(parts, dim):
        axis = dim % parts[0].ndim
        if parts[0].ndim < 4 and not _has_history(parts):
            return wrap(_concat(*[x._data for x in parts], axis=axis))
        joined = prim.concat(*parts, axis=axis)
        return joined if joined.ndim < 4 else copied(parts[0], joined, common_format(parts))
    dtype = result_dtype(*parts)
    # 1-d parts join whether they are empty or not, and a recording need not read their sizes.
    flat = all(x.ndim == 1 for x in parts) and dim in (-1, 0)
    kept = parts if flat else [x for x in parts if tuple(x.shape) != (0,)] or parts[:1]
    first = kept[0]
    for i, x in enumerate(parts):
        if x.ndim == 0:
            raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
    # If all parts are skipped, any dim is valid.
    axis = 0 if flat or tuple(first.shape) == (0,) else wrap_dim(dim, first.ndim)
    for i, x in enumerate(kept):
        if x.ndim != first.ndim:
            raise RuntimeError(f"Tensors must have same number of dimensions: got {first.ndim} and {x.ndim}")
        for d, (n, m) in enumerate(zip(first.shape, x.shape, strict=True)):
            if d != axis and n != m:
                raise RuntimeError(
                    f"Sizes of tensors must match except in dimension {axis}. Expected size {n} but got size {m} "
                    f"for tensor number {i} in the list."
                )
    joined = prim.concat(*(cast(x, dtype) for x in kept), axis=axis)
    return joined if first.ndim < 4 else copied(first, joined, common_format(kept))


def _are_alike(parts: list[Tensor]) -> bool:
    """Whether all have one type and one shape."""
    kind, shape = parts[0]._data.dtype, parts[0]._data.shape
    return all(x._data.dtype is kind and x._data.shape == shape for x in parts)


def _has_history(parts: list[Tensor]) -> bool:
    """Whether joining these tensors makes a node, or something handles it, so that it is more than numpy's function."""
    return bool(use.begun) or (modes.grad and any(x.requires_grad for x in parts))


def _fit(parts: list[Tensor], dim: int) -> bool:
    """Whether all have one type and, except in ``dim``, one shape, so that there is nothing to decide."""
    first = parts[0]._data
    kind, shape, ndim = first.dtype, first.shape, first.ndim
    if not -ndim <= dim < ndim or shape == (0,):
        return False
    axis = dim % ndim
    before, behind = shape[:axis], shape[axis + 1 :]
    for x in parts:
        array = x._data
        own = array.shape
        if array.dtype is not kind or len(own) != ndim or own[:axis] != before or own[axis + 1 :] != behind:
            return False
    return ndim > 1 or all(x._data.size for x in parts)


@function(to="torch", takes=ALL)
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors of one shape joined along a new dimension."""
    parts = tensor_list(tensors, "stack")
    axis = wrap_dim(dim, parts[0].ndim + 1)
    if parts[0].ndim < 3 and modes.recorder is None and _are_alike(parts) and not _has_history(parts):
        shape = parts[0]._data.shape
        lifted_shape = (*shape[:axis], 1, *shape[axis:])
        return wrap(_concat(*[x._data.reshape(lifted_shape) for x in parts], axis=axis))
    for i, x in enumerate(parts):
        if tuple(x.shape) != tuple(parts[0].shape):
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(parts[0].shape)} at entry 0 and "
                f"{list(x.shape)} at entry {i}"
            )
    dtype = result_dtype(*parts)
    shape = tuple(parts[0].shape)
    if axis == 0 and common_format(parts) is not contiguous_format:
        return prim.reshape(cat(parts), shape=(len(parts), *shape))
    lifted = [prim.reshape(cast(x, dtype), shape=(*shape[:axis], 1, *shape[axis:])) for x in parts]
    return prim.concat(*lifted, axis=axis)


def _at_least(x: Tensor, ndim: int) -> Tensor:
    shape = tuple(x.shape)
    if len(shape) >= ndim:
        return x
    shape = (1,) * (min(ndim, 2) - len(shape)) + shape if len(shape) < 2 else shape
    return prim.reshape(x, shape=shape + (1,) * (ndim - len(shape)))


@function(to="torch", takes=ALL)
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along columns (along the only dimension of 1-d tensors)."""
    parts = [_at_least(x, 1) for x in tensor_list(tensors, "hstack")]
    return cat(parts, 0 if parts[0].ndim == 1 else 1)


@function("row_stack", to="torch", takes=ALL)
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along rows."""
    return cat([_at_least(x, 2) for x in tensor_list(tensors, "vstack")], 0)


@function(to="torch", takes=ALL)
def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along the third dimension."""
    return cat([_at_least(x, 3) for x in tensor_list(tensors, "dstack")], 2)


@function(to="torch", takes=ALL)
def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """1-d tensors become columns, then joined along columns."""
    parts = tensor_list(tensors, "column_stack")
    return hstack([prim.reshape(x, shape=(x.numel(), 1)) if x.ndim <= 1 else x for x in parts])


@function(to="torch", takes=ALL, views=True)
def split(tensor: Tensor, split_size_or_sections: Sizes, dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of a size (the last may be smaller), or of the listed sizes, as views."""
    if not isinstance(split_size_or_sections, int) and not hasattr(split_size_or_sections, "__index__"):
        return split_with_sizes(tensor, split_size_or_sections, dim)
    size = as_index(split_size_or_sections)
    if tensor.ndim == 0:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    axis = wrap_dim(dim, tensor.ndim)
    extent = tensor.shape[axis]
    if size < 0:
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={size}")
    if size == 0 and extent:
        raise RuntimeError(f"split_size can only be 0 if dimension size is 0, but got dimension size of {extent}")
    count = max(-(-extent // size), 1) if size else 1
    pieces = (cut_range(tensor, axis, min(i * size, extent), min((i + 1) * size, extent)) for i in range(count))
    return several_views(pieces, "Split")


def _split_method(self: Tensor, split_size: Sizes, dim: int = 0) -> tuple[Tensor, ...]:
    """:func:`split`, as a method, with another name of the second parameter."""
    return split(self, split_size, dim)


publish(_split_method, "Tensor.split")


@function(takes=ALL, views=True)
def split_with_sizes(tensor: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of the listed sizes, which must add up to the extent, as views."""
    axis, sizes = wrap_dim(dim, tensor.ndim), as_shape((tuple(split_sizes),))
    extent = tensor.shape[axis]
    if any(n < 0 for n in sizes):
        raise RuntimeError(f"split_with_sizes expects split_sizes have only non-negative entries, got {list(sizes)}")
    if sum(sizes) != extent:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {extent} (input tensor's size at dimension "
            f"{axis}), but got split_sizes={list(sizes)}"
        )
    pieces, start = [], 0
    for n in sizes:
        pieces.append(cut_range(tensor, axis, start, start + n))
        start += n
    return several_views(pieces, "SplitWithSizes")


@function(takes=ALL, views=True)
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most ``chunks`` pieces of equal size (the last may be smaller), as views."""
    if input.ndim == 0:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    chunks = as_index(chunks)
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    extent = input.shape[wrap_dim(dim, input.ndim)]
    size = -(-extent // chunks)
    if size == 0:
        return split_with_sizes(input, [0] * chunks, dim)
    return split(input, size, dim)


@function(takes=ALL, views=True)
def tensor_split(input: Tensor, indices_or_sections: Sizes | Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The given number of pieces of nearly equal size, or pieces split at the listed indices, as views."""
    if input.ndim == 0:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    axis = wrap_dim(dim, input.ndim)
    extent = input.shape[axis]
    where: object = indices_or_sections.tolist() if isinstance(indices_or_sections, Tensor) else indices_or_sections
    if isinstance(where, int):
        sections = where
        if sections <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {sections}")
        np.empty(sections, np.int64)  # fails at once where a list of so many tensors would fill the memory
        small, larger = divmod(extent, sections)
        cuts = [i * small + min(i, larger) for i in range(1, sections)]
    else:
        if not isinstance(where, Sequence) or isinstance(where, str):
            raise TypeError(f"tensor_split() received an invalid combination of arguments: {type(where).__name__}")
        cuts = [as_index(i) for i in where]
    cuts = [clamped(i, extent) for i in cuts]
    return tuple(cut_range(input, axis, a, max(a, b)) for a, b in zip([0, *cuts], [*cuts, extent], strict=True))


def _family(name: str, ndim: int, axis: int, what: str) -> Any:
    def run(input: Tensor, *indices_or_sections: Sizes) -> tuple[Tensor, ...]:
        if input.ndim < ndim:
            raise RuntimeError(
                f"torch.{name} requires a tensor with at least {ndim} dimension{'s' if ndim > 1 else ''}, "
                f"but got a tensor with {input.ndim} dimensions!"
            )
        where = indices_or_sections[0] if len(indices_or_sections) == 1 else as_shape(indices_or_sections)
        dim = 0 if name == "hsplit" and input.ndim == 1 else axis
        if isinstance(where, int) and (where <= 0 or input.shape[dim] % where):
            raise RuntimeError(
                f"torch.{name} attempted to split along dimension {dim}, but the size of the dimension "
                f"{input.shape[dim]} is not divisible by the split_size {where}!"
            )
        return tensor_split(input, where, dim)

    run.__name__, run.__doc__ = name, f"Pieces along {what}, as views."
    return function(takes=ALL)(run)


_family("hsplit", 1, 1, "columns")
_family("vsplit", 2, 0, "rows")
_family("dsplit", 3, 2, "the third dimension")


@function(takes=ALL, views=True)
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Every slice along a dimension, without that dimension, as views."""
    if input.ndim == 0:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    axis = wrap_dim(dim, input.ndim)
    return several_views((select(input, axis, i) for i in range(input.shape[axis])), "Unbind")


@function(to="torch")
def broadcast_shapes_(*shapes: Sizes) -> Size:
    """The shape that all broadcast to; RuntimeError if they do not broadcast."""
    return Size(broadcast_shapes(*((s,) if isinstance(s, int) else tuple(s) for s in shapes)))


@function(to="torch", takes=ALL)
def meshgrid(*tensors: Tensor | Sequence[Tensor], indexing: str | None = None) -> tuple[Tensor, ...]:
    """Coordinate grids of 1-d tensors; ``indexing`` is ``"ij"`` (default) or ``"xy"``."""
    given = listed(tensors)
    if not given:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    for x in given:
        if x.ndim > 1:
            raise RuntimeError(f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {x}")
        if x.dtype is not given[0].dtype:
            raise RuntimeError("torch.meshgrid expects all tensors to have the same dtype")
    if indexing not in (None, "ij", "xy"):
        raise RuntimeError(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    swap = indexing == "xy" and len(given) >= 2
    axes = list(range(len(given)))
    if swap:
        axes[0], axes[1] = 1, 0
    shape = [0] * len(given)
    for x, axis in zip(given, axes, strict=True):
        shape[axis] = x.numel()
    return tuple(
        prim.expand(
            prim.reshape(x, shape=tuple(x.numel() if i == axis else 1 for i in range(len(axes)))), shape=tuple(shape)
        )
        for x, axis in zip(given, axes, strict=True)
    )


@function(to="torch", takes=ALL)
def cartesian_prod(*tensors: Tensor | Sequence[Tensor]) -> Tensor:
    """Every combination of one element of each tensor, as rows."""
    for x in tensors:
        if isinstance(x, Tensor) and x.ndim != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(x.shape)}")
    if len(tensors) == 1 and isinstance(tensors[0], Tensor):
        return tensors[0]
    return stack([flatten(g) for g in meshgrid(*tensors)], 1)


@function(to="torch", takes=ALL)
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Combinations of ``r`` elements of a 1-d tensor, as rows."""
    if input.ndim != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(input.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return input.new_empty((0,))
    from_ = np.indices((input.numel(),) * r).reshape(r, -1).T
    ordered = from_[:, :-1] <= from_[:, 1:] if with_replacement else from_[:, :-1] < from_[:, 1:]
    picks = from_[ordered.all(axis=1)]
    return prim.take(input, wrap(np.ascontiguousarray(picks)), axis=0)

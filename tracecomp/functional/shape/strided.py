"""Memory: strides, contiguity, and in-place changes of a tensor to another view of itself."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from tracecomp.base.capture_guide import Section
from tracecomp.eager.aliasing import alias, check_history, former_of, reshape_
from tracecomp.eager.device import MemoryFormat, contiguous_format, preserve_format
from tracecomp.eager.memory_formats import lies_in, order_of
from tracecomp.eager.modes import grad_enabled, modes
from tracecomp.eager.tensor import Tensor, wrap
from tracecomp.eager.tensor_base import base_of, owner
from tracecomp.functional.dims import Sizes, as_shape
from tracecomp.functional.dtype_support import ALL
from tracecomp.functional.plain_arguments import need_tensor
from tracecomp.functional.primitives import prim
from tracecomp.functional.publish import function, publish
from tracecomp.functional.shape.shaping import clone, row_major, squeeze, t, to_shape, transpose, unsqueeze, view
from tracecomp.ir.arrays import memory_order
from tracecomp.ir.arrays import row_major as dense_strides


def strided_positions(size: Sequence[int], stride: Sequence[int], offset: int) -> np.ndarray[Any, Any]:
    """Memory positions, in elements, of a strided tensor."""
    places = np.asarray(offset)
    for n, s in zip(size, stride, strict=True):
        places = places[..., None] + np.arange(n) * s
    return places


@function(takes=ALL)
def as_strided(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """A view of ``input``'s memory: element i is at ``storage_offset`` + i * ``stride``.

    RuntimeError for a negative size or stride, and for positions outside the memory.
    """
    size, stride = as_shape((size,)), as_shape((stride,))
    offset = _checked_offset(input, size, stride, storage_offset)
    base, start = _memory_for(input, offset, _extent(size, stride))
    order = memory_order(base._data)
    flat = prim.reshape(base if order is None else prim.permute(base, dims=order), shape=(base.numel(),))
    view = _strided_view(flat, size, stride, start)
    if base is not input and input.requires_grad and grad_enabled():
        found = _shown(input, strided_positions(size, stride, offset))
        view._grad_fn, view._output_nr = found._grad_fn, found._output_nr
    return view


def _strided_view(flat: Tensor, size: Sequence[int], stride: Sequence[int], start: int) -> Tensor:
    """A strided view of flat memory, as windows of windows."""
    stop = start + _extent(size, stride)
    view = prim.slice(flat, starts=(start,), stops=(stop,), steps=(1,))
    if start == stop:
        return prim.reshape(view, shape=tuple(size))
    # The longest strides first: windows then span the least memory.
    dims = sorted((d for d, n in enumerate(size) if n > 1 and stride[d]), key=lambda d: -stride[d])
    for i, d in enumerate(dims):
        span = _extent([size[k] for k in dims[i + 1 :]], [stride[k] for k in dims[i + 1 :]])
        if span == 1:
            steps = (*(1 for _ in dims[:i]), stride[d])
            view = prim.slice(view, starts=(0,) * (i + 1), stops=tuple(view.shape), steps=steps)
        else:
            view = prim.windows(view, sizes=(span,), strides=(stride[d],), dilations=(1,))
    if dims != sorted(dims):
        view = prim.permute(view, dims=tuple(dims.index(d) for d in sorted(dims)))
    view = prim.reshape(view, shape=tuple(n if d in dims else 1 for d, n in enumerate(size)))
    return prim.expand(view, shape=tuple(size))


def _shown(x: Tensor, places: np.ndarray[Any, Any]) -> Tensor:
    """The elements of ``x`` at ``places`` of its memory, and 0 at positions outside ``x``: their gradient is
    dropped."""
    shown = strided_positions(x.shape, x.stride(), x.storage_offset()).reshape(-1)
    order = np.argsort(shown, kind="stable")
    found = np.searchsorted(shown[order], places).clip(max=len(shown) - 1)
    seen = prim.take(prim.reshape(x, shape=(x.numel(),)), wrap(order[found]), axis=0)
    inside = shown[order][found] == places
    return seen if inside.all() else prim.where(wrap(inside), seen, 0)


def _extent(size: Sequence[int], stride: Sequence[int]) -> int:
    """The number of elements of memory from the first element of a strided tensor to its last."""
    return 0 if 0 in size else 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True))


def _memory_for(x: Tensor, offset: int, extent: int) -> tuple[Tensor, int]:
    """A tensor with ``extent`` elements of memory from ``offset`` on: ``x``, its base, or else all of its memory.

    Also returns the offset in it.
    """
    recorder = modes.recorder
    for base in (x, cast("Tensor", base_of(x)) if x._linked else None, alias(cast("Tensor", owner(x)[0]))):
        if base is None:
            continue
        if base.dtype is not x.dtype and base._data.flags.c_contiguous:
            base = view(to_shape(base, (base.numel(),)), x.dtype)
        start = offset - base.storage_offset()
        dense = base._data.flags.c_contiguous or memory_order(base._data) is not None
        dense = dense and base.dtype is x.dtype
        if dense and start >= 0 and start + extent <= base.numel():
            return base, start
        if recorder is not None and x._base is not None and recorder.above(x) is None:
            recorder.refuse_here(
                "reaches memory beyond an argument by as_strided()",
                Section.MEMORY,
                "Pass the whole tensor as an argument",
            )
    raise RuntimeError(
        f"as_strided: {extent} elements at offset {offset} are outside of the dense memory of a tensor of shape "
        f"{list(owner(x)[0].shape)}"
    )


def _checked_offset(x: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None) -> int:
    """The offset of a strided view of ``x``'s memory, after checks."""
    offset = x.storage_offset() if storage_offset is None else storage_offset
    if storage_offset is not None and modes.recorder is not None:
        modes.recorder.ask(x, "storage_offset")
    if len(size) != len(stride):
        raise RuntimeError("mismatch in length of strides and shape")
    if any(n < 0 for n in size):
        raise RuntimeError(f"as_strided: negative sizes are not supported, got sizes: {list(size)}")
    if any(s < 0 for s in stride):
        raise RuntimeError(f"as_strided: Negative strides are not supported at the moment, got strides: {list(stride)}")
    have, extent = owner(x)[0]._data.nbytes // x.element_size(), _extent(size, stride)
    if offset < 0 or (extent and offset + extent > have):
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset} are out of bounds for "
            f"storage of size {have} elements"
        )
    return offset


@function(takes=ALL, composite=True)
def as_strided_scatter(
    input: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """A copy of ``input`` with the elements of :func:`as_strided` replaced by ``src``."""
    offset = _checked_offset(input, size, stride, storage_offset or 0)
    places = strided_positions(size, stride, offset).reshape(-1)
    flat = prim.reshape(input, shape=(input.numel(),))
    written = prim.put(flat, wrap(places), prim.reshape(src, shape=(src.numel(),)), axis=0, mode="set")
    return prim.reshape(written, shape=tuple(input.shape))


@function(to="Tensor", takes=ALL, views=True)
def contiguous(input: Tensor, memory_format: MemoryFormat = None) -> Tensor:
    """``input`` in row-major memory, or in ``memory_format``; unchanged if it already is."""
    if memory_format is None or memory_format is contiguous_format:
        return row_major(input)
    if memory_format is preserve_format:
        if input._data.flags.c_contiguous:
            return input
        raise RuntimeError("preserve memory format is unsupported by the contiguous operator")
    return input if lies_in(input._data, memory_format) else clone(input, memory_format=memory_format)


def _become(input: Tensor, view_of: Callable[[Tensor], Tensor]) -> Tensor:
    """Make ``input`` the view that ``view_of`` returns of its former self.

    The view takes part in histories in any mode, except inference mode. ``input`` itself does not count as a view, and
    may be written where views created without gradients may not.
    """
    former = former_of(input)
    before, modes.grad = modes.grad, modes.grad or not (modes.inference or input._quiet)
    try:
        found = view_of(former)
    finally:
        modes.grad = before
    reshape_(input, former, found)
    return input


def _shape_inplace(name: str, fn: Any) -> None:
    """Publish the in-place form of a view function: the tensor becomes that view of its former self."""

    @functools.wraps(fn)
    def run(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        need_tensor(f"{name}_", input)
        if input.requires_grad and grad_enabled():
            check_history(input)
        return _become(input, lambda former: fn(former, *args, **kwargs))

    run.__name__ = run.__qualname__ = f"{name}_"
    run.__doc__ = f"In-place form of :func:`{name}`."
    publish(run, f"Tensor.{name}_")


for _name, _fn in (("squeeze", squeeze), ("unsqueeze", unsqueeze), ("transpose", transpose), ("t", t),
                   ("swapaxes", transpose), ("swapdims", transpose), ("as_strided", as_strided)):  # fmt: skip
    _shape_inplace(_name, _fn)


@function(to="Tensor", takes=ALL)
def resize__(input: Tensor, *sizes: Sizes, memory_format: MemoryFormat = None) -> Tensor:
    """Resize over the same memory in row-major order, or in ``memory_format``.

    If the memory is too small, the tensor gets new memory, and new elements are zero. Earlier views keep the old
    memory; in PyTorch they would share the new one.
    """
    shape = as_shape(sizes)
    if input.requires_grad:
        raise RuntimeError("cannot resize variables that require grad")
    count = math.prod(shape)
    if any(n < 0 for n in shape) or count * input.itemsize >= 2**63:
        raise RuntimeError(f"resize_: shape {list(shape)} of {input.dtype} is negative or exceeds the address space")
    if shape == tuple(input.shape) and memory_format is None:
        return input
    order = order_of(memory_format or contiguous_format, len(shape))
    if _fits(input, count):
        strides = [0] * len(shape)
        for d, n in zip(order, dense_strides(tuple([shape[d] for d in order])), strict=True):
            strides[d] = n
        return _become(input, lambda former: as_strided(former, shape, strides))
    if modes.recorder is not None:
        modes.recorder.resize(input)
    version = input._version
    memory = owner(input)[0]._data
    flat = np.ravel(memory, "K")[input.storage_offset() :] if _is_whole(memory, input) else np.ravel(input._data)
    if count > flat.size:
        flat = np.concatenate([flat, np.zeros(count - flat.size, flat.dtype)])
    input.data = wrap(flat[:count].reshape([shape[d] for d in order]).transpose(np.argsort(order)))
    return counted(input, version)


def counted(t: Tensor, before: int) -> Tensor:
    """``t``, whose memory was replaced, with one write more than the ``before`` it had."""
    t._shared_storage().version = before + 1
    return t


def _fits(x: Tensor, count: int) -> bool:
    """Whether ``count`` elements fit the memory of ``x`` from its first one on, and a view can show them."""
    memory = owner(x)[0]._data
    return _is_whole(memory, x) and x.storage_offset() + count <= memory.size


def _is_whole(memory: np.ndarray[Any, Any], x: Tensor) -> bool:
    """Whether ``memory``, the base of ``x``, consists of elements like those of ``x`` without gaps."""
    dense = memory.flags.c_contiguous or memory_order(memory) is not None
    return dense and memory.dtype == x._data.dtype and not x.is_meta


@function(takes=ALL)
def resize_as__(input: Tensor, other: Tensor, memory_format: MemoryFormat = None) -> Tensor:
    """:func:`resize_` to the size of ``other``."""
    return resize__(input, tuple(other.shape))

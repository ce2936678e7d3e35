"""Reshaping, reordering, broadcasting and slicing of tensors: views wherever memory permits."""

from __future__ import annotations

import math
import typing
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracecomp.base.user_warnings import warn_as_pytorch
from tracecomp.eager.device import MemoryFormat, use
from tracecomp.eager.meta import contiguous
from tracecomp.eager.modes import modes
from tracecomp.eager.tensor import Tensor, wrap
from tracecomp.functional.dims import Shape, Sizes, as_index, as_shape, infer_size, plain_shape, wrap_dim, wrap_dims
from tracecomp.functional.dtype_support import ALL
from tracecomp.functional.memory_formats import copied
from tracecomp.functional.primitives import prim
from tracecomp.functional.publish import PLAIN_TENSORS, function, publish
from tracecomp.functional.viewed import Viewed
from tracecomp.ir.types import DType, broadcast_shapes, int64, same_shape


def to_shape(x: Tensor, shape: Sequence[int]) -> Tensor:
    """``x`` reshaped, or itself when it has the shape."""
    return x if same_shape(x.shape, shape) else prim.reshape(x, shape=tuple(shape))


@function(takes=ALL, views=True)
def reshape(input: Tensor, *shape: Sizes) -> Tensor:
    """The same elements under another shape (one -1 is inferred); a view when strides allow, else a copy."""
    return prim.reshape(input, shape=infer_size(as_shape(shape), input.numel()))


@function(to="Tensor", takes=ALL, views=True)
def view(input: Tensor, *size: Sizes | DType, dtype: DType | None = None) -> Tensor:
    """A view under another shape or, with a dtype, of the same bytes. RuntimeError when memory does not allow it.

    A view of the bytes has no derivative, except between complex numbers and their parts.
    """
    if size and isinstance(size[0], DType):
        dtype = size[0]
    if dtype is not None:
        return _view_dtype(input, dtype)
    target = infer_size(as_shape(size), input.numel())
    try:
        input._data.reshape(plain_shape(target), copy=False)
    except ValueError:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across "
            "two contiguous subspaces). Use .reshape(...) instead."
        ) from None
    return prim.reshape(input, shape=target)


def _check_wider(x: Tensor, dtype: DType) -> None:
    """RuntimeError unless rows of ``x`` begin at whole elements of the wider ``dtype``."""
    factor = dtype.itemsize // x.dtype.itemsize
    names = f"view {x.dtype.name} as {dtype.name} (different element sizes)"
    if x.ndim and x.shape[-1] % factor:
        raise RuntimeError(f"self.size(-1) must be divisible by {factor} to {names}, but got {x.shape[-1]}")
    if modes.recorder is not None:
        modes.recorder.ask(x, "storage_offset", factor)
    if x.storage_offset() % factor:
        raise RuntimeError(
            f"self.storage_offset() must be divisible by {factor} to {names}, but got {x.storage_offset()}"
        )
    for d, s in enumerate(x.stride()[:-1]):
        if s % factor and x.shape[d] > 1:
            raise RuntimeError(f"self.stride({d}) must be divisible by {factor} to {names}, but got {s}")


def _view_dtype(x: Tensor, dtype: DType) -> Tensor:
    if x.dtype is dtype:
        return prim.reshape(x, shape=tuple(x.shape))
    sizes_differ = x.dtype.itemsize != dtype.itemsize
    complex_to_or_from = x.dtype.is_complex or dtype.is_complex
    if x.ndim and (sizes_differ or complex_to_or_from) and x.shape[-1] > 1 and x._data.strides[-1] != x.dtype.itemsize:
        raise RuntimeError(
            f"self.stride(-1) must be 1 to view {x.dtype.name} as {dtype.name} (different element sizes), but got "
            f"{x.stride(-1)}"
        )
    if dtype.itemsize > x.dtype.itemsize:
        _check_wider(x, dtype)
    if not complex_to_or_from:
        return prim.reinterpret(x, dtype=dtype)
    if sizes_differ and x.ndim == 0:
        raise RuntimeError(f"self.dim() cannot be 0 to view {x.dtype.name} as {dtype.name} (different element sizes)")
    # A complex number is viewed as its two real ones, and joined again if the result is complex.
    parts = prim.view_as_real(x) if x.dtype.is_complex else prim.reshape(x, shape=(*x.shape, 1))
    flat = prim.reshape(parts, shape=(*x.shape[:-1], parts.numel() // max(math.prod(x.shape[:-1]), 1)))
    if flat.dtype is not dtype.to_real():
        flat = prim.reinterpret(flat, dtype=dtype.to_real())
    if dtype.is_complex:
        if flat.shape[-1] % 2:
            raise RuntimeError(
                f"self.size(-1) must be divisible by 2 to view {x.dtype.name} as {dtype.name} (different element "
                f"sizes), but got {x.shape[-1]}"
            )
        flat = prim.view_as_complex(prim.reshape(flat, shape=(*flat.shape[:-1], flat.shape[-1] // 2, 2)))
    return prim.reshape(flat, shape=()) if x.ndim == 0 else flat


@function(to="Tensor", takes=ALL)
def view_as(input: Tensor, other: Tensor) -> Tensor:
    """:func:`view` with the shape of ``other``."""
    return view(input, tuple(other.shape))


@function(to="Tensor", takes=ALL)
def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    """:func:`reshape` with the shape of ``other``."""
    return reshape(input, tuple(other.shape))


@function(takes=ALL)
def ravel(input: Tensor) -> Tensor:
    """All elements in one dimension, dense: a view of ``input`` when it is."""
    return to_shape(row_major(input), (input.numel(),))


@function(takes=ALL, views=True)
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dimensions ``start_dim`` to ``end_dim`` merged into one."""
    first, last = wrap_dim(start_dim, input.ndim), wrap_dim(end_dim, input.ndim)
    if input.ndim == 0:
        return prim.reshape(input, shape=(1,))
    if first > last:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if first == last:
        return input
    shape = tuple(input.shape)
    return prim.reshape(input, shape=(*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))


@function(takes=ALL, views=True)
def unflatten(input: Tensor, dim: int, sizes: Sizes) -> Tensor:
    """Dimension ``dim`` split into ``sizes`` (one may be -1)."""
    axis, shape = wrap_dim(dim, input.ndim), tuple(input.shape)
    sizes = as_shape((sizes,))
    if not sizes:
        raise RuntimeError("unflatten: sizes must be non-empty")
    try:
        inner = infer_size(sizes, shape[axis])
    except RuntimeError:
        raise RuntimeError(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {axis} "
            f"({shape[axis]}) in the input tensor"
        ) from None
    return prim.reshape(input, shape=(*shape[:axis], *inner, *shape[axis + 1 :]))


@function(takes=ALL, views=True)
def permute(input: Tensor, *dims: Sizes) -> Tensor:
    """Dimensions in the given order, as a view."""
    order = as_shape(dims)
    if len(order) != input.ndim:
        raise RuntimeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired "
            f"ordering of dimensions i.e. input.dim() = {input.ndim} is not equal to len(dims) = {len(order)}"
        )
    try:
        return prim.permute(input, dims=wrap_dims(order, input.ndim))
    except RuntimeError:
        raise RuntimeError(f"permute(): duplicate dims are not allowed. {order}") from None


@function("swapaxes", "swapdims", takes=ALL, views=True)
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions swapped, as a view."""
    a, b = wrap_dim(dim0, input.ndim), wrap_dim(dim1, input.ndim)
    order = list(range(input.ndim))
    if order:
        order[a], order[b] = order[b], order[a]
    return prim.permute(input, dims=tuple(order))


@function(takes=ALL, views=True)
def t(input: Tensor) -> Tensor:
    """The transpose of a tensor of at most two dimensions."""
    if input.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")
    return prim.permute(input, dims=tuple(reversed(range(input.ndim))))


@function(takes=ALL, views=True)
def adjoint(input: Tensor) -> Tensor:
    """The last two dimensions swapped, and the conjugate of complex tensors."""
    found = matrix_transpose(input, "adjoint()")
    return prim.conj(found) if input.dtype.is_complex else found


def matrix_transpose(x: Tensor, name: str = "tensor.mT") -> Tensor:
    """The last two dimensions swapped; RuntimeError below two dimensions."""
    if x.ndim < 2:
        raise RuntimeError(f"{name} is only supported on matrices or batches of matrices. Got {x.ndim}-D tensor.")
    return prim.permute(x, dims=(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def _reversed(x: Tensor) -> Tensor:
    if x.ndim not in (0, 2):
        warn_as_pytorch(
            "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated and it will "
            "throw an error in a future release. Consider `x.mT` to transpose batches of matrices or "
            "`x.permute(*torch.arange(x.ndim - 1, -1, -1))` to reverse the dimensions of a tensor."
        )
    return prim.permute(x, dims=tuple(reversed(range(x.ndim))))


def _transposed_conjugate(self: Tensor) -> Tensor:
    """The transposed matrix, conjugate if complex."""
    if self.ndim not in (0, 2):
        raise RuntimeError(f"tensor.H is only supported on matrices (2-D tensors). Got {self.ndim}-D tensor.")
    return t(self).conj()


_turned, _turned_last = Viewed(_reversed), Viewed(matrix_transpose)


def _transposed(x: Tensor) -> Tensor:
    """All dimensions reversed."""
    return _turned(x) if type(x) in PLAIN_TENSORS and x._data.ndim == 2 else _reversed(x)


def _last_transposed(x: Tensor) -> Tensor:
    """The last two dimensions swapped."""
    return _turned_last(x) if type(x) in PLAIN_TENSORS else matrix_transpose(x)


publish(property(_transposed, doc="All dimensions reversed."), "Tensor.T")
publish(property(_transposed_conjugate, doc=_transposed_conjugate.__doc__), "Tensor.H")
publish(property(_last_transposed, doc="The last two dimensions swapped."), "Tensor.mT")
publish(property(adjoint, doc="The last two dimensions swapped, conjugate if complex."), "Tensor.mH")


@function("moveaxis", takes=ALL, views=True)
def movedim(input: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Dimensions ``source`` moved to positions ``destination``, the others in order."""
    src = _moved_dims("source", source, input.ndim)
    dst = _moved_dims("destination", destination, input.ndim)
    if len(src) != len(dst):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({list(src)} dims) should contain the same number "
            f"of dims as destination ({list(dst)} dims)"
        )
    rest = iter([d for d in range(input.ndim) if d not in src])
    place = dict(zip(dst, src, strict=True))
    return prim.permute(input, dims=tuple(place[i] if i in place else next(rest) for i in range(input.ndim)))


def _moved_dims(name: str, dims: int | Sequence[int], ndim: int) -> Shape:
    found = tuple(wrap_dim(d, ndim) for d in as_shape((dims,)))
    if len(set(found)) < len(found):
        raise RuntimeError(f"movedim: repeated dim in `{name}` ({list(found)})")
    return found


@function(takes=ALL, views=True)
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """A dimension of size 1 inserted at ``dim``."""
    axis = wrap_dim(dim, input.ndim + 1)
    shape = tuple(input.shape)
    return prim.reshape(input, shape=(*shape[:axis], 1, *shape[axis:]))


@function(takes=ALL, views=True)
def squeeze(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Dimensions of size 1 removed: all, or those named."""
    axes = range(input.ndim) if dim is None else wrap_dims(as_shape((dim,)), input.ndim)
    shape = tuple(n for i, n in enumerate(input.shape) if n != 1 or i not in axes)
    return prim.reshape(input, shape=shape)


@function(to="Tensor", takes=ALL, views=True)
def expand(input: Tensor, *size: Sizes, implicit: bool = False) -> Tensor:
    """Repeated along new leading dimensions and dimensions of size 1 (-1 keeps a size), as a view."""
    shape = as_shape(size)
    lead = len(shape) - input.ndim
    if lead < 0:
        raise RuntimeError(
            f"expand({list(input.shape)}, size={list(shape)}): the number of sizes provided ({len(shape)}) must be "
            f"greater or equal to the number of dimensions in the tensor ({input.ndim})"
        )
    full = tuple(input.shape[i - lead] if n == -1 and i >= lead else n for i, n in enumerate(shape))
    if any(n < 0 for n in full):
        raise RuntimeError(
            "The expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension 0"
            if -1 in full[:lead]
            else f"expand: negative size in {list(shape)}"
        )
    return prim.expand(input, shape=full)


@function(to="Tensor", takes=ALL)
def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """:func:`expand` to the shape of ``other``."""
    return expand(input, tuple(other.shape))


@function(takes=ALL)
def broadcast_to(input: Tensor, size: Sequence[int]) -> Tensor:
    """:func:`expand` to ``size``."""
    return expand(input, as_shape((size,)))


def listed(tensors: tuple[Tensor | Sequence[Tensor], ...]) -> tuple[Tensor, ...]:
    """Tensors that were given one by one or as one sequence."""
    if len(tensors) == 1 and not isinstance(tensors[0], Tensor):
        return tuple(tensors[0])
    return typing.cast("tuple[Tensor, ...]", tensors)


@function(to="torch", takes=ALL)
def broadcast_tensors(*tensors: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    """All tensors expanded to their common shape."""
    given = listed(tensors)
    shape = broadcast_shapes(*(tuple(x.shape) for x in given))
    return tuple(prim.expand(x, shape=shape) for x in given)


@function(to="Tensor", takes=ALL)
def sum_to_size(input: Tensor, *size: Sizes) -> Tensor:
    """Summed so that it has ``size``, which must broadcast to the present shape."""
    shape = as_shape(size)
    lead = input.ndim - len(shape)
    fits = lead >= 0 and all(n in (1, m) for n, m in zip(shape, input.shape[max(lead, 0) :], strict=True))
    if not fits:
        raise RuntimeError(f"size {{{list(shape)}}} is not expandable to size {{{list(input.shape)}}}.")
    axes = tuple(i for i in range(input.ndim) if i < lead or (shape[i - lead] == 1 and input.shape[i] != 1))
    if shape and not axes:
        return input
    x = input if input.dtype.differentiable else prim.cast(input, dtype=int64)
    return to_shape(prim.sum(x, axes=axes), shape)


def cut_range(x: Tensor, axis: int, start: int, stop: int, step: int = 1) -> Tensor:
    """Positions start, start + step, ... below stop of one axis, as a view."""
    n = x.ndim
    return prim.slice(
        x,
        starts=tuple(start if i == axis else 0 for i in range(n)),
        stops=tuple(stop if i == axis else x.shape[i] for i in range(n)),
        steps=tuple(step if i == axis else 1 for i in range(n)),
    )


@function(takes=ALL, views=True)
def narrow(input: Tensor, dim: int, start: int | Tensor, length: int) -> Tensor:
    """``length`` positions of ``dim`` from ``start`` on, as a view."""
    if input.ndim == 0:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    if isinstance(start, Tensor) and (start.ndim or start.dtype.kind != "int"):
        raise RuntimeError("start must be an 0-dim integral Tensor.")
    axis, start = wrap_dim(dim, input.ndim), as_index(start)
    size = input.shape[axis]
    if not -size <= start <= size:
        raise IndexError(f"start out of range (expected to be in range of [{-size}, {size}], but got {start})")
    start = start + size if start < 0 else start
    if start + length > size:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    return cut_range(input, axis, start, start + length)


@function(takes=ALL, views=True)
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """The slice at ``index`` of ``dim``, without the dimension, as a view."""
    if input.ndim == 0:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    axis, index = wrap_dim(dim, input.ndim), int(index)
    size = input.shape[axis]
    if not -size <= index < size:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(input.shape)} at dimension {axis}"
        )
    index %= size
    piece = cut_range(input, axis, index, index + 1)
    return prim.reshape(piece, shape=tuple(n for i, n in enumerate(input.shape) if i != axis))


@function(takes=ALL, composite=True, views=True)
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A view of the diagonal of the plane of ``dim1`` and ``dim2``, as the last dimension."""
    a, b = wrap_dim(dim1, input.ndim), wrap_dim(dim2, input.ndim)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    if input.stride(a) < input.stride(b):
        a, b, offset = b, a, -offset
    rest = tuple(i for i in range(input.ndim) if i not in (a, b))
    plane = prim.permute(input, dims=(*rest, a, b))
    lead, rows, columns = tuple(plane.shape[:-2]), plane.shape[-2], plane.shape[-1]
    first_row, first_column = max(-offset, 0), max(offset, 0)
    count = max(min(rows - first_row, columns - first_column), 0)
    if count == 0:
        return prim.reshape(cut_range(plane, len(lead), 0, 0), shape=(*lead, 0))
    band = cut_range(plane, len(lead), first_row, first_row + count)
    if not _rows_follow(band._data):
        return prim.diagonal(cut_range(band, len(lead) + 1, first_column, first_column + count))
    flat = prim.reshape(band, shape=(*lead, count * columns))
    return cut_range(flat, len(lead), first_column, first_column + (count - 1) * (columns + 1) + 1, columns + 1)


def _rows_follow(plane: np.ndarray[Any, Any]) -> bool:
    """Whether the rows of the last two axes are contiguous, so that both can be one axis."""
    rows, columns = plane.shape[-2:]
    return 1 in (rows, columns) or plane.strides[-2] == columns * plane.strides[-1]


@function(to="Tensor", takes=ALL, views=True)
def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows of ``size`` every ``step`` positions of ``dimension``; the position in the window is the last
    dimension."""
    axis = wrap_dim(dimension, input.ndim)
    if size < 0 or step <= 0:
        raise RuntimeError(f"size is {size} but must be >= 0" if size < 0 else f"step is {step} but must be > 0")
    extent = input.shape[axis] if input.ndim else 1
    if size > extent:
        raise RuntimeError(f"maximum size for tensor at dimension {axis} is {extent} but size is {size}")
    if input.ndim == 0:
        return prim.reshape(input, shape=(1,)) if size else cut_range(prim.reshape(input, shape=(1,)), 0, 0, 0)
    moved = movedim(input, axis, -1)
    if size == 0:
        count = extent // step + 1
        empty = cut_range(unsqueeze(moved, -1), input.ndim, 0, 0)
        shape = (*moved.shape[:-1], count, 0)
        return movedim(prim.reshape(empty, shape=shape), -2, axis)
    windows = prim.windows(moved, sizes=(size,), strides=(step,), dilations=(1,))
    return movedim(windows, -2, axis)


def row_major(x: Tensor) -> Tensor:
    """``x``, or a copy in row-major memory that is part of the same computation."""
    if x._data.flags.c_contiguous:
        return x
    if modes.recorder is None and not use.begun and not (modes.grad and x.requires_grad):
        return wrap(contiguous(x._data))
    copied = prim.cast(x, dtype=x.dtype)
    copied._data = contiguous(copied._data)
    return copied


def in_new_memory(result: Tensor, *operands: Tensor) -> Tensor:
    """``result``, or a copy if it shares the memory of an operand."""
    shares = any(np.may_share_memory(result._data, x._data) for x in operands)
    return prim.cast(result, dtype=result.dtype) if shares else result


@function(takes=ALL)
def clone(input: Tensor, *, memory_format: MemoryFormat = None) -> Tensor:
    """A copy, in ``memory_format`` or in the order of ``input``; gradients flow through it."""
    return copied(input, prim.cast(input, dtype=input.dtype), memory_format)

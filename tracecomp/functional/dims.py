"""Dimension and size arguments: negative dims, tuples, varargs, with PyTorch's errors."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tracecomp.base.errors import fits_64_bits, refuse_long
from tracecomp.eager.tensor import Tensor

Shape: TypeAlias = tuple[int, ...]
Sizes: TypeAlias = int | Sequence[int]
Dim: TypeAlias = int | Sequence[int] | None


_MOST_ELEMENTS = 2**59
"""More elements than any memory can have, of any type."""
_MANY_ELEMENTS = 2**24
"""Fewer elements are allocated without a check; they take little time whatever is computed first."""


def wrap_dim(dim: int, ndim: int) -> int:
    """``dim`` as a non-negative axis; a 0-d tensor counts as one axis. IndexError when out of range.

    ValueError when it has more than 64 bits.
    """
    span = max(ndim, 1)
    try:
        dim = operator.index(dim)
    except TypeError:
        raise TypeError(f"dim must be an int, not {type(dim).__name__}") from None
    if not -span <= dim < span:
        as_index(dim)
        raise IndexError(f"Dimension out of range (expected to be in range of [{-span}, {span - 1}], but got {dim})")
    return dim % span


def wrap_dims(dims: Iterable[int], ndim: int) -> Shape:
    """Every dim wrapped, in the given order; RuntimeError when one is named twice."""
    wrapped = tuple(wrap_dim(d, ndim) for d in dims)
    for d in wrapped:
        if wrapped.count(d) > 1:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
    return wrapped


def reduce_axes(dim: int | Sequence[int] | None, ndim: int) -> Shape:
    """The axes a reduction drops, sorted; None and the empty tuple mean all of them."""
    if dim is None:
        return tuple(range(ndim))
    if isinstance(dim, int) or not isinstance(dim, Sequence):
        axis = wrap_dim(dim, ndim)
        return (axis,) if ndim else ()
    if not len(dim):
        return tuple(range(ndim))
    axes = wrap_dims(dim, ndim)
    return tuple(sorted(axes)) if ndim else ()


def one_axis(dim: int, ndim: int, what: str, shape: Shape) -> int:
    """A dim whose extent must not be zero (max, median, ...)."""
    axis = wrap_dim(dim, ndim)
    if ndim and shape[axis] == 0:
        raise IndexError(f"{what}(): Expected reduction dim {axis} to have non-zero size.")
    return axis


def keep_dims(shape: Sequence[int], axes: Sequence[int]) -> Shape:
    """``shape`` with the reduced axes as ones."""
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def as_index(n: Any) -> int:
    """``n`` as an int of 64 bits; a dynamic size of a recording is returned unchanged."""
    if type(n) is int:
        refuse_long(n)
        return n
    return n if isinstance(n, int) and not isinstance(n, bool) else operator.index(n)


def check_memory(input: Tensor, shape: Sequence[int]) -> None:
    """Raise numpy's error if memory for a result of ``shape`` and the type of ``input`` cannot be allocated.

    For functions that compute positions along the axes before they compute the result.
    """
    plain = plain_shape(shape)
    if math.prod(plain) > _MANY_ELEMENTS and not input.is_meta:
        np.empty(plain, input.dtype.numpy)  # takes no time: the operating system adds pages at the first write


def plain_shape(shape: Sequence[int]) -> Shape:
    """``shape`` for numpy, with plain ints instead of dynamic sizes: for inspection, not for decisions."""
    return tuple([n if type(n) is int else getattr(n, "value", n) for n in shape])


def is_index(n: object) -> bool:
    """Whether ``n`` is an integer or a dynamic one; a dynamic float has ``__index__`` without its meaning."""
    return hasattr(n, "__index__") and not isinstance(n, float)


def as_shape(args: Any) -> Shape:
    """A size given as varargs, one sequence, or one int."""
    if isinstance(args, int):
        args = (args,)
    if len(args) == 1 and hasattr(args[0], "__iter__") and getattr(args[0], "ndim", 1) != 0:
        args = tuple(args[0])
    if args and isinstance(args[0], bool):  # PyTorch checks only the first element
        raise TypeError("argument 'size' must be tuple of ints, but found element of type bool at pos 0")
    try:
        return tuple(as_index(n) for n in args)
    except ValueError as error:
        place = 1 + next(i for i, n in enumerate(args) if not fits_64_bits(n))
        raise TypeError(f"argument 'size' must be tuple of ints; at pos {place}, {error}") from None
    except TypeError:
        # Every tensor has __index__, but only one integer can be converted by it.
        kind = next(n for n in args if not is_index(n) or isinstance(n, Tensor)).__class__.__name__
        raise TypeError(f"size must be a tuple of ints, but found element of type {kind}") from None


def _given_plainly(args: object) -> Shape | None:
    """A size in the usual form of plain ints, or one tuple of them; None for other forms."""
    if type(args) is not tuple:
        return None
    shape: Shape = args[0] if len(args) == 1 and type(args[0]) is tuple else args
    for n in shape:
        if type(n) is not int:
            return None
    return shape


def new_shape(args: object) -> Shape:
    """A size for a factory function: no negative extents."""
    shape = _given_plainly(args) or as_shape(args)
    for n in shape:
        if n < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: {list(shape)}")
    if math.prod(shape) > _MOST_ELEMENTS:
        as_shape(shape)
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)}")
    return shape


def _invalid(shape: Sequence[int], numel: int) -> RuntimeError:
    return RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")


def infer_size(shape: Sequence[int], numel: int) -> Shape:
    """``shape`` with its one -1 filled in so that it holds ``numel`` elements."""
    unknown = [i for i, n in enumerate(shape) if n == -1]
    if len(unknown) > 1:
        raise RuntimeError("only one dimension can be inferred")
    for n in shape:
        if n < -1:
            raise RuntimeError(f"invalid shape dimension {n} at index {list(shape).index(n)} of shape {list(shape)}")
    if not unknown:
        if math.prod(shape) != numel:
            raise _invalid(shape, numel)
        return tuple(shape)
    known = math.prod(n for n in shape if n != -1)
    if known == 0:
        if numel == 0:
            raise RuntimeError(
                f"cannot reshape tensor of 0 elements into shape {list(shape)} because the unspecified dimension "
                "size -1 can be any value and is ambiguous"
            )
        raise _invalid(shape, numel)
    if numel % known:
        raise _invalid(shape, numel)
    return tuple(numel // known if n == -1 else n for n in shape)


def clamped(at: int, size: int) -> int:
    """A bound of a slice, clamped to the axis: negative ones count from the end."""
    if at < 0:
        at += size
    return min(max(at, 0), size)

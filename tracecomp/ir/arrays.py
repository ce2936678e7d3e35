"""numpy arrays: allocation at cache lines, work on long arrays in pieces, and bitwise comparison.

numpy's large arrays do not begin at a line. A vector across two lines takes two reads, which slows sums and transposes
by a tenth to a half.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from tracecomp.ir.loops import LINE

Array = np.ndarray[Any, Any]
SMALL_BYTES = 65536
"""Largest size that ``malloc`` allocates from its heap; smaller arrays have any alignment."""
CACHED_ELEMENTS = 8192
"""Elements of a piece; 64 KB in float64."""


def new_array(shape: tuple[int, ...], dtype: Any) -> Array:
    """A new array with any contents; small ones with numpy's alignment."""
    dtype = np.dtype(dtype)
    nbytes = dtype.itemsize * prod(shape)
    if nbytes <= SMALL_BYTES:
        return np.empty(shape, dtype)
    memory = np.empty(nbytes + LINE, np.uint8)
    start = -memory.__array_interface__["data"][0] % LINE
    array: Array = memory[start : start + nbytes].view(dtype).reshape(shape)
    return array


def row_major_copy(array: Array) -> Array:
    """A copy of ``array`` in row-major order."""
    made = new_array(array.shape, array.dtype)
    fill(made, array)
    return made


def fill(made: Array, array: Array) -> None:
    """Copy the elements of ``array`` into ``made``, which has its shape and type.

    numpy reads in the memory order of ``made``, in which elements of ``array`` may be far apart. If that many lines do
    not stay in cache, each element reads its line again. This function copies pieces whose lines stay in cache.
    """
    if array.nbytes >= _MUCH and array.ndim > 1:
        near = min(range(array.ndim), key=lambda axis: (made.shape[axis] == 1, abs(made.strides[axis])))
        if made.shape[near] >= _FAR and abs(array.strides[near]) >= LINE:
            made, array = made.swapaxes(near, -1), array.swapaxes(near, -1)
            for k in range(0, made.shape[-1], _LINES):
                np.copyto(made[..., k : k + _LINES], array[..., k : k + _LINES])
            return
    np.copyto(made, array)


_MUCH, _FAR, _LINES = 2**20, 512, 32
"""Bytes, elements in a row, and lines that stay in cache."""


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides, in elements, of an array in row-major order; an extent of 0 counts as 1."""
    return tuple(prod(max(n, 1) for n in shape[k + 1 :]) for k in range(len(shape)))


def memory_order(array: Array) -> tuple[int, ...] | None:
    """The axes of a dense ``array`` in the order of memory; None when that is row-major, or it is not dense.

    Axes of one element are placed by their strides, if the strides are those of the order.
    """
    if array.flags.c_contiguous and array.strides == row_major_strides(array.shape, array.itemsize):
        return None
    order = tuple(sorted(range(array.ndim), key=lambda k: (-array.strides[k], -array.shape[k])))
    turned = array.transpose(order)
    if array.flags.c_contiguous:
        return order if turned.strides == row_major_strides(turned.shape, array.itemsize) else None
    return order if turned.flags.c_contiguous else None


def row_major_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Strides in bytes of an array in row-major order."""
    return tuple(itemsize * prod(shape[k + 1 :]) for k in range(len(shape)))


def at_line(array: Array) -> Array:
    """The array, or a copy that begins at a line."""
    if array.nbytes <= SMALL_BYTES or array.__array_interface__["data"][0] % LINE == 0:
        return array
    placed = new_array(array.shape, array.dtype)
    np.copyto(placed, array)
    return placed


def cached_slices(size: int) -> Iterator[slice]:
    """Slices that cover ``size`` elements, short enough that a few temporaries of that length stay in cache."""
    for start in range(0, size, CACHED_ELEMENTS):
        yield slice(start, start + CACHED_ELEMENTS)


def same_bits(a: Array, b: Array, any_nan: bool = False) -> bool:
    """Whether two arrays are equal to the last bit; with ``any_nan``, all NaNs count as equal, as their bits have no
    meaning."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind in "biu":
        return bool(np.array_equal(a, b))
    if any_nan and a.dtype.kind == "c":  # one part may be NaN, and the other differ
        a, b = (np.ascontiguousarray(x).view(f"f{x.itemsize // 2}") for x in (a, b))
    whole = np.dtype(f"V{a.dtype.itemsize}") if a.dtype.itemsize > 8 else np.dtype(f"u{a.dtype.itemsize}")
    same = np.ascontiguousarray(a).view(whole) == np.ascontiguousarray(b).view(whole)
    return bool(np.all(same | ((a != a) & (b != b)) if any_nan else same))


def in_parts(array: Any) -> Any:
    """View complex numbers as real ones, parts along a new last axis; return real arrays unchanged."""
    if array.dtype.kind != "c":
        return array
    # A view needs dense memory; numpy stores both parts of a number side by side.
    dense = np.ascontiguousarray(array).reshape(*array.shape, 1)
    return dense.view(dense.real.dtype)

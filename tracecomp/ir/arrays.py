"""numpy's arrays and the caches: new ones begin at a line, long ones are worked on in pieces.

numpy's own large ones do not begin at a line. A vector that lies across two takes two reads: sums and transposes take a
tenth to a half longer then.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from tracecomp.ir.loops import LINE

Array = np.ndarray[Any, Any]
SMALL_BYTES = 65536
"""What ``malloc`` gives without asking the system; smaller arrays lie anywhere."""
PIECE = 8192
"""Elements; 64 KB in float64."""


def new_array(shape: tuple[int, ...], dtype: Any) -> Array:
    """A new array with any contents; of few bytes wherever numpy puts it."""
    dtype = np.dtype(dtype)
    nbytes = dtype.itemsize * prod(shape)
    if nbytes <= SMALL_BYTES:
        return np.empty(shape, dtype)
    memory = np.empty(nbytes + LINE, np.uint8)
    start = -memory.__array_interface__["data"][0] % LINE
    array: Array = memory[start : start + nbytes].view(dtype).reshape(shape)
    return array


def at_line(array: Array) -> Array:
    """The array, or a copy that begins at a line."""
    if array.nbytes <= SMALL_BYTES or array.__array_interface__["data"][0] % LINE == 0:
        return array
    placed = new_array(array.shape, array.dtype)
    np.copyto(placed, array)
    return placed


def pieces(size: int) -> Iterator[slice]:
    """Slices that cover ``size`` elements, so short that a few temporaries of one stay in cache."""
    for start in range(0, size, PIECE):
        yield slice(start, start + PIECE)

"""Memory of results, used again once nobody holds the result: new pages cost more than what is computed into them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from sys import getrefcount
from typing import Any
from weakref import getweakrefcount

import numpy as np

from tracecomp.runtime.aligned import maker

Array = np.ndarray[Any, Any]
KEPT_BYTES = 4 * 2**20
"""How much a program keeps for all its results together; twice that while its last results are held."""


def kept_outputs(types: Sequence[tuple[tuple[int, ...], Any]]) -> frozenset[int]:
    """The numbers of the outputs, of the given shapes and dtypes, whose memory is kept: the first ones that fit."""
    total, numbers = 0, []
    for n, (shape, dtype) in enumerate(types):
        nbytes = dtype.itemsize * prod(shape)
        if total + nbytes <= KEPT_BYTES:
            total += nbytes
            numbers.append(n)
    return frozenset(numbers)


def fits(array: Array, shape: tuple[int, ...], dtype: object) -> bool:
    """Whether ``array`` can be given out: its last owner may have changed it."""
    flags = array.flags
    own = flags.c_contiguous and flags.owndata and flags.writeable and flags.aligned
    return own and array.shape == shape and array.dtype == dtype


class Spare:
    """The last two arrays of one output: the older one is often free while the newer one is still somebody's."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> None:
        self.shape, self.dtype = shape, dtype
        self._make = maker(dtype.itemsize * prod(shape))
        self._arrays: list[Array] = []

    def take(self) -> Array:
        """An array that nobody else refers to. Several threads may ask at once: popping decides who looks at which."""
        found: Array | None = None
        others: list[Array] = []
        while self._arrays and found is None:
            array = self._arrays.pop()
            # References: the local name and the argument of getrefcount.
            if getrefcount(array) == 2 and not getweakrefcount(array) and fits(array, self.shape, self.dtype):
                found = array
            else:
                others.insert(0, array)
        if found is None:
            found, others = self._make(self.shape, self.dtype), others[-1:]
        self._arrays.extend([*others, found])
        return found

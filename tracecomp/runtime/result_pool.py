"""Reuse of results' memory once a result is unreferenced: new pages cost more than the computation that fills them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from sys import getrefcount
from typing import Any
from weakref import getweakrefcount

import numpy as np

from tracecomp.base.interpreter import ARGUMENT_REFERENCES
from tracecomp.runtime.aligned import maker

Array = np.ndarray[Any, Any]
KEPT_BYTES = 4 * 2**20
"""Most bytes that a program keeps for all its results; twice that while its last results are referenced."""


def kept_outputs(types: Sequence[tuple[tuple[int, ...], Any]]) -> frozenset[int]:
    """The numbers of the outputs, with these shapes and dtypes, whose memory is kept: the first ones that fit."""
    total, numbers = 0, []
    for n, (shape, dtype) in enumerate(types):
        nbytes = dtype.itemsize * prod(shape)
        if total + nbytes <= KEPT_BYTES:
            total += nbytes
            numbers.append(n)
    return frozenset(numbers)


def fits(array: Array, shape: tuple[int, ...], dtype: object) -> bool:
    """Whether ``array`` can be reused: its last owner may have changed it."""
    flags = array.flags
    own = flags.c_contiguous and flags.owndata and flags.writeable and flags.aligned
    return own and array.shape == shape and array.dtype == dtype


class Spare:
    """The last two arrays of one output: the older one is often free while the newer one is still in use."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> None:
        self.shape, self.dtype = shape, dtype
        self._make = maker(dtype.itemsize * prod(shape))
        self._arrays: list[Array] = []

    def take(self) -> Array:
        """Take an unreferenced array. Several threads may call this at once: popping gives each a different one."""
        found: Array | None = None
        others: list[Array] = []
        while self._arrays and found is None:
            array = self._arrays.pop()
            # References: the local name and the argument of getrefcount.
            if (
                getrefcount(array) == 1 + ARGUMENT_REFERENCES
                and not getweakrefcount(array)
                and fits(array, self.shape, self.dtype)
            ):
                found = array
            else:
                others.insert(0, array)
        if found is None:
            found, others = self._make(self.shape, self.dtype), others[-1:]
        self._arrays.extend([*others, found])
        return found

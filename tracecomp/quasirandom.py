"""``torch.quasirandom``: points that fill the unit cube more evenly than random ones."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tracecomp.eager.rng import Generator
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.default_dtype import default_dtype
from tracecomp.ir.types import DType

__all__ = ["SobolEngine"]
Array = np.ndarray[Any, Any]
_BITS = 30
"""Bits of a coordinate, as in PyTorch: 2**30 points differ."""


@cache
def _directions() -> Array:
    """Direction numbers of every dimension, of shape (MAXDIM, bits), as Joe and Kuo (2008) chose them.

    A line of the file has a primitive polynomial and the first numbers; the recurrence of the polynomial gives the
    others. The first dimension has no line: its numbers are all 1.
    """
    lines = (Path(__file__).parent / "sobol_directions.txt").read_text().splitlines()
    found = [[1] * _BITS]
    for line in lines:
        polynomial, *numbers = map(int, line.split())
        degree = len(numbers)
        for j in range(degree, _BITS):
            value = numbers[j - degree] ^ numbers[j - degree] << degree
            for k in range(1, degree):
                value ^= (numbers[j - k] << k) * (polynomial >> degree - k & 1)
            numbers.append(value)
        found.append(numbers)
    return np.array(found, dtype=np.int64) << np.arange(_BITS - 1, -1, -1)


class SobolEngine:
    """A Sobol sequence of points in [0, 1)^dimension, scrambled or not (Owen 1998; Joe and Kuo 2008).

    ``seed`` decides the scrambling; without it the default generator does. ValueError for dimensions below 1 and above
    ``MAXDIM`` (PyTorch goes to 21201).

    >>> from tracecomp.quasirandom import SobolEngine
    >>> SobolEngine(2).draw(4)
    tensor([[0.0000, 0.0000],
            [0.5000, 0.5000],
            [0.7500, 0.2500],
            [0.2500, 0.7500]])
    """

    MAXBIT = _BITS
    MAXDIM = 1024

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if dimension > self.MAXDIM or dimension < 1:
            raise ValueError(
                f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}], got {dimension}"
            )
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        self._directions, self._shift = _directions()[:dimension], np.zeros(dimension, np.int64)
        self.num_generated = 0
        if scramble:
            self._scramble()

    def _scramble(self) -> None:
        """Multiply the bits of the direction numbers by random lower triangles, and add random bits to all points."""
        generator = None if self.seed is None else Generator().manual_seed(self.seed)
        weights = 1 << np.arange(_BITS)
        shift = T.randint(2, (self.dimension, _BITS), generator=generator)._data
        triangles = T.randint(2, (self.dimension, _BITS, _BITS), generator=generator)._data
        triangles = np.tril(triangles, -1) + np.eye(_BITS, dtype=np.int64)
        bits = self._directions[:, None, :] >> np.arange(_BITS - 1, -1, -1)[:, None] & 1  # the highest first
        self._directions = ((triangles @ bits % 2) * weights[::-1, None]).sum(1)
        self._shift = shift @ weights

    def _points(self, first: int, n: int) -> Array:
        """Points ``first`` to ``first + n`` as integers: each differs from the one before by one direction."""
        gray = first ^ first >> 1
        start = self._shift.copy()
        for bit in range(gray.bit_length()):
            if gray >> bit & 1:
                start ^= self._directions[:, bit]
        steps = [(k & -k).bit_length() - 1 for k in range(first + 1, first + n)]
        rows = np.concatenate((start[None], self._directions.T[steps]))
        return np.asarray(np.bitwise_xor.accumulate(rows))

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: DType | None = None) -> Tensor:
        """The next ``n`` points, of shape (n, dimension)."""
        kind = dtype or default_dtype()
        points: Tensor = T.from_numpy(self._points(self.num_generated, n)).to(kind) * 2.0**-_BITS
        self.num_generated += n
        return points if out is None else out.resize_as_(points).copy_(points)

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: DType | None = None) -> Tensor:
        """The next ``2**m`` points. ValueError unless that makes a power of two of all that were drawn."""
        total = self.num_generated + 2**m
        if total & (total - 1):
            raise ValueError(
                "The balance properties of Sobol' points require n to be a power of 2. "
                f"{self.num_generated} points have been previously generated, then: "
                f"n={self.num_generated}+2**{m}={total}. If you still want to do this, please use "
                "'SobolEngine.draw()' instead."
            )
        return self.draw(2**m, out, dtype)

    def reset(self) -> SobolEngine:
        """Begin again."""
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Pass over ``n`` points."""
        self.num_generated += n
        return self

    def __repr__(self) -> str:
        given = [f"dimension={self.dimension}"]
        given += ["scramble=True"] if self.scramble else []
        given += [f"seed={self.seed}"] if self.seed is not None else []
        return f"{type(self).__name__}({', '.join(given)})"

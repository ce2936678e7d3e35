"""Differences of arrays: in units in the last place, absolute, and relative to the scale of their computation.

The scale is the largest element, or the effect of rounding. A result may be the small difference of large numbers, like
a gradient that is zero but for rounding. The interpreter then runs again with operands changed in their last place. The
change of the result is the scale of rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracecomp.ir.arrays import in_parts

Array = np.ndarray[Any, Any]

TOLERANCE = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-4, "float64": 1e-9}
"""Largest difference, relative to the largest element, that counts as agreement for a whole program."""


_OFTEN_COUNT, _OFTEN_SHARE = 8, 0.25
"""A kernel may spread one difference over a row, so a few elements may all differ."""

_EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


@dataclass(frozen=True, slots=True)
class Difference:
    """How far an array is from a reference: in units in the last place, absolutely, relative to its scale.

    ``nearer``: it is nearer than the reference to what float64 gives, or operands moved by rounding explain it.
    """

    ulp: float
    absolute: float
    relative: float
    dtype: str
    nearer: bool = False

    def agrees(self, tolerance: float | None = None) -> bool:
        """Whether it is within ``tolerance`` (default: ``TOLERANCE`` of the type; integers and bools must be equal)."""
        return self.nearer or self.relative <= (TOLERANCE.get(self.dtype, 0.0) if tolerance is None else tolerance)

    def __str__(self) -> str:
        if self.ulp == 0:
            return "equal"
        return f"{self.ulp:.4g} ULP, absolute {self.absolute:.3g}, relative {self.relative:.3g}"


def difference(have: Array, want: Array, moved: Array | None = None) -> Difference:
    """The difference of two arrays of one type and shape; NaNs are equal, a NaN against a number is infinitely far.

    ``moved`` is ``want`` computed from operands that differ in their last place.
    """
    name = want.dtype.name
    if have.dtype != want.dtype or have.shape != want.shape:
        return Difference(np.inf, np.inf, np.inf, name)
    if want.size == 0:
        return Difference(0.0, 0.0, 0.0, name)
    if want.dtype.kind in "biu":
        apart = np.abs(have.astype(np.float64) - want.astype(np.float64)).max()
        return Difference(float(apart), float(apart), float(apart), name)
    nan = np.isnan(want)
    if (nan != np.isnan(have)).any():
        return Difference(np.inf, np.inf, np.inf, name)
    ulp = np.where(nan, 0.0, _steps(have, want)).max()
    with np.errstate(all="ignore"):
        apart = np.abs(have.astype(np.float64) - want.astype(np.float64))
        apart = np.where(nan | (have == want), 0.0, apart)
    worst = float(apart.max())
    scale = _scale(want, moved)
    return Difference(float(ulp), worst, worst / scale if scale else worst, name)


def differ_often(have: Array, want: Array) -> bool:
    """Whether more bits of a float16 or bfloat16 result differ than rounding of float32 explains.

    Both compute in float32 and round the result. A difference there rarely changes the rounded result. A wrong rounding
    changes half of the results by a unit in the last place, which no tolerance shows.
    """
    if want.dtype.name not in ("float16", "bfloat16") or have.shape != want.shape or have.dtype != want.dtype:
        return False
    apart = int(np.count_nonzero((_steps(have, want) > 0) & ~np.isnan(want)))
    return apart >= _OFTEN_COUNT and apart > _OFTEN_SHARE * want.size


def _scale(want: Array, moved: Array | None) -> float:
    """The largest finite element, or the size of the numbers whose rounding shows in ``moved``."""
    largest = np.abs(want[np.isfinite(want)].astype(np.float64)).max(initial=0.0)
    if moved is None:
        return float(largest)
    with np.errstate(all="ignore"):
        change = np.abs(moved.astype(np.float64) - want.astype(np.float64))
    rounding = change[np.isfinite(change)].max(initial=0.0) / _EPSILON[want.dtype.name]
    return float(max(largest, rounding))


def changed_in_the_last_place(arrays: Sequence[Array], seed: int = 0) -> list[Array]:
    """Floating-point arrays with each element moved by about one unit in the last place, at random; the others."""
    rng = np.random.default_rng(seed)
    moved = []
    for array in arrays:
        if array.dtype.kind == "c":
            [parts] = changed_in_the_last_place([in_parts(array)], seed)
            array = parts.view(array.dtype)[..., 0]
        elif array.dtype.kind == "f" or array.dtype.name == "bfloat16":
            step = _EPSILON[array.dtype.name] * rng.uniform(-1.0, 1.0, array.shape)
            array = np.asarray(array * (1.0 + step)).astype(array.dtype)
        moved.append(array)
    return moved


def worst(differences: Sequence[Difference]) -> Difference:
    """The one furthest from agreement."""
    return max(differences, key=lambda d: (not d.agrees(), d.relative, d.ulp), default=Difference(0.0, 0.0, 0.0, ""))


def _steps(a: Array, b: Array) -> Array:
    """How many representable values apart the elements of two float arrays are."""
    size = a.dtype.itemsize
    mask = (1 << (8 * size - 1)) - 1
    x, y = (np.ascontiguousarray(v).view(f"i{size}").astype(np.int64) for v in (a, b))
    same = (x < 0) == (y < 0)
    x, y = x & mask, y & mask
    apart: Array = np.where(same, np.abs(x - y).astype(np.float64), x.astype(np.float64) + y.astype(np.float64))
    return apart

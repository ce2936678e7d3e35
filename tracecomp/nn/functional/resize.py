"""Interpolation: every mode is, per axis, a few gathers weighted by constants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tracecomp.eager.modes import scope
from tracecomp.eager.tensor import Tensor, inside
from tracecomp.functional import names as T
from tracecomp.functional.dims import Sizes
from tracecomp.functional.memory_formats import following
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import not_implemented, rounded, wide
from tracecomp.functional.publish import function
from tracecomp.ir.types import float64, uint8
from tracecomp.nn.functional.adaptive import adaptive_avg_pool

_RANKS = {"nearest": (3, 4, 5), "nearest-exact": (3, 4, 5), "area": (3, 4, 5), "linear": (3,), "bilinear": (4,),
          "bicubic": (4,), "trilinear": (5,)}  # fmt: skip


def _sizes(
    input: Tensor, size: Sizes | None, factor: float | Sequence[float] | None
) -> tuple[list[int], list[float | None]]:
    n = input.ndim - 2
    if size is not None and factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is None and factor is None:
        raise ValueError("either size or scale_factor should be defined")
    for word, value in (("size", size), ("scale_factor", factor)):
        if isinstance(value, list | tuple) and len(value) != n:
            raise ValueError(
                "Input and output must have the same number of spatial dimensions, but got input with spatial "
                f"dimensions of {list(input.shape[2:])} and output {word} of {value}. Please provide input tensor in "
                "(N, C, d1, d2, ...,dK) format."
            )
    if size is not None:
        return [int(s) for s in ([size] * n if isinstance(size, int) else size)], [None] * n
    assert factor is not None
    factors = [float(f) for f in ([factor] * n if isinstance(factor, int | float) else factor)]
    return [math.floor(have * f) for have, f in zip(input.shape[2:], factors, strict=True)], list(factors)


def _scale(have: int, want: int, factor: float | None, align_corners: bool) -> float:
    if align_corners:
        return (have - 1) / (want - 1) if want > 1 else 0.0
    return 1.0 / factor if factor else have / want


def _positions(have: int, want: int, factor: float | None, align_corners: bool) -> list[float]:
    step = _scale(have, want, factor, align_corners)
    return [i * step if align_corners else (i + 0.5) * step - 0.5 for i in range(want)]


def _nearest(have: int, want: int, factor: float | None, exact: bool) -> list[int]:
    step = 1.0 / factor if factor else have / want
    shift = 0.5 if exact else 0.0
    return [min(math.floor((i + shift) * step), have - 1) for i in range(want)]


def _linear_taps(at: Sequence[float], have: int) -> list[tuple[list[int], list[float]]]:
    places = [max(p, 0.0) for p in at]
    low = [min(int(p), have - 1) for p in places]
    weight = [min(max(p - i, 0.0), 1.0) for p, i in zip(places, low, strict=True)]
    high = [min(i + 1, have - 1) for i in low]
    return [(low, [1.0 - w for w in weight]), (high, weight)]


def _cubic(d: float, a: float) -> float:
    d = abs(d)
    if d <= 1:
        return ((a + 2) * d - (a + 3)) * d * d + 1
    return (((d - 5) * d + 8) * d - 4) * a if d < 2 else 0.0


def _cubic_taps(at: Sequence[float], have: int) -> list[tuple[list[int], list[float]]]:
    low = [math.floor(p) for p in at]
    return [
        (
            [min(max(i + k, 0), have - 1) for i in low],
            [_cubic(p - i - k, -0.75) for p, i in zip(at, low, strict=True)],
        )
        for k in (-1, 0, 1, 2)
    ]


def _weighted(x: Tensor, axis: int, taps: Sequence[tuple[list[int], list[float]]]) -> Tensor:
    view = [-1] + [1] * (x.ndim - 1 - axis)
    result: Any = None
    for index, weight in taps:
        factors = inside(T.tensor(weight, dtype=x.dtype).reshape(view))
        term = prim.take(x, inside(T.tensor(index)), axis=axis) * factors
        result = term if result is None else result + term
    return result


def _antialias_matrix(
    have: int, want: int, factor: float | None, align_corners: bool, cubic: bool
) -> list[list[float]]:
    """Weights (want, have) of a filter widened by the shrinking factor, as in Pillow."""
    step = _scale(have, want, factor, align_corners)
    stretch = max(step, 1.0)
    support = (2.0 if cubic else 1.0) * stretch
    rows = []
    for i in range(want):
        centre = step * (i + 0.5)
        first, last = max(int(centre - support + 0.5), 0), min(int(centre + support + 0.5), have)
        row = [0.0] * have
        for j in range(first, last):
            d = (j - centre + 0.5) / stretch
            row[j] = _cubic(d, -0.5) if cubic else max(1.0 - abs(d), 0.0)
        total = sum(row)
        rows.append([w / total for w in row] if total else row)
    return rows


def _matrix(taps: Sequence[tuple[list[int], list[float]]], have: int) -> list[list[float]]:
    """Weights (want, have) of what ``_weighted`` adds up."""
    rows = [[0.0] * have for _ in taps[0][0]]
    for index, weight in taps:
        for row, i, w in zip(rows, index, weight, strict=True):
            row[i] += w
    return rows


_WEIGHT_BITS = 15
"""Weights for bytes are numbers of so many bits without sign, as in PyTorch and Pillow."""
_MOST_FRACTION_BITS = 22
"""So many of them at most stand behind the point; Pillow's bound."""


def _resized_bytes(x: Tensor, axis: int, weights: list[list[float]]) -> Tensor:
    """One axis of bytes resized by weights in fixed point, rounded to bytes: PyTorch's results exactly.

    Sums of products are below 2^53, so that float64 holds them exactly.
    """
    largest = max(w for row in weights for w in row)
    bits = next(
        (b for b in range(_MOST_FRACTION_BITS) if int(0.5 + largest * (2 << b)) >= 1 << _WEIGHT_BITS),
        _MOST_FRACTION_BITS,
    )
    fixed = [[float(int(math.copysign(0.5, w) + w * (1 << bits))) for w in row] for row in weights]
    sums = x.movedim(axis, -1).double() @ T.tensor(fixed, dtype=float64).t()
    return ((sums + (1 << bits) // 2) * 0.5**bits).floor().clamp(0, 255).to(uint8).movedim(-1, axis)


@function(to="nn.functional")
def interpolate(
    input: Tensor,
    size: Sizes | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resize the spatial axes of (N, C, ...): nearest, nearest-exact, linear, bilinear, bicubic, trilinear, area."""
    if mode in ("nearest", "area", "nearest-exact") and align_corners is not None:
        raise ValueError(
            "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear"
        )
    if antialias and not (mode in ("bilinear", "bicubic") and input.ndim == 4):
        raise ValueError(
            "Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D tensor as input"
        )
    sizes, factors = _sizes(input, size, scale_factor)
    if input.ndim not in _RANKS.get(mode, ()):
        raise NotImplementedError(
            "Input Error: Only 3D, 4D and 5D input Tensors supported "
            f"(got {input.ndim}D) for the modes: nearest | linear | bilinear | bicubic | trilinear | area | "
            f"nearest-exact "
            f"(got {mode})"
        )
    of_bytes = input.dtype is uint8 and mode not in ("linear", "trilinear", "area")
    if not (input.is_floating_point() or of_bytes):
        raise not_implemented("upsample_cpu", input.dtype)
    if recompute_scale_factor:
        if size is not None:
            raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
        factors = [None] * len(sizes)
    if min(sizes) <= 0 or 0 in input.shape[1:]:
        raise RuntimeError(
            f"Input and output sizes should be greater than 0, but got input {list(input.shape)} and output {sizes}"
        )
    with scope("interpolate"):
        if mode == "area":
            return adaptive_avg_pool(len(sizes), input, sizes)
        # Values of half types are weighted in float32 and rounded once; the nearest ones are taken as they are.
        x = input if mode.startswith("nearest") else wide(input)
        x = _resize(x, sizes, factors, mode, bool(align_corners), antialias)
        return following(rounded(x, input), input)


def _resize(
    x: Tensor, sizes: Sequence[int], factors: Sequence[float | None], mode: str, corners: bool, antialias: bool
) -> Tensor:
    for axis in reversed(range(2, x.ndim)):
        have, want, factor = x.shape[axis], sizes[axis - 2], factors[axis - 2]
        if mode.startswith("nearest"):
            index = T.tensor(_nearest(have, want, factor, mode == "nearest-exact"))
            x = prim.take(x, inside(index), axis=axis)
            continue
        if antialias:
            weights = _antialias_matrix(have, want, factor, corners, mode == "bicubic")
        else:
            at = _positions(have, want, factor, corners)
            taps = _cubic_taps(at, have) if mode == "bicubic" else _linear_taps(at, have)
        if x.dtype is uint8:
            x = _resized_bytes(x, axis, weights if antialias else _matrix(taps, have))
        elif antialias:
            x = (x.movedim(axis, -1) @ inside(T.tensor(weights, dtype=x.dtype).t())).movedim(-1, axis)
        else:
            x = _weighted(x, axis, taps)
    return x


@function(to="nn.functional")
def upsample(
    input: Tensor, size: Sizes | None = None, scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest", align_corners: bool | None = None,
) -> Tensor:  # fmt: skip
    """The older name of ``interpolate``."""
    return interpolate(input, size, scale_factor, mode, align_corners)


@function(to="nn.functional")
def upsample_nearest(
    input: Tensor, size: Sizes | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """``interpolate(mode="nearest")``."""
    return interpolate(input, size, scale_factor)


@function(to="nn.functional")
def upsample_bilinear(
    input: Tensor, size: Sizes | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """``interpolate(mode="bilinear", align_corners=True)``."""
    return interpolate(input, size, scale_factor, "bilinear", True)

"""Interpolation: every mode is, per axis, a few weighted gathers whose positions and weights depend on sizes."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from tracecomp.eager.modes import scope
from tracecomp.eager.tensor import Tensor, create, inside
from tracecomp.functional import names as T
from tracecomp.functional.dims import Sizes, as_index, check_memory
from tracecomp.functional.memory_formats import following
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import cast, followed_tensor, not_implemented, rounded, wide
from tracecomp.functional.publish import function
from tracecomp.ir.types import DType, float64, int64, uint8
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
        return [_whole_size(s) for s in ([size] * n if isinstance(size, int) else size)], [None] * n
    assert factor is not None
    factors = [float(f) for f in ([factor] * n if isinstance(factor, int | float) else factor)]
    return [_scaled(have, f) for have, f in zip(input.shape[2:], factors, strict=True)], list(factors)


def _whole_size(size: Any) -> int:
    return as_index(size) if isinstance(size, int) else int(size)


def _scaled(have: int, factor: float) -> int:
    """Return ``have * factor`` rounded down. Dynamic sizes stay symbolic for factors with exact products, such as 2 or
    0.75."""
    if math.isfinite(factor):
        above, below = factor.as_integer_ratio()
        if 0 < above < _EXACT and below < _EXACT:
            return have * above // below
    size = have * factor
    if not abs(size) < 2**63:  # also if it is nan
        raise RuntimeError(f"interpolate(): the output size {size} does not fit int64 (scale_factor {factor})")
    return math.floor(size)


_EXACT = 1 << 20
"""Largest size and factor for which products are exact in float64."""


def _scale(have: int, want: int, factor: float | None, align_corners: bool) -> float:
    if align_corners:
        return (have - 1) / (want - 1) if want > 1 else 0.0
    return 1.0 / factor if factor else have / want


Steps: TypeAlias = "np.ndarray[Any, Any] | Tensor"
"""Positions and weights along an axis: an array, or a tensor if the size is dynamic."""
Taps: TypeAlias = Sequence[tuple[Steps, Steps]]
"""Positions to read, in int64, with their weights, in float64."""


def _count(have: int, want: int) -> Steps:
    """Return 0, 1, ... below ``want`` in float64."""
    if followed_tensor(have) is None and followed_tensor(want) is None:
        return np.arange(want, dtype=np.float64)
    return create("iota", shape=(want,), axis=0, dtype=float64)


def _floor(x: Steps) -> Steps:
    return prim.floor(x) if isinstance(x, Tensor) else np.floor(x)


def _clip(x: Steps, low: float, high: float) -> Steps:
    return T.clamp(x, low, high) if isinstance(x, Tensor) else np.clip(x, low, high)


def _select(condition: Any, x: Any, y: Any) -> Any:
    return T.where(condition, x, y) if isinstance(condition, Tensor) else np.where(condition, x, y)


def _whole(x: Steps) -> Steps:
    return cast(x, int64) if isinstance(x, Tensor) else x.astype(np.int64)


def _values(x: Steps, dtype: DType) -> Tensor:
    return inside(cast(x, dtype) if isinstance(x, Tensor) else T.tensor(x.tolist(), dtype=dtype))


def _positions(have: int, want: int, factor: float | None, align_corners: bool) -> Steps:
    step, i = _scale(have, want, factor, align_corners), _count(have, want)
    return i * step if align_corners else (i + 0.5) * step - 0.5


def _nearest(have: int, want: int, factor: float | None, exact: bool) -> Steps:
    step = 1.0 / factor if factor else have / want
    places = (_count(have, want) + (0.5 if exact else 0.0)) * step
    return _whole(_clip(_floor(places), 0, have - 1))


def _linear_taps(at: Steps, have: int) -> Taps:
    at = _clip(at, 0.0, math.inf)
    low = _clip(_floor(at), 0, have - 1)
    weight = _clip(at - low, 0.0, 1.0)
    high = _clip(low + 1, 0, have - 1)
    return [(_whole(low), 1.0 - weight), (_whole(high), weight)]


def _cubic(d: Any, a: float) -> Any:
    d = abs(d)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = (((d - 5) * d + 8) * d - 4) * a
    return _select(d <= 1, near, _select(d < 2, far, 0.0))


def _cubic_taps(at: Steps, have: int) -> Taps:
    low = _floor(at)
    return [(_whole(_clip(low + k, 0, have - 1)), _cubic(at - low - k, -0.75)) for k in (-1, 0, 1, 2)]


def _weighted(x: Tensor, axis: int, taps: Taps) -> Tensor:
    view = [-1] + [1] * (x.ndim - 1 - axis)
    result: Any = None
    for index, weight in taps:
        factors = inside(_values(weight, x.dtype).reshape(view))
        term = prim.take(x, _values(index, int64), axis=axis) * factors
        result = term if result is None else result + term
    return result


def _antialias_matrix(have: int, want: int, factor: float | None, align_corners: bool, cubic: bool) -> Steps:
    """Weights (have, want) of a filter widened by the shrinking factor, as in Pillow."""
    step = _scale(have, want, factor, align_corners)
    i, j = _count(have, want), _count(want, have).reshape(-1, 1)
    stretch = _at_least_one(step)
    centre, support = (i + 0.5) * step, stretch * (2.0 if cubic else 1.0)
    d = (j - centre + 0.5) / stretch
    weights = _cubic(d, -0.5) if cubic else _clip(1.0 - abs(d), 0.0, math.inf)
    within = (j >= _floor(centre - support + 0.5)) & (j < _floor(centre + support + 0.5))
    weights = _select(within, weights, 0.0)
    # Both sum along the first axis in order, so that sizes known and dynamic give the same bits.
    total = weights.sum(0) if isinstance(weights, Tensor) else np.cumsum(weights, 0)[-1]
    return weights / _select(total != 0, total, 1.0)


def _at_least_one(x: Any) -> Any:
    seen = followed_tensor(x)
    return max(x, 1.0) if seen is None else T.clamp(cast(seen, float64), 1.0)


def _matrix(taps: Taps, have: int) -> list[list[float]]:
    """Weights (want, have) as a matrix, equivalent to ``_weighted``."""
    rows = [[0.0] * have for _ in taps[0][0].tolist()]
    for index, weight in taps:
        for row, i, w in zip(rows, index.tolist(), weight.tolist(), strict=True):
            row[i] += w
    return rows


_WEIGHT_BITS = 15
"""Bits of the integer weights for bytes, without sign, as in PyTorch and Pillow."""
_MOST_FRACTION_BITS = 22
"""Most fractional bits of the weights; Pillow's bound."""


def _resized_bytes(x: Tensor, axis: int, weights: list[list[float]]) -> Tensor:
    """One axis of bytes resized by weights in fixed point, rounded to bytes: PyTorch's results exactly.

    Sums of products are below 2^53, which float64 represents exactly.
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
    if any(n <= 0 for n in sizes) or 0 in input.shape[1:]:
        raise RuntimeError(
            f"Input and output sizes should be greater than 0, but got input {list(input.shape)} and output {sizes}"
        )
    check_memory(input, (*input.shape[:2], *sizes))
    with scope("interpolate"):
        if mode == "area":
            return adaptive_avg_pool(len(sizes), input, sizes)
        # Values of half types are weighted in float32 and rounded once; nearest modes copy values.
        x = input if mode.startswith("nearest") else wide(input)
        x = _resize(x, sizes, factors, mode, bool(align_corners), antialias)
        return following(rounded(x, input), input)


def _resize(
    x: Tensor, sizes: Sequence[int], factors: Sequence[float | None], mode: str, corners: bool, antialias: bool
) -> Tensor:
    for axis in reversed(range(2, x.ndim)):
        have, want, factor = x.shape[axis], sizes[axis - 2], factors[axis - 2]
        if x.dtype is uint8:  # the weights' common scale depends on their values
            have, want = operator.index(have), operator.index(want)
        if mode.startswith("nearest"):
            index = _nearest(have, want, factor, mode == "nearest-exact")
            x = prim.take(x, _values(index, int64), axis=axis)
            continue
        if antialias:
            matrix = _antialias_matrix(have, want, factor, corners, mode == "bicubic")
        else:
            at = _positions(have, want, factor, corners)
            taps = _cubic_taps(at, have) if mode == "bicubic" else _linear_taps(at, have)
        if x.dtype is uint8:
            x = _resized_bytes(x, axis, matrix.T.tolist() if antialias else _matrix(taps, have))
        elif antialias:
            x = (x.movedim(axis, -1) @ _values(matrix, x.dtype)).movedim(-1, axis)
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

"""The transforms of ``torch.fft`` from real tensors to real tensors, as products with cosine and sine matrices.

Transforms whose result is complex are not here: tensors are real.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tracecomp.functional.dims import wrap_dim, wrap_dims
from tracecomp.functional.method import namespaced
from tracecomp.functional.promotion import as_float, cast
from tracecomp.functional.shaping import cut_range, movedim
from tracecomp.ir.types import float64, int64
from tracecomp.ops.prim import prim
from tracecomp.tensor import Tensor, create

Pair = tuple[Tensor, Tensor | None]


def _angles(rows: int, columns: int, n: int) -> Tensor:
    """2 pi j k / n, with j k reduced modulo n first so that large products keep their precision."""
    j = create("iota", shape=(rows, columns), axis=0, dtype=int64)
    k = create("iota", shape=(rows, columns), axis=1, dtype=int64)
    return prim.mul(prim.cast(prim.remainder(prim.mul(j, k), n), dtype=float64), 2 * math.pi / n)


def _along(x: Tensor, matrix: Tensor, axis: int) -> Tensor:
    """``matrix`` applied to an axis."""
    last = movedim(x, axis, -1)
    labels = "abcdefgh"[: x.ndim - 1]
    return movedim(prim.contract(last, matrix, spec=f"{labels}x,yx->{labels}y"), -1, axis)


def _sized(x: Tensor, axis: int, n: int) -> Tensor:
    """Cut off or padded with zeros."""
    have = x.shape[axis]
    if n <= have:
        return cut_range(x, axis, 0, n)
    high = tuple(n - have if i == axis else 0 for i in range(x.ndim))
    zero = (0,) * x.ndim
    return prim.pad(x, low=zero, high=high, interior=zero, value=0.0)


def _scale(norm: str | None, n: int, forward: bool) -> float:
    if norm not in (None, "backward", "forward", "ortho"):
        raise RuntimeError(f'Invalid normalization mode: "{norm}"')
    if norm == "ortho":
        return 1 / math.sqrt(n)
    return 1 / n if (norm == "forward") == forward else 1.0


def _complex_step(pair: Pair, axis: int, sign: int) -> Pair:
    """The discrete transform exp(sign 2 pi i j k / n) along one axis of re + i im."""
    re, im = pair
    n = re.shape[axis]
    angle = _angles(n, n, n)
    cosine, sine = (cast(t, re.dtype) for t in (prim.cos(angle), prim.mul(prim.sin(angle), float(sign))))
    real, imaginary = _along(re, cosine, axis), _along(re, sine, axis)
    if im is not None:
        real = prim.sub(real, _along(im, sine, axis))
        imaginary = prim.add(imaginary, _along(im, cosine, axis))
    return real, imaginary


def _real_step(pair: Pair, axis: int, n: int, sign: int) -> Tensor:
    """The real sequence of length ``n`` whose half spectrum is re + i im."""
    half = n // 2 + 1
    re = _sized(pair[0], axis, half)
    angle = _angles(n, half, n)
    place = create("iota", shape=(half,), axis=0, dtype=int64)
    edge = prim.eq(place, 0)
    if n % 2 == 0:
        edge = prim.bitwise_or(edge, prim.eq(place, n // 2))
    weight = prim.sub(2.0, prim.cast(edge, dtype=float64))
    result = _along(re, cast(prim.mul(prim.cos(angle), weight), re.dtype), axis)
    if pair[1] is None:
        return result
    sine = cast(prim.mul(prim.mul(prim.sin(angle), weight), float(sign)), re.dtype)
    return prim.sub(result, _along(_sized(pair[1], axis, half), sine, axis))


def _to_real(x: Tensor, s: Any, dim: Any, norm: str | None, forward: bool) -> Tensor:
    """irfftn (or hfftn, if ``forward``) of a real tensor."""
    x = as_float(x)
    sizes = None if s is None else [int(n) for n in s]
    if dim is None:
        count = x.ndim if sizes is None else len(sizes)
        axes: Sequence[int] = tuple(range(x.ndim - count, x.ndim))
    else:
        axes = wrap_dims([dim] if isinstance(dim, int) else dim, x.ndim)
    if not axes:
        raise RuntimeError("irfftn must transform at least one axis")
    last = axes[-1]
    lengths = [x.shape[a] for a in axes] if sizes is None else [x.shape[a] if n == -1 else n
                                                                for a, n in zip(axes, sizes, strict=True)]  # fmt: skip
    if sizes is None or sizes[-1] == -1:
        lengths[-1] = 2 * (x.shape[last] - 1)
    if any(n < 1 for n in lengths):
        raise RuntimeError(f"Invalid number of data points ({min(lengths)}) specified")
    sign = -1 if forward else 1
    pair: Pair = (x, None)
    for axis, n in zip(axes[:-1], lengths[:-1], strict=True):
        re, im = pair
        pair = _complex_step((_sized(re, axis, n), None if im is None else _sized(im, axis, n)), axis, sign)
    result = _real_step(pair, last, lengths[-1], sign)
    scale = _scale(norm, math.prod(lengths), forward)
    return result if scale == 1.0 else prim.mul(result, scale)


def _publish(name: str, forward: bool) -> None:
    def one(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
        return _to_real(input, None if n is None else [n], wrap_dim(dim, input.ndim), norm, forward)

    def two(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:
        return _to_real(input, s, dim, norm, forward)

    def several(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
        return _to_real(input, s, dim, norm, forward)

    what = "Forward transform of" if forward else "Inverse of the transform that gives"
    for fn, suffix in ((one, ""), (two, "2"), (several, "n")):
        fn.__name__, fn.__doc__ = name + suffix, f"{what} a half spectrum; ``input`` is real, so is the result."
        namespaced("fft")(fn)


_publish("irfft", False)
_publish("hfft", True)

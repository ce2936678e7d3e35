"""Pooling over sliding windows: the windows are a view, pooling reduces their last axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tracecomp.eager.modes import scope
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.dims import Sizes
from tracecomp.functional.dtype_support import FLOATS, NUMBERS
from tracecomp.functional.linalg.factors import differentiated
from tracecomp.functional.memory_formats import following
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import not_implemented, rounded, wide
from tracecomp.functional.publish import function
from tracecomp.ir.types import DType, bool_, int32
from tracecomp.nn.functional.conv import batched, ntuple

Ints = tuple[int, ...]


class _Geometry:
    """Windows of one pooling call; sizes by PyTorch's formula, with the rule of ceil_mode."""

    def __init__(
        self, name: str, length: Sequence[int], kernel: Sizes, stride: Sizes | None, padding: Sizes,
        dilation: Sizes, ceil_mode: bool,
    ) -> None:  # fmt: skip
        n = len(length)
        self.length = tuple(length)
        self.kernel = ntuple(kernel, n, "kernel_size")
        no_stride = stride is None or (isinstance(stride, list | tuple) and not stride)
        self.stride = self.kernel if no_stride else ntuple(stride, n, "stride")
        self.padding = ntuple(padding, n, "padding")
        self.dilation = ntuple(dilation, n, "dilation")
        for word, values in (("kernel size", self.kernel), ("stride", self.stride), ("dilation", self.dilation)):
            if any(v <= 0 for v in values):
                raise RuntimeError(f"{name}: {word} should be greater than zero, but got {list(values)}")
        for k, p in zip(self.kernel, self.padding, strict=True):
            if p < 0:
                raise RuntimeError(f"pad must be non-negative, but got pad: {p}")
            if p > k // 2:
                raise RuntimeError(
                    f"pad should be at most half of effective kernel size, but got pad={p}, kernel_size={k}"
                )
        self.counts = tuple(self._count(axis, ceil_mode) for axis in range(n))
        if any(c <= 0 for c in self.counts):
            raise RuntimeError(
                f"{name}: Given input size {list(length)}, calculated output size {list(self.counts)} is too small"
            )

    def _count(self, axis: int, ceil_mode: bool) -> int:
        n, p, s = self.length[axis], self.padding[axis], self.stride[axis]
        span = self.dilation[axis] * (self.kernel[axis] - 1) + 1
        room = n + 2 * p - span
        if not ceil_mode:
            return room // s + 1
        count = -(-room // s) + 1
        # The last window has to start inside the input or its left padding.
        return count - 1 if (count - 1) * s >= n + p else count

    @property
    def high(self) -> Ints:
        """Padding after the end, so that exactly ``counts`` windows fit."""
        return tuple(
            (c - 1) * s + d * (k - 1) + 1 - n - p
            for c, s, d, k, n, p in zip(
                self.counts, self.stride, self.dilation, self.kernel, self.length, self.padding, strict=True
            )
        )

    def windows(self, x: Tensor, fill: float | int) -> Tensor:
        """(..., kernel, counts): the windows of ``x``, padded with ``fill``. Adjacent windows are read together."""
        lead = (0,) * (x.ndim - len(self.length))
        if any(self.padding) or any(h > 0 for h in self.high):
            high = tuple(max(h, 0) for h in self.high)
            x = prim.pad(x, low=lead + self.padding, high=lead + high, interior=(0,) * x.ndim, value=fill)
        windows = prim.windows(x, sizes=self.kernel, strides=self.stride, dilations=self.dilation)
        return prim.permute(windows, dims=(*range(len(lead)), *range(x.ndim, windows.ndim), *range(len(lead), x.ndim)))

    def flat_windows(self, x: Tensor, fill: float | int) -> Tensor:
        """``windows`` with the places in the window as one axis, before the positions."""
        return self.windows(x, fill).reshape(*x.shape[: -len(self.counts)], math.prod(self.kernel), *self.counts)

    def divisors(self, count_include_pad: bool) -> list[Any]:
        """Elements per window of average pooling, nested by position."""
        axes = []
        for c, s, k, n, p in zip(self.counts, self.stride, self.kernel, self.length, self.padding, strict=True):
            spans = []
            for i in range(c):
                start = i * s - p
                end = min(start + k, n + p)
                spans.append(end - start if count_include_pad else min(end, n) - max(start, 0))
            axes.append(spans)
        return axes

    def source_index(self, place: Tensor) -> Tensor:
        """Flat position in the input plane of the element at ``place`` (..., counts) of each window."""
        result: Any = 0
        n = len(self.kernel)
        rest = place
        for axis in reversed(range(n)):
            k, c = self.kernel[axis], self.counts[axis]
            offset = rest % k
            rest = T.div(rest, k, rounding_mode="floor")
            start = (T.arange(c) * self.stride[axis] - self.padding[axis]).reshape(-1, *[1] * (n - 1 - axis))
            result = result + (start + offset * self.dilation[axis]) * math.prod(self.length[axis + 1 :])
        return result


def lowest(dtype: DType) -> float | int:
    """The smallest value of ``dtype``."""
    if dtype.is_floating_point:
        return -math.inf
    return 0 if not dtype.is_signed else -(2 ** (8 * dtype.itemsize - 1))


def pick_max(windows: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Maximum along ``axis`` and its first position, which alone receives the gradient."""
    place = windows.argmax(axis)
    if not differentiated(windows):
        return prim.max(windows, axes=(axis,)), place
    places = T.arange(windows.shape[axis], dtype=int32).reshape(-1, *[1] * (windows.ndim - 1 - axis))
    chosen = places == place.to(int32).unsqueeze(axis)
    return prim.sum(T.where(chosen, windows, 0), axes=(axis,)), place


def max_pool(
    n: int, input: Tensor, kernel_size: Sizes, stride: Sizes | None, padding: Sizes, dilation: Sizes, ceil_mode: bool,
    return_indices: bool,
) -> Any:  # fmt: skip
    """Maximum of every window; with ``return_indices`` also its flat position in the input plane."""
    name = f"max_pool{n}d"
    x, single = batched(input, n, name)
    if x.dtype is bool_:
        raise not_implemented(name, x.dtype)
    if 0 in x.shape[1:]:
        raise RuntimeError(
            f"Expected input's non-batch dimensions to have positive length, but got an input of {list(input.shape)}"
        )
    with scope(name):
        geometry = _Geometry(name, x.shape[2:], kernel_size, stride, padding, dilation, ceil_mode)
        windows = geometry.flat_windows(x, lowest(x.dtype))
        if return_indices:
            values, place = pick_max(windows, 2)
            results = [values, geometry.source_index(place)]
        else:
            results = [pick_max(windows, 2)[0] if differentiated(windows) else prim.max(windows, axes=(2,))]
    results = [following(r, x) for r in results]
    squeezed = [r.squeeze(0) if single else r for r in results]
    return tuple(squeezed) if return_indices else squeezed[0]


@function(to="nn.functional torch", takes=FLOATS)
def max_pool1d(
    input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """(N, C, L) -> (N, C, L')."""
    return max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@function(to="nn.functional torch")
def max_pool2d(
    input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """(N, C, H, W) -> (N, C, H', W')."""
    return max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@function(to="nn.functional torch")
def max_pool3d(
    input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """(N, C, D, H, W) -> (N, C, D', H', W')."""
    return max_pool(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@function(to="nn.functional")
def max_pool1d_with_indices(
    input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1,
    ceil_mode: bool = False, return_indices: bool = True,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """``max_pool1d(..., return_indices=True)``."""
    values, indices = max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, True)
    return values, indices


@function(to="nn.functional")
def max_pool2d_with_indices(
    input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1,
    ceil_mode: bool = False, return_indices: bool = True,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """``max_pool2d(..., return_indices=True)``."""
    values, indices = max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, True)
    return values, indices


@function(to="nn.functional")
def max_pool3d_with_indices(
    input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1,
    ceil_mode: bool = False, return_indices: bool = True,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """``max_pool3d(..., return_indices=True)``."""
    values, indices = max_pool(3, input, kernel_size, stride, padding, dilation, ceil_mode, True)
    return values, indices


def avg_pool(
    n: int, input: Tensor, kernel_size: Sizes, stride: Sizes | None, padding: Sizes, ceil_mode: bool,
    count_include_pad: bool, divisor_override: int | None,
) -> Tensor:  # fmt: skip
    """Mean of every window."""
    name = f"avg_pool{n}d"
    if divisor_override == 0:
        raise RuntimeError("divisor must be not zero")
    x, single = batched(input, n, name)
    with scope(name):
        geometry = _Geometry(name, x.shape[2:], kernel_size, stride, padding, 1, ceil_mode)
        windows = wide(geometry.windows(x, 0))
        total = prim.sum(windows, axes=tuple(range(2, 2 + n)))
        count = divisor_override or divisor(geometry.divisors(count_include_pad), total)
        result = rounded(total / count, x) if x.is_floating_point() else T.div(total, count, rounding_mode="trunc")
    result = following(result, x) if n == 2 else result
    return result.squeeze(0) if single else result


def divisor(axes: list[list[int]], like: Tensor) -> Any:
    """The product of per-axis counts: a number if they are all equal, else a tensor over the positions."""
    result: Any = 1
    for axis, counts in enumerate(axes):
        if len(set(counts)) == 1:
            result = result * counts[0]
        else:
            result = result * T.tensor(counts, dtype=like.dtype).reshape(-1, *[1] * (len(axes) - 1 - axis))
    return result


@function(to="nn.functional torch", takes=NUMBERS)
def avg_pool1d(
    input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:  # fmt: skip
    """(N, C, L) -> (N, C, L')."""
    return avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@function(to="nn.functional", takes=NUMBERS)
def avg_pool2d(
    input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """(N, C, H, W) -> (N, C, H', W')."""
    return avg_pool(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@function(to="nn.functional", takes=NUMBERS)
def avg_pool3d(
    input: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """(N, C, D, H, W) -> (N, C, D', H', W')."""
    return avg_pool(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _lp_pool(
    n: int, input: Tensor, norm_type: float, kernel_size: Sizes, stride: Sizes | None, ceil_mode: bool
) -> Tensor:
    area = math.prod(ntuple(kernel_size, n))
    out = avg_pool(n, input.pow(norm_type), kernel_size, stride, 0, ceil_mode, True, None)
    return (out.sign() * out.abs().relu() * area).pow(1.0 / norm_type)


@function(to="nn.functional")
def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
) -> Tensor:
    """``(sum of x ** p) ** (1 / p)`` of every window of (N, C, L)."""
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


@function(to="nn.functional")
def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
) -> Tensor:
    """``(sum of x ** p) ** (1 / p)`` of every window of (N, C, H, W)."""
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


@function(to="nn.functional")
def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
) -> Tensor:
    """``(sum of x ** p) ** (1 / p)`` of every window of (N, C, D, H, W)."""
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)

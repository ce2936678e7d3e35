"""Adaptive pooling (windows chosen by the output size), fractional pooling, unpooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tracecomp.eager.modes import scope
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.dims import Sizes, check_memory
from tracecomp.functional.dtype_support import FLOATS
from tracecomp.functional.memory_formats import following
from tracecomp.functional.primitives import prim
from tracecomp.functional.publish import function
from tracecomp.ir.sum_order import COLUMN_LONG
from tracecomp.ir.types import int64
from tracecomp.nn.functional.conv import batched, ntuple
from tracecomp.nn.functional.pooling import avg_pool, divisor, lowest, max_pool, pick_max

Ints = tuple[int, ...]
Target: TypeAlias = int | Sequence[int | None] | None


def _target(output_size: Target, length: Ints) -> Ints:
    n = len(length)
    wanted = output_size if isinstance(output_size, list | tuple) else (output_size,) * n
    if len(wanted) == 1:
        wanted = tuple(wanted) * n
    if len(wanted) != n:
        raise RuntimeError(f"adaptive pooling: output_size must be {n}, but got {len(wanted)} values")
    return tuple(have if want is None else int(want) for want, have in zip(wanted, length, strict=True))


@dataclass(frozen=True, slots=True)
class _Regions:
    """The ``size`` regions that cover ``length`` elements, from ``first`` to before ``last``, and the widest's extent.

    For a variable length they are tensors that depend on it, and ``width`` has room for every region.
    """

    first: Any
    last: Any
    width: int

    @classmethod
    def of(cls, size: int, length: int) -> _Regions:
        # Sums over more rows go in blocks of as many as there are, so regions that wide keep their very extent.
        if type(length) is int or length // size + 2 > COLUMN_LONG:
            n = int(length)
            return cls.between([i * n // size for i in range(size)], [-(-(i + 1) * n // size) for i in range(size)])
        ends = T.arange(size + 1) * length
        width = length if size == 1 else length // size + 2
        return cls(T.floor_divide(ends[:-1], size), -T.floor_divide(-ends[1:], size), width)

    @classmethod
    def between(cls, first: list[int], last: list[int]) -> _Regions:
        """Regions that are known."""
        return cls(first, last, max(b - a for a, b in zip(first, last, strict=True)))

    def places(self) -> tuple[Tensor, Tensor]:
        """(places, positions): where the elements of the regions are, and which of them exist."""
        if isinstance(self.first, Tensor):
            at = self.first + T.arange(self.width).unsqueeze(1)
            return T.minimum(at, self.last - 1), at < self.last
        pairs = list(zip(self.first, self.last, strict=True))
        index = [[min(a + j, b - 1) for a, b in pairs] for j in range(self.width)]
        return T.tensor(index), T.tensor([[a + j < b for a, b in pairs] for j in range(self.width)])

    def counts(self) -> Any:
        """How many elements each region has."""
        if isinstance(self.first, Tensor):
            return self.last - self.first
        return [b - a for a, b in zip(self.first, self.last, strict=True)]


def _gather_regions(x: Tensor, regions: list[_Regions]) -> tuple[Tensor, Any, Tensor]:
    """Elements of regions of unequal extent: (..., places, positions), which places count, their flat source."""
    n = len(regions)
    lead = x.ndim - n
    lengths = x.shape[lead:]
    inside: Any = True
    source: Any = 0
    for axis, along in enumerate(regions):
        index, valid = along.places()
        view = [1] * (2 * n)
        view[axis], view[n + axis] = index.shape
        inside = valid.reshape(view) & inside
        source = source + index.reshape(view) * math.prod(lengths[axis + 1 :])
        x = prim.take(x, index, axis=lead + 2 * axis)
    order = [*range(lead), *range(lead, x.ndim, 2), *range(lead + 1, x.ndim, 2)]
    return x.permute(*order), inside, source


def _sum_of_regions(x: Tensor, axis: int, regions: _Regions) -> Tensor:
    """Sums over the regions along one axis."""
    index, valid = regions.places()
    there = valid.reshape(*valid.shape, *[1] * (x.ndim - 1 - axis))
    return prim.sum(T.where(there, prim.take(x, index, axis=axis), 0), axes=(axis,))


def _equal(target: Ints, length: Ints) -> bool:
    return all(want and have % want == 0 for want, have in zip(target, length, strict=True))


def _regular(n: int, name: str, input: Tensor, output_size: Target) -> tuple[Tensor, bool, Ints]:
    """The input with a batch axis, whether that was added, and the size wanted."""
    if n > 1 and input.ndim <= n:
        raise ValueError(f"Input dimension should be at least {n + 1}")
    x, single = batched(input, n, name)
    if 0 in x.shape[2:]:
        raise RuntimeError(
            f"{name}(): Expected input to have non-zero size for non-batch dimensions, but got {list(input.shape)}"
        )
    target = _target(output_size, tuple(x.shape[2:]))
    if any(want < 0 for want in target):
        raise RuntimeError(f"{name}(): output_size must not be negative, but got {list(target)}")
    check_memory(x, (*x.shape[:2], *target))
    return x, single, target


def adaptive_avg_pool(n: int, input: Tensor, output_size: Target) -> Tensor:
    """Mean over the regions that divide the input into ``output_size``."""
    name = f"adaptive_avg_pool{n}d"
    x, single, target = _regular(n, name, input, output_size)
    length = tuple(x.shape[2:])
    with scope(name):
        if set(target) == {1}:
            result = x.mean(tuple(range(2, 2 + n)), keepdim=True)
        elif _equal(target, length):
            kernel = tuple(have // want for want, have in zip(target, length, strict=True))
            result = avg_pool(n, x, kernel, kernel, 0, False, True, None)
        elif 0 in target:
            result = x.new_zeros((*x.shape[:2], *target))
        else:
            regions = list(map(_Regions.of, target, length))
            result = x
            for axis, along in enumerate(regions):  # the first axis first, along which rows stay whole
                result = _sum_of_regions(result, 2 + axis, along)
            result = result / divisor([r.counts() for r in regions], x)
    result = following(result, x) if n == 2 else result.contiguous()
    return result.squeeze(0) if single else result


def adaptive_max_pool(n: int, input: Tensor, output_size: Target, return_indices: bool = False) -> Any:
    """Maximum over the regions that divide the input into ``output_size``."""
    name = f"adaptive_max_pool{n}d"
    x, single, target = _regular(n, name, input, output_size)
    length = tuple(x.shape[2:])
    with scope(name):
        if _equal(target, length):
            kernel = tuple(have // want for want, have in zip(target, length, strict=True))
            results = max_pool(n, x, kernel, kernel, 0, 1, False, True)
        elif 0 in target:
            empty = (*x.shape[:2], *target)
            results = x.new_zeros(empty), T.zeros(empty, dtype=int64)
        else:
            results = _max_of_regions(x, list(map(_Regions.of, target, length)))
    values, index = (
        r.squeeze(0) if single else r for r in (following(r, x) if n == 2 else r.contiguous() for r in results)
    )
    return (values, index) if return_indices else values


def _max_of_regions(x: Tensor, regions: list[_Regions]) -> tuple[Tensor, Tensor]:
    n = len(regions)
    lead = x.ndim - n
    values, inside, source = _gather_regions(x, regions)
    positions = values.shape[lead + n :]
    flat = T.where(inside, values, lowest(x.dtype)).reshape(*x.shape[:lead], -1, *positions)
    top, place = pick_max(flat, lead)
    places = source.reshape(-1, *positions).expand(*flat.shape)
    return top, T.take_along_dim(places, place.unsqueeze(lead), lead).squeeze(lead)


@function(to="nn.functional torch", takes=FLOATS)
def adaptive_avg_pool1d(input: Tensor, output_size: Target) -> Tensor:
    """(N, C, L) -> (N, C, output_size)."""
    return adaptive_avg_pool(1, input, output_size)


@function(to="nn.functional", takes=FLOATS)
def adaptive_avg_pool2d(input: Tensor, output_size: Target) -> Tensor:
    """(N, C, H, W) -> (N, C, *output_size); None keeps an axis."""
    return adaptive_avg_pool(2, input, output_size)


@function(to="nn.functional", takes=FLOATS)
def adaptive_avg_pool3d(input: Tensor, output_size: Target) -> Tensor:
    """(N, C, D, H, W) -> (N, C, *output_size); None keeps an axis."""
    return adaptive_avg_pool(3, input, output_size)


@function(to="nn.functional", takes=FLOATS)
def adaptive_max_pool1d(
    input: Tensor, output_size: Target, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """(N, C, L) -> (N, C, output_size)."""
    return adaptive_max_pool(1, input, output_size, return_indices)


@function(to="nn.functional", takes=FLOATS)
def adaptive_max_pool2d(
    input: Tensor, output_size: Target, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """(N, C, H, W) -> (N, C, *output_size); None keeps an axis."""
    return adaptive_max_pool(2, input, output_size, return_indices)


@function(to="nn.functional", takes=FLOATS)
def adaptive_max_pool3d(
    input: Tensor, output_size: Target, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """(N, C, D, H, W) -> (N, C, *output_size); None keeps an axis."""
    return adaptive_max_pool(3, input, output_size, return_indices)


def _fractional_starts(sample: float, length: int, size: int, kernel: int) -> list[int]:
    """Starts of the pseudo-random regions of fractional pooling (Graham 2014)."""
    if size == 1:
        return [length - kernel]
    alpha = (length - kernel) / (size - 1)
    first = [int((i + sample) * alpha) - int(sample * alpha) for i in range(size - 1)]
    return [*first, length - kernel]


def fractional_max_pool(
    n: int, input: Tensor, kernel_size: Sizes, output_size: Target, output_ratio: float | Sequence[float] | None,
    return_indices: bool, samples: Any,
) -> Any:  # fmt: skip
    """Maximum over pseudo-random regions; ``samples`` (N, C, n) in [0, 1) determines their places."""
    name = f"fractional_max_pool{n}d"
    if output_size is None and output_ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    x, single = batched(input, n, name)
    kernel = ntuple(kernel_size, n)
    if output_size is None:
        ratio = output_ratio if isinstance(output_ratio, list | tuple) else (output_ratio,) * n
        output_size = [int(have * r) for have, r in zip(x.shape[2:], ratio, strict=True)]
    size = ntuple(output_size, n)
    for have, k, want in zip(x.shape[2:], kernel, size, strict=True):
        if want + k - 1 > have:
            raise RuntimeError(f"{name}(): pool size {k} too large relative to input size {have}")
    drawn = T.rand(*x.shape[:2], n, dtype=x.dtype) if samples is None else samples
    if drawn.shape[0] < x.shape[0]:
        raise RuntimeError(
            f"Expect _random_samples.size(0) equals to or larger than input batch size, got {drawn.shape[0]} and "
            f"{x.shape[0]}"
        )
    values, index = _fractional_planes(x, drawn, kernel, size)
    if single:
        values, index = values.squeeze(0), index.squeeze(0)
    return (values, index) if return_indices else values


def _fractional_planes(x: Tensor, samples: Tensor, kernel: Ints, size: Ints) -> tuple[Tensor, Tensor]:
    tops, places = [], []
    for batch, sample in zip(x.unbind(0), samples[: x.shape[0]].tolist(), strict=True):
        for plane, point in zip(batch.unbind(0), sample, strict=True):
            # PyTorch pairs the last axis of samples with the first spatial one: (..., W, H) for planes.
            at = [
                _fractional_starts(p, have, w, k)
                for p, have, w, k in zip(reversed(point), plane.shape, size, kernel, strict=True)
            ]
            ends = [[a + k for a in row] for row, k in zip(at, kernel, strict=True)]
            top, place = _max_of_regions(plane, list(map(_Regions.between, at, ends)))
            tops.append(top)
            places.append(place)
    shape = (*x.shape[:2], *size)
    return T.stack(tops).reshape(*shape), T.stack(places).reshape(*shape)


@function(to="nn.functional")
def fractional_max_pool2d(
    input: Tensor, kernel_size: Sizes, output_size: Target = None, output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False, _random_samples: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """(N, C, H, W) -> (N, C, *output_size) over pseudo-random regions (Graham 2014)."""
    return fractional_max_pool(2, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


@function(to="nn.functional")
def fractional_max_pool3d(
    input: Tensor, kernel_size: Sizes, output_size: Target = None, output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False, _random_samples: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:  # fmt: skip
    """(N, C, D, H, W) -> (N, C, *output_size) over pseudo-random regions (Graham 2014)."""
    return fractional_max_pool(3, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


def max_unpool(
    n: int,
    input: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    output_size: Sequence[int] | None,
) -> Tensor:
    """Write values to the positions of their maxima, zeros elsewhere."""
    name = f"max_unpool{n}d"
    x, single = batched(input, n, name)
    if indices.dtype.name != "int64":
        raise RuntimeError(f"elements in indices should be type int64 but got: {indices.dtype}")
    if indices.shape != input.shape:
        raise RuntimeError(
            f"Expected shape of indices to be same as that of the input tensor ({list(input.shape)}) "
            f"but got indices tensor with shape: {list(indices.shape)}"
        )
    kernel = ntuple(kernel_size, n)
    strides, pads = ntuple(kernel if stride is None else stride, n), ntuple(padding, n)
    default = [(have - 1) * s - 2 * p + k for have, s, p, k in zip(x.shape[2:], strides, pads, kernel, strict=True)]
    size = default if output_size is None else list(output_size)[-n:]
    for want, have, s in zip(size, default, strides, strict=True):
        if not have - s < want < have + s:
            raise ValueError(
                f"invalid output_size {size} (dim must be between {[d - s for d in default]} and "
                f"{[d + s for d in default]})"
            )
    flat = x.reshape(*x.shape[:2], -1)
    at = indices.reshape(*flat.shape)
    if at.numel() and bool((at < 0).any() | (at >= math.prod(size)).any()):
        raise RuntimeError(f"Found an invalid max index: {int(at.max())} (output volumes are of size {size})")
    out = T.zeros(*flat.shape[:2], math.prod(size), dtype=x.dtype).scatter(2, at, flat)
    result = out.reshape(*x.shape[:2], *size)
    return result.squeeze(0) if single else result


@function(to="nn.functional", takes=FLOATS)
def max_unpool1d(
    input: Tensor, indices: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Partial inverse of ``max_pool1d``."""
    return max_unpool(1, input, indices, kernel_size, stride, padding, output_size)


@function(to="nn.functional", takes=FLOATS)
def max_unpool2d(
    input: Tensor, indices: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Partial inverse of ``max_pool2d``."""
    return max_unpool(2, input, indices, kernel_size, stride, padding, output_size)


@function(to="nn.functional", takes=FLOATS)
def max_unpool3d(
    input: Tensor, indices: Tensor, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Partial inverse of ``max_pool3d``."""
    return max_unpool(3, input, indices, kernel_size, stride, padding, output_size)

"""Pixels and patches: unfold, fold, shuffles, sampling grids."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tracecomp.eager.modes import scope
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.dims import Sizes, check_memory
from tracecomp.functional.dtype_support import ALL, FLOATS
from tracecomp.functional.memory_formats import following
from tracecomp.functional.primitives import prim
from tracecomp.functional.publish import function
from tracecomp.functional.shape.shaping import in_new_memory
from tracecomp.ir.types import bool_, int64
from tracecomp.nn.functional.conv import ntuple
from tracecomp.nn.functional.padding import constant_pad

Ints = tuple[int, ...]


def _patch_counts(size: Ints, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Ints:
    for what, values in (("kernel_size", kernel), ("stride", stride), ("dilation", dilation)):
        if min(values) < 1:
            raise RuntimeError(f"{what} should be greater than zero, but got {values}")
    return tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, d, p, s in zip(size, kernel, dilation, padding, stride, strict=True)
    )


@function(to="nn.functional", takes=ALL)
def unfold(input: Tensor, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1) -> Tensor:
    """Patches of (N, C, H, W) as columns: (N, C * KH * KW, L)."""
    single = input.ndim == 3
    x = input.unsqueeze(0) if single else input
    if x.ndim != 4:
        raise RuntimeError(f"Expected 3D or 4D (batch mode) tensor for input, but got: {list(input.shape)}")
    kernel, dilations, pads, strides = (ntuple(v, 2) for v in (kernel_size, dilation, padding, stride))
    counts = _patch_counts(tuple(x.shape[2:]), kernel, dilations, pads, strides)
    if min(counts) < 1:
        raise RuntimeError(
            f"Given input with spatial size {tuple(x.shape[2:])}, kernel_size={kernel}, dilation={dilations}, "
            f"padding={pads}, calculated shape of the array of sliding blocks as {counts}, "
            "but its components must be at least one."
        )
    with scope("unfold"):
        padded = constant_pad(x, [pads[1], pads[1], pads[0], pads[0]])
        patches = prim.windows(padded, sizes=kernel, strides=strides, dilations=dilations)
        columns = patches.permute(0, 1, 4, 5, 2, 3).reshape(
            x.shape[0], x.shape[1] * math.prod(kernel), math.prod(counts)
        )
    return columns.squeeze(0) if single else columns


@function(to="nn.functional")
def fold(
    input: Tensor, output_size: Sizes | None, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0,
    stride: Sizes = 1,
) -> Tensor:  # fmt: skip
    """Sum columns (N, C * KH * KW, L) back into images (N, C, *output_size): the adjoint of ``unfold``."""
    single = input.ndim == 2
    x = input.unsqueeze(0) if single else input
    if x.ndim != 3:
        raise RuntimeError(f"Expected 2D or 3D (batch mode) tensor for input, but got: {list(input.shape)}")
    size, kernel, dilations, pads, strides = (
        ntuple(v, 2) for v in (output_size, kernel_size, dilation, padding, stride)
    )
    area = math.prod(kernel)
    if x.shape[1] % area:
        raise RuntimeError(
            "Expected size of input's dimension 1 to be divisible by the product of kernel_size, "
            f"but got input.size(1)={x.shape[1]} and kernel_size={kernel}."
        )
    counts = _patch_counts(size, kernel, dilations, pads, strides)
    if x.shape[2] != math.prod(counts):
        raise RuntimeError(
            f"Given output_size={size}, kernel_size={kernel}, dilation={dilations}, padding={pads}, stride={strides}, "
            f"expected size of input's dimension 2 to match the calculated number of sliding blocks "
            f"{counts[0]} * {counts[1]} = {math.prod(counts)}, but got input.size(2)={x.shape[2]}."
        )
    channels = x.shape[1] // area
    with scope("fold"):
        patches = x.reshape(x.shape[0], channels, *kernel, *counts).permute(0, 1, 4, 5, 2, 3)
        full = (x.shape[0], channels, size[0] + 2 * pads[0], size[1] + 2 * pads[1])
        image = prim.fold(patches, shape=full, sizes=kernel, strides=strides, dilations=dilations)
        image = constant_pad(image, [-pads[1], -pads[1], -pads[0], -pads[0]])
    return image.squeeze(0) if single else image


@function(to="nn.functional torch", takes=ALL)
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(*, C r^2, H, W) -> (*, C, H r, W r)."""
    r = upscale_factor
    if input.ndim < 3:
        raise RuntimeError(
            f"pixel_shuffle expects input to have at least 3 dimensions, but got input with {input.ndim} dimension(s)"
        )
    if r <= 0:
        raise RuntimeError(f"pixel_shuffle expects a positive upscale_factor, but got {r}")
    *lead, c, h, w = input.shape
    if c % (r * r):
        raise RuntimeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, "
            f"but input.size(-3)={c} is not divisible by {r * r}"
        )
    n = len(lead)
    x = input.reshape(*lead, c // (r * r), r, r, h, w)
    turned = x.permute(*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return following(in_new_memory(turned.reshape(*lead, c // (r * r), h * r, w * r), input), input)


@function(to="nn.functional torch", takes=ALL)
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(*, C, H r, W r) -> (*, C r^2, H, W)."""
    r = downscale_factor
    if input.ndim < 3:
        raise RuntimeError(
            f"pixel_unshuffle expects input to have at least 3 dimensions, but got input with {input.ndim} dimension(s)"
        )
    if r <= 0:
        raise RuntimeError(f"pixel_unshuffle expects a positive downscale_factor, but got {r}")
    *lead, c, h, w = input.shape
    for word, size in (("height", h), ("width", w)):
        if size % r:
            raise RuntimeError(
                f"pixel_unshuffle expects {word} to be divisible by downscale_factor, but {size} is not divisible by "
                f"{r}"
            )
    n = len(lead)
    x = input.reshape(*lead, c, h // r, r, w // r, r)
    turned = x.permute(*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return following(in_new_memory(turned.reshape(*lead, c * r * r, h // r, w // r), input), input)


@function(to="nn.functional torch", takes=ALL)
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Interleave ``groups`` groups of channels of (N, C, *)."""
    if input.ndim < 3:
        raise RuntimeError(f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(input.shape)}")
    if groups <= 0:
        raise RuntimeError(f"Number of groups to divide channels in must be positive. Value of groups:{groups}")
    n, c = input.shape[:2]
    if c % groups:
        raise RuntimeError(f"Number of channels must be divisible by groups. Got {c} channels and {groups} groups.")
    turned = input.reshape(n, groups, c // groups, -1).transpose(1, 2)
    return following(in_new_memory(turned.reshape(*input.shape), input), input)


@function(to="nn.functional")
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Sampling grid of affine maps: (N, 2, 3) -> (N, H, W, 2), (N, 3, 4) -> (N, D, H, W, 3)."""
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    n = len(size) - 2
    if n not in (2, 3):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. "
            f"Got size {list(size)}"
        )
    if tuple(theta.shape[1:]) != (n, n + 1) or theta.ndim != 3:
        raise ValueError(
            f"Expected a batch of affine matrices of shape Nx{n}x{n + 1} for size {list(size)}. Got "
            f"{list(theta.shape)}."
        )
    if min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {list(size)}")
    spatial = tuple(size[2:])
    check_memory(theta, (size[0], *spatial, n))
    coordinates = []
    for axis, length in reversed(list(enumerate(spatial))):
        edge = 1.0 if align_corners or length == 0 else (length - 1) / length
        line = T.linspace(-edge, edge, length, dtype=theta.dtype) if length > 1 else T.zeros(1, dtype=theta.dtype)
        coordinates.append(line.reshape(-1, *[1] * (n - 1 - axis)).expand(*spatial))
    coordinates.append(T.ones(spatial, dtype=theta.dtype))
    base = T.stack(coordinates, -1).reshape(1, -1, n + 1)
    return (base @ theta.transpose(1, 2)).reshape(size[0], *spatial, n)


def _unnormalize(x: Tensor, size: int, align_corners: bool) -> Tensor:
    return (x + 1) / 2 * (size - 1) if align_corners else ((x + 1) * size - 1) / 2


def _reflect(x: Tensor, low: float, high: float) -> Tensor:
    if low == high:
        return x * 0
    span = high - low
    moved = (x - low).abs()
    extra = moved % span
    flips = (moved / span).floor()
    return T.where(flips % 2 == 0, extra + low, span - extra + low)


def _place(x: Tensor, size: int, padding_mode: str, align_corners: bool) -> Tensor:
    """The position of a normalised coordinate on an axis, by the rule for outside values."""
    x = _unnormalize(x, size, align_corners)
    return _inside(x, size, padding_mode, align_corners)


def _inside(x: Tensor, size: int, padding_mode: str, align_corners: bool) -> Tensor:
    if padding_mode == "border":
        return x.clamp(0, size - 1)
    if padding_mode == "reflection":
        x = _reflect(x, 0.0, size - 1.0) if align_corners else _reflect(x, -0.5, size - 0.5)
        return x.clamp(0, size - 1)
    return x


def _lookup(flat: Tensor, at: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """Elements of (N, C, prod sizes) at integer positions (N, *out) per axis; zero outside."""
    valid: Any = True
    index: Any = 0
    for position, size in zip(at, sizes, strict=True):
        valid = (position >= 0) & (position < size) & valid
        index = index * size + position.clamp(0, size - 1)
    n, out = index.shape[0], index.shape[1:]
    picked = flat.gather(2, index.reshape(n, 1, -1).expand(n, flat.shape[1], index.numel() // n))
    return T.where(valid.unsqueeze(1), picked.reshape(n, flat.shape[1], *out), 0)


def _cubic_weights(t: Tensor) -> list[Tensor]:
    """Weights of the four neighbours at distance 1 + t, t, 1 - t, 2 - t (Keys 1981, a = -0.75)."""
    a = -0.75

    def near(d: Tensor) -> Tensor:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Tensor) -> Tensor:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


@function(to="nn.functional", takes=FLOATS)
def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    """Elements of (N, C, spatial) at the normalised positions ``grid`` (N, *out, n), x first: (N, C, *out)."""
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(
            f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'"
        )
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(
            f"nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: "
            f"'{padding_mode}'"
        )
    n = input.ndim - 2
    if n not in (2, 3) or grid.ndim != input.ndim:
        raise RuntimeError(
            f"grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but got input with "
            f"sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if grid.shape[-1] != n:
        raise RuntimeError(
            f"grid_sampler(): expected grid to have size {n} in last dimension, but got grid with sizes "
            f"{list(grid.shape)}"
        )
    if grid.shape[0] != input.shape[0]:
        raise RuntimeError(
            f"grid_sampler(): expected grid and input to have same batch size, but got input with sizes "
            f"{list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if mode == "bicubic" and n != 2:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    corners = bool(align_corners)
    sizes = tuple(input.shape[2:])
    flat = input.reshape(*input.shape[:2], math.prod(sizes))
    points = list(reversed(grid.unbind(-1)))
    with scope("grid_sample"):
        if mode == "bicubic":
            return _sample_cubic(flat, points, sizes, padding_mode, corners)
        at = [_place(p, size, padding_mode, corners) for p, size in zip(points, sizes, strict=True)]
        if mode == "nearest":
            found = _lookup(flat, [p.round().to(int64) for p in at], sizes)
            if not grid.requires_grad:
                return found
            # The nearest element does not depend on the grid: its gradient is zero, not undefined.
            return T.where(T.ones((), dtype=bool_), found, points[0].to(found.dtype).unsqueeze(1))
        return _sample_linear(flat, at, sizes)


def _sample_linear(flat: Tensor, at: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    floors = [p.floor() for p in at]
    result: Any = 0
    for corner in range(2 ** len(at)):
        steps = [corner >> (len(at) - 1 - axis) & 1 for axis in range(len(at))]
        weight: Any = 1
        for p, f, step in zip(at, floors, steps, strict=True):
            weight = weight * (p - f if step else f + 1 - p)
        where = [f.to(int64) + step for f, step in zip(floors, steps, strict=True)]
        result = result + _lookup(flat, where, sizes) * weight.unsqueeze(1)
    return result


def _sample_cubic(
    flat: Tensor, points: Sequence[Tensor], sizes: Sequence[int], padding_mode: str, corners: bool
) -> Tensor:
    raw = [_unnormalize(p, size, corners) for p, size in zip(points, sizes, strict=True)]
    floors = [p.floor() for p in raw]
    weights = [_cubic_weights(p - f) for p, f in zip(raw, floors, strict=True)]
    taps = [
        [_inside(f + (k - 1), size, padding_mode, corners).to(int64) for k in range(4)]
        for f, size in zip(floors, sizes, strict=True)
    ]
    result: Any = 0
    for y in range(4):
        row: Any = 0
        for x in range(4):
            row = row + _lookup(flat, [taps[0][y], taps[1][x]], sizes) * weights[1][x].unsqueeze(1)
        result = result + row * weights[0][y].unsqueeze(1)
    return result

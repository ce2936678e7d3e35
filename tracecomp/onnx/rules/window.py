"""Convolutions and pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import int64
from tracecomp.nn import functional as F
from tracecomp.onnx.registry import Call, Value, ints, rule

Pads = list[tuple[int, int]]


def spans(
    call: Call, sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> Pads:
    """The padding of each dimension, as ``pads`` says or as ``auto_pad`` makes it."""
    auto = call.attr("auto_pad", "NOTSET")
    if auto in ("NOTSET", "VALID"):
        pads = call.attr("pads", [0] * 2 * len(kernel)) if auto == "NOTSET" else [0] * 2 * len(kernel)
        return [(pads[k], pads[k + len(kernel)]) for k in range(len(kernel))]
    found = []
    for n, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
        total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        found.append((total // 2, total - total // 2) if auto == "SAME_UPPER" else (total - total // 2, total // 2))
    return found


def padded(x: Tensor, pads: Pads, value: float = 0.0) -> Tensor:
    """``x`` with the last dimensions padded."""
    if not any(map(any, pads)):
        return x
    return F.pad(x, [n for pair in reversed(pads) for n in pair], value=value)


def _convolve(call: Call, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    rank = x.dim() - 2
    kernel = [*w.shape[2:]]
    strides, dilations = call.attr("strides", [1] * rank), call.attr("dilations", [1] * rank)
    pads = spans(call, x.shape[2:], kernel, strides, dilations)
    even = all(low == high for low, high in pads)
    x = x if even else padded(x, pads)
    fn = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}.get(rank)
    if fn is None:
        raise call.refuse(f"a convolution over {rank} dimensions")
    padding = [low for low, _ in pads] if even else 0
    return fn(x, w, b, strides, padding, dilations, call.attr("group", 1))


@rule("Conv")
def conv(call: Call, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    return _convolve(call, x, w, b)


@rule("ConvInteger")
def conv_integer(
    call: Call, x: Tensor, w: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None
) -> Tensor:
    """Sums of products of small integers are exact in float64."""
    a, b = x.double(), w.double()
    a = a if x_zero is None else a - x_zero.double()
    if w_zero is not None:
        b = b - w_zero.double().reshape([-1] + [1] * (b.dim() - 1) if w_zero.dim() else [])
    return _convolve(call, a, b, None).to(T.tensor(0).int().dtype)


@rule("ConvTranspose")
def conv_transpose(call: Call, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    rank = x.dim() - 2
    strides, dilations = call.attr("strides", [1] * rank), call.attr("dilations", [1] * rank)
    extra, wanted = call.attr("output_padding", [0] * rank), call.attr("output_shape")
    kernel = [*w.shape[2:]]
    full = [s * (n - 1) + (k - 1) * d + 1 for n, k, s, d in zip(x.shape[2:], kernel, strides, dilations, strict=True)]
    auto = call.attr("auto_pad", "NOTSET")
    if wanted is None and auto.startswith("SAME"):
        wanted = [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
    if wanted is not None:
        totals = [f + e - n for f, e, n in zip(full, extra, wanted[-rank:], strict=True)]
        pads = [(t - t // 2, t // 2) if auto != "SAME_UPPER" else (t // 2, t - t // 2) for t in totals]
    else:
        pads = spans(call, x.shape[2:], kernel, strides, dilations) if auto != "VALID" else [(0, 0)] * rank
    fn = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}[rank]
    found = fn(x, w, b, strides, 0, 0, call.attr("group", 1), dilations)
    # elements added at the end are the bias alone: no operand reaches them
    grown = [(-low, e - high) for (low, high), e in zip(pads, extra, strict=True)]
    if b is not None and any(high > 0 for _, high in grown):
        return padded(found - b.reshape([-1] + [1] * rank), grown) + b.reshape([-1] + [1] * rank)
    return padded(found, grown)


@rule("DeformConv")
def deform_conv(
    call: Call, x: Tensor, w: Tensor, offset: Tensor, b: Tensor | None = None, mask: Tensor | None = None
) -> Tensor:
    """Each element of a window is read at a separate position, between four (Dai et al. 2017, Zhu et al. 2018)."""
    (n, c, height, width), (filters, _, kh, kw) = x.shape, w.shape
    (sy, sx), (dy, dx) = call.attr("strides", [1, 1]), call.attr("dilations", [1, 1])
    (top, _), (left, _) = spans(call, [height, width], [kh, kw], [sy, sx], [dy, dx])
    groups, offsets = call.attr("group", 1), call.attr("offset_group", 1)
    oh, ow = offset.shape[2:]
    moved = offset.reshape([n, offsets, kh * kw, 2, oh, ow])
    taps = T.arange(kh * kw)
    rows = (T.arange(oh) * sy - top)[None, :, None] + ((taps // kw) * dy)[:, None, None]
    columns = (T.arange(ow) * sx - left)[None, None, :] + ((taps % kw) * dx)[:, None, None]
    y, z = moved[:, :, :, 0] + rows.to(x.dtype), moved[:, :, :, 1] + columns.to(x.dtype)
    image = x.reshape([n * offsets, c // offsets, height * width])
    seen = _between(image, (height, width), *(v.reshape([n * offsets, 1, -1]) for v in (y, z)))
    seen = seen.reshape([n, c, kh * kw, oh, ow])
    if mask is not None:
        seen = seen * mask.reshape([n, offsets, 1, kh * kw, oh, ow]).expand(
            [n, offsets, c // offsets, kh * kw, oh, ow]
        ).reshape(seen.shape)
    columns_ = seen.reshape([n, groups, c // groups * kh * kw, oh * ow])
    found = T.matmul(w.reshape([1, groups, filters // groups, -1]), columns_).reshape([n, filters, oh, ow])
    return found if b is None else found + b.reshape([1, -1, 1, 1])


def _between(image: Tensor, sizes: tuple[int, int], y: Tensor, x: Tensor) -> Tensor:
    """Elements of an image (its rows joined) at places between four of them; zero outside of it."""
    height, width = sizes
    top, left = y.floor(), x.floor()
    found = T.zeros_like(image[:, :, :1])
    for row, upper in ((top, top + 1 - y), (top + 1, y - top)):
        for column, left_part in ((left, left + 1 - x), (left + 1, x - left)):
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            place = (row.clamp(0, height - 1) * width + column.clamp(0, width - 1)).long()
            seen = image.gather(2, place.expand([*image.shape[:2], -1]))
            found = found + T.where(inside, upper * left_part * seen, T.zeros_like(seen))
    return found


def _geometry(call: Call, x: Tensor) -> tuple[list[int], list[int], list[int], Pads, Pads]:
    """Kernel, strides, dilations, padding, and how far windows reach beyond it where sizes are rounded up."""
    rank = x.dim() - 2
    kernel = call.attr("kernel_shape")
    strides, dilations = call.attr("strides", [1] * rank), call.attr("dilations", [1] * rank)
    pads = spans(call, x.shape[2:], kernel, strides, dilations)
    beyond = []
    for n, k, s, d, (low, high) in zip(x.shape[2:], kernel, strides, dilations, pads, strict=True):
        room = n + low + high - (k - 1) * d - 1
        steps = -(-room // s) if call.attr("ceil_mode", 0) else room // s
        if call.attr("ceil_mode", 0) and steps * s >= n + low:
            steps -= 1  # a window that begins in the padding behind is none
        beyond.append((0, max(steps * s - room, 0)))
    return kernel, strides, dilations, pads, beyond


def _windows(x: Tensor, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Tensor:
    """The windows of ``x`` as a last dimension: views, so that nothing is looked up by index."""
    rank = len(kernel)
    for k in range(rank):
        x = x.unfold(2 + k, (kernel[k] - 1) * dilations[k] + 1, strides[k])[..., :: dilations[k]]
    return x.flatten(-rank) if rank > 1 else x


@rule("MaxPool")
def max_pool(call: Call, x: Tensor) -> Any:
    kernel, strides, dilations, pads, beyond = _geometry(call, x)
    low = -math.inf if x.dtype.is_floating_point else T.iinfo(x.dtype).min
    wide = x if x.dtype.is_floating_point else x.to(int64)
    seen = _windows(padded(padded(wide, pads, low), beyond, low), kernel, strides, dilations)
    found = T.amax(seen, -1).to(x.dtype)
    if call.results < 2:
        return found
    sizes = x.shape[2:]
    order = [1] * len(sizes)
    for k in range(1, len(sizes)) if call.attr("storage_order", 0) else range(len(sizes) - 2, -1, -1):
        near = k - 1 if call.attr("storage_order", 0) else k + 1
        order[k] = order[near] * sizes[near]
    place = T.zeros(sizes, dtype=int64)
    for k, n in enumerate(sizes):
        place = place + (T.arange(n) * order[k]).reshape([-1 if j == k else 1 for j in range(len(sizes))])
    every = math.prod(sizes) * T.arange(math.prod(x.shape[:2]))
    place = place + every.reshape([*x.shape[:2], *[1] * len(sizes)])
    places = _windows(padded(padded(place, pads), beyond), kernel, strides, dilations)
    return found, places.gather(-1, seen.argmax(-1, True)).squeeze(-1)


@rule("AveragePool")
def average_pool(call: Call, x: Tensor) -> Tensor:
    kernel, strides, dilations, pads, beyond = _geometry(call, x)
    pool = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}.get(len(kernel))
    plain = all(d == 1 for d in dilations) and not any(map(any, beyond)) and all(a == b for a, b in pads)
    if pool is not None and plain and all(a <= k // 2 for (a, _), k in zip(pads, kernel, strict=True)):
        return pool(x, kernel, strides, [a for a, _ in pads], False, bool(call.attr("count_include_pad", 0)))
    total = T.sum(_windows(padded(padded(x, pads), beyond), kernel, strides, dilations), -1)
    counted = T.ones([1, 1, *x.shape[2:]], dtype=x.dtype)
    counted = padded(padded(counted, pads, 1.0 if call.attr("count_include_pad", 0) else 0.0), beyond)
    return total / T.sum(_windows(counted, kernel, strides, dilations), -1)


@rule("LpPool")
def lp_pool(call: Call, x: Tensor) -> Tensor:
    kernel, strides, dilations, pads, beyond = _geometry(call, x)
    p: float = call.attr("p", 2)
    powers = _windows(padded(padded(T.abs(x) ** p, pads), beyond), kernel, strides, dilations)
    return T.sum(powers, -1) ** (1 / p)


@rule("GlobalAveragePool")
def global_average_pool(call: Call, x: Tensor) -> Tensor:
    pool = {3: F.adaptive_avg_pool1d, 4: F.adaptive_avg_pool2d, 5: F.adaptive_avg_pool3d}.get(x.dim())
    return T.mean(x, [*range(2, x.dim())], True) if pool is None else pool(x, 1)


@rule("GlobalMaxPool")
def global_max_pool(call: Call, x: Tensor) -> Tensor:
    return T.amax(x, [*range(2, x.dim())], True)


@rule("GlobalLpPool")
def global_lp_pool(call: Call, x: Tensor) -> Tensor:
    p: float = call.attr("p", 2)
    return T.sum(T.abs(x) ** p, [*range(2, x.dim())], True) ** (1 / p)


@rule("MaxUnpool", static=(2,))
def max_unpool(call: Call, x: Tensor, places: Tensor, wanted: Value = None) -> Tensor:
    """Places are counted in the shape that the pads and strides give, also when a larger result is wanted."""
    kernel, rank = call.attr("kernel_shape"), x.dim() - 2
    strides, pads = call.attr("strides", [1] * rank), call.attr("pads", [0] * 2 * rank)
    sizes = [
        (n - 1) * s - pads[k] - pads[k + rank] + w
        for k, (n, s, w) in enumerate(zip(x.shape[2:], strides, kernel, strict=True))
    ]
    shape = [*x.shape[:2], *sizes]
    flat = T.zeros([math.prod(shape)], dtype=x.dtype).scatter(0, places.reshape(-1), x.reshape(-1)).reshape(shape)
    if wanted is None:
        return flat
    return padded(flat, [(0, n - s) for n, s in zip(ints(wanted)[2:], sizes, strict=True)])


@rule("Col2Im", static=(1, 2))
def col2im(call: Call, x: Tensor, image: Value, block: Value) -> Tensor:
    sizes, kernel = ints(image), ints(block)
    rank = len(sizes)
    strides, dilations = call.attr("strides", [1] * rank), call.attr("dilations", [1] * rank)
    pads = call.attr("pads", [0] * 2 * rank)
    full = [n + pads[k] + pads[k + rank] for k, n in enumerate(sizes)]
    steps = [(f - (k - 1) * d - 1) // s + 1 for f, k, s, d in zip(full, kernel, strides, dilations, strict=True)]
    channels = x.shape[1] // math.prod(kernel)
    parts = x.reshape([x.shape[0], channels, *kernel, *steps])
    found = T.zeros([x.shape[0], channels, *full], dtype=x.dtype)
    for place in product(*map(range, kernel)):
        ends = zip(place, dilations, steps, strides, strict=True)
        area = tuple(slice(p * d, p * d + (n - 1) * s + 1, s) for p, d, n, s in ends)
        added = T.zeros_like(found)
        added[(slice(None), slice(None), *area)] = parts[(slice(None), slice(None), *place)]
        found = found + added
    return found[(slice(None), slice(None), *[slice(pads[k], pads[k] + n) for k, n in enumerate(sizes)])]

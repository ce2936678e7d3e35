"""The compiled operators of torchvision, in Python: ``nms``, pooling of regions, deformable convolution.

They are compositions, so images, weights, offsets and masks have gradients; regions have none, as in torchvision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import int32
from tracecomp.library import Library

Array = np.ndarray[Any, Any]

_LIBRARY = Library("torchvision", "FRAGMENT")


def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Indices of the boxes that are kept, best first: none overlaps a better one by more than ``iou_threshold``."""
    boxes, order = dets.detach().numpy(), np.argsort(-scores.detach().numpy(), kind="stable")
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept = []
    while order.size:
        best, order = order[0], order[1:]
        kept.append(best)
        low = np.maximum(boxes[best, :2], boxes[order, :2])
        high = np.minimum(boxes[best, 2:], boxes[order, 2:])
        common = np.prod(np.clip(high - low, 0, None), axis=1)
        order = order[~(common / (areas[best] + areas[order] - common) > iou_threshold)]
    found: Tensor = T.tensor(np.array(kept, np.int64))
    return found


def _corners(at: Tensor, size: int) -> tuple[Any, Any, Any, Any]:
    """The two neighbours of places between elements, and their weights; places far outside weigh nothing."""
    inside = (at >= -1) & (at <= size)
    at = at.clamp(min=0)
    low = at.floor().clamp(max=size - 1)
    high = (low + 1).clamp(max=size - 1)
    share = T.where(low >= size - 1, T.zeros_like(at), at - low)
    inside = inside.to(at.dtype)
    return low.long(), high.long(), (1 - share) * inside, share * inside


def _sampled(image: Tensor, bounds: Tensor, cells: tuple[int, int], ratio: int, smallest: float) -> Any:
    """Means of ``image`` [..., height, width] over a grid of samples in each cell of a region, by interpolation.

    ``ratio`` samples an axis and cell; 0 means about one for each element. A region without extent has no samples.
    """
    for axis in (0, 1):
        low, extent = bounds[1 - axis], (bounds[3 - axis] - bounds[1 - axis]).clamp(min=smallest)
        cell = extent / cells[axis]
        count = ratio if ratio > 0 else int(T.ceil(cell).item())
        if count <= 0:
            return image.new_zeros((*image.shape[:-2], *cells))
        steps = (T.arange(cells[axis] * count, dtype=image.dtype) + 0.5) / count
        first, second, a, b = _corners(low + steps * cell, image.shape[-2 + axis])
        image = image.movedim(-2 + axis, -1)
        image = image[..., first] * a + image[..., second] * b
        image = image.unflatten(-1, (cells[axis], count)).mean(-1).movedim(-1, -2 + axis)
    return image


def roi_align(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int,
    aligned: bool,
) -> Tensor:  # fmt: skip
    """Means over a grid of samples in each cell of each region, between elements by bilinear interpolation.

    Source: He et al., "Mask R-CNN" (2017), section 3.
    """
    cells = pooled_height, pooled_width
    smallest, shift = (-np.inf, 0.5) if aligned else (1.0, 0.0)
    results = [
        _sampled(input[int(roi[0])], roi[1:] * spatial_scale - shift, cells, sampling_ratio, smallest)
        for roi in rois.detach()
    ]
    return T.stack(results) if results else input.new_zeros((0, input.shape[1], *cells))


def _own_channels(found: Tensor, cells: tuple[int, int]) -> tuple[Any, Any]:
    """Select, from means [regions, channels, height, width], the channels of each cell; also return their indices.

    Source: Dai et al., "R-FCN" (2016), equation 1.
    """
    height, width = cells
    count = found.shape[1] // (height * width)
    channels = T.arange(found.shape[1], dtype=int32).reshape(1, count, height, width).repeat(len(found), 1, 1, 1)
    found = found.reshape(len(found), count, height * width, height * width)
    return found.diagonal(0, 2, 3).reshape(channels.shape), channels


def ps_roi_align(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int
) -> tuple[Any, Any]:
    """``roi_align`` with separate channels per cell; also returns their indices."""
    found = roi_align(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, True)
    return _own_channels(found, (pooled_height, pooled_width))


def _cells(
    roi: Array, scale: float, cells: tuple[int, int], more: int, limits: tuple[int, int]
) -> Iterator[tuple[Any, ...]]:
    """The elements in each cell of a region whose bounds are rounded, as slices of rows and columns."""
    bounds = roi * np.asarray(scale, roi.dtype)
    left, top, right, bottom = (np.sign(bounds) * np.floor(np.abs(bounds) + 0.5)).astype(int)
    spans = []
    for low, high, count, limit in zip((top, left), (bottom, right), cells, limits, strict=True):
        size = np.asarray(max(high - low + more, 1), roi.dtype) / np.asarray(count, roi.dtype)
        edges = [(np.floor(i * size), np.ceil((i + 1) * size)) for i in range(count)]
        spans.append([slice(*(min(max(int(e) + low, 0), limit) for e in pair)) for pair in edges])
    return ((rows, columns) for rows in spans[0] for columns in spans[1])


def _is_empty(part: tuple[slice, slice]) -> bool:
    return any(s.stop <= s.start for s in part)


def roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Any, Any]:
    """The largest element of each cell of each region, 0 where it is empty, and where it is (-1 for nowhere).

    Source: Girshick, "Fast R-CNN" (2015), section 2.1.
    """
    height, width = input.shape[-2:]
    shape = (len(rois), input.shape[1], pooled_height, pooled_width)
    values, places = [], []
    for roi in rois.detach().numpy():
        flat = input[int(roi[0])].flatten(1)
        for part in _cells(roi[1:], spatial_scale, shape[2:], 1, (height, width)):
            if _is_empty(part):
                values.append(input.new_zeros(shape[1]))
                places.append(T.full((shape[1],), -1, dtype=int32))
                continue
            at = T.arange(height * width).reshape(height, width)[part].flatten()
            best = at[flat[:, at].argmax(1)]
            values.append(flat.gather(1, best[:, None])[:, 0])
            places.append(best.to(int32))
    if not values:
        return input.new_zeros(shape), T.zeros(shape, dtype=int32)
    shaped = [T.stack(x, 1).reshape(shape[1], shape[0], *shape[2:]).movedim(0, 1) for x in (values, places)]
    return shaped[0], shaped[1]


def ps_roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Any, Any]:
    """The mean of each cell of each region, 0 if it is empty, with separate channels per cell; also returns their
    indices."""
    cells = pooled_height, pooled_width
    limits = input.shape[-2] - 1, input.shape[-1] - 1  # as torchvision has it: the last row and column count nowhere
    means = [
        input.new_zeros(input.shape[1]) if _is_empty(part) else input[int(roi[0])][:, part[0], part[1]].mean((1, 2))
        for roi in rois.detach().numpy()
        for part in _cells(roi[1:], spatial_scale, cells, 0, limits)
    ]
    if not means:
        return _own_channels(input.new_zeros((0, input.shape[1], *cells)), cells)
    return _own_channels(T.stack(means).reshape(len(rois), *cells, -1).movedim(3, 1), cells)


def _between(flat: Tensor, y: Tensor, x: Tensor, size: tuple[int, int]) -> Any:
    """``flat`` [batch, groups, channels, height * width] at places [batch, groups, places]; 0 outside of the image."""
    height, width = size
    found: Tensor | float = 0.0
    top, left = y.floor(), x.floor()
    for row, row_share in ((top, 1 - (y - top)), (top + 1, y - top)):
        for column, share in ((left, 1 - (x - left)), (left + 1, x - left)):
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            at = row.clamp(0, height - 1).long() * width + column.clamp(0, width - 1).long()
            weight = T.where(inside, row_share * share, T.zeros_like(share))
            found = found + flat.gather(3, at.unsqueeze(2).expand(-1, -1, flat.shape[2], -1)) * weight.unsqueeze(2)
    return found


def _starts(count: int, step: int, pad: int) -> Tensor:
    """Starts along an axis of windows, or of the elements within one."""
    return T.arange(count) * step - pad


def deform_conv2d(
    input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, stride_h: int, stride_w: int, pad_h: int,
    pad_w: int, dilation_h: int, dilation_w: int, groups: int, offset_groups: int, use_mask: bool,
) -> Any:  # fmt: skip
    """A convolution whose every sample is taken ``offset`` aside, and counts ``mask`` times.

    Source: Dai et al., "Deformable Convolutional Networks" (2017), section 2.1; Zhu et al., "Deformable ConvNets v2"
    (2018), equation 1.
    """
    batch, _, height, width = input.shape
    outputs, _, rows, columns = weight.shape
    out_height, out_width = offset.shape[-2:]
    moved: Any = offset.reshape(batch, offset_groups, rows * columns, 2, out_height, out_width)
    y = (
        _starts(out_height, stride_h, pad_h).unsqueeze(1)
        + _starts(rows, dilation_h, 0).repeat_interleave(columns)[:, None, None]
    )
    x = _starts(out_width, stride_w, pad_w) + _starts(columns, dilation_w, 0).repeat(rows)[:, None, None]
    flat = input.reshape(batch, offset_groups, -1, height * width)
    samples = _between(
        flat, (y + moved[..., 0, :, :]).flatten(2), (x + moved[..., 1, :, :]).flatten(2), (height, width)
    )
    if use_mask:
        samples = samples * mask.reshape(batch, offset_groups, 1, -1)
    samples = samples.reshape(batch, groups, -1, out_height * out_width)
    found = weight.reshape(groups, outputs // groups, -1) @ samples
    return found.reshape(batch, outputs, out_height, out_width) + bias.reshape(-1, 1, 1)


_OPERATORS: dict[str, Callable[..., Any]] = {
    "nms": nms, "roi_align": roi_align, "roi_pool": roi_pool, "ps_roi_align": ps_roi_align, "ps_roi_pool": ps_roi_pool,
    "deform_conv2d": deform_conv2d, "_cuda_version": lambda: -1,
}  # fmt: skip
for _name, _fn in _OPERATORS.items():
    _LIBRARY.impl(_name, _fn, "CompositeImplicitAutograd")

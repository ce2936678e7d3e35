"""The compiled operators of torchvision, in Python: ``nms`` and ``roi_align``."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.library import Library

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


def _corners(at: Any, size: int) -> tuple[Any, Any, Any, Any]:
    """The two neighbours of places between elements, and their weights; places far outside weigh nothing."""
    inside = (at >= -1) & (at <= size)
    at = at.clamp(min=0)
    low = at.floor().clamp(max=size - 1)
    high = (low + 1).clamp(max=size - 1)
    share = T.where(low >= size - 1, T.zeros_like(at), at - low)
    inside = inside.to(at.dtype)
    return low.long(), high.long(), (1 - share) * inside, share * inside


def roi_align(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int,
    aligned: bool,
) -> Tensor:  # fmt: skip
    """Means over a grid of samples in each cell of each region, between elements by bilinear interpolation.

    Source: He et al., "Mask R-CNN" (2017), section 3.
    """
    results = []
    sizes, cells = input.shape[-2:], (pooled_height, pooled_width)
    for roi in rois:
        bounds = roi[1:] * spatial_scale - (0.5 if aligned else 0.0)
        image = input[int(roi[0])]
        sums: Any = image
        for axis in (0, 1):
            low, extent = bounds[1 - axis], bounds[3 - axis] - bounds[1 - axis]
            extent = extent if aligned else extent.clamp(min=1)
            cell = extent / cells[axis]
            count = sampling_ratio if sampling_ratio > 0 else max(int(T.ceil(cell).item()), 1)
            steps = (T.arange(cells[axis] * count, dtype=input.dtype) + 0.5) / count
            first, second, a, b = _corners(low + steps * cell, sizes[axis])
            sums = sums.movedim(1 + axis, -1)
            sums = sums[..., first] * a + sums[..., second] * b
            sums = sums.unflatten(-1, (cells[axis], count)).mean(-1).movedim(-1, 1 + axis)
        results.append(sums)
    shape = (0, input.shape[1], *cells)
    found: Tensor = T.stack(results) if results else input.new_zeros(shape)
    return found


for _name, _fn in (("nms", nms), ("roi_align", roi_align), ("_cuda_version", lambda: -1)):
    _LIBRARY.impl(_name, _fn, "CompositeImplicitAutograd")

"""torchvision's compiled operators compared with loops over elements, and their gradients with differences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp.autograd import gradcheck
from tracecomp.interop import torchvision as ours

RNG = np.random.default_rng(0)
ROIS = np.array([[0, 0.6, 1.2, 5.4, 6.7], [1, 2.0, 2.0, 2.0, 2.0], [1, -3.0, 1.0, 9.5, 4.5], [0, 5.0, 5.0, 3.0, 2.0]])


def images(*shape: int) -> torch.Tensor:
    return torch.tensor(RNG.normal(size=shape))


def at(image: np.ndarray, y: float, x: float, edge: bool) -> float:
    """``image`` between its elements; beyond the border it continues for one element (``edge``), or falls to 0."""
    height, width = image.shape
    if edge:
        if not (-1 <= y <= height and -1 <= x <= width):
            return 0.0
        y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    found = 0.0
    for i in (math.floor(y), math.floor(y) + 1):
        for j in (math.floor(x), math.floor(x) + 1):
            if 0 <= i < height and 0 <= j < width:
                found += image[i, j] * (1 - abs(y - i)) * (1 - abs(x - j))
    return found


def aligned(
    image: np.ndarray, roi: np.ndarray, cells: tuple[int, int], ratio: int, shift: float, least: float
) -> np.ndarray:
    low = roi[[1, 0]] - shift
    size = np.maximum(roi[[3, 2]] - shift - low, least) / cells
    counts = [ratio or math.ceil(s) for s in size]
    found = np.zeros(cells)
    if min(counts) <= 0:
        return found
    for i, j in np.ndindex(cells):
        for a, b in np.ndindex(*counts):
            y, x = low + size * (np.array([i, j]) + (np.array([a, b]) + 0.5) / counts)
            found[i, j] += at(image, y, x, True) / math.prod(counts)
    return found


@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("shifted", [False, True])
def test_roi_align_is_the_mean_of_samples(ratio: int, shifted: bool) -> None:
    x = images(2, 2, 7, 8)
    found = ours.roi_align(x, torch.tensor(ROIS), 0.9, 2, 3, ratio, shifted).numpy()
    for n, roi in enumerate(ROIS):
        for c in range(2):
            limit = (0.5, -np.inf) if shifted else (0.0, 1.0)
            wanted = aligned(x[int(roi[0]), c].numpy(), roi[1:] * 0.9, (2, 3), ratio, *limit)
            np.testing.assert_allclose(found[n, c], wanted, atol=1e-12)


def test_roi_align_by_position_reads_each_cell_from_its_own_channels() -> None:
    x = images(2, 12, 7, 8)
    found, channels = ours.ps_roi_align(x, torch.tensor(ROIS), 1.0, 2, 3, 2)
    assert channels.tolist()[0] == np.arange(12).reshape(2, 2, 3).tolist() and channels.dtype == torch.int32
    for n, roi in enumerate(ROIS):
        for (c, i, j), channel in np.ndenumerate(channels[n].numpy()):
            wanted = aligned(x[int(roi[0]), channel].numpy(), roi[1:], (2, 3), 2, 0.5, -np.inf)[i, j]
            assert found[n, c, i, j].item() == pytest.approx(wanted, abs=1e-12)


def spans(roi: np.ndarray, cell: tuple[int, int], more: int, limits: tuple[int, int]) -> list[range]:
    found = []
    bounds = [math.floor(v + 0.5) if v >= 0 else math.ceil(v - 0.5) for v in roi]
    for low, high, i, count, limit in zip(
        (bounds[1], bounds[0]), (bounds[3], bounds[2]), cell, (2, 3), limits, strict=True
    ):
        size = max(high - low + more, 1) / count
        edges = [math.floor(i * size) + low, math.ceil((i + 1) * size) + low]
        found.append(range(*(min(max(e, 0), limit) for e in edges)))
    return found


def test_roi_pool_takes_the_largest_of_each_cell_and_says_where() -> None:
    x = images(2, 2, 7, 8)
    found, places = ours.roi_pool(x, torch.tensor(ROIS), 0.9, 2, 3)
    for n, c, i, j in np.ndindex(len(ROIS), 2, 2, 3):
        rows, columns = spans(ROIS[n, 1:] * 0.9, (i, j), 1, (7, 8))
        inside = [(x[int(ROIS[n, 0]), c, y, z].item(), y * 8 + z) for y in rows for z in columns]
        wanted = max(inside, default=(0.0, -1))
        assert (found[n, c, i, j].item(), places[n, c, i, j].item()) == wanted


def test_roi_pool_by_position_takes_means_of_own_channels() -> None:
    x = images(2, 12, 7, 8)
    found, channels = ours.ps_roi_pool(x, torch.tensor(ROIS), 1.0, 2, 3)
    for n, c, i, j in np.ndindex(len(ROIS), 2, 2, 3):
        rows, columns = spans(ROIS[n, 1:], (i, j), 0, (6, 7))
        image = x[int(ROIS[n, 0]), int(channels[n, c, i, j])]
        inside = [image[y, z].item() for y in rows for z in columns]
        assert found[n, c, i, j].item() == pytest.approx(float(np.mean(inside)) if inside else 0.0)


def test_regions_of_no_number_give_results_without_rows() -> None:
    x, none = images(1, 12, 4, 4), torch.zeros(0, 5, dtype=torch.float64)
    assert ours.roi_align(x, none, 1.0, 2, 3, 0, True).shape == (0, 12, 2, 3)
    for pooled in (ours.roi_pool(x, none, 1.0, 2, 3), ours.ps_roi_pool(x, none, 1.0, 2, 3)):
        assert pooled[0].shape == pooled[1].shape == (0, pooled[0].shape[1], 2, 3)


def test_deformable_convolution_is_the_sum_over_moved_samples() -> None:
    x, weight, bias = images(2, 4, 5, 6), images(6, 2, 3, 2), images(6)
    offset, mask = images(2, 2 * 2 * 6, 3, 4), images(2, 2 * 6, 3, 4)
    found = ours.deform_conv2d(x, weight, offset, mask, bias, 2, 1, 1, 0, 1, 2, 2, 2, True)
    image, o, m, w = (t.numpy() for t in (x, offset, mask, weight))
    assert found.shape == (2, 6, 3, 4)
    for n, out, i, j in np.ndindex(2, 6, 3, 4):
        total = bias[out].item()
        for c, a, b in np.ndindex(2, 3, 2):
            channel = out // 3 * 2 + c
            k = channel // 2 * 6 + a * 2 + b
            y, z = i * 2 - 1 + a + o[n, 2 * k, i, j], j + b * 2 + o[n, 2 * k + 1, i, j]
            total += w[out, c, a, b] * m[n, k, i, j] * at(image[n, channel], y, z, False)
        assert found[n, out, i, j].item() == pytest.approx(total, abs=1e-10)


@pytest.mark.slow
def test_gradients_are_those_of_differences() -> None:
    x = images(1, 4, 3, 2).requires_grad_()
    rois = torch.tensor([[0, 0.3, 0.2, 1.4, 2.6]], dtype=torch.float64)
    for pool in (
        lambda x: ours.roi_align(x, rois, 1.0, 2, 1, 2, True), lambda x: ours.roi_pool(x, rois, 1.0, 2, 1)[0],
        lambda x: ours.ps_roi_align(x, rois, 1.0, 2, 2, 0)[0], lambda x: ours.ps_roi_pool(x, rois, 1.0, 2, 2)[0],
    ):  # fmt: skip
        assert gradcheck(pool, (x,))
    rest: Any = [images(*shape).requires_grad_() for shape in ((1, 4, 2, 1), (1, 4, 2, 2), (1, 2, 2, 2), (1,))]
    assert gradcheck(
        lambda *t: ours.deform_conv2d(t[0], t[1], t[2], t[3], t[4], 1, 1, 0, 0, 1, 1, 1, 1, True), (x, *rest)
    )

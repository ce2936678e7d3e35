"""Images: other sizes, other places, regions, boxes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import int64
from tracecomp.nn import functional as F
from tracecomp.onnx.registry import Call, Value, ints, rule

Array = np.ndarray[Any, Any]

_ROUNDED: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda v: np.ceil(np.float64(v) - 0.5),
    "round_prefer_ceil": lambda v: np.floor(np.float64(v) + 0.5),
    "floor": np.floor, "ceil": np.ceil,
}  # fmt: skip


def _places(mode: str, new: int, old: int, scale: float, region: tuple[float, float], dtype: Any) -> Array:
    """The position of each element of the result in the operand, in the arithmetic of ``dtype``."""
    at = np.arange(new, dtype=dtype)
    if mode == "align_corners":
        length = old * scale  # not rounded, as the operator is defined
        return at * (old - 1) / (length - 1) if length > 1 else at * 0
    if mode == "asymmetric":
        return at / scale
    if mode == "pytorch_half_pixel":
        return (at + 0.5) / scale - 0.5 if new > 1 else at * 0
    if mode == "half_pixel_symmetric":
        return old / 2 * (1 - new / (old * scale)) + (at + 0.5) / scale - 0.5
    if mode == "tf_half_pixel_for_nn":
        return (at + 0.5) / scale
    if mode == "tf_crop_and_resize":
        start, end = region
        if new > 1:
            return start * (old - 1) + at * (end - start) * (old - 1) / (new - 1)
        return np.full(1, 0.5 * (start + end) * (old - 1))
    return (at + 0.5) / scale - 0.5


def _weights(mode: str, places: Array, old: int, scale: float, call: Call) -> Array:
    """The weight of each old element (columns) in each new one (rows)."""
    found = np.zeros((len(places), old))
    if mode == "nearest":
        older = "ceil" if scale < 1 else "floor"
        chosen = _ROUNDED[call.attr("nearest_mode", "round_prefer_floor" if call.opset > 10 else older)](places)
        found[np.arange(len(places)), np.clip(chosen, 0, old - 1).astype(int)] = 1
        return found
    shrink = min(scale, 1.0) if call.attr("antialias", 0) else 1.0
    reach = (1 if mode == "linear" else 2) / shrink
    a = call.attr("cubic_coeff_a", -0.75)
    outside = call.attr("exclude_outside", 0)
    for row, place in enumerate(places):
        first = math.floor(place - reach) + 1 if shrink < 1 or mode == "cubic" else math.floor(place)
        last = math.ceil(place + reach) if shrink < 1 else (first + (1 if mode == "linear" else 3))
        taps = np.arange(first, last + 1)
        distance = np.abs((taps - place) * shrink)
        w = np.maximum(1 - distance, 0) if mode == "linear" else _cubic(distance, a)
        if outside:
            w = np.where((taps >= 0) & (taps < old), w, 0)
        if outside or shrink < 1:
            w = w / w.sum()
        np.add.at(found[row], np.clip(taps, 0, old - 1), w)
    return found


def _cubic(d: Array, a: float) -> Array:
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


@rule("Resize", static=(1, 2, 3))
def resize(call: Call, x: Tensor, roi: Value = None, scales: Value = None, sizes: Value = None) -> Tensor:
    """Dimension by dimension: a product with the weights of old elements in new ones."""
    if call.opset < 11:
        roi, scales = None, roi
    axes = [a % x.dim() for a in call.attr("axes", range(x.dim()))]
    old = [x.shape[a] for a in axes]
    factors, new = _sizes(call, old, scales, sizes)
    kind = x.dtype
    mode = call.attr("mode", "nearest")
    where = call.attr("coordinate_transformation_mode", "half_pixel" if call.opset > 10 else "asymmetric")
    if (found := _interpolated(call, x, axes, old, new, None if sizes is not None else factors)) is not None:
        return found
    whole = [0.0] * len(axes) + [1.0] * len(axes)
    region = whole if roi is None or not np.size(roi) else [float(v) for v in np.asarray(roi)]
    beyond = []
    for k, axis in enumerate(axes):
        if factors[k] == 1 and where != "tf_crop_and_resize":
            continue
        # Which of two elements is nearer hangs on the last bit: everybody computes that in float32.
        dtype = np.float32 if mode == "nearest" else np.float64
        places = _places(where, new[k], old[k], factors[k], (region[k], region[k + len(axes)]), dtype)
        beyond.append((axis, (places < 0) | (places > old[k] - 1)))
        weights = _weights(mode, places, old[k], factors[k], call)
        if mode == "nearest":
            x = x.index_select(axis, T.tensor(weights.argmax(1).tolist(), dtype=int64))
        else:
            wide = x if x.is_floating_point() else x.double()  # whole numbers are cut off at the end
            matrix = T.tensor(weights.tolist(), dtype=wide.dtype)
            x = T.matmul(wide.movedim(axis, -1), matrix.t()).movedim(-1, axis)
    if where == "tf_crop_and_resize":
        for axis, out in beyond:
            shape = [-1 if n == axis else 1 for n in range(x.dim())]
            fill = T.full_like(x, call.attr("extrapolation_value", 0.0))
            x = T.where(T.tensor(out.tolist()).reshape(shape), fill, x)
    return x.to(kind)


def _scaled(size: int, factor: float) -> int:
    """The new size, in float32, as onnx infers it: 20 times 2.1 is 42."""
    return math.floor(np.float32(size) * np.float32(factor))


def _sizes(call: Call, old: list[int], scales: Value, sizes: Value) -> tuple[list[float], list[int]]:
    if scales is not None and np.size(scales):
        factors = [float(s) for s in np.asarray(scales).reshape(-1)]
        return factors, [_scaled(n, s) for n, s in zip(old, factors, strict=True)]
    new = ints(sizes)
    factors = [n / o for n, o in zip(new, old, strict=True)]
    policy = call.attr("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return factors, new
    factor = min(factors) if policy == "not_larger" else max(factors)
    return [factor] * len(old), [math.floor(n * factor + 0.5) for n in old]


@rule("Upsample", static=(1,))
def upsample(call: Call, x: Tensor, scales: Value = None) -> Tensor:
    factors = [float(s) for s in np.asarray(call.attr("scales", scales)).reshape(-1)]
    for axis, factor in enumerate(factors):
        old, new = x.shape[axis], _scaled(x.shape[axis], factor)
        places = np.arange(new, dtype=np.float32) / np.float32(factor)
        if call.attr("mode", "nearest") == "nearest":
            x = x.index_select(axis, T.tensor(np.floor(places).astype(int).tolist(), dtype=int64))
        elif factor != 1:
            weights = _weights("linear", places, old, factor, call)
            x = T.matmul(x.movedim(axis, -1), T.tensor(weights.tolist(), dtype=x.dtype).t()).movedim(-1, axis)
    return x


_ALIKE = {("linear", 3): "linear", ("linear", 4): "bilinear", ("linear", 5): "trilinear", ("cubic", 4): "bicubic"}
"""Modes of ``interpolate``, by the number of dimensions."""


def _interpolated(
    call: Call, x: Tensor, axes: list[int], old: list[int], new: list[int], factors: list[float] | None
) -> Tensor | None:
    """The result where ``interpolate`` gives it, reading few elements for each. ``factors`` are stated ones."""
    mode = _ALIKE.get((call.attr("mode", "nearest"), x.dim()))
    where = call.attr("coordinate_transformation_mode", "half_pixel" if call.opset > 10 else "asymmetric")
    stated = call.node.attrs.keys() & {"antialias", "exclude_outside", "cubic_coeff_a", "keep_aspect_ratio_policy"}
    special = any(call.attr(n) not in (0, -0.75, "stretch") for n in stated)
    if mode is None or special or axes != [*range(x.dim())] or old[:2] != new[:2] or not x.is_floating_point():
        return None
    if where == "align_corners" and factors is None:
        return F.interpolate(x, size=new[2:], mode=mode, align_corners=True)
    if where != "half_pixel" or (factors is not None and factors[:2] != [1, 1]):
        return None
    if factors is None:
        return F.interpolate(x, size=new[2:], mode=mode, align_corners=False)
    if [math.floor(n * f) for n, f in zip(old, factors, strict=True)] != new:  # in float64, which rounds otherwise
        return None
    return F.interpolate(x, scale_factor=factors[2:], mode=mode, align_corners=False)


@rule("GridSample")
def grid_sample(call: Call, x: Tensor, grid: Tensor) -> Tensor:
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(call.attr("mode", "linear"), call.attr("mode", "linear"))
    return F.grid_sample(x, grid, mode, call.attr("padding_mode", "zeros"), bool(call.attr("align_corners", 0)))


@rule("AffineGrid", static=(1,))
def affine_grid(call: Call, theta: Tensor, size: Value) -> Tensor:
    return F.affine_grid(theta, ints(size), bool(call.attr("align_corners", 0)))


@rule("RoiAlign")
def roi_align(call: Call, x: Tensor, rois: Tensor, batches: Tensor) -> Tensor:
    """Regions cut into bins, each the mean (or greatest) of samples between elements (He et al. 2017)."""
    height, width = call.attr("output_height", 1), call.attr("output_width", 1)
    where = call.attr("coordinate_transformation_mode", "half_pixel" if call.opset >= 16 else "output_half_pixel")
    offset = 0.5 if where == "half_pixel" else 0.0
    boxes = [[float(v) for v in row] for row in (rois * call.attr("spatial_scale", 1.0) - offset).tolist()]
    found = []
    for (x1, y1, x2, y2), n in zip(boxes, ints(batches), strict=True):
        w, h = (x2 - x1, y2 - y1) if offset else (max(x2 - x1, 1.0), max(y2 - y1, 1.0))
        ratio = call.attr("sampling_ratio", 0)
        rows, columns = (ratio, ratio) if ratio > 0 else (math.ceil(h / height), math.ceil(w / width))
        ys = [y1 + (k + 0.5) * h / (height * rows) for k in range(height * rows)]
        xs = [x1 + (k + 0.5) * w / (width * columns) for k in range(width * columns)]
        if call.attr("mode", "avg") == "avg":
            taps = (_between(ys, x.shape[2]), _between(xs, x.shape[3]))
            rows_of, columns_of = (T.tensor(t.tolist(), dtype=x.dtype) for t in taps)
            seen = T.matmul(T.matmul(rows_of, x[n]), columns_of.t())
            seen = seen.reshape([-1, height, rows, width, columns])
            found.append(T.mean(seen, [2, 4]))
        else:
            found.append(_greatest(x[n], ys, xs, (height, rows, width, columns)))
    return T.stack(found) if found else T.zeros([0, x.shape[1], height, width], dtype=x.dtype)


def _corners(places: list[float], size: int) -> list[tuple[int, int, float, bool]]:
    """The two neighbours of each position, the weight of the second, and whether the position is in the image."""
    found = []
    for p in places:
        inside = -1.0 <= p <= size
        p = min(max(p, 0.0), size - 1.0)
        low = min(int(p), size - 1)
        found.append((low, min(low + 1, size - 1), p - low, inside))
    return found


def _between(places: list[float], size: int) -> Array:
    found = np.zeros((len(places), size))
    for row, (low, high, share, inside) in enumerate(_corners(places, size)):
        if inside:
            found[row, low] += 1 - share
            found[row, high] += share
    return found


def _greatest(image: Tensor, ys: list[float], xs: list[float], shape: tuple[int, ...]) -> Tensor:
    """The greatest weighted corner of all samples of a bin, as the operator is defined."""
    height, rows, width, columns = shape
    parts = []
    for y0, y1, v, row_in in _corners(ys, image.shape[1]):
        line = []
        for x0, x1, u, column_in in _corners(xs, image.shape[2]):
            weights = ((1 - v) * (1 - u), (1 - v) * u, v * (1 - u), v * u)
            corners = (image[:, y0, x0], image[:, y0, x1], image[:, y1, x0], image[:, y1, x1])
            inside = 1.0 if row_in and column_in else 0.0
            line.append(T.amax(T.stack([c * w * inside for c, w in zip(corners, weights, strict=True)]), 0))
        parts.append(T.stack(line, -1))
    found = T.stack(parts, 1).reshape([-1, height, rows, width, columns])
    return T.amax(found, [2, 4])


@rule("MaxRoiPool")
def max_roi_pool(call: Call, x: Tensor, rois: Tensor) -> Tensor:
    """The greatest element of each bin of each region (Girshick 2015); regions are [batch, x1, y1, x2, y2]."""
    (height, width), scale = call.attr("pooled_shape"), call.attr("spatial_scale", 1.0)
    found = []
    for n, *box in rois.tolist():
        x1, y1, x2, y2 = (round(v * scale) for v in box)
        h, w = max(y2 - y1 + 1, 1), max(x2 - x1 + 1, 1)
        bins = []
        for i in range(height):
            top, bottom = _bin(i, h, height, y1, x.shape[2])
            for j in range(width):
                left, right = _bin(j, w, width, x1, x.shape[3])
                area = x[int(n), :, top:bottom, left:right]
                bins.append(T.amax(area, [1, 2]) if area.numel() else T.zeros([x.shape[1]], dtype=x.dtype))
        found.append(T.stack(bins, -1).reshape([-1, height, width]))
    return T.stack(found)


def _bin(k: int, length: int, bins: int, start: int, size: int) -> tuple[int, int]:
    """Start and end of bin ``k`` of a region, in the image."""
    ends = math.floor(k * length / bins), math.ceil((k + 1) * length / bins)
    first, last = (min(max(v + start, 0), size) for v in ends)
    return first, last


@rule("NonMaxSuppression", static=(0, 1, 2, 3, 4))
def non_max_suppression(
    call: Call, boxes: Value, scores: Value, most: Value = None, overlap: Value = None, least: Value = None
) -> Value:
    """The best-scoring of overlapping boxes; triples of batch, class and box."""
    limit = 0 if most is None else ints(most)[0]
    threshold = 0.0 if overlap is None else float(np.asarray(overlap).item())
    lowest = -math.inf if least is None else float(np.asarray(least).item())
    found: list[tuple[int, int, int]] = []
    for n in range(scores.shape[0]):
        corners = _corner_form(np.asarray(boxes[n], np.float64), call.attr("center_point_box", 0))
        for c in range(scores.shape[1]):
            chosen: list[int] = []
            for k in np.argsort(-scores[n, c], kind="stable"):
                if len(chosen) >= limit or scores[n, c, k] <= lowest:
                    break
                if all(_overlap(corners[k], corners[j]) <= threshold for j in chosen):
                    chosen.append(int(k))
            found += [(n, c, k) for k in chosen]
    return np.array(found, np.int64).reshape(-1, 3)


def _corner_form(boxes: Array, centred: int) -> Array:
    if centred:
        x, y, w, h = boxes.T
        return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], 1)
    a, b = boxes[:, :2], boxes[:, 2:]
    return np.concatenate([np.minimum(a, b), np.maximum(a, b)], 1)


def _overlap(a: Array, b: Array) -> float:
    """The area that two boxes share over the area that they cover."""
    sides = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0)
    shared = sides.prod()
    covered = (a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - shared
    return float(shared / covered) if covered > 0 else 0.0

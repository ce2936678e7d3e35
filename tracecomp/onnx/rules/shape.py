"""Operators on shapes: queries, and elements in another shape."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import int64
from tracecomp.nn import functional as F
from tracecomp.onnx.registry import Call, Value, ints, rule
from tracecomp.onnx.rules.elementwise import dtype_of

_VALUES: dict[str, Any] = {
    "value": None, "sparse_value": None, "value_float": np.float32, "value_floats": np.float32, "value_int": np.int64,
    "value_ints": np.int64, "value_string": object, "value_strings": object,
}  # fmt: skip


@rule("Constant")
def constant(call: Call) -> Value:
    for name, kind in _VALUES.items():
        if name in call.node.attrs:
            return np.asarray(call.node.attrs[name], kind)
    raise call.refuse("a constant without a value")


@rule("Shape", raw=True)
def shape(call: Call, x: Value) -> Value:
    sizes = [*np.shape(x)] if isinstance(x, np.ndarray) else [*x.shape]
    return np.array(sizes[call.attr("start", 0) : call.attr("end")], np.int64)


@rule("Size", raw=True)
def size(call: Call, x: Value) -> Value:
    return np.array(math.prod(x.shape), np.int64)


@rule("Reshape", static=(1,))
def reshape(call: Call, x: Tensor, wanted: Value = None) -> Tensor:
    sizes = ints(call.attr("shape") if wanted is None else wanted)
    if not call.attr("allowzero", 0):
        sizes = [x.shape[k] if n == 0 else n for k, n in enumerate(sizes)]
    return x.reshape(sizes)


@rule("Flatten")
def flatten(call: Call, x: Tensor) -> Tensor:
    axis = call.attr("axis", 1)
    axis += x.dim() if axis < 0 else 0
    return x.reshape([math.prod(x.shape[:axis]), math.prod(x.shape[axis:])])


@rule("Squeeze", static=(1,))
def squeeze(call: Call, x: Tensor, axes: Value = None) -> Tensor:
    axes = call.attr("axes", axes)
    gone = {n for n, s in enumerate(x.shape) if s == 1} if axes is None else {a % x.dim() for a in ints(axes)}
    return x.reshape([s for n, s in enumerate(x.shape) if n not in gone])


@rule("Unsqueeze", static=(1,))
def unsqueeze(call: Call, x: Tensor, axes: Value = None) -> Tensor:
    found = ints(call.attr("axes", axes))
    rank = x.dim() + len(found)
    new, old = {a % rank for a in found}, iter(x.shape)
    return x.reshape([1 if n in new else next(old) for n in range(rank)])


@rule("Transpose")
def transpose(call: Call, x: Tensor) -> Tensor:
    return x.permute(call.attr("perm") or [*reversed(range(x.dim()))])


@rule("Expand", static=(1,))
def expand(call: Call, x: Tensor, wanted: Value) -> Tensor:
    return x.expand(np.broadcast_shapes(tuple(x.shape), tuple(ints(wanted))))


@rule("Tile", static=(1, 2))
def tile(call: Call, x: Tensor, repeats: Value, axis: Value = None) -> Tensor:
    if call.opset >= 6:
        return x.repeat(ints(repeats))
    times = [1] * x.dim()
    times[ints(axis)[0]] = ints(repeats)[0]
    return x.repeat(times)


@rule("Concat")
def concat(call: Call, *xs: Tensor) -> Tensor:
    return T.cat(xs, call.attr("axis", 1))


@rule("Split", static=(1,))
def split(call: Call, x: Tensor, sizes: Value = None) -> Any:
    axis, sizes = call.attr("axis", 0), call.attr("split", sizes)
    if sizes is None:
        parts = call.attr("num_outputs", call.results)
        step = -(-x.shape[axis] // parts)
        sizes = [max(0, min(step, x.shape[axis] - k * step)) for k in range(parts)]
    return tuple(T.split(x, ints(sizes), axis))


@rule("Slice", static=(1, 2, 3, 4))
def slice_(
    call: Call, x: Tensor, starts: Value = None, ends: Value = None, axes: Value = None, steps: Value = None
) -> Tensor:
    starts, ends = ints(call.attr("starts", starts)), ints(call.attr("ends", ends))
    axes = call.attr("axes", axes)
    axes = range(len(starts)) if axes is None else ints(axes)
    strides = [1] * len(starts) if steps is None else ints(steps)
    for start, end, axis, step in zip(starts, ends, axes, strides, strict=True):
        places = _reach(start, end, step, x.shape[axis])
        if step > 0:
            x = x[tuple([slice(None)] * (axis % x.dim()) + [slice(places.start, places.stop, step)])]
        else:
            x = x.index_select(axis, T.tensor([*places], dtype=int64))
    return x


def _reach(start: int, end: int, step: int, count: int) -> range:
    """The elements of a slice. Backwards, a start before the first element is the first, where Python has none."""
    if step > 0:
        return range(*slice(start, end, step).indices(count))
    start, end = (n + count if n < 0 else n for n in (start, end))
    return range(min(max(start, 0), count - 1), min(max(end, -1), count - 1), step)


@rule("Pad", static=(1, 2, 3))
def pad(call: Call, x: Tensor, pads: Value = None, value: Value = None, axes: Value = None) -> Tensor:
    found = ints(call.attr("pads", call.attr("paddings", pads)))
    value = call.attr("value", value)
    chosen = range(x.dim()) if axes is None else [a % x.dim() for a in ints(axes)]
    low, high = [0] * x.dim(), [0] * x.dim()
    for k, axis in enumerate(chosen):
        low[axis], high[axis] = found[k], found[k + len(found) // 2]
    mode = call.attr("mode", "constant")
    if mode == "constant":
        fill = 0 if value is None else np.asarray(value).item()
        return F.pad(x, [n for pair in zip(reversed(low), reversed(high), strict=True) for n in pair], value=fill)
    for axis in chosen:
        x = x.narrow(axis, max(-low[axis], 0), x.shape[axis] + min(low[axis], 0) + min(high[axis], 0))
        if low[axis] > 0 or high[axis] > 0:
            x = x.index_select(axis, T.tensor(_places(mode, x.shape[axis], low[axis], high[axis]), dtype=int64))
    return x


def _places(mode: str, size: int, low: int, high: int) -> list[int]:
    """The source element of each position of a padded dimension."""
    how: Any = mode
    return [int(n) for n in np.pad(np.arange(size), (max(low, 0), max(high, 0)), how)]


@rule("ConstantOfShape", static=(0,))
def constant_of_shape(call: Call, wanted: Value) -> Value:
    value = call.attr("value", np.zeros(1, np.float32))
    found = np.full(ints(wanted), value.reshape(-1)[0], value.dtype)
    return found


@rule("EyeLike")
def eye_like(call: Call, x: Tensor) -> Tensor:
    dtype = dtype_of(call, call.attr("dtype")) if call.attr("dtype") else x.dtype
    rows, columns, k = *x.shape, call.attr("k", 0)
    places = T.arange(columns)[None] - T.arange(rows)[:, None]
    return T.eq(places, k).to(dtype)


@rule("Range", static=(0, 1, 2))
def range_(call: Call, start: Value, limit: Value, delta: Value) -> Value:
    first, end, step = (np.asarray(v).reshape(()) for v in (start, limit, delta))
    count = max(math.ceil((end.item() - first.item()) / step.item()), 0)
    return (first + np.arange(count, dtype=first.dtype) * step).astype(first.dtype)


@rule("DepthToSpace")
def depth_to_space(call: Call, x: Tensor) -> Tensor:
    b, (n, c, h, w) = call.attr("blocksize"), x.shape
    if call.attr("mode", "DCR") == "DCR":
        found = x.reshape([n, b, b, c // (b * b), h, w]).permute([0, 3, 4, 1, 5, 2])
    else:
        found = x.reshape([n, c // (b * b), b, b, h, w]).permute([0, 1, 4, 2, 5, 3])
    return found.reshape([n, c // (b * b), h * b, w * b])


@rule("SpaceToDepth")
def space_to_depth(call: Call, x: Tensor) -> Tensor:
    b, (n, c, h, w) = call.attr("blocksize"), x.shape
    order = [0, 3, 5, 1, 2, 4] if call.attr("mode", "DCR") == "DCR" else [0, 1, 3, 5, 2, 4]
    return x.reshape([n, c, h // b, b, w // b, b]).permute(order).reshape([n, c * b * b, h // b, w // b])


@rule("Trilu", static=(1,))
def trilu(call: Call, x: Tensor, k: Value = None) -> Tensor:
    offset = 0 if k is None else ints(k)[0]
    rows, columns = x.shape[-2:]
    distance = T.arange(columns)[None] - T.arange(rows)[:, None]
    keep = distance >= offset if call.attr("upper", 1) else distance <= offset
    return T.where(keep, x, T.zeros_like(x))


@rule("OneHot", static=(1,))
def one_hot(call: Call, index: Tensor, depth: Value, values: Tensor) -> Tensor:
    count, axis = ints(depth)[0], int(call.attr("axis", -1))
    axis += index.dim() + 1 if axis < 0 else 0
    index = T.where(index < 0, index + count, index).unsqueeze(axis)
    classes = T.arange(count).to(index.dtype).reshape([-1 if n == axis else 1 for n in range(index.dim())])
    return T.where(index == classes, values[1], values[0])

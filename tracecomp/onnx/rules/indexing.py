"""Reading and writing by index."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import int64
from tracecomp.onnx.registry import Call, Value, ints, rule


def _wrapped(index: Tensor, size: int) -> Tensor:
    index = index.to(int64)
    return T.where(index < 0, index + size, index)


@rule("Gather")
def gather(call: Call, x: Tensor, index: Tensor) -> Tensor:
    axis = call.attr("axis", 0) % x.dim()
    found = x.index_select(axis, _wrapped(index, x.shape[axis]).reshape(-1))
    return found.reshape([*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]])


@rule("GatherElements")
def gather_elements(call: Call, x: Tensor, index: Tensor) -> Tensor:
    axis = call.attr("axis", 0) % x.dim()
    return x.gather(axis, _wrapped(index, x.shape[axis]))


def _flat_places(index: Tensor, sizes: list[int]) -> Tensor:
    """Numbers of elements from vectors of places in dimensions of ``sizes``."""
    found = T.zeros(index.shape[:-1], dtype=int64)
    for k, n in enumerate(sizes):
        found = found * n + _wrapped(index[..., k], n)
    return found


@rule("GatherND")
def gather_nd(call: Call, x: Tensor, index: Tensor) -> Tensor:
    batch, depth = call.attr("batch_dims", 0), index.shape[-1]
    lead, sizes, rest = [*x.shape[:batch]], [*x.shape[batch : batch + depth]], [*x.shape[batch + depth :]]
    places = _flat_places(index, sizes).reshape([math.prod(lead), -1])
    places = places + (T.arange(math.prod(lead)) * math.prod(sizes))[:, None]
    found = x.reshape([math.prod(lead) * math.prod(sizes), *rest]).index_select(0, places.reshape(-1))
    return found.reshape([*index.shape[:-1], *rest])


_REDUCED = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@rule("ScatterElements", "Scatter")
def scatter_elements(call: Call, x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
    axis, how = call.attr("axis", 0) % x.dim(), call.attr("reduction", "none")
    places = _wrapped(index, x.shape[axis])
    if how == "none":
        return x.scatter(axis, places, updates)
    return x.scatter_reduce(axis, places, updates, _REDUCED[how])


@rule("ScatterND")
def scatter_nd(call: Call, x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
    depth, how = index.shape[-1], call.attr("reduction", "none")
    sizes, rest = [*x.shape[:depth]], [*x.shape[depth:]]
    inner = math.prod(rest)
    places = _flat_places(index, sizes).reshape([-1, 1]) * inner + T.arange(inner)[None]
    flat, new = x.reshape(-1), updates.reshape(-1)
    if how == "none":
        return flat.scatter(0, places.reshape(-1), new).reshape(x.shape)
    return flat.scatter_reduce(0, places.reshape(-1), new, _REDUCED[how]).reshape(x.shape)


@rule("TensorScatter", static=(2,))
def tensor_scatter(call: Call, x: Tensor, updates: Tensor, places: Value = None) -> Tensor:
    """Writes ``updates`` into a cache, for each of the batch from its own place on."""
    axis = call.attr("axis", -2) % x.dim()
    size, count = x.shape[axis], updates.shape[axis]
    starts = T.zeros([x.shape[0]], dtype=int64) if places is None else T.tensor(ints(places))
    at = starts[:, None] + T.arange(count)[None]
    at = T.remainder(at, size) if call.attr("mode", "linear") == "circular" else at
    shape = [1] * x.dim()
    shape[0], shape[axis] = x.shape[0], count
    return x.scatter(axis, at.reshape(shape).expand(updates.shape), updates)


@rule("Compress", static=(1,))
def compress(call: Call, x: Tensor, condition: Value) -> Tensor:
    kept = T.tensor([n for n, yes in enumerate(np.asarray(condition).reshape(-1)) if yes], dtype=int64)
    axis = call.attr("axis")
    return x.reshape(-1).index_select(0, kept) if axis is None else x.index_select(axis, kept)


@rule("NonZero")
def non_zero(call: Call, x: Tensor) -> Tensor:
    return T.nonzero(x).t()


@rule("ReverseSequence", static=(1,))
def reverse_sequence(call: Call, x: Tensor, lengths: Value) -> Tensor:
    batch, time = call.attr("batch_axis", 1), call.attr("time_axis", 0)
    steps = T.arange(x.shape[time])[:, None]
    counts = T.tensor(ints(lengths))[None]
    places = T.where(steps < counts, counts - 1 - steps, steps)
    shape = [1] * x.dim()
    shape[batch], shape[time] = x.shape[batch], x.shape[time]
    return x.gather(time, (places if time < batch else places.t()).reshape(shape).expand(x.shape))


@rule("Unique")
def unique(call: Call, x: Tensor) -> Any:
    """The distinct elements, their first positions, the inverse indices, and the counts."""
    array = x.numpy()
    found, first, inverse, counts = np.unique(array, True, True, True, axis=call.attr("axis"))
    if not call.attr("sorted", 1):
        order = np.argsort(first)
        rank = np.argsort(order)
        axis = 0 if call.attr("axis") is None else call.attr("axis")
        found, first, counts, inverse = np.take(found, order, axis), first[order], counts[order], rank[inverse]
    results = (found, *(np.asarray(v, np.int64).reshape(-1) for v in (first, inverse, counts)))
    return tuple(map(T.from_numpy, results))[: call.results]

"""Views, padding, joins, and created arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from tracecomp.ir.graph import Node, Value
from tracecomp.onnx.export_rules.emitter import Emitter, number_of, rule
from tracecomp.onnx.sizes import Reciprocal, Size


@rule("reshape")
def reshape(e: Emitter, node: Node, x: str) -> str:
    return e.node("Reshape", [x, e.ints(*node.attrs["shape"])], allowzero=int(0 in node.attrs["shape"]))


@rule("permute")
def permute(e: Emitter, node: Node, x: str) -> str:
    return e.node("Transpose", [x], perm=[*node.attrs["dims"]]) if node.attrs["dims"] else x


@rule("expand")
def expand(e: Emitter, node: Node, x: str) -> str:
    return e.node("Expand", [x, e.ints(*node.attrs["shape"])])


@rule("slice")
def slice_(e: Emitter, node: Node, x: str) -> str:
    starts, stops, steps = node.attrs["starts"], node.attrs["stops"], node.attrs["steps"]
    axes = [k for k, n in enumerate(node.inputs[0].shape) if (starts[k], stops[k], steps[k]) != (0, n, 1)]
    if not axes:
        return x
    parts = [e.ints(*[v[k] for k in axes]) for v in (starts, stops)]
    return e.node("Slice", [x, *parts, e.ints(*axes), e.ints(*[steps[k] for k in axes])])


@rule("flip")
def flip(e: Emitter, node: Node, x: str) -> str:
    axes = node.attrs["axes"]
    least = -(2**63)
    starts, ends, steps = (e.ints(*[v] * len(axes)) for v in (-1, least, -1))
    return e.node("Slice", [x, starts, ends, e.ints(*axes), steps])


@rule("diagonal")
def diagonal(e: Emitter, node: Node, x: str) -> str:
    *lead, n, _ = node.inputs[0].shape
    flat = e.node("Reshape", [x, e.ints(*lead, n * n)])
    return e.node("Slice", [flat, e.ints(0), e.ints(n * n), e.ints(len(lead)), e.ints(n + 1)])


@rule("windows")
def windows(e: Emitter, node: Node, x: str) -> str:
    sizes, strides, dilations = (node.attrs[n] for n in ("sizes", "strides", "dilations"))
    return windowed(e, x, node.inputs[0], node.outputs[0], sizes, strides, dilations)


def windowed(
    e: Emitter,
    x: str,
    whole: Value,
    seen: Value,
    sizes: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> str:
    """By index: each place of a window of ``whole`` is looked up."""
    rank, outer = len(sizes), whole.ndim - len(sizes)
    for k in range(rank):  # each lookup leaves its window's dimension behind the one it came from
        first = e.node("Mul", [e.count(seen.shape[outer + k]), e.constant(strides[k], np.int64)])
        inside = e.constant(np.arange(sizes[k]) * dilations[k], np.int64)
        places = e.node("Add", [e.node("Unsqueeze", [first, e.ints(1)]), inside])
        x = e.node("Gather", [x, places], axis=outer + 2 * k)
    order = [*range(outer), *[outer + 2 * k for k in range(rank)], *[outer + 2 * k + 1 for k in range(rank)]]
    return e.node("Transpose", [x], perm=order)


@rule("pad")
def pad(e: Emitter, node: Node, x: str) -> str:
    low, high, interior = (node.attrs[n] for n in ("low", "high", "interior"))
    value = e.constant(node.attrs["value"], node.inputs[0].dtype.numpy)
    shape = [*node.inputs[0].shape]
    for axis in [k for k, n in enumerate(interior) if n]:
        x = _spread(e, x, shape, axis, interior[axis], value)
    return e.node("Pad", [x, e.ints(*low, *high), value]) if any([*low, *high]) else x


def _spread(e: Emitter, x: str, shape: list[int], axis: int, between: int, value: str) -> str:
    """``x``, whose ``shape`` is brought up to date, with so many values between the elements along an axis."""
    rank, wide = len(shape), shape[axis] * (1 + between)
    pads = [0] * (rank + 1) + [between if k == axis + 1 else 0 for k in range(rank + 1)]
    x = e.node("Pad", [e.node("Unsqueeze", [x, e.ints(axis + 1)]), e.ints(*pads), value])
    x = e.node("Reshape", [x, e.ints(*shape[:axis], wide, *shape[axis + 1 :])], allowzero=1)
    shape[axis] = wide - between if wide else 0
    return e.node("Slice", [x, e.ints(0), e.ints(shape[axis]), e.ints(axis)])


@rule("concat")
def concat(e: Emitter, node: Node, *xs: str) -> str:
    return e.node("Concat", xs, axis=node.attrs["axis"])


@rule("full")
def full(e: Emitter, node: Node) -> str:
    out, value = node.outputs[0], node.attrs["value"]
    if isinstance(value, Size | Reciprocal):
        number = e.scalar(value, out.dtype.numpy)
        return e.node("Expand", [number, e.ints(*out.shape)]) if out.shape else number
    if not out.shape:
        return e.constant(value, out.dtype.numpy)
    value = onnx.numpy_helper.from_array(np.array([node.attrs["value"]], out.dtype.numpy))
    return e.node("ConstantOfShape", [e.ints(*out.shape)], value=value)


@rule("iota")
def iota(e: Emitter, node: Node) -> str:
    out, axis = node.outputs[0], node.attrs["axis"]
    line = e.node("Cast", [e.count(out.shape[axis])], to=number_of(out.dtype))
    line = e.node("Reshape", [line, e.ints(*[-1 if k == axis else 1 for k in range(out.ndim)])])
    return e.node("Expand", [line, e.ints(*out.shape)])

"""Reading and writing at computed places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracecomp.ir.graph import Node, Value
from tracecomp.ir.types import DType, compute_dtype
from tracecomp.onnx.export_rules.emitter import Emitter, number_of, rule
from tracecomp.onnx.export_rules.formula import Term
from tracecomp.onnx.export_rules.view import windowed


@rule("take")
def take(e: Emitter, node: Node, x: str, index: str) -> str:
    return e.node("Gather", [x, index], axis=node.attrs["axis"])


@rule("gather")
def gather(e: Emitter, node: Node, x: str, index: str) -> str:
    return e.node("GatherElements", [x, index], axis=node.attrs["axis"])


@rule("scatter")
def scatter(e: Emitter, node: Node, base: str, index: str, src: str) -> str:
    return _scattered(e, base, index, src, node.inputs[0].dtype, node.attrs["axis"], node.attrs["mode"])


def _scattered(e: Emitter, base: str, index: str, src: str, dtype: DType, axis: int, mode: str) -> str:
    """Half types are added in float32, and rounded once."""
    if mode == "set":
        return e.node("ScatterElements", [base, index, src], axis=axis)
    wide = compute_dtype(dtype)
    base, src = (v if wide is dtype else e.node("Cast", [v], to=number_of(wide)) for v in (base, src))
    found = e.node("ScatterElements", [base, index, src], axis=axis, reduction=mode)
    return found if wide is dtype else e.node("Cast", [found], to=number_of(dtype))


def _places(e: Emitter, shape: Sequence[int]) -> str:
    """The flat place of every element of an array."""
    return e.node("Reshape", [e.count(_product(shape)), e.ints(*shape)], allowzero=1)


def _product(shape: Sequence[object]) -> Any:
    total: Any = 1
    for n in shape:
        total = n * total
    return total


def _written(e: Emitter, base: str, places: str, new: str, whole: Value, mode: str = "set") -> str:
    """``base``, which is like ``whole``, with the elements of ``new`` at flat places."""
    base, places, new = (e.node("Reshape", [v, e.ints(-1)]) for v in (base, places, new))
    found = _scattered(e, base, places, new, whole.dtype, 0, mode)
    return e.node("Reshape", [found, e.ints(*whole.shape)], allowzero=1)


@rule("slice_update")
def slice_update(e: Emitter, node: Node, base: str, new: str) -> str:
    starts, stops, steps = (e.ints(*node.attrs[n]) for n in ("starts", "stops", "steps"))
    shape = node.inputs[0].shape
    if not shape:
        return new
    places = e.node("Slice", [_places(e, shape), starts, stops, e.ints(*range(len(shape))), steps])
    return _written(e, base, places, new, node.inputs[0])


@rule("put")
def put(e: Emitter, node: Node, base: str, index: str, src: str) -> str:
    axis, shape = node.attrs["axis"], node.inputs[0].shape
    places = e.node("Gather", [_places(e, shape), index], axis=axis)
    return _written(e, base, places, src, node.inputs[0], node.attrs["mode"])


@rule("fold")
def fold(e: Emitter, node: Node, x: str) -> str:
    """Place by place of the window, as its sums are defined."""
    shape, rank = node.attrs["shape"], len(node.attrs["sizes"])
    zeros = e.node("Expand", [e.constant(0, node.inputs[0].dtype.numpy), e.ints(*shape)])
    places = windowed(
        e,
        _places(e, shape),
        node.outputs[0],
        node.inputs[0],
        *[node.attrs[n] for n in ("sizes", "strides", "dilations")],
    )
    outer = [*range(node.inputs[0].ndim - rank)]
    taps = [*range(len(outer), len(outer) + rank)]
    places, x = (e.node("Transpose", [v], perm=[*taps, *outer]) for v in (places, x))
    return _written(e, zeros, places, x, node.outputs[0], "add")


@rule("searchsorted")
def searchsorted(e: Emitter, node: Node, sequence: str, values: str) -> str:
    """Halves, as often as the sequence is long, so that unsorted ones give the same."""
    size = node.inputs[0].shape[-1]
    after = "Greater" if node.attrs["right"] else "GreaterOrEqual"
    zeros = e.node("Expand", [e.constant(0, np.int64), e.ints(*node.inputs[1].shape)])
    start, end = Term(e, zeros, np.int64), Term(e, zeros, np.int64) + size
    for _ in range(size.bit_length()):
        middle = (start + end) / 2
        found = e.node("GatherElements", [sequence, middle.of("Min", size - 1).name], axis=node.inputs[0].ndim - 1)
        beyond = Term(e, e.node(after, [found, values]), np.bool_)
        searching = start < end
        up, down = searching & beyond.of("Not"), searching & beyond
        start, end = up.where(middle + 1, start), down.where(middle, end)
    return start.name

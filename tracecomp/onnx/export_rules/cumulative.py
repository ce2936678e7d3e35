"""Along an axis, one after the other: running values, and order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracecomp.ir.graph import Node
from tracecomp.ir.types import DType, int64
from tracecomp.onnx.export_rules.emitter import Emitter, number_of, rule
from tracecomp.ops.cumulative import running_dtype


def _cast(e: Emitter, x: str, dtype: DType) -> str:
    return e.node("Cast", [x], to=number_of(dtype))


def _running(node: Node) -> DType:
    """The type of a running value; ONNX's operators support the wider types only."""
    dtype = node.inputs[0].dtype
    return running_dtype(dtype) if dtype.kind == "float" else int64


def _filled(e: Emitter, node: Node, value: float, dtype: DType) -> str:
    """``value``, as large as one step's element."""
    return e.node("Expand", [e.constant(value, dtype.numpy), e.ints(*_step_shape(node))])


def _step_shape(node: Node) -> tuple[int, ...]:
    shape, axis = node.inputs[0].shape, node.attrs["axis"]
    return (*shape[:axis], *shape[axis + 1 :])


@rule("cumsum")
def cumsum(e: Emitter, node: Node, x: str) -> str:
    found = e.node("CumSum", [_cast(e, x, _running(node)), e.constant(node.attrs["axis"], np.int64)])
    return _cast(e, found, node.outputs[0].dtype)


@rule("cumprod")
def cumprod(e: Emitter, node: Node, x: str) -> str:
    axis, dtype = node.attrs["axis"], _running(node)
    wide = _cast(e, x, dtype)
    if node.inputs[0].shape[axis] == 0:
        return x

    def step(given: list[str]) -> Sequence[str]:
        found = e.node("Mul", given)
        return found, found

    series = e.scan([(_filled(e, node, 1, dtype), dtype)], [(wide, dtype)], [dtype], step, axis)[1]
    return _cast(e, series, node.outputs[0].dtype)


@rule("recurrence")
def recurrence(e: Emitter, node: Node, a: str, b: str) -> str:
    axis, dtype = node.attrs["axis"], node.inputs[0].dtype
    if node.inputs[0].shape[axis] == 0:
        return b

    def step(given: list[str]) -> Sequence[str]:
        state, factor, more = given
        found = e.node("Add", [e.node("Mul", [factor, state]), more])
        return found, found

    return e.scan([(_filled(e, node, 0, dtype), dtype)], [(a, dtype), (b, dtype)], [dtype], step, axis)[1]


def _extreme(primitive: str, better: str) -> None:
    @rule(primitive)
    def write(e: Emitter, node: Node, x: str) -> Sequence[str]:
        axis, dtype = node.attrs["axis"], node.inputs[0].dtype
        if node.inputs[0].shape[axis] == 0:
            return x, _cast(e, x, int64)
        first = e.node("Squeeze", [e.node("Slice", [x, e.ints(0), e.ints(1), e.ints(axis)]), e.ints(axis)])

        def step(given: list[str]) -> Sequence[str]:
            best, place, now, new = given
            wins = e.node(better, [new, best])
            if dtype.kind == "float":
                wins = e.node("Or", [wins, e.node("IsNaN", [new])])
            best, place = e.node("Where", [wins, new, best]), e.node("Where", [wins, now, place])
            return best, place, e.node("Add", [now, e.constant(1, np.int64)]), best, place

        states = [(first, dtype), (_filled(e, node, 0, int64), int64), (e.constant(0, np.int64), int64)]
        return e.scan(states, [(x, dtype)], [dtype, int64], step, axis)[3:]


_extreme("cummax", "GreaterOrEqual")
_extreme("cummin", "LessOrEqual")


@rule("sort")
def sort(e: Emitter, node: Node, x: str) -> Sequence[str]:
    count = node.inputs[0].shape[node.attrs["axis"]]
    return _top(e, x, count, node)


@rule("topk")
def topk(e: Emitter, node: Node, x: str) -> Sequence[str]:
    return _top(e, x, node.attrs["count"], node)


def _top(e: Emitter, x: str, count: int, node: Node) -> Sequence[str]:
    axis, descending, dtype = node.attrs["axis"], node.attrs["descending"], node.inputs[0].dtype
    if dtype.kind == "bool":
        values, places = e.several("TopK", [e.node("Cast", [x], to=3), e.ints(count)], 2, axis=axis, largest=descending)
        return _cast(e, values, dtype), places
    return e.several("TopK", [x, e.ints(count)], 2, axis=axis, largest=int(descending), sorted=1)

"""Reductions, and the greatest of windows as a pool."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx

from tracecomp.ir.graph import Node
from tracecomp.onnx.export_rules.emitter import Emitter, rule


def _reduction(primitive: str, op: str) -> None:
    @rule(primitive)
    def write(e: Emitter, node: Node, x: str) -> str:
        axes, dtype = node.attrs["axes"], node.inputs[0].dtype
        if not axes:
            return x
        if dtype.kind == "bool":
            whole = e.node("Cast", [x], to=onnx.TensorProto.INT32)
            return e.node("Cast", [_reduced(e, op, whole, axes)], to=onnx.TensorProto.BOOL)
        if op not in ("ReduceMax", "ReduceMin") or dtype.kind != "float":
            return _reduced(e, op, x, axes)
        if op == "ReduceMax" and (pool := _max_pool(e, node)) is not None:
            return pool
        found = _reduced(e, op, x, axes)
        return e.node("Where", [_some_nan(e, x, axes), e.constant(math.nan, dtype.numpy), found])


def _reduced(e: Emitter, op: str, x: str, axes: Sequence[int]) -> str:
    return e.node(op, [x, e.ints(*axes)], keepdims=0)


def _some_nan(e: Emitter, x: str, axes: Sequence[int]) -> str:
    """Mask of NaN: ONNX does not define its handling."""
    odd = e.node("Cast", [e.node("IsNaN", [x])], to=onnx.TensorProto.INT32)
    return e.node("Cast", [_reduced(e, "ReduceSum", odd, axes)], to=onnx.TensorProto.BOOL)


for _primitive, _op in {
    "sum": "ReduceSum", "prod": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin", "any": "ReduceSum",
    "all": "ReduceMin",
}.items():  # fmt: skip
    _reduction(_primitive, _op)


def _best(primitive: str, op: str) -> None:
    @rule(primitive)
    def write(e: Emitter, node: Node, x: str) -> str:
        axes, value = node.attrs["axes"], node.inputs[0]
        kept = [k for k in range(value.ndim) if k not in axes]
        if not axes:
            return e.node("Expand", [e.constant(0, "int64"), e.ints(*value.shape)])
        if len(axes) > 1:
            x = e.node("Transpose", [x], perm=[*kept, *axes])
            x = e.node("Reshape", [x, e.ints(*[value.shape[k] for k in kept], -1)])
        axis = axes[0] if len(axes) == 1 else len(kept)
        found = e.node(op, [x], axis=axis, keepdims=0)
        if value.dtype.kind != "float":
            return found
        odd = e.node("Cast", [e.node("IsNaN", [x])], to=onnx.TensorProto.INT32)
        return e.node("Where", [_some_nan(e, x, [axis]), e.node("ArgMax", [odd], axis=axis, keepdims=0), found])


_best("argmax", "ArgMax")
_best("argmin", "ArgMin")


def _max_pool(e: Emitter, node: Node) -> str | None:
    """The greatest of windows, seen through the views that put a window's places together."""
    value, axes = node.inputs[0], set(node.attrs["axes"])
    chain: list[Node] = []
    while value.node is not None and value.node.op.name in ("reshape", "permute") and len(chain) < 2:
        chain.append(value.node)
        value = value.node.inputs[0]
    made = value.node
    if made is None or made.op.name != "windows" or made.inputs[0].dtype.kind != "float":
        return None
    sizes = made.attrs["sizes"]
    rank = len(sizes)
    outer = made.outputs[0].ndim - 2 * rank
    wanted = (*range(outer), *range(outer + rank, outer + 2 * rank), *range(outer, outer + rank))
    kinds = [n.op.name for n in chain]
    if kinds[-1:] != ["permute"] or tuple(chain[-1].attrs["dims"]) != wanted or outer != 2 or rank > 3:
        return None
    merged = kinds == ["reshape", "permute"]
    shape = made.outputs[0].shape
    if merged and chain[0].outputs[0].shape != (*shape[:2], math.prod(sizes), *shape[2 : 2 + rank]):
        return None
    if axes != ({2} if merged else set(range(2, 2 + rank))):
        return None
    attrs = {"kernel_shape": [*sizes], "strides": [*made.attrs["strides"]], "dilations": [*made.attrs["dilations"]]}
    return e.node("MaxPool", [e.names[made.inputs[0]]], **attrs)

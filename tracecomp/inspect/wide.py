"""The float64 reference: a graph in which every float32, float16 and bfloat16 is a float64, and complex64 a
complex128."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracecomp.ir.graph import Graph, Node, Value
from tracecomp.ir.interpret import interpret
from tracecomp.ir.op import OPS, Attrs, Op
from tracecomp.ir.types import DType, TensorType, complex128, float64

Array = np.ndarray[Any, Any]


def wide_type(dtype: DType) -> DType:
    """The wide type of ``dtype``."""
    return {"float": float64, "complex": complex128}.get(dtype.kind, dtype)


def wide_array(array: Array) -> Array:
    """The array in the wide type."""
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    is_float = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
    return array.astype(np.float64) if is_float else array


def wide_attrs(op: Op, attrs: Attrs) -> dict[str, Any]:
    """Attributes of an operator in wide types; bodies are widened too."""
    if op.name == "bitcast":
        return attrs
    return {k: _wide_attr(v) for k, v in attrs.items()}


def _wide_attr(value: object) -> Any:
    if isinstance(value, DType):
        return wide_type(value)
    return widened(value) if isinstance(value, Graph) else value


def widened(graph: Graph) -> Graph:
    """Return the graph with float64 instead of narrower types; inputs and outputs are wide too."""
    wide = Graph(graph.name)
    values: dict[Value, Value] = {}
    for i in graph.inputs:
        data = None if i.data is None else wide_array(i.data)
        kind = TensorType(wide_type(i.value.dtype), i.value.shape)
        values[i.value] = wide.add_input(kind, i.name, i.role, data)
    for node in graph.nodes:
        wide.here = graph.origin[node]
        ins = [values[v] for v in node.inputs]
        if node.op.name == "bitcast":  # reads the bits of a narrow number
            ins = [wide.add(OPS["cast"], [v], {"dtype": o.dtype})[0] for v, o in zip(ins, node.inputs, strict=True)]
        if narrows(node):  # a cast to a narrower type rounds intentionally
            ins = [wide.add(node.op, ins, node.attrs)[0]]
        outs = wide.add(node.op, ins, wide_attrs(node.op, node.attrs))
        for old, new in zip(node.outputs, outs, strict=True):
            values[old] = (
                new if new.dtype is wide_type(old.dtype) else wide.apply("cast", new, dtype=wide_type(old.dtype))
            )
    for o in graph.outputs:
        wide.add_output(values[o.value], o.name, o.role)
    return wide


def narrows(node: Node) -> bool:
    """Whether a node is a cast from a floating-point type to a narrower one."""
    if node.op.name != "cast":
        return False
    [source], target = node.inputs, node.outputs[0].dtype
    return source.dtype.kind == target.kind == "float" and target.itemsize < source.dtype.itemsize


def witness(graph: Graph, arrays: Sequence[Array]) -> list[Array] | None:
    """The outputs in float64; None if the program has no such form (it depends on the width of its types)."""
    try:
        return interpret(widened(graph), [wide_array(a) for a in arrays])
    except (TypeError, ValueError, RuntimeError, IndexError):
        return None

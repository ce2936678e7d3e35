"""Differentiating graphs: a walk backwards over the nodes with each operator's own rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracecomp.ir.graph import Graph, Node, Value
from tracecomp.ir.op import Attrs, Number, Op, Operand
from tracecomp.ir.types import DType, TensorType
from tracecomp.ops.prim import prim


class Sym:
    """A value of a graph under construction; primitives applied to it add nodes to the graph."""

    __slots__ = ("graph", "value")

    def __init__(self, graph: Graph, value: Value) -> None:
        self.graph = graph
        self.value = value

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def dtype(self) -> DType:
        return self.value.dtype

    @property
    def ndim(self) -> int:
        return self.value.ndim

    @property
    def type(self) -> TensorType:
        return self.value.type

    def __tracecomp_apply__(self, op: Op, operands: tuple[Operand | Number, ...], attrs: Attrs) -> Any:
        values = operand_values(self.graph, operands)
        results = tuple(Sym(self.graph, v) for v in self.graph.add(op, values, attrs))
        return results if len(results) > 1 else results[0]


def operand_values(graph: Graph, operands: tuple[Operand | Number, ...]) -> list[Value]:
    """Graph values of ``Sym`` and scalar operands; scalars become constants of the last tensor operand's dtype."""
    dtype = next((x.dtype for x in reversed(operands) if isinstance(x, Sym)), None)
    return [x.value if isinstance(x, Sym) else graph.scalar(scalar_of(x, dtype), dtype) for x in operands]  # type: ignore[arg-type]


def scalar_of(value: bool | int | float | complex, dtype: DType | None) -> bool | int | float | complex:
    """Return a Python scalar in the Python type of ``dtype``."""
    return float(value) if dtype is None else dtype.python(value)  # type: ignore[arg-type]


def sum_to(x: Operand, shape: tuple[int, ...]) -> Any:
    """``x``, of a shape to which ``shape`` broadcasts, summed to ``shape``: the adjoint of broadcasting."""
    if tuple(x.shape) == tuple(shape):
        return x
    extra = x.ndim - len(shape)
    axes = tuple(range(extra)) + tuple(
        extra + i for i, size in enumerate(shape) if size == 1 and x.shape[extra + i] != 1
    )
    if axes:
        x = prim.sum(x, axes=axes)
    return x if tuple(x.shape) == tuple(shape) else prim.reshape(x, shape=tuple(shape))


def zeros_like(x: Operand) -> Any:
    """Return zeros with the type of ``x``, as the same kind of operand."""
    zero = prim.full(like=x, value=scalar_of(0, x.dtype), shape=(), dtype=x.dtype)
    return prim.expand(zero, shape=tuple(x.shape)) if x.shape else zero


def vjp(
    graph: Graph, outputs: Sequence[Value], cotangents: Sequence[Value], wrt: Sequence[Value]
) -> list[Value | None]:
    """Gradients of ``sum(outputs * cotangents)`` with respect to ``wrt``, as new nodes; None if there is no path."""
    needed = _between(graph, set(wrt))
    grads: dict[Value, Value] = {}
    for out, cotangent in zip(outputs, cotangents, strict=True):
        _accumulate(graph, grads, out, cotangent)
    for node in reversed(graph.nodes):
        if node in needed and any(v in grads for v in node.outputs):
            _backward(graph, node, grads)
    return [grads.get(v) for v in wrt]


def _between(graph: Graph, wrt: set[Value]) -> set[Node]:
    """Differentiable nodes that depend on ``wrt``."""
    found: set[Node] = set()
    for node in graph.nodes:
        if node.op.vjp is not None and any(v in wrt or v.node in found for v in node.inputs):
            found.add(node)
    return found


def _backward(graph: Graph, node: Node, grads: dict[Value, Value]) -> None:
    outs = [Sym(graph, v) for v in node.outputs]
    ins = [Sym(graph, v) for v in node.inputs]
    given = [Sym(graph, grads[v]) if v in grads else zeros_like(o) for v, o in zip(node.outputs, outs, strict=True)]
    assert node.op.vjp is not None
    for operand, gradient in zip(ins, node.op.vjp(given, outs, ins, **node.attrs), strict=True):
        if gradient is not None and operand.dtype.differentiable:
            _accumulate(graph, grads, operand.value, sum_to(gradient, operand.shape).value)


def _accumulate(graph: Graph, grads: dict[Value, Value], value: Value, gradient: Value) -> None:
    have = grads.get(value)
    grads[value] = gradient if have is None else graph.apply("add", have, gradient)

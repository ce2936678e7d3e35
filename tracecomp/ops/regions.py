"""Regions of control operators: graphs without state, whose open inputs are the operands."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tracecomp.ir.graph import Graph, Value
from tracecomp.ir.types import TensorType
from tracecomp.ops.autodiff import Sym, vjp, zeros_like

Types = tuple[TensorType, ...]


def inputs_of(body: Graph) -> list[Value]:
    return [i.value for i in body.inputs if i.role != "constant"]


def input_types(body: Graph) -> Types:
    return tuple(v.type for v in inputs_of(body))


def output_types(body: Graph) -> Types:
    return tuple(o.value.type for o in body.outputs)


def inline(target: Graph, body: Graph, operands: Sequence[Value]) -> list[Value]:
    """The results of ``body`` on ``operands``, its nodes added to ``target``."""
    known = dict(zip(inputs_of(body), operands, strict=True))
    for given in body.inputs:
        if given.role == "constant":
            known[given.value] = target.add_input(given.value.type, given.name, "constant", given.data)
    for node in body.nodes:
        results = target.add(node.op, [known[v] for v in node.inputs], node.attrs)
        known.update(zip(node.outputs, results, strict=True))
    return [known[o.value] for o in body.outputs]


def float_places(types: Sequence[TensorType]) -> list[int]:
    return [i for i, t in enumerate(types) if t.dtype.differentiable]


@lru_cache(maxsize=256)
def backward_region(branch: Graph) -> Graph:
    """From a branch's operands and the gradients of its results, the gradients of its operands (floats only)."""
    graph = Graph(f"{branch.name}_backward")
    operands = [graph.add_input(t, f"in{i}") for i, t in enumerate(input_types(branch))]
    results = [v for v in inline(graph, branch, operands) if v.dtype.differentiable]
    given = [graph.add_input(v.type, f"dout{i}") for i, v in enumerate(results)]
    wrt = [v for v in operands if v.dtype.differentiable]
    for value, gradient in zip(wrt, vjp(graph, results, given, wrt), strict=True):
        graph.add_output(zeros_like(Sym(graph, value)).value if gradient is None else gradient)
    return graph

"""Complex values as pairs of real ones, by the rules in ``Op.parts``, so that no later pass meets a complex type.

Inputs and outputs of the graph, and of bodies, keep their memory: real and imaginary parts along a new last axis.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tracecomp.errors import CompileError
from tracecomp.ir.graph import Graph, Node, Origin, Value
from tracecomp.ir.op import Control, Pair
from tracecomp.ir.types import TensorType
from tracecomp.ops.autodiff import Sym
from tracecomp.ops.parts import packed, unpacked
from tracecomp.passes.rewrite import Log, has_node

Part = Sym | Pair


def split_complex(graph: Graph, log: Log) -> Graph:
    """``graph`` without complex types; itself when it has none."""
    complex_input = any(i.value.dtype.is_complex for i in graph.inputs)
    if not complex_input and not has_node(graph, lambda n: any(v.dtype.is_complex for v in n.outputs)):
        return graph
    return _split(graph, log)


def _split(graph: Graph, log: Log) -> Graph:
    new = Graph(graph.name)
    known: dict[Value, Part] = {i.value: _input(new, i.value.type, i.name, i.role, i.data) for i in graph.inputs}
    for node in graph.live_nodes():
        here = graph.origin.get(node, Origin())
        operands = [known[v] for v in node.inputs]
        simple = not any(v.dtype.is_complex for v in (*node.inputs, *node.outputs))
        new.here = here if simple else replace(here, made_by="pairs")
        known.update(zip(node.outputs, _apply(new, node, operands, log), strict=True))
        log.hits[node.op.name] += not simple
    new.here = Origin()
    for output in graph.outputs:
        new.add_output(_whole(known[output.value]).value, output.name, output.role)
    new.drop_dead()
    return new


def _input(new: Graph, type: TensorType, name: str, role: str, data: np.ndarray[Any, Any] | None) -> Part:
    if not type.dtype.is_complex:
        return Sym(new, new.add_input(type, name, role, data))
    real = TensorType(type.dtype.to_real(), (*type.shape, 2))
    if data is not None:
        data = np.ascontiguousarray(data).view(real.dtype.numpy).reshape(real.shape)
    return unpacked(Sym(new, new.add_input(real, name, role, data)))


def _whole(x: Part) -> Sym:
    found: Sym = packed(x) if isinstance(x, Pair) else x
    return found


def _apply(new: Graph, node: Node, operands: list[Part], log: Log) -> list[Part]:
    """The results of ``node`` in the new graph."""
    make = partial(_make, new)
    if isinstance(node.op.loop, Control):
        attrs = {k: _split(v, log) if isinstance(v, Graph) else v for k, v in node.attrs.items()}
        made = new.add(node.op, [_whole(x).value for x in operands], attrs)
        return [
            unpacked(Sym(new, m)) if v.dtype.is_complex else Sym(new, m)
            for v, m in zip(node.outputs, made, strict=True)
        ]
    if not any(v.dtype.is_complex for v in (*node.inputs, *node.outputs)):
        return make(node, operands, node.attrs)
    if node.op.name == "full":
        value, part = complex(node.attrs["value"]), {**node.attrs, "dtype": node.attrs["dtype"].to_real()}
        re, im = (make(node, [], {**part, "value": x})[0] for x in (value.real, value.imag))
        return [Pair(re, im)]
    if node.op.parts is None:
        raise CompileError(f"{node.op.name} on complex operands has no meaning on their parts")
    return [node.op.parts(*operands, **node.attrs)]


def _make(new: Graph, node: Node, operands: list[Any], attrs: dict[str, Any]) -> list[Part]:
    return [Sym(new, v) for v in new.add(node.op, [x.value for x in operands], attrs)]

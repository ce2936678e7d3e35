"""Complex values as pairs of real ones, by the rules in ``Op.parts``, so that no later pass meets a complex type.

Inputs and outputs of the graph, and of bodies, keep their memory: real and imaginary parts along a new last axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tracecomp.base.errors import CompileError
from tracecomp.ir.arrays import in_parts
from tracecomp.ir.graph import Graph, Node, Origin, Value
from tracecomp.ir.op import Attrs, Control, Hosted, Interleaved, Pair
from tracecomp.ir.types import TensorType
from tracecomp.ops.autodiff import Sym
from tracecomp.ops.hosted import on_memory
from tracecomp.ops.parts import packed, unpacked
from tracecomp.ops.prim import prim
from tracecomp.passes.graph.rewrite import has_node
from tracecomp.passes.steps import Log


@dataclass(slots=True)
class _Complex:
    """A complex value in the new graph, in the representations that were needed so far."""

    pair: Pair | None = None
    memory: Any = None

    def as_pair(self) -> Pair:
        """Two real values."""
        # Created lazily and once: most values are needed in one representation only.
        if self.pair is None:
            self.pair = unpacked(self.as_memory())
        return self.pair

    def as_memory(self) -> Sym:
        """One real value, parts along its last axis."""
        if self.memory is None:
            assert self.pair is not None
            self.memory = packed(self.pair)
        found: Sym = self.memory
        return found


Known = Sym | _Complex


def split_complex(graph: Graph, log: Log) -> Graph:
    """Return ``graph`` without complex types; the same graph if it has none."""
    ends = (*(i.value for i in graph.inputs), *(o.value for o in graph.outputs))
    # Most programs have no complex value: their graphs are returned unchanged.
    if any(v.dtype.is_complex for v in ends) or has_node(graph, _touches_complex):
        return _split(graph, log)
    return graph


def _touches_complex(node: Node) -> bool:
    return any(v.dtype.is_complex for v in (*node.inputs, *node.outputs))


def _split(graph: Graph, log: Log) -> Graph:
    new, in_memory = Graph(graph.name), _in_memory(graph)
    known: dict[Value, Known] = {i.value: _input(new, i.value.type, i.name, i.role, i.data) for i in graph.inputs}
    for node in graph.live_nodes():
        # Results keep the user's line; changed nodes also name this pass.
        here = graph.origin.get(node, Origin())
        new.here = replace(here, made_by="complex_to_real") if _touches_complex(node) else here
        known.update(zip(node.outputs, _apply(new, node, [known[v] for v in node.inputs], in_memory, log), strict=True))
        log.hits[node.op.name] += _touches_complex(node)
    new.here = Origin()
    for output in graph.outputs:
        new.add_output(_memory(known[output.value]).value, output.name, output.role)
    new.drop_dead()
    return new


def _in_memory(graph: Graph) -> set[Value]:
    # Outputs of the graph, and operands of bodies, must have the memory layout of complex numbers, parts interleaved.
    """The complex values that are needed interleaved in memory, by outputs and bodies, also through views."""
    found = {o.value for o in graph.outputs}
    # Backwards: whether a view is needed in memory depends on its readers.
    for node in reversed(list(graph.live_nodes())):
        wanted = isinstance(node.op.loop, Control) or node.op.name == "view_as_real"
        if wanted or (_moves(node) and node.outputs[0] in found):
            found.update(node.inputs)
    return found


def _moves(node: Node) -> bool:
    """Whether a node can move complex values in their interleaved form."""
    return node.op.name in _MOVES and node.inputs[0].dtype.is_complex and node.outputs[0].dtype.is_complex


# In interleaved form each is one operator on a real value with one more axis; on pairs it would be two.
_MOVES: dict[str, Callable[..., Any]] = {
    "cast": lambda x, dtype: prim.cast(x, dtype=dtype.to_real()),
    "concat": prim.concat,
    "put": prim.put,
    "take": prim.take,
    "flip": prim.flip,
    "reshape": lambda x, shape: prim.reshape(x, shape=(*shape, 2)),
    "expand": lambda x, shape: prim.expand(x, shape=(*shape, 2)),
    "permute": lambda x, dims: prim.permute(x, dims=(*dims, len(dims))),
    "slice": lambda x, starts, stops, steps: prim.slice(x, starts=(*starts, 0), stops=(*stops, 2), steps=(*steps, 1)),
}
"""Operators that move complex values, applied to the interleaved form."""


def _input(new: Graph, type: TensorType, name: str, role: str, data: np.ndarray[Any, Any] | None) -> Known:
    if not type.dtype.is_complex:
        return Sym(new, new.add_input(type, name, role, data))
    real = TensorType(type.dtype.to_real(), (*type.shape, 2))
    return _Complex(memory=Sym(new, new.add_input(real, name, role, None if data is None else in_parts(data))))


def _memory(x: Known) -> Sym:
    return x.as_memory() if isinstance(x, _Complex) else x


def _apply(new: Graph, node: Node, operands: list[Known], in_memory: set[Value], log: Log) -> list[Known]:
    """The results of ``node`` in the new graph."""
    if isinstance(node.op.loop, Control):
        # Bodies are separate graphs, with inputs and outputs in memory.
        attrs = {k: _split(v, log) if isinstance(v, Graph) else v for k, v in node.attrs.items()}
        return _in_place(node, _make(new, node, list(map(_memory, operands)), attrs))
    if isinstance(node.op.loop, Interleaved):
        # An operator that interleaves takes either form; the attribute selects one.
        given = (x.memory or x.pair if isinstance(x, _Complex) else x for x in operands)
        made = node.op.loop.fn(*given, node.outputs[0] not in in_memory, **node.attrs)
        return [_complex(made) if node.outputs[0].dtype.is_complex else made]
    if not _touches_complex(node):
        return _make(new, node, list(map(_memory, operands)), node.attrs)
    if node.op.name == "full":
        value, part = complex(node.attrs["value"]), {**node.attrs, "dtype": node.attrs["dtype"].to_real()}
        return [_Complex(Pair(*(_make(new, node, [], {**part, "value": x})[0] for x in (value.real, value.imag))))]
    if isinstance(node.op.parts, Hosted):
        return _in_place(node, on_memory(node, list(map(_memory, operands))))
    if node.op.parts is None:
        raise CompileError(f"{node.op.name} is not supported on complex operands")
    if _moves(node) and node.outputs[0] in in_memory:
        return [_Complex(memory=_MOVES[node.op.name](*map(_memory, operands), **node.attrs))]
    # The operator's own rule on real and imaginary parts.
    found = node.op.parts(*(x.as_pair() if isinstance(x, _Complex) else x for x in operands), **node.attrs)
    return [_Complex(x) if isinstance(x, Pair) else x for x in (found if isinstance(found, tuple) else (found,))]


def _in_place(node: Node, made: Sequence[Any]) -> list[Known]:
    """The results of ``node`` from ``made``, with complex values interleaved in memory."""
    return [_Complex(memory=m) if v.dtype.is_complex else m for v, m in zip(node.outputs, made, strict=True)]


def _complex(x: object) -> _Complex:
    return _Complex(x) if isinstance(x, Pair) else _Complex(memory=x)


def _make(new: Graph, node: Node, operands: list[Sym], attrs: Attrs) -> list[Any]:
    return [Sym(new, v) for v in new.add(node.op, [x.value for x in operands], attrs)]

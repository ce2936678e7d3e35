"""The graph IR: pure SSA values, interned nodes, inputs and outputs with their roles, side tables for provenance."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tracecomp.base.errors import Source
from tracecomp.ir.immutable import immutable
from tracecomp.ir.interpret import Observer, interpret
from tracecomp.ir.op import OPS, Op
from tracecomp.ir.printer import print_graph
from tracecomp.ir.types import DType, TensorType


class Node:
    """One application of an operator. Immutable; equal applications in one graph are the same object."""

    __slots__ = ("attrs", "inputs", "op", "outputs")

    def __init__(
        self, op: Op, inputs: tuple[Value, ...], attrs: dict[str, Any], types: Sequence[TensorType]
    ) -> None:
        self.op = op
        self.inputs = inputs
        self.attrs = attrs
        self.outputs = tuple(Value(self, i, t) for i, t in enumerate(types))

    def __repr__(self) -> str:
        return f"<{self.op.name} {', '.join(str(v.type) for v in self.outputs)}>"


class Value:
    """A result of a node, or (``node is None``) an input of the graph."""

    __slots__ = ("__weakref__", "index", "node", "type")

    def __init__(self, node: Node | None, index: int, type: TensorType) -> None:
        self.node = node
        self.index = index
        self.type = type

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    def __repr__(self) -> str:
        return f"<value {self.type} of {self.node.op.name if self.node else 'input'}>"


@immutable
class Input:
    """A graph input. ``role``: argument, state, host or constant. ``data`` holds a constant's array."""

    value: Value
    name: str
    role: str
    data: np.ndarray[Any, Any] | None = None


@immutable
class Output:
    """A graph output. ``role``: result, state (``name`` is the state input it updates, or a slot) or predicate."""

    value: Value
    name: str
    role: str


@immutable
class Origin:
    """Where a node comes from: the user's line, the scopes around it, the pass that made it ("" = recorded)."""

    source: Source | None = None
    scope: tuple[str, ...] = ()
    made_by: str = ""


class Graph:
    """A pure program: ``inputs`` -> nodes in topological order -> ``outputs``.

    Nodes are created by ``add`` only and never change; a pass builds a new graph.
    """

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self.inputs: list[Input] = []
        self.outputs: list[Output] = []
        self.origin: dict[Node, Origin] = {}
        self.here = Origin()
        self._interned: dict[Any, Node] = {}

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every node in creation order, which is topological."""
        return tuple(self._interned.values())

    def add_input(
        self, type: TensorType, name: str, role: str = "argument", data: np.ndarray[Any, Any] | None = None
    ) -> Value:
        value = Value(None, len(self.inputs), type)
        self.inputs.append(Input(value, name, role, data))
        return value

    def add_output(self, value: Value, name: str = "", role: str = "result") -> None:
        self.outputs.append(Output(value, name or f"out{len(self.outputs)}", role))

    def add(
        self, op: Op, inputs: Iterable[Value], attrs: dict[str, Any], types: Sequence[TensorType] | None = None
    ) -> tuple[Value, ...]:
        """The results of ``op`` on ``inputs``; an equal node made before is reused. ``types``: those of the results."""
        inputs = tuple(inputs)
        key = (op.name, tuple(map(id, inputs)), attrs_key(attrs))
        node = self._interned.get(key)
        if node is None:
            node = Node(op, inputs, attrs, types or op.result_types([v.type for v in inputs], attrs))
            self._interned[key] = node
            self.origin[node] = self.here
        return node.outputs

    def apply(self, name: str, *inputs: Value, **attrs: Any) -> Value:
        """The single result of the operator called ``name``."""
        return self.add(OPS[name], inputs, attrs)[0]

    def scalar(self, value: bool | int | float | complex, dtype: DType) -> Value:
        """A 0-d constant."""
        return self.apply("full", value=dtype.python(value), shape=(), dtype=dtype)

    def users(self) -> dict[Value, list[Node]]:
        """The nodes that read each value."""
        result: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(node.inputs):
                result.setdefault(value, []).append(node)
        return result

    def live_nodes(self) -> Iterator[Node]:
        """Nodes that some output needs, in order."""
        live = live_nodes([o.value for o in self.outputs])
        return (n for n in self.nodes if n in live)

    def drop_dead(self) -> None:
        """Forget nodes that no output needs. For whoever builds the graph, when it is complete."""
        live = set(self.live_nodes())
        self._interned = {key: node for key, node in self._interned.items() if node in live}
        self.origin = {node: origin for node, origin in self.origin.items() if node in live}

    def interpret(self, *arrays: np.ndarray[Any, Any], observer: Observer | None = None) -> list[np.ndarray[Any, Any]]:
        """The outputs for ``arrays``, by the numpy interpreter (``ir.interpret``)."""
        return interpret(self, arrays, observer)

    def __str__(self) -> str:
        return print_graph(self, comments=True, short=True)


def live_nodes(values: Iterable[Value]) -> set[Node]:
    """The nodes that computing ``values`` takes."""
    live: set[Node] = set()
    stack = [v.node for v in values if v.node]
    while stack:
        node = stack.pop()
        if node not in live:
            live.add(node)
            stack.extend(v.node for v in node.inputs if v.node)
    return live


def attrs_key(attrs: dict[str, Any]) -> Any:
    """A hashable key of attributes that tells 1 from True and 0.0 from -0.0 and equates NaN with NaN."""
    return tuple((k, _attr_key(attrs[k])) for k in sorted(attrs))


def _attr_key(value: Any) -> Any:
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, complex):
        return struct.pack("<dd", value.real, value.imag)
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, list | tuple):
        return tuple(map(_attr_key, value))
    return value

"""The graph IR: pure SSA values, interned nodes, inputs and outputs with their roles, side tables for provenance.

``ir.values`` defines the parts, which this module also exports. Equal applications are one node (hash-consing).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

import numpy as np

from tracecomp.base.html import preformatted
from tracecomp.ir import export
from tracecomp.ir.interpret import Observer, interpret
from tracecomp.ir.op import OPS, Attrs, Op
from tracecomp.ir.printer import print_graph
from tracecomp.ir.types import DType, TensorType
from tracecomp.ir.values import AttrsKey, GraphData, Input, ModuleName, Node, Origin, Output, Value, live_nodes

__all__ = ["AttrsKey", "Graph", "Input", "ModuleName", "Node", "Origin", "Output", "Value", "attrs_key", "live_nodes"]


class Graph(GraphData):
    """A graph that can be built: ``inputs`` -> nodes in topological order -> ``outputs``.

    Nodes are created by ``add`` only and never change; a pass builds a new graph.
    """

    def __init__(self, name: str = "graph") -> None:
        super().__init__(name)
        self.here = Origin()
        self._scalars: dict[Any, Value] = {}
        self._input_names: set[str] = set()

    def add_input(
        self, type: TensorType, name: str, role: str = "argument", data: np.ndarray[Any, Any] | None = None
    ) -> Value:
        value = Value(None, len(self.inputs), type)
        self.inputs.append(Input(value, name, role, data))
        self._input_names.add(name)
        return value

    def has_input(self, name: str) -> bool:
        """Whether an input has this name."""
        return name in self._input_names

    def add_output(self, value: Value, name: str = "", role: str = "result") -> None:
        self.outputs.append(Output(value, name or f"out{len(self.outputs)}", role))

    def add(
        self, op: Op, inputs: Iterable[Value], attrs: Attrs, types: Sequence[TensorType] | None = None
    ) -> tuple[Value, ...]:
        """Return the results of ``op`` on ``inputs``, from an equal existing node if there is one. ``types``: those of
        the results.

        A communication is always a separate node, because other processes count them. So is a call of a user's code.
        """
        inputs = tuple(inputs)
        return self.add_keyed(op, inputs, attrs, attrs_key(attrs), lambda: types or _inferred(op, inputs, attrs))

    def add_keyed(
        self,
        op: Op,
        inputs: tuple[Value, ...],
        attrs: Attrs,
        key: AttrsKey,
        types: Callable[[], Sequence[TensorType]],
    ) -> tuple[Value, ...]:
        """Like ``add``, where the key of ``attrs`` is known. ``types`` is called for a new node."""
        whole: tuple[object, ...] = (op.name, tuple(map(id, inputs)), key)
        if op.is_separate:
            whole += (object(),)
        node = self._interned.get(whole)
        if node is None:
            node = self._interned[whole] = Node(op, inputs, attrs, types(), key)
            self.origin[node] = self.here
        return node.outputs

    def add_copies(self, source: Graph, nodes: Container[Node], values: dict[Value, Value]) -> None:
        """Add ``nodes`` of ``source``, in order, with their origins. ``values`` maps their inputs, and gets their
        results.

        Different nodes stay different, unless ``values`` maps two inputs to one. So the keys of attributes are taken
        over: computing them is most of the cost of a node.
        """
        for (name, _, *rest), node in source._interned.items():
            if node in nodes:
                inputs = tuple([values[v] for v in node.inputs])
                key = (name, tuple(map(id, inputs)), *rest)
                copy = self._interned.get(key)
                if copy is None:
                    types = [v.type for v in node.outputs]
                    copy = self._interned[key] = Node(node.op, inputs, node.attrs, types, node.key)
                    self.origin[copy] = source.origin[node]
                for old, new in zip(node.outputs, copy.outputs, strict=True):
                    values.setdefault(old, new)

    def apply(self, name: str, *inputs: Value, **attrs: Any) -> Value:
        """The single result of the operator called ``name``."""
        return self.add(OPS[name], inputs, attrs)[0]

    def scalar(self, value: bool | int | float | complex, dtype: DType) -> Value:
        """A 0-d constant."""
        number = dtype.python(value)
        key = (dtype, _attr_key(number))
        found = self._scalars.get(key)
        if found is None:
            found = self._scalars[key] = self.apply("full", value=number, shape=(), dtype=dtype)
        return found

    def drop_dead(self) -> None:
        """Drop nodes that no output needs. The builder of a graph calls this when the graph is complete."""
        live = set(self.live_nodes())
        self._scalars.clear()
        if len(live) < len(self._interned):
            self._interned = {key: node for key, node in self._interned.items() if node in live}
            self.origin = {node: origin for node, origin in self.origin.items() if node in live}
        self._pruned = (len(self._interned), len(self.outputs))

    def interpret(self, *arrays: np.ndarray[Any, Any], observer: Observer | None = None) -> list[np.ndarray[Any, Any]]:
        """The outputs for ``arrays``, by the numpy interpreter (``ir.interpret``)."""
        return interpret(self, arrays, observer)

    def to_networkx(self) -> Any:
        """The graph as a ``networkx.MultiDiGraph``, with names, types, scopes and lines on the nodes."""
        return export.to_networkx(self)

    def to_dot(self) -> str:
        """The graph in the language of graphviz."""
        return export.to_dot(self)

    def to_model_explorer(self) -> str:
        """The graph as a JSON file of Google's Model Explorer, with modules as layers."""
        return export.to_model_explorer(self)

    def __str__(self) -> str:
        return print_graph(self, comments=True, short=True)

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def _inferred(op: Op, inputs: Iterable[Value], attrs: Attrs) -> Sequence[TensorType]:
    return op.result_types([v.type for v in inputs], attrs)


def attrs_key(attrs: Attrs) -> AttrsKey:
    """A hashable key of attributes that tells 1 from True and 0.0 from -0.0 and equates NaN with NaN."""
    return tuple([(k, _attr_key(attrs[k])) for k in sorted(attrs)]) if attrs else ()


_AS_THEY_ARE = frozenset((int, str, DType))
"""Classes of attributes that are their own keys."""


def _attr_key(value: object) -> Any:
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, complex):
        return struct.pack("<dd", value.real, value.imag)
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, list | tuple):
        return tuple(map(_attr_key, value))
    return getattr(value, "__graph_key__", value)

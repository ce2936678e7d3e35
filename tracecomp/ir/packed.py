"""Graphs as tables of numbers and plain values, to send to another process and to compare.

Text (``ir.printer``) is for people and files; it takes ten times as long to write and to read.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np

from tracecomp.ir.graph import AttrsKey, Graph, Origin, Value, attrs_key
from tracecomp.ir.immutable import immutable
from tracecomp.ir.op import OPS, Attrs
from tracecomp.ir.types import TensorType

T = TypeVar("T")
PackedInput: TypeAlias = tuple[TensorType, str, str, "np.ndarray[Any, Any] | None"]
"""Type, name, role, and the elements of a constant."""
PackedNode: TypeAlias = tuple[str, tuple[int, ...], int, tuple[int, ...], int]
"""Operator, operands, and positions in the tables of attributes, types (one for each result) and origins."""


@immutable
class PackedGraph:
    """A graph without references between its nodes.

    Values are numbered: inputs first, then results in order. Bodies of control operators are packed graphs among the
    attributes.
    """

    name: str
    inputs: tuple[PackedInput, ...]
    types: tuple[TensorType, ...]
    attrs: tuple[Attrs, ...]
    origins: tuple[Origin, ...]
    nodes: tuple[PackedNode, ...]
    outputs: tuple[tuple[int, str, str], ...]

    def unpacked(self) -> Graph:
        """The graph again, with its nodes in the same order."""
        return _unpacked(self, {})


def packed(graph: Graph) -> PackedGraph:
    """``graph`` as tables."""
    return _Packer().packed(graph)


def content(graph: Graph) -> str:
    """Text that is equal for equal graphs, whatever their origins. It leaves out the elements of constants."""
    keys: _Table[AttrsKey] = _Table()
    types: _Table[TensorType] = _Table()
    operators: dict[str, int] = {}
    values = {i.value: n for n, i in enumerate(graph.inputs)}
    inputs = [(types.number(i.value.type), i.name, i.role) for i in graph.inputs]
    attrs: list[Attrs] = []
    nodes: list[int] = []
    for node in graph.nodes:
        name, operands, results = node.op.name, node.inputs, node.outputs
        number = keys.number(node.key)
        if number == len(attrs):
            attrs.append(node.attrs)
        nodes += (operators.setdefault(name, len(operators)), number, len(operands), len(results))
        nodes += [values[v] for v in operands]
        for value in results:
            values[value] = len(values)
            nodes.append(types.number(value.type))
    outputs = [(values[o.value], o.name, o.role) for o in graph.outputs]
    # The content of bodies counts: ``keys`` compares them by identity.
    plain = [attrs_key({name: _shown(value) for name, value in table.items()}) for table in attrs]
    return repr((graph.name, inputs, list(map(str, types.numbers)), plain, list(operators), nodes, outputs))


def _shown(value: object) -> object:
    return content(value) if isinstance(value, Graph) else value


class _Table(Generic[T]):
    """Different objects in order of first use. They must live as long as the table."""

    def __init__(self) -> None:
        self.numbers: dict[T, int] = {}
        self._by_identity: dict[int, int] = {}

    def number(self, item: T) -> int:
        # Most items are one object in many places, whose identity is found faster than its content.
        found = self._by_identity.get(id(item))
        if found is None:
            found = self._by_identity[id(item)] = self.numbers.setdefault(item, len(self.numbers))
        return found


class _Packer:
    """Packs a graph. Bodies that several nodes share stay shared."""

    def __init__(self) -> None:
        self._bodies: dict[Graph, PackedGraph] = {}

    def packed(self, graph: Graph) -> PackedGraph:
        keys: _Table[AttrsKey] = _Table()
        types: _Table[TensorType] = _Table()
        origins: _Table[Origin] = _Table()
        values = {i.value: n for n, i in enumerate(graph.inputs)}
        unknown = Origin()
        nodes: list[PackedNode] = []
        attrs: list[Attrs] = []
        for node in graph.nodes:
            number = keys.number(node.key)
            if number == len(attrs):
                attrs.append({name: self._attr(value) for name, value in node.attrs.items()})
            operands = tuple([values[v] for v in node.inputs])
            results = tuple([types.number(v.type) for v in node.outputs])
            nodes.append((node.op.name, operands, number, results, origins.number(graph.origin.get(node, unknown))))
            for value in node.outputs:
                values[value] = len(values)
        outputs = tuple([(values[o.value], o.name, o.role) for o in graph.outputs])
        inputs = tuple([(i.value.type, i.name, i.role, i.data) for i in graph.inputs])
        return PackedGraph(
            graph.name, inputs, tuple(types.numbers), tuple(attrs), tuple(origins.numbers), tuple(nodes), outputs
        )

    def _attr(self, value: object) -> object:
        if not isinstance(value, Graph):
            return value
        if value not in self._bodies:
            self._bodies[value] = self.packed(value)
        return self._bodies[value]


def _unpacked(form: PackedGraph, bodies: dict[int, Graph]) -> Graph:
    graph = Graph(form.name)
    values: list[Value] = [graph.add_input(*given) for given in form.inputs]
    attrs = [{name: _attr(value, bodies) for name, value in table.items()} for table in form.attrs]
    keys = list(map(attrs_key, attrs))
    for op, operands, number, results, origin in form.nodes:
        graph.here = form.origins[origin]
        inputs = tuple([values[n] for n in operands])
        types = [form.types[n] for n in results]
        values += graph.add_keyed(OPS[op], inputs, attrs[number], keys[number], partial(list, types))
    graph.here = Origin()
    for number, name, role in form.outputs:
        graph.add_output(values[number], name, role)
    return graph


def _attr(value: object, bodies: dict[int, Graph]) -> object:
    if not isinstance(value, PackedGraph):
        return value
    # By identity: a pickle keeps which bodies are shared.
    if id(value) not in bodies:
        bodies[id(value)] = _unpacked(value, bodies)
    return bodies[id(value)]

"""Operators that are defined by others: functions of the model, and those whose schema has a body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import onnx

from tracecomp.onnx.model import GraphRecord, Model, Node, node_of
from tracecomp.onnx.registry import RULES


def inlined(model: Model) -> GraphRecord:
    """The graph with nodes without a rule replaced by their bodies, as far as they have one."""
    return _Inliner(model).graph(model.graph)


_FREE, _FOR_EACH = 20_000, 100
"""Nodes that the bodies of any model may open to, and those for each node of it: functions that call others twice are
twice as many at every level."""


class _Inliner:
    def __init__(self, model: Model) -> None:
        self.model = model
        self.left = _FREE + _FOR_EACH * (len(model.graph.nodes) + sum(len(f.node) for f in model.functions.values()))
        self.numbers = count()
        self.types = _types(model)

    def graph(self, graph: GraphRecord) -> GraphRecord:
        return replace(graph, nodes=[n for node in graph.nodes for n in self.node(node)])

    def node(self, node: Node) -> list[Node]:
        """The nodes that replace ``node``: itself, unless it has a body and no rule."""
        attrs = {k: self.graph(v) if isinstance(v, GraphRecord) else v for k, v in node.attrs.items()}
        node = replace(node, attrs=attrs)
        function = self.model.functions.get((node.domain, node.op))
        if function is None and (node.domain, node.op) in RULES:
            return [node]
        body = function or self._schema_body(node)
        if body is None:
            return [node]
        return [n for inner in self._opened(node, body) for n in self.node(inner)]

    def _schema_body(self, node: Node) -> Any:
        version = self.model.opsets.get(node.domain, 1)
        try:
            schema: Any = onnx.defs.get_schema(node.op, version, node.domain)
        except onnx.defs.SchemaError:
            return None
        if schema.has_function:
            return schema.function_body
        if not schema.has_context_dependent_function or node.proto is None:
            return None
        kinds = [self.types.get(n, b"") for n in node.inputs]
        text = schema.get_context_dependent_function(node.proto.SerializeToString(), kinds)
        return onnx.FunctionProto.FromString(text) if text else None

    def _opened(self, node: Node, function: Any) -> list[Node]:
        """The body's nodes with the operands, results and attributes of ``node``."""
        number = next(self.numbers)
        self.left -= len(function.node)
        if self.left < 0:
            raise ValueError("the model's functions expand to too many operators for its size")
        names = dict(zip(function.input, node.inputs, strict=False))
        names |= dict.fromkeys([*function.input][len(node.inputs) :], "")
        names |= dict(zip(function.output, node.outputs, strict=False))
        given = {p.name: onnx.helper.get_attribute_value(p) for p in function.attribute_proto}
        given |= self._defaults(node) | node.attrs
        return [self._renamed(p, names, given, f"{node.name or node.op}.{number}") for p in function.node]

    def _defaults(self, node: Node) -> dict[str, Any]:
        """The attributes that the operator's schema has values for."""
        try:
            schema = onnx.defs.get_schema(node.op, self.model.opsets.get(node.domain, 1), node.domain)
        except onnx.defs.SchemaError:
            return {}
        stated = {name: a.default_value for name, a in schema.attributes.items() if a.default_value.type}
        return {name: onnx.helper.get_attribute_value(value) for name, value in stated.items()}

    def _renamed(self, proto: Any, names: dict[str, str], given: Mapping[str, object], where: str) -> Node:
        def name(old: str) -> str:
            return names.setdefault(old, f"{where}/{old}") if old else ""

        node = node_of(proto)
        for a in proto.attribute:
            if a.ref_attr_name and a.ref_attr_name in given:
                found = given[a.ref_attr_name]
                node.attrs[a.name] = found.decode() if isinstance(found, bytes) else found
        bodies = {k: v for k, v in node.attrs.items() if isinstance(v, GraphRecord)}
        attrs = node.attrs | {k: self._renamed_body(v, names, given, where) for k, v in bodies.items()}
        inputs, outputs = [*map(name, node.inputs)], [*map(name, node.outputs)]
        return replace(node, inputs=inputs, outputs=outputs, attrs=attrs, proto=None)

    def _renamed_body(
        self, body: GraphRecord, names: dict[str, str], given: Mapping[str, object], where: str
    ) -> GraphRecord:
        inner = dict(names)
        nodes = [self._renamed(n.proto, inner, given, where) for n in body.nodes]

        def name(old: str) -> str:
            return inner.setdefault(old, f"{where}/{old}") if old else ""

        weights: dict[str, np.ndarray[Any, Any]] = {name(k): v for k, v in body.weights.items()}
        inputs, outputs = [*map(name, body.inputs)], [*map(name, body.outputs)]
        return replace(body, inputs=inputs, outputs=outputs, nodes=nodes, weights=weights)


def _types(model: Model) -> dict[str, bytes]:
    """The types of inputs, for bodies that depend on them."""
    return {name: kind.SerializeToString() for name, kind in model.graph.types.items()}

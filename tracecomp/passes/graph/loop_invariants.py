"""Loop-invariant code motion for ``scan``: work that every step would repeat is done once before it.

Nodes of the body that depend only on constants of the loop move out. A weight that each step contracts along its last
axis is transposed once outside: each step then reads its rows as vectors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tracecomp.ir.graph import Graph, Node, Origin, Value
from tracecomp.ir.op import OPS, Attrs
from tracecomp.passes.steps import Log


def hoist(graph: Graph, log: Log) -> Graph:
    """``graph`` with invariant work of its scans moved in front of them."""
    if not any(n.op.name == "scan" for n in graph.live_nodes()):
        return graph
    new = Graph(graph.name)
    known = {i.value: new.add_input(i.value.type, i.name, i.role, i.data) for i in graph.inputs}
    for node in graph.live_nodes():
        new.here = graph.origin.get(node, Origin())
        operands = [known[v] for v in node.inputs]
        attrs = node.attrs
        # Other control operators may not run their bodies at all, and moving work out of them would run it always.
        if node.op.name == "scan":
            operands, attrs = _hoist_from(new, operands, attrs, log)
        known.update(zip(node.outputs, new.add(node.op, operands, attrs), strict=True))
    new.here = Origin()
    for output in graph.outputs:
        new.add_output(known[output.value], output.name, output.role)
    return new


@dataclass
class _Body:
    """A body being rebuilt: ``outside`` maps its invariant values to values in front of the scan."""

    old: Graph
    outer: Graph
    outside: dict[Value, Value]
    new: Graph = field(init=False)
    known: dict[Value, Value] = field(default_factory=dict)
    extra: list[Value] = field(default_factory=list)
    transposed: dict[Value, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.new = Graph(self.old.name)

    def inside(self, value: Value) -> Value:
        """``value`` in the new body; an invariant one becomes an operand of the scan, a view of one is repeated
        inside."""
        if value not in self.known:
            # A view of an invariant is free inside, while outside it could become a copy.
            node = value.node
            if node is not None and node.op.kind == "view":
                self.known[value] = self.new.add(node.op, map(self.inside, node.inputs), node.attrs)[0]
            else:
                self.known[value] = self._operand(self.outside[value])
        return self.known[value]

    def turned(self, value: Value) -> Value:
        """An invariant matrix, transposed in front of the scan."""
        if value not in self.transposed:
            self.transposed[value] = self._operand(self.outer.apply("permute", self.outside[value], dims=(1, 0)))
        return self.transposed[value]

    def _operand(self, outer: Value) -> Value:
        self.extra.append(outer)
        return self.new.add_input(outer.type, f"invariant{len(self.extra)}")


def _hoist_from(outer: Graph, operands: list[Value], attrs: Attrs, log: Log) -> tuple[list[Value], Any]:
    old: Graph = attrs["body"]
    opened = [i.value for i in old.inputs if i.role != "constant"]
    # Carries and stacked operands change from step to step; the operands after them are constant.
    moving = attrs["carries"] + attrs["xs"]
    body = _Body(old, outer, dict(zip(opened[moving:], operands[moving:], strict=True)))
    given = iter(operands)
    for i in old.inputs:
        if i.role == "constant":
            body.known[i.value] = body.new.add_input(i.value.type, i.name, i.role, i.data)
        elif i.value not in body.outside:
            next(given)
            body.known[i.value] = body.new.add_input(i.value.type, i.name, i.role)
    for node in old.live_nodes():
        _place(node, body, log)
    for output in old.outputs:
        body.new.add_output(body.inside(output.value), output.name, output.role)
    return [*operands[:moving], *body.extra], attrs | {"body": body.new}


def _place(node: Node, body: _Body, log: Log) -> None:
    # A node without operands (a constant) costs the same inside.
    if node.inputs and all(v in body.outside for v in node.inputs):
        results = body.outer.add(node.op, [body.outside[v] for v in node.inputs], node.attrs)
        body.outside.update(zip(node.outputs, results, strict=True))
        log.hits["invariant_out_of_scan"] += node.op.kind != "view"
        return
    body.new.here = body.old.origin.get(node, Origin())
    if node.op.name == "contract" and _turnable(node, body.outside):
        lhs, rhs = node.attrs["spec"].split("->")[0].split(",")
        # Rows of the transposed weight are loaded by a step's lanes; the sum's order does not change.
        spec = f"{lhs},{rhs[::-1]}->{node.attrs['spec'].split('->')[1]}"
        inputs = [body.inside(node.inputs[0]), body.turned(node.inputs[1])]
        results = body.new.add(OPS["contract"], inputs, {"spec": spec})
        log.hits["weight_transposed_before_scan"] += 1
    else:
        results = body.new.add(node.op, [body.inside(v) for v in node.inputs], node.attrs)
    body.known.update(zip(node.outputs, results, strict=True))


def _turnable(node: Node, outside: dict[Value, Value]) -> bool:
    """Whether the right operand is an invariant matrix that is summed along its last axis."""
    terms, out = node.attrs["spec"].split("->")
    lhs, rhs = terms.split(",")
    # Two labels, the last summed and the first kept: a transpose makes the summed label contiguous.
    return len(rhs) == 2 and node.inputs[1] in outside and rhs[1] not in out and rhs[0] in out and rhs[0] not in lhs

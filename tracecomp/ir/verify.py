"""The verifier of graphs: it checks every rule that passes may rely on."""

from __future__ import annotations

from tracecomp.base.errors import VerifyError
from tracecomp.ir.graph import Graph, Input, Node, Value

INPUT_ROLES = frozenset({"argument", "state", "host", "room", "constant"})
OUTPUT_ROLES = frozenset({"result", "state", "predicate"})


def verify(graph: Graph, after: str = "") -> None:
    """Raise VerifyError when ``graph`` breaks a rule; ``after`` names the pass that made it.

    Checked: roles, constants' data, that operands are defined before use in this graph, attributes by name, and every
    result type against the operator's ``infer``. Regions are checked like graphs.
    """
    where = f"graph {graph.name!r}" + (f" after pass {after!r}" if after else "")
    defined: set[Value] = set()
    for given in graph.inputs:
        _check_input(where, given)
        defined.add(given.value)
    for number, node in enumerate(graph.nodes):
        _check_node(f"{where}, node {number} {node!r}", node, defined, after)
        defined.update(node.outputs)
    for output in graph.outputs:
        if output.role not in OUTPUT_ROLES:
            raise VerifyError(f"{where}: output {output.name!r} has the unknown role {output.role!r}")
        if output.value not in defined:
            raise VerifyError(f"{where}: output {output.name!r} is not a value of this graph")


def _check_input(where: str, given: Input) -> None:
    if given.role not in INPUT_ROLES:
        raise VerifyError(f"{where}: input {given.name!r} has the unknown role {given.role!r}")
    if (given.role == "constant") != (given.data is not None):
        raise VerifyError(f"{where}: input {given.name!r} of role {given.role} and its data are inconsistent")
    want = given.value.type
    if given.data is not None and (given.data.shape != want.shape or given.data.dtype != want.dtype.numpy):
        have = f"{given.data.dtype.name}{list(given.data.shape)}"
        raise VerifyError(f"{where}: constant {given.name!r} is {want}, its data {have}")


def _check_node(where: str, node: Node, defined: set[Value], after: str) -> None:
    for position, operand in enumerate(node.inputs):
        if operand not in defined:
            raise VerifyError(f"{where}: operand {position} is not defined before it")
    if set(node.attrs) != set(node.op.attrs):
        raise VerifyError(f"{where}: attributes {sorted(node.attrs)}, the operator has {sorted(node.op.attrs)}")
    try:
        types = node.op.result_types([v.type for v in node.inputs], node.attrs)
    except Exception as error:  # of any operator's infer, on types that no other code would pass
        raise VerifyError(f"{where}: operands are refused: {error}") from error
    have = tuple(v.type for v in node.outputs)
    if types != have:
        raise VerifyError(f"{where}: has type {', '.join(map(str, have))}, should have {', '.join(map(str, types))}")
    for value in node.attrs.values():
        if isinstance(value, Graph):
            verify(value, after)

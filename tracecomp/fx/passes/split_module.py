"""``split_module``: split a graph into parts, each a separate module."""

from __future__ import annotations

from collections.abc import Callable
from operator import getitem
from typing import Any

from tracecomp.fx.graph import Graph
from tracecomp.fx.graph_module import GraphModule
from tracecomp.fx.node import Node, map_arg
from tracecomp.nn.module import Module

__all__ = ["split_module"]

_OUTSIDE = ("placeholder", "get_attr", "output")
"""Nodes that stay in the module that calls the parts."""


class _Part:
    """The nodes of one part, and the values that go in and come out, in the order in which they are met."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[Node] = []
        self.inputs: dict[Node, None] = {}
        self.outputs: dict[Node, None] = {}
        self.needs: dict[str, None] = {}
        """The parts whose outputs this one reads."""

    def module(self, m: GraphModule, renamed: dict[str, str] | None) -> GraphModule:
        """A module that gives the outputs, one or a tuple, for the inputs."""
        graph, root = Graph(), Module()
        known = {n: graph.placeholder(n.name, type_expr=n.type) for n in self.inputs}
        for n, inner in known.items():
            inner.meta = n.meta.copy()
        for node in self.nodes:
            copied = graph.node_copy(node, lambda n: known[n])
            if node.op == "call_module":
                copied.target = str(node.target).replace(".", "_")
                root.add_module(copied.target, m.get_submodule(str(node.target)))
                if renamed is not None:
                    renamed[f"{self.name}.{copied.target}"] = str(node.target)
            known[node] = copied
        found = tuple(known[n] for n in self.outputs)
        graph.output(found[0] if len(found) == 1 else found)
        return GraphModule(root, graph)


def split_module(
    m: GraphModule, root_m: Module, split_callback: Callable[[Node], int], qualname_map: dict[str, str] | None = None,
    keep_original_order: bool | None = False, keep_original_node_name: bool | None = False,
) -> GraphModule:  # fmt: skip
    """A module that calls ``submod_0``, ``submod_1``, ...: the nodes for which ``split_callback`` gives that number.

    ``qualname_map`` receives the names that modules had, by those they have. RuntimeError when parts need each other.

    Example:
        >>> import tracecomp as torch
        >>> from tracecomp.fx.passes.split_module import split_module
        >>> traced = torch.fx.symbolic_trace(lambda x: torch.relu(x + 1) * 2)
        >>> split = split_module(traced, traced, lambda node: int(node.name == "mul"))
        >>> print(split.code.strip())
        def forward(self, x):
            submod_0 = self.submod_0(x);  x = None
            submod_1 = self.submod_1(submod_0);  submod_0 = None
            return submod_1
    """
    parts = _parts(m, split_callback)
    graph, root = Graph(), Module()
    known: dict[Node, Any] = {}
    for node in m.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            known[node] = graph.node_copy(node, lambda n: known[n])
            if node.op == "get_attr":
                setattr(root, str(node.target).replace(".", "_"), _attribute(m, str(node.target)))
                known[node].target = str(node.target).replace(".", "_")
    for part in parts.values() if keep_original_order else _in_order(parts):
        setattr(root, part.name, part.module(m, qualname_map))
        call = graph.call_module(part.name, tuple(known[n] for n in part.inputs))
        _take_apart(graph, call, part, known)
    for node in m.graph.nodes:
        if node.op == "output":
            graph.output(map_arg(node.args[0], lambda n: known[n]), node.type)
    return GraphModule(root, graph)


def _parts(m: GraphModule, number: Callable[[Node], int]) -> dict[str, _Part]:
    """The parts by name, with what crosses their borders."""
    parts: dict[str, _Part] = {}
    of: dict[Node, _Part] = {}
    for node in m.graph.nodes:
        user = None
        if node.op not in _OUTSIDE:
            name = f"submod_{number(node)}"
            user = of[node] = parts.setdefault(name, _Part(name))
            user.nodes.append(node)
        for used in node.all_input_nodes:
            _cross(used, of.get(used), user)
    return parts


def _cross(value: Node, maker: _Part | None, user: _Part | None) -> None:
    """Note that ``user`` reads what ``maker`` has made; None is the module that calls the parts."""
    if maker is user:
        return
    if maker is not None:
        maker.outputs.setdefault(value)
    if user is not None:
        user.inputs.setdefault(value)
        if maker is not None:
            user.needs.setdefault(maker.name)


def _in_order(parts: dict[str, _Part]) -> list[_Part]:
    """The parts, each after those that it needs."""
    found: dict[str, _Part] = {}
    while len(found) < len(parts):
        ready = [p for p in parts.values() if p.name not in found and all(n in found for n in p.needs)]
        if not ready:
            raise RuntimeError("cycle exists between partitions!")
        found |= {p.name: p for p in ready}
    return list(found.values())


def _take_apart(graph: Graph, call: Node, part: _Part, known: dict[Node, object]) -> None:
    """Nodes for what a part gives."""
    if len(part.outputs) == 1:
        known[next(iter(part.outputs))] = call
        return
    for i, node in enumerate(part.outputs):
        known[node] = graph.call_function(getitem, (call, i))


def _attribute(m: Module, path: str) -> Any:
    found: Any = m
    for name in path.split("."):
        found = getattr(found, name)
    return found

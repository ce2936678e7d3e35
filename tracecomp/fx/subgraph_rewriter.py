"""Replacing every occurrence of one pattern of operations by another."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tracecomp.fx._symbolic_trace import symbolic_trace
from tracecomp.fx.graph import Graph
from tracecomp.fx.graph_module import GraphModule
from tracecomp.fx.node import Node, map_arg
from tracecomp.nn.module import Module

Pattern = Callable[..., Any] | Graph | GraphModule


class Match(NamedTuple):
    """A match of a pattern: its last node, and pattern node -> node."""

    anchor: Node
    nodes_map: dict[Node, Node]


@dataclass
class ReplacedPatterns:
    """A match, and the nodes that replace it."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


def _graph_of(pattern: Pattern) -> Graph:
    if isinstance(pattern, GraphModule):
        return pattern.graph
    return pattern if isinstance(pattern, Graph) else symbolic_trace(pattern).graph


class _Matcher:
    """Looks for ``pattern`` ending at some node."""

    def __init__(self, pattern: Graph, module: GraphModule) -> None:
        self.pattern, self.module = pattern, module
        found: list[Node] = []
        map_arg(pattern.output_node().args, found.append)
        self.results = found
        self.inner = [n for n in pattern.nodes if n.op not in ("placeholder", "output")]

    def at(self, anchor: Node) -> dict[Node, Node] | None:
        """Pattern node -> node when the last result of the pattern is ``anchor``."""
        known: dict[Node, Any] = {}
        if len(self.results) != 1 or not self._same(self.results[0], anchor, known):
            return None
        inside = {known[n] for n in self.inner if n in known}
        for n in self.inner:
            if n not in known:
                return None
            if n is not self.results[0] and any(user not in inside for user in known[n].users):
                return None  # others use what would be gone
        return known

    def _same(self, p: object, n: object, known: dict[Node, object]) -> bool:
        if not isinstance(p, Node):
            return self._same_argument(p, n, known)
        if p in known:
            return bool(known[p] is n or (not isinstance(n, Node) and known[p] == n))
        if p.op == "placeholder":
            known[p] = n
            return True
        if not isinstance(n, Node) or n.op != p.op or not self._same_target(p, n):
            return False
        known[p] = n
        return self._same_argument(p.args, n.args, known) and self._same_argument(p.kwargs, n.kwargs, known)

    def _same_target(self, p: Node, n: Node) -> bool:
        if p.op != "call_module":
            return bool(p.target == n.target)
        theirs = self.pattern.owning_module
        mine, other = self.module.get_submodule(str(n.target)), theirs and theirs.get_submodule(str(p.target))
        return type(mine) is type(other)

    def _same_argument(self, p: object, n: object, known: dict[Node, object]) -> bool:
        if isinstance(p, Node):
            return self._same(p, n, known)
        if isinstance(p, tuple | list):
            return (
                isinstance(n, tuple | list) and len(p) == len(n)
                and all(self._same_argument(a, b, known) for a, b in zip(p, n, strict=True))
            )  # fmt: skip
        if isinstance(p, dict):
            return isinstance(n, dict) and p.keys() == n.keys() and all(
                self._same_argument(p[k], n[k], known) for k in p
            )  # fmt: skip
        return bool(type(p) is type(n) and p == n)


def _replace(
    gm: GraphModule, pattern: Pattern, replacement: Pattern,
    filters: list[Callable[[dict[Node, Node], Graph, Graph], bool]],
) -> list[ReplacedPatterns]:  # fmt: skip
    graph, wanted, new = gm.graph, _graph_of(pattern), _graph_of(replacement)
    matcher = _Matcher(wanted, gm)
    taken: set[Node] = set()
    found: list[ReplacedPatterns] = []
    replaced: dict[Node, Node] = {}
    for anchor in list(graph.nodes):
        known = None if anchor.op in ("placeholder", "output") else matcher.at(anchor)
        if known is None or not all(f(known, graph, wanted) for f in filters):
            continue
        inside = [known[n] for n in matcher.inner]
        if taken.intersection(inside):
            continue
        taken.update(inside)
        found.append(_replaced_at(graph, anchor, known, matcher, new, replaced))
    gm.graph = graph
    if isinstance(replacement, Module):
        _take_attributes(gm, replacement)
    gm.recompile()
    return found


def _replaced_at(
    graph: Graph, anchor: Node, known: dict[Node, Any], matcher: _Matcher, new: Graph, replaced: dict[Node, Node]
) -> ReplacedPatterns:
    given = [known.get(p) for p in matcher.pattern.nodes if p.op == "placeholder"]
    values: dict[Node, Any] = {}
    for p, value in zip((n for n in new.nodes if n.op == "placeholder"), given, strict=True):
        while isinstance(value, Node) and value in replaced:
            value = replaced[value]
        values[p] = value
    before = set(graph.nodes)
    with graph.inserting_before(min(anchor.users, default=anchor)):
        result = graph.graph_copy(new, values)
    made = [n for n in graph.nodes if n not in before]
    if isinstance(result, tuple | list) and len(result) == 1:
        result = result[0]
    anchor.replace_all_uses_with(result)
    replaced[anchor] = result
    for p in reversed(matcher.inner):
        if not known[p]._erased and not known[p].users:
            graph.erase_node(known[p])
    return ReplacedPatterns(anchor, known, made)


def _take_attributes(gm: GraphModule, replacement: Module) -> None:
    for node in gm.graph.nodes:
        if node.op in ("call_module", "get_attr"):
            try:
                gm.get_submodule(str(node.target)) if node.op == "call_module" else _attribute(gm, str(node.target))
            except AttributeError:
                found = _attribute(replacement, str(node.target))
                gm.add_submodule(str(node.target), copy.deepcopy(found)) if isinstance(found, Module) else setattr(
                    gm, str(node.target), found
                )


def _attribute(root: Module, path: str) -> Any:
    for part in path.split("."):
        root = getattr(root, part)
    return root


def replace_pattern(gm: GraphModule, pattern: Pattern, replacement: Pattern) -> list[Match]:
    """Replace subgraphs of ``gm`` that match ``pattern`` by ``replacement``, unless their inner nodes have other users.

    Both are functions, graphs or graph modules with the same number of arguments. Matches do not overlap. Returns them.

    Example:
        >>> import tracecomp as torch
        >>> traced = torch.fx.symbolic_trace(lambda x: torch.neg(torch.neg(x)))
        >>> matches = torch.fx.replace_pattern(traced, lambda x: torch.neg(torch.neg(x)), lambda x: x.clone())
        >>> print(traced.code.strip())
        def forward(self, x):
            clone = x.clone();  x = None
            return clone
    """
    return [Match(m.anchor, m.nodes_map) for m in _replace(gm, pattern, replacement, [])]


def replace_pattern_with_filters(
    gm: GraphModule, pattern: Pattern, replacement: Pattern | None = None, match_filters: Any = None,
    ignore_literals: bool = False, replacement_callback: object = None, node_name_match: str = "",
) -> list[ReplacedPatterns]:  # fmt: skip
    """As ``replace_pattern``, where every one of ``match_filters(match, graph, pattern)`` holds."""
    if ignore_literals or replacement_callback is not None or node_name_match or replacement is None:
        raise NotImplementedError(
            "replace_pattern_with_filters(): ignore_literals, replacement_callback, node_name_match are not supported"
        )
    return _replace(gm, pattern, replacement, list(match_filters or ()))

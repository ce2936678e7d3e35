"""Cuts a graph at operators that the host runs (LAPACK), so that what lies between them becomes machine code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tracecomp.base.errors import CompileError
from tracecomp.ir.graph import Graph, Node, Value
from tracecomp.ir.op import External


@dataclass(frozen=True)
class Segment:
    """A part of a graph: ``work`` turns the values ``reads`` of the whole graph into ``writes``."""

    work: Graph | Node
    reads: tuple[Value, ...]
    writes: tuple[Value, ...]


def has_external(graph: Graph) -> bool:
    """Whether the host runs some live node; CompileError when one stands in a loop or branch."""
    found = False
    for node in graph.live_nodes():
        found |= isinstance(node.op.loop, External)
        for value in node.attrs.values():
            if isinstance(value, Graph) and has_external(value):
                # Loops and branches run inside of one native call, which cannot come back to the host in the middle.
                raise CompileError(
                    f"{node.op.name}: its body calls a routine of the host, which machine code cannot; "
                    "compile with backend='interpret'"
                )
    return found


def segments(graph: Graph) -> list[Segment]:
    """Parts to run one after another: as few graphs as the order of external nodes allows, and those nodes.

    Complex types have been split up. A stage is a compiled part, then nodes of the host.
    """
    native: dict[int, list[Node]] = {}
    external: dict[int, list[Node]] = {}
    # Stages number the times that control changes between code and host: a value made by the
    # host is seen by code one stage later, and by other host nodes at once.
    by_code: dict[Value, int] = {i.value: 0 for i in graph.inputs}  # the first stage whose code can read a value
    by_host = dict(by_code)
    for node in graph.live_nodes():
        host = isinstance(node.op.loop, External)
        at = max((by_host[v] if host else by_code[v] for v in node.inputs), default=0)
        (external if host else native).setdefault(at, []).append(node)
        by_host.update(dict.fromkeys(node.outputs, at))
        by_code.update(dict.fromkeys(node.outputs, at + host))
    # Backwards, so that each part knows which of its results later parts read.
    needed = {o.value for o in graph.outputs}
    found: list[Segment] = []
    for at in range(max((*native, *external), default=-1), -1, -1):
        after = [Segment(node, node.inputs, node.outputs) for node in external.get(at, [])]
        needed |= {v for part in after for v in part.reads}
        nodes = native.get(at, [])
        before = [_native(graph, nodes, needed, at)] if nodes else []
        needed |= {v for part in before for v in part.reads}
        found = [*before, *after, *found]
    return found


def _native(graph: Graph, nodes: Sequence[Node], needed: set[Value], number: int) -> Segment:
    """The graph of ``nodes``, which gives those of their results that are ``needed`` elsewhere."""
    part = Graph(f"{graph.name}_{number}")
    inside = {v for node in nodes for v in node.outputs}
    constants = {i.value: i for i in graph.inputs if i.role == "constant"}
    known: dict[Value, Value] = {}
    reads: list[Value] = []
    for value in _read(nodes, inside):
        given = constants.get(value)
        known[value] = part.add_input(
            value.type, given.name if given else f"x{len(reads)}", "constant" if given else "argument",
            given.data if given else None,
        )  # fmt: skip
        if given is None:
            reads.append(value)
    for node in nodes:
        part.here = graph.origin[node]
        known.update(zip(node.outputs, part.add(node.op, [known[v] for v in node.inputs], node.attrs), strict=True))
    # Values used inside of the part alone need no memory between parts.
    writes = [v for node in nodes for v in node.outputs if v in needed]
    for value in writes:
        part.add_output(known[value])
    return Segment(part, tuple(reads), tuple(writes))


def _read(nodes: Sequence[Node], inside: set[Value]) -> Iterator[Value]:
    yield from dict.fromkeys(v for node in nodes for v in node.inputs if v not in inside)

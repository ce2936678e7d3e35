"""Split a graph at operators that the host runs (LAPACK, communication): the parts between become machine code.

Communication overlaps with computation. A compiled part is therefore split again where the operands of a communication
are complete: the communication starts there, and the rest of the part is computed during the transfer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tracecomp.base.errors import CompileError
from tracecomp.ir.graph import Graph, Node, Value
from tracecomp.ir.op import External


@dataclass(frozen=True)
class Segment:
    """A part of a graph: ``work`` computes the values ``writes`` from ``reads`` of the whole graph."""

    work: Graph | Node
    reads: tuple[Value, ...]
    writes: tuple[Value, ...]


def has_external(graph: Graph) -> bool:
    """Whether the host runs some live node; CompileError if one is in a loop or branch."""
    found = False
    if not any(op.may_need_host or op.kind == "control" for op in {node.op for node in graph.nodes}):
        return found  # most graphs: finding out which nodes are live takes longer
    for node in graph.live_nodes():
        found |= node.op.may_need_host and node.op.run_by_host(v.type for v in node.inputs)
        for value in node.attrs.values():
            if isinstance(value, Graph) and has_external(value):
                # Loops and branches run inside of one native call, which cannot call the host.
                raise CompileError(
                    f"{node.op.name}: its body calls a host routine, which machine code cannot do; "
                    "compile with backend='interpret'"
                )
    return found


def segments(graph: Graph) -> list[Segment]:
    """Split a graph into consecutive parts: as few graphs as the order of external nodes permits, and those nodes.

    Complex types were split earlier. A stage is a compiled part, then nodes of the host. Nodes that can start early are
    placed in the part as soon as their operands are complete. Communications keep the program's order, which is the
    same in all processes.
    """
    native: dict[int, list[Node]] = {}
    external: dict[int, list[Node]] = {}
    # Stages count the changes of control between code and host. Code can read a value of the host one stage later,
    # other host nodes at once.
    by_code: dict[Value, int] = {i.value: 0 for i in graph.inputs}  # the first stage whose code can read a value
    by_host = dict(by_code)
    last = 0  # the stage of the last communication
    for node in graph.live_nodes():
        host = isinstance(node.op.loop, External)
        at = max((by_host[v] if host else by_code[v] for v in node.inputs), default=0)
        if can_start(node):
            at = last = max(at, last)
        (external if host else native).setdefault(at, []).append(node)
        by_host.update(dict.fromkeys(node.outputs, at))
        by_code.update(dict.fromkeys(node.outputs, at + host))
    pieces: list[tuple[int, list[Node] | Node]] = []
    for at in sorted({*native, *external}):
        pieces += [(at, piece) for piece in _stage(native.get(at, []), external.get(at, []))]
    return _with_reads(graph, pieces)


def _stage(nodes: Sequence[Node], hosted: Sequence[Node]) -> Iterator[list[Node] | Node]:
    """The pieces of one stage in their order."""
    made_by = {v: node for node in nodes for v in node.outputs}
    left = dict.fromkeys(nodes)
    late: list[Node] = []
    for host in hosted:
        if not can_start(host) or any(map(can_start, late)) or any(v in n.outputs for n in late for v in host.inputs):
            late.append(host)
            continue
        needed = _ancestors(host, made_by)
        piece = [node for node in left if node in needed]
        if piece:
            yield piece
        for node in piece:
            del left[node]
        yield host
    if left:
        yield [*left]
    yield from late


def can_start(node: Node) -> bool:
    """Whether the host can start a node without waiting for it."""
    return node.op.communicates


def operator_name(node: Node) -> str:
    """The operator that the host runs for a node; of complex numbers its complex form."""
    return str(node.attrs["op"]) if node.op.name == "hosted" else node.op.name


def started(parts: Sequence[Segment]) -> set[Node]:
    """Nodes of the host that can overlap with a compiled part, because it does not read their results."""
    found, waiting = set(), set[Node]()
    for part in parts:
        waiting = {n for n in waiting if not {*n.outputs} & {*part.reads}}
        if isinstance(part.work, Graph):
            found |= waiting
        elif can_start(part.work):
            waiting.add(part.work)
    return found


def _ancestors(host: Node, made_by: Mapping[Value, Node]) -> set[Node]:
    """The nodes of a stage that an external node needs."""
    found: set[Node] = set()
    stack = [made_by[v] for v in host.inputs if v in made_by]
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(made_by[v] for v in node.inputs if v in made_by)
    return found


def _with_reads(graph: Graph, pieces: Sequence[tuple[int, list[Node] | Node]]) -> list[Segment]:
    """Parts of ``pieces``, built backwards, as each needs to know which of its results later ones read."""
    needed = {o.value for o in graph.outputs}
    found: list[Segment] = []
    for at, piece in reversed(pieces):
        if isinstance(piece, Node):
            found.append(Segment(piece, piece.inputs, piece.outputs))
        else:
            found.append(_native(graph, piece, needed, at))
        needed |= {*found[-1].reads}
    return found[::-1]


def _native(graph: Graph, nodes: Sequence[Node], needed: set[Value], number: int) -> Segment:
    """The graph of ``nodes``, with the results that are ``needed`` elsewhere as outputs."""
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
    # Values used only inside the part need no memory between parts.
    writes = [v for node in nodes for v in node.outputs if v in needed]
    for value in writes:
        part.add_output(known[value])
    return Segment(part, tuple(reads), tuple(writes))


def _read(nodes: Sequence[Node], inside: set[Value]) -> Iterator[Value]:
    yield from dict.fromkeys(v for node in nodes for v in node.inputs if v not in inside)

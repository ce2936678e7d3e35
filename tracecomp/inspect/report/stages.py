"""The graph after every step, as tables: nodes that steps leave unchanged, and the place of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tracecomp.inspect.report.layers import Box, boxes
from tracecomp.ir.graph import Graph, Node, Origin
from tracecomp.ir.printer import attrs_text, is_literal
from tracecomp.ir.program import CallStep, Program, Step, WhenStep, call_steps
from tracecomp.passes.program.frame import ControlTask, Frame, Task

PHASES = ("forward", "backward", "update")
COPIES = ("copies of results",)
"""Scope of kernels that compute no node: they copy results and state."""


class Texts:
    """Repeated texts, by number."""

    def __init__(self) -> None:
        self.list: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        if text not in self._numbers:
            self._numbers[text] = len(self.list)
            self.list.append(text)
        return self._numbers[text]


class Nodes:
    """Every node of every step once: an entry in several steps is unchanged by them.

    A node matches the node of the previous step with the same operator, type, attributes, line and scope, in order.
    Changes of its neighbours do not matter.
    """

    def __init__(self, texts: Texts) -> None:
        self.texts = texts
        self.rows: list[list[int]] = []
        self._before: dict[tuple[int, ...], list[int]] = {}

    def of(self, graph: Graph) -> dict[Node, int]:
        """The numbers of a graph's nodes, which come after those of the previous step; literals have none."""
        seen: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
        found: dict[Node, int] = {}
        for node in graph.live_nodes():
            if is_literal(node):
                continue
            row = self._row(node, graph.origin.get(node, Origin()))
            same = self._before.get(row, ())
            place = len(seen[row])
            if place < len(same):
                number = same[place]
            else:
                number = len(self.rows)
                self.rows.append(list(row))
            seen[row].append(number)
            found[node] = number
        self._before = dict(seen)
        return found

    def _row(self, node: Node, origin: Origin) -> tuple[int, ...]:
        number = self.texts.number
        types = ", ".join(str(v.type) for v in node.outputs)
        source = str(origin.source) if origin.source else ""
        nbytes = sum(v.type.nbytes for v in node.outputs)
        scope = "/".join(origin.scope)
        return (*map(number, (node.op.name, types, attrs_text(node.attrs), scope, source)), nbytes)


def stage_table(graph: Graph, numbers: Mapping[Node, int]) -> dict[str, Any]:
    """One step: numbers of its nodes, the operands of each (by position), and their boxes."""
    nodes = list(numbers)
    place = {node: n for n, node in enumerate(nodes)}
    inputs = [sorted({place[v.node] for v in node.inputs if v.node in place}) for node in nodes]
    paths = scope_paths(graph, nodes, inputs)
    return {"ids": [numbers[n] for n in nodes], "inputs": inputs, "boxes": _boxes(boxes(inputs, paths))}


def scope_paths(graph: Graph, nodes: Sequence[Node], inputs: Sequence[Sequence[int]]) -> list[tuple[str, ...]]:
    """Phase and scopes of each node. A node that depends on a backward pass without being part of it, such as an
    optimizer's, is an update."""
    scopes = [graph.origin.get(node, Origin()).scope for node in nodes]
    if not any("backward" in scope for scope in scopes):
        return list(scopes)
    after = [False] * len(nodes)
    for n, read in enumerate(inputs):
        after[n] = "backward" in scopes[n] or any(after[m] for m in read)
    # A scope with nodes after the backward pass is the update, including its nodes before it.
    updating = {s[0] for s, late in zip(scopes, after, strict=True) if late and s and "backward" not in s}
    found = []
    for scope, late in zip(scopes, after, strict=True):
        is_update = (late and "backward" not in scope) or (scope and scope[0] in updating and len(scope) == 1)
        phase = PHASES[1] if "backward" in scope else PHASES[2] if is_update else PHASES[0]
        found.append((phase, *(s for s in scope if s != "backward")))
    return found


def kernel_table(frame: Frame, program: Program, paths: Mapping[Node, tuple[str, ...]]) -> dict[str, Any]:
    """The kernel calls as a graph: a call reads results of earlier ones. A control operator is one node."""
    tasks = [*frame.prepacking, *frame.tasks]
    writer: dict[Any, int] = {}
    inputs: list[list[int]] = []
    for n, task in enumerate(tasks):
        written = set(_written(task))
        inputs.append(sorted({writer[v] for v in task.values if v in writer}))
        writer.update(dict.fromkeys(written, n))
    where = [next((paths[x] for x in _nodes(t) if x in paths), COPIES if not _nodes(t) else ()) for t in tasks]
    calls = _calls_of(tasks, program)
    names = [_name(t, program, c) for t, c in zip(tasks, calls, strict=True)]
    phases = [path[0] if path and path[0] in PHASES else "" for path in where]
    return {"names": names, "calls": calls, "inputs": inputs, "phases": phases, "boxes": _boxes(boxes(inputs, where))}


def _calls_of(tasks: Sequence[Task | ControlTask], program: Program) -> list[list[int]]:
    """The numbers of the calls that each task became."""
    steps: list[Step] = []
    for step in program.steps:
        first = isinstance(step, WhenStep) and step.condition.slot is program.prepared
        steps.extend(step.otherwise if isinstance(step, WhenStep) and first else [step])
    found: list[list[int]] = []
    at, number = 0, 0
    for task in tasks:
        own: list[Step] = []
        while not own or (isinstance(task, ControlTask) and isinstance(own[-1], CallStep)):
            own.append(steps[at])
            at += 1
        count = len(list(call_steps(tuple(own))))
        found.append(list(range(number, number + count)))
        number += count
    return found


def _nodes(task: Task | ControlTask) -> tuple[Node, ...]:
    return (task.node,) if isinstance(task, ControlTask) else task.nodes


def _name(task: Task | ControlTask, program: Program, calls: Sequence[int]) -> str:
    steps = list(call_steps(program.steps))
    return task.node.op.name if isinstance(task, ControlTask) else steps[calls[0]].kernel.name


def _written(task: Task | ControlTask) -> Iterator[Any]:
    if isinstance(task, ControlTask):
        yield from task.node.outputs
    else:
        for p, v in zip(task.kernel.params, task.values, strict=True):
            if p.name in task.kernel.writes:
                yield v


def _boxes(found: Sequence[Box]) -> list[Any]:
    return [[box.name, box.rows] for box in found]

"""Frames as text: the graph in its language, then the plan of each frame, the outermost first, then bodies.

``parse_frame`` reads back the plan up to the output buffers; later parts are printed for people only::

    plan main aliases: 0=2 frozen: %w kernel 0: loops over 64 x 100 reduced in 64 lanes -> %6: %0 per row, %2, %3, %4
      per row, %6 row fusion: kernels 0 to 1, 1 x 64 rows by 16, keeping %3, but outputs of 1 concat in place: %3 in %6
      at 16/64+0 rematerialized: %8 materialized views: %9
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from tracecomp.ir.graph import Node, Value
from tracecomp.ir.loop_printer import print_kernel
from tracecomp.ir.parser import parse_graph
from tracecomp.ir.printer import print_graph, value_names
from tracecomp.passes.cost.machine import Machine
from tracecomp.passes.fusion.groups import BufferSlice, Domain, Group, Partition, RowFusion
from tracecomp.passes.program.frame import ControlTask, Frame, Task, frame_of


def print_frame(frame: Frame) -> str:
    """The text of a frame and of the frames inside it."""
    lines = [print_graph(frame.graph, comments=True)]
    for path, inner in _frames("main", frame):
        lines += [f"plan {path}", *(f"  {line}" for line in _Writer(inner).lines())]
    return "\n".join(lines) + "\n"


def _frames(path: str, frame: Frame) -> Iterator[tuple[str, Frame]]:
    """The frame and those inside it, each with its path: the control nodes and the numbers of bodies."""
    yield path, frame
    names = value_names(frame.graph)
    for node, bodies in frame.bodies.items():
        for number, body in enumerate(bodies):
            yield from _frames(f"{path} {names[node.outputs[0]]}/{number}", body)


class _Writer:
    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.partition = frame.partition
        self.names = value_names(frame.graph)
        self.number = {g: n for n, g in enumerate(frame.partition.groups)}

    def of(self, values: Iterable[Value]) -> str:
        return ", ".join(self.names.get(v, "a copy") for v in values)

    def lines(self) -> Iterator[str]:
        """The plan, without its header."""
        frame, partition = self.frame, self.partition
        if frame.aliases:
            yield "aliases: " + ", ".join(f"{o}={i}" for o, i in frame.aliases.items())
        if frame.frozen:
            yield f"frozen: {self.of(v for v in self.names if v in frame.frozen)}"
        for group, number in self.number.items():
            yield f"kernel {number}: {self.group(group)}"
        for fused in partition.row_fusions:
            yield f"row fusion: {self.row_fusion(fused)}"
        for value, place in partition.slices.items():
            steps = " then ".join(f"{run}/{apart}+{first}" for run, apart, first in place.steps)
            yield f"concat in place: {self.names[value]} in {self.names[place.whole]} at {steps}"
        again, views = partition.rematerialized, partition.materialized_views
        for word, nodes in (("rematerialized", again), ("materialized views", views)):
            if nodes:
                yield f"{word}: {self.of(n.outputs[0] for n in partition.order if n in nodes)}"
        yield from self.comments()

    def group(self, group: Group) -> str:
        domain = group.domain
        space = " x ".join(f"{n}{' reduced' if red else ''}" for n, red in domain.runs) or "one element"
        lanes = f" in {domain.lanes} lanes" if domain.lanes > 1 else ""
        nodes = ", ".join(self.names[n.outputs[0]] + (" per row" if n in group.per_row else "") for n in group.nodes)
        return f"{group.kind} over {space}{lanes} -> {self.of(self.partition.stored[group])}: {nodes}"

    def row_fusion(self, fused: RowFusion) -> str:
        first, count = self.number[fused.groups[0]], len(fused.groups)
        others = " ".join(str(self.number[g]) for g in fused.groups if g in fused.non_row_outputs)
        by_rows = f", but outputs of {others}" if others else ""
        rows = f"{fused.outer} x {fused.count} rows by {fused.height}"
        return f"kernels {first} to {first + count - 1}, {rows}, keeping {self.of(fused.block_values)}{by_rows}"

    def comments(self) -> Iterator[str]:
        """The parts of the text that ``parse_frame`` ignores."""
        for d in self.partition.decisions:
            if not d.fused:
                first, second = self.names[d.producer.outputs[0]], self.names[d.consumer.outputs[0]]
                yield f"# not fused: {first} into {second}, {d.reason}"
        for value, position in self.frame.outputs.home.items():
            over = self.frame.outputs.same.get(value)
            yield f"# output {position}: {self.of([value])}" + (f" over {self.of([over])}" if over else "")
        for word, tasks in (("prepacking", self.frame.prepacking), ("call", self.frame.tasks)):
            for task in tasks:
                yield from (f"# {line}" for line in self.task(word, task))
        for value, offset in self.frame.offsets.items():
            yield f"# at {offset}: {self.names.get(value, 'scratch memory')}"

    def task(self, word: str, task: Task | ControlTask) -> list[str]:
        if isinstance(task, ControlTask):
            return [f"{word} {task.node.op.name} {self.of(task.node.outputs)}"]
        return [f"{word} on {self.of(task.values)}", *print_kernel(task.kernel).splitlines()]


# ---- parsing

_KERNEL = re.compile(r"(\w+) over (.*?)(?: in (\d+) lanes)? -> (.*?): (.*)")
_ROW_FUSION = re.compile(
    r"kernels (\d+) to (\d+), (\d+) x (\d+) rows by (\d+), keeping (.*?)(?:, but outputs of ([\d ]+))?"
)
_STEP = re.compile(r"(\d+)/(\d+)\+(\d+)")


def parse_frame(text: str, machine: Machine) -> Frame:
    """Return the frame that ``text`` describes, up to its output buffers; ValueError names the first invalid line."""
    # Bodies are found by their path, as graphs inside nodes have no names.
    graph_text, *plans = re.split(r"^plan ", text, flags=re.MULTILINE)
    graph = parse_graph(graph_text)
    found = {plan.splitlines()[0].strip(): plan.splitlines()[1:] for plan in plans}
    return _planned("main", frame_of(graph, {}, machine, frozenset()), found)


def _planned(path: str, frame: Frame, plans: Mapping[str, list[str]]) -> Frame:
    names = value_names(frame.graph)
    bodies = {
        node: tuple(_planned(f"{path} {names[node.outputs[0]]}/{n}", body, plans) for n, body in enumerate(inner))
        for node, inner in frame.bodies.items()
    }
    return _Reader(replace(frame, bodies=bodies)).frame(plans.get(path, []))


class _Reader:
    def __init__(self, frame: Frame) -> None:
        self.start = frame
        self.values = {name: value for value, name in value_names(frame.graph).items()}
        self.partition = Partition(order={n: k for k, n in enumerate(frame.graph.live_nodes())})

    def frame(self, lines: Iterable[str]) -> Frame:
        """The frame with the plan in ``lines``."""
        frame = self.start
        for line in lines:
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            # The first word decides the kind of a line; comments begin with ``#``.
            word, _, rest = line.strip().partition(": ")
            try:
                if word == "aliases":
                    frame = replace(frame, aliases={int(o): int(i) for o, _, i in _pairs(rest)})
                elif word == "frozen":
                    frame = replace(frame, frozen=frozenset(self.all(rest)))
                else:
                    self.line(word, rest)
            # Any error becomes one that names the line.
            except (KeyError, AttributeError, IndexError) as error:
                raise ValueError(f"not a line of a plan: {line.strip()!r}") from error
        return replace(frame, partition=self.partition)

    def line(self, word: str, rest: str) -> None:
        partition = self.partition
        if word.startswith("kernel "):
            self.kernel(rest)
        elif word == "row fusion":
            partition.row_fusions.append(self.row_fusion(rest))
        elif word == "concat in place":
            part, whole, steps = re.split(" in | at ", rest)
            found = tuple((int(a), int(b), int(c)) for a, b, c in _STEP.findall(steps))
            partition.slices[self.values[part]] = BufferSlice(self.values[whole], found)
        elif word == "rematerialized":
            partition.rematerialized.update(map(_node, self.all(rest)))
        elif word == "materialized views":
            partition.materialized_views = frozenset(map(_node, self.all(rest)))
        else:
            raise KeyError(word)

    def kernel(self, text: str) -> None:
        kind, space, lanes, stored, nodes = _match(_KERNEL, text)
        runs = [part.split() for part in space.split(" x ")] if space != "one element" else []
        domain = Domain(tuple((int(n), bool(red)) for n, *red in runs), int(lanes or 1))
        names = nodes.split(", ")
        rows = {_node(self.values[n.removesuffix(" per row")]) for n in names if n.endswith(" per row")}
        members = [_node(self.values[n.removesuffix(" per row")]) for n in names]
        group = Group(len(self.partition.groups), kind, members, domain, rows)
        self.partition.groups.append(group)
        self.partition.stored[group] = self.all(stored)

    def row_fusion(self, text: str) -> RowFusion:
        first, last, outer, count, height, kept, others = _match(_ROW_FUSION, text)
        groups = self.partition.groups
        apart = frozenset(groups[int(n)] for n in (others or "").split())
        members = tuple(groups[int(first) : int(last) + 1])
        return RowFusion(members, int(outer), int(count), int(height), tuple(self.all(kept)), apart)

    def all(self, names: str) -> list[Value]:
        return [self.values[name] for name in names.split(", ")]


def _pairs(text: str) -> Iterator[tuple[str, str, str]]:
    return (part.partition("=") for part in text.split(", "))


def _match(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    found = pattern.fullmatch(text)
    if found is None:
        raise KeyError(text)
    return found.groups()


def _node(value: Value) -> Node:
    assert value.node is not None
    return value.node

"""The state that lowering steps pass on: a graph, and the plan of its program so far.

A graph and the bodies of its control operators are *frames*. Each frame is planned separately: its kernels, and the
places of its temporary values in a block of memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tracecomp.ir.graph import Graph, Node, Value
from tracecomp.ir.program import Kernel, Program
from tracecomp.ir.types import TensorType, bool_
from tracecomp.passes.cost.machine import Machine
from tracecomp.passes.fusion.groups import Partition
from tracecomp.passes.nests.store import Nests
from tracecomp.passes.program.output_buffers import OutputBuffers
from tracecomp.passes.schedule.records import Given
from tracecomp.passes.steps import Log, Run

FLAG_BYTES = 64
"""Bytes of a loop's condition at the start of its block: one cache line, so that the next value starts at a line."""


@dataclass
class Task:
    """One kernel call before memory is planned: the values of its parameters, in order."""

    kernel: Kernel
    values: tuple[Value, ...]
    nodes: tuple[Node, ...] = ()


@dataclass
class ControlTask:
    """A control node, whose bodies are frames; ``block`` is the memory for their values."""

    node: Node
    block: Value
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Frame:
    """A graph on its way to a program. Each lowering step fills in some of the fields.

    ``aliases[o] = i`` promises that output ``o`` is the memory of input ``i``. ``frozen`` are values that are the same
    in many calls. ``given`` are schedules written by hand. ``bodies`` are the frames of control nodes; ``within``: this
    frame is a body, whose results the outer frame reads. ``nests`` has the loop nests built so far.

    ``partition`` (fusion, implicit padding, concat in place, row fusion): which nodes are one kernel, and which values
    each stores. ``outputs`` (output buffers): which results are written in place. ``tasks`` (kernels): kernel calls in
    order. ``prepacking``: the kernel calls that run first unless an earlier call of the program has left their results,
    and ``flag``, the memory that records this. ``offsets`` and ``nbytes`` (arena): places of temporary values in the
    frame's block. ``program`` and the arrays it takes after the graph's own inputs, ``constants`` (program).
    """

    graph: Graph
    aliases: Mapping[int, int]
    machine: Machine
    frozen: Set[Value] = frozenset()
    given: Given = field(default_factory=dict)
    bodies: Mapping[Node, tuple[Frame, ...]] = field(default_factory=dict)
    within: bool = False
    nests: Nests = field(default_factory=Nests)
    partition: Partition = field(default_factory=Partition)
    outputs: OutputBuffers = field(default_factory=OutputBuffers)
    tasks: tuple[Task | ControlTask, ...] = ()
    prepacking: tuple[Task, ...] = ()
    flag: Value = field(default_factory=lambda: Value(None, -1, TensorType(bool_, ())))
    offsets: Mapping[Value, int] = field(default_factory=dict)
    nbytes: int = 0
    program: Program | None = None
    constants: tuple[np.ndarray[Any, Any], ...] = ()

    @property
    def overwritten(self) -> frozenset[Value]:
        """The inputs whose memory is reused for outputs."""
        return frozenset(self.graph.inputs[i].value for i in self.aliases.values())


def frame_of(
    graph: Graph, aliases: Mapping[int, int], machine: Machine, frozen: Set[Value], given: Given | None = None
) -> Frame:
    """The frame of a program's graph, before any step."""
    return Frame(graph, aliases, machine, frozen, given or {}, _bodies(graph, machine, given or {}))


def _bodies(graph: Graph, machine: Machine, given: Given) -> dict[Node, tuple[Frame, ...]]:
    """The frames of every control node. The first results of a body replace its first inputs, which are carried."""
    found = {}
    for node in graph.live_nodes():
        attrs = node.attrs
        if node.op.kind != "control":
            continue
        if node.op.name == "cond":
            bodies = [(attrs["then"], 0), (attrs["orelse"], 0)]
        elif node.op.name == "while_loop":
            bodies = [(attrs["test"], 0), (attrs["body"], attrs["carries"])]
        else:
            bodies = [(attrs["body"], attrs["carries"])]
        found[node] = tuple(
            Frame(
                # In a body with carries the first results take the memory of the first inputs.
                body,
                {n: n for n in range(carries)},
                machine,
                given=given,
                bodies=_bodies(body, machine, given),
                within=True,
            )
            for body, carries in bodies
        )
    return found


def everywhere(step: Run[Frame]) -> Run[Frame]:
    """The step on a frame and on all frames inside it, innermost first: a frame's block contains those of its
    bodies."""

    def run(frame: Frame, log: Log) -> Frame:
        # Innermost first: a frame's block contains those of its bodies, so their sizes have to be known.
        bodies = {node: tuple(run(f, log) for f in frames) for node, frames in frame.bodies.items()}
        before = frame.nests.seconds
        result = step(replace(frame, bodies=bodies), log)
        if frame.nests.seconds > before:
            log.seconds["nests"] = log.seconds.get("nests", 0.0) + frame.nests.seconds - before
        return result

    return run

"""From a recorded graph to a program of loop kernels. ``build`` runs everything."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from tracecomp.base.dump import Dump
from tracecomp.ir.graph import Graph
from tracecomp.ir.program import Program
from tracecomp.passes import pipeline
from tracecomp.passes.cost.machine import Machine
from tracecomp.passes.pipeline import Lowered, lower
from tracecomp.passes.steps import Stage


@dataclass(frozen=True)
class Built:
    """A program, and what was known after every step on the way to it."""

    stages: list[Stage[Graph]]
    lowered: Lowered

    @property
    def graph(self) -> Graph:
        """The graph that was lowered."""
        return self.stages[-1].state

    @property
    def program(self) -> Program:
        return self.lowered.program

    @property
    def constants(self) -> list[Any]:
        """Arrays to pass after the graph's own inputs (constants of control bodies)."""
        return self.lowered.constants


def build(
    graph: Graph,
    aliases: Mapping[int, int] | None = None,
    dump: Dump | None = None,
    frozen: Set[int] = frozenset(),
    machine: Machine | None = None,
) -> Built:
    """The program of a recorded graph; ``aliases``, ``frozen`` and ``machine`` as in ``pipeline.lower``.

    Inputs and outputs keep their positions.
    """
    dump = dump or Dump(graph.name)
    stages = pipeline.run(graph, dump)
    return Built(stages, lower(stages[-1].state, aliases, machine, frozen, dump))


__all__ = ["Built", "Lowered", "build", "lower"]

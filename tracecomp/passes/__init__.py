"""From a recorded graph to a program of loop kernels. ``build`` runs everything."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

from tracecomp.base import config
from tracecomp.base.dump import Dump
from tracecomp.ir.graph import Graph
from tracecomp.ir.loop_printer import print_program
from tracecomp.ir.loop_verify import verify_program
from tracecomp.ir.program import Program
from tracecomp.passes import pipeline
from tracecomp.passes.explain import describe_partition
from tracecomp.passes.pipeline import Stage
from tracecomp.passes.program.lower import Lowered, lower


@dataclass
class Built:
    """A program, the graph after every pass, and how its nodes were grouped."""

    stages: list[Stage]
    lowered: Lowered

    @property
    def graph(self) -> Graph:
        """The graph that was lowered."""
        return self.stages[-1].graph

    @property
    def program(self) -> Program:
        return self.lowered.program

    @property
    def constants(self) -> list[Any]:
        """Arrays to pass after the graph's own inputs (constants of control bodies)."""
        return self.lowered.constants


def build(
    graph: Graph, aliases: Mapping[int, int] | None = None, dump: Dump | None = None, steady: Set[int] = frozenset()
) -> Built:
    """The program of a recorded graph; ``aliases`` and ``steady`` as in ``place.lower``.

    Inputs and outputs keep their positions.
    """
    dump = dump or Dump(graph.name)
    stages = pipeline.run(graph, dump)
    settings = config.current()
    lowered = lower(stages[-1].graph, aliases, settings.fusion, steady=steady)
    lowered = replace(lowered, program=replace(lowered.program, fast_math=settings.fast_math))
    if settings.verify:
        verify_program(lowered.program)
    dump.write("schedule", lambda: describe_partition(lowered.partition), "txt")
    dump.write("loops", lambda: print_program(lowered.program), "txt")
    return Built(stages, lowered)

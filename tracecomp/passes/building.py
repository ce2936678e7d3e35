"""Build a program of loop kernels from a recorded graph, in one call."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

from tracecomp.base.dump import Dump
from tracecomp.ir.graph import Graph
from tracecomp.ir.program import Kernel, Program, call_steps
from tracecomp.passes import pipeline
from tracecomp.passes.cost.machine import Machine
from tracecomp.passes.pipeline import Lowered, lower
from tracecomp.passes.schedule.records import Given, ScheduleError, Written, parse_records
from tracecomp.passes.steps import Stage


@dataclass(frozen=True)
class Built:
    """A program, and the state after every step that led to it."""

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
    schedules: Mapping[str, str] | None = None,
) -> Built:
    """Build the program of a recorded graph; ``aliases``, ``frozen`` and ``machine`` as in ``pipeline.lower``.

    Inputs and outputs keep their positions. ``schedules`` maps kernel names (``k3``, or in full) to texts that describe
    how their loops run (``passes/schedule/records.py``); ScheduleError for one that cannot be used.
    """
    dump = dump or Dump(graph.name)
    stages = pipeline.run(graph, dump)
    # The executed program has the chosen schedules; user schedules lower it a second time.
    chosen = lower(stages[-1].state, aliases, machine, frozen, dump)
    dump.write_arrays("constants.npz", lambda: _constants(stages[-1].state, chosen))
    if not schedules:
        return Built(stages, chosen)
    given = handed_in(chosen.program, schedules)
    return Built(stages, lower(stages[-1].state, aliases, machine, frozen, dump, given))


def _constants(graph: Graph, lowered: Lowered) -> dict[str, Any]:
    """The inputs of the program that callers do not pass, by position. Without them its text cannot be run."""
    own = {str(n): i.data for n, i in enumerate(graph.inputs) if i.role == "constant"}
    return own | {str(n): array for n, array in enumerate(lowered.constants, len(graph.inputs))}


def handed_in(program: Program, schedules: Mapping[str, str]) -> Given:
    """Key the schedule texts by the kernels that they name. ScheduleError if the program has no such kernel."""
    kernels = {step.kernel.name: step.kernel for step in call_steps(program.steps)}
    given: dict[Kernel, list[Written]] = {}
    for name, text in schedules.items():
        # By number (``k3``) or by full name.
        found = [k for full, k in kernels.items() if name in (full, full.partition("_")[0])]
        if not found:
            raise ScheduleError(f"unknown kernel {name}; kernels are {', '.join(kernels)}")
        if not found[0].schedules:
            raise ScheduleError(f"{found[0].name} has no schedule, since its operator generates its loops")
        given[replace(found[0], name="")] = parse_records(text)
    return given


__all__ = ["Built", "Lowered", "build", "lower"]

"""Building one-operator graphs and running graphs natively."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.ops.samples import Case
from tracecomp.base import config
from tracecomp.ir.graph import Graph
from tracecomp.passes.building import Built, build
from tracecomp.passes.cost.machine import Machine, host, on
from tracecomp.runtime.executable import Executable


def graph_of(case: Case) -> Graph:
    """A graph that applies the case's operator to its operands."""
    graph = Graph(case.op.name)
    inputs = [graph.add_input(t, f"x{n}") for n, t in enumerate(case.types)]
    for value in graph.add(case.op, inputs, case.attrs):
        graph.add_output(value)
    return graph


SHARING = host().tuned(parallel_work=1, parallel_products=1)
"""This machine, if waking threads cost nothing: they share every loop that they can."""


def compile_graph(graph: Graph, fusion: bool = True, machine: Machine | None = None) -> tuple[Built, Executable]:
    with config.override(fusion=fusion, verify=True), on(machine or host()):
        built = build(graph)
    return built, Executable(built.program)


def run_native(
    graph: Graph, arrays: Sequence[Any], *, fusion: bool = True, threads: int = 1, machine: Machine | None = None
) -> list[Any]:
    """The outputs of a graph from machine code, scheduled for ``machine`` or this one."""
    built, executable = compile_graph(graph, fusion, machine)
    return run_built(built, executable, graph, arrays, threads)


def run_built(built: Built, executable: Executable, graph: Graph, arrays: Sequence[Any], threads: int = 1) -> list[Any]:
    given = iter([np.array(a, order="C") for a in arrays])
    inputs = [i.data if i.role == "constant" else next(given) for i in built.graph.inputs]
    outputs = [np.zeros(o.value.shape, o.value.dtype.numpy) for o in graph.outputs]
    executable.run([*map(np.ascontiguousarray, inputs), *built.constants], outputs, threads=threads)
    return outputs


def same_bits(a: Any, b: Any) -> bool:
    """Equal to the bit, any NaN equal to any other."""
    if a.dtype.kind == "c":
        return same_bits(a.real, b.real) and same_bits(a.imag, b.imag)
    if a.dtype.kind == "f":
        nan = np.isnan(a)
        return bool(np.array_equal(nan, np.isnan(b)) and a[~nan].tobytes() == b[~nan].tobytes())
    return a.tobytes() == b.tobytes()

"""Finding the node at which an evaluation of a graph goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracecomp.base import config
from tracecomp.compiled.differences import changed_in_the_last_place, difference
from tracecomp.ir.graph import Graph, Input, Node, Output, Value
from tracecomp.ir.interpret import interpret
from tracecomp.passes.graph.host_segments import has_external, segments
from tracecomp.passes.pipeline import LOWERING, PIPELINE, lower
from tracecomp.passes.steps import Log, Step
from tracecomp.record.backward.extract import extract, needed_nodes
from tracecomp.runtime.executable import Executable

Array = np.ndarray[Any, Any]
Evaluate = Callable[[Graph, list[Array]], list[Array]]


def run_native(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    """The outputs of ``graph``, lowered as it stands and compiled; linear algebra routines run on the host."""
    if not has_external(graph):
        return _run_compiled(graph, arrays)
    values = dict(zip((i.value for i in graph.inputs if i.role != "constant"), arrays, strict=True))
    values.update((i.value, i.data) for i in graph.inputs if i.role == "constant" and i.data is not None)
    for part in segments(graph):
        given = [values[v] for v in part.reads]
        if isinstance(part.work, Graph):
            found = _run_compiled(part.work, given)
        else:
            results = part.work.op.impl(*given, **part.work.attrs)
            found = [*map(np.asarray, results)] if isinstance(results, tuple) else [np.asarray(results)]
        values.update(zip(part.writes, found, strict=True))
    return [values[o.value] for o in graph.outputs]


def _run_compiled(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    lowered = lower(graph)
    given = iter(arrays)
    inputs = [i.data if i.data is not None and i.role == "constant" else next(given) for i in graph.inputs]
    outputs = [np.empty(o.value.shape, o.value.dtype.numpy) for o in graph.outputs]
    dense = [np.asarray(a, order="C") for a in (*inputs, *lowered.constants)]
    Executable(lowered.program).run(dense, outputs)
    return outputs


def after_pass(step: Step[Graph]) -> Evaluate:
    """Evaluation by the interpreter after one pass."""
    return lambda graph, arrays: interpret(step.run(graph, Log()), arrays)


def every_value(graph: Graph, arrays: Sequence[Array]) -> dict[Value, Array]:
    """All values of ``graph`` by the interpreter."""
    values = dict(zip((i.value for i in graph.inputs if i.role != "constant"), arrays, strict=True))

    def keep(node: Node, results: tuple[Array, ...]) -> None:
        values.update(zip(node.outputs, results, strict=True))

    interpret(graph, arrays, keep)
    return values


def first_bad_node(graph: Graph, arrays: list[Array], evaluate: Evaluate, tolerance: float | None) -> Node | None:
    """The first node, in order, with which the graph up to there goes wrong under ``evaluate``; None if none does.

    The graph is cut after a node, everything that the rest reads becomes an output, and the cut is moved by bisection.
    """
    nodes = list(graph.live_nodes())
    values, moved = every_value(graph, arrays), every_value(graph, changed_in_the_last_place(arrays))

    def is_bad(count: int) -> bool:
        part = _up_to(graph, nodes, count)
        given = [values[i.value] for i in graph.inputs if i.role != "constant"]
        found = evaluate(part, given)
        wanted = _frontier(graph, nodes, count)
        return any(
            not difference(have, values[v], moved[v]).agrees(tolerance) for have, v in zip(found, wanted, strict=True)
        )

    low, high = 0, len(nodes)
    if not nodes or not is_bad(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_bad(middle) else (middle, high)
    return nodes[high - 1]


def first_bad_step(
    graph: Graph, arrays: list[Array], wanted: Sequence[Array], moved: Sequence[Array], tolerance: float | None
) -> str:
    """The lowering step with which ``graph`` goes wrong: without it and those after it, the outputs are ``wanted``.

    Steps that are needed always run; if these alone go wrong, it is one of them.
    """
    for count in range(len(LOWERING) + 1):
        with config.override(stop_after=len(PIPELINE) + count):
            found = run_native(graph, arrays)
        if not all(difference(f, w, m).agrees(tolerance) for f, w, m in zip(found, wanted, moved, strict=True)):
            return LOWERING[count - 1].name if count else next(s.name for s in LOWERING if s.needed)
    return ""


def _frontier(graph: Graph, nodes: list[Node], count: int) -> list[Value]:
    """The values of the first ``count`` nodes that later nodes read or that are outputs."""
    later = {v for n in nodes[count:] for v in n.inputs} | {o.value for o in graph.outputs}
    return [v for n in nodes[:count] for v in n.outputs if v in later]


def _up_to(graph: Graph, nodes: list[Node], count: int) -> Graph:
    outputs = [Output(v, f"v{k}", "result") for k, v in enumerate(_frontier(graph, nodes, count))]
    open_inputs = [i for i in graph.inputs if i.role != "constant"]
    return extract(graph.name, graph, open_inputs, outputs)


def part_of(graph: Graph, name: str, wanted: Sequence[Value], cut: set[Value]) -> tuple[Graph, list[Value]]:
    """The graph that computes ``wanted`` from the values in ``cut``, and its inputs as values of ``graph``."""
    inner = cut - set(wanted)
    constants = {i.value for i in graph.inputs if i.role == "constant"}
    nodes = needed_nodes(list(wanted), inner)
    reads = dict.fromkeys(v for n in graph.nodes if n in nodes for v in n.inputs)
    given = [v for v in reads if v not in constants and (v.node is None or v in inner)]
    inputs = [Input(v, f"x{k}", "argument") for k, v in enumerate(given)]
    outputs = [Output(v, f"y{k}", "result") for k, v in enumerate(wanted)]
    return extract(name, graph, inputs, outputs), given

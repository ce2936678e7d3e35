"""Finding the node at which an evaluation of a graph goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import numpy as np

import tracecomp.passes as passes
from tracecomp.base import config
from tracecomp.compiled.differences import changed_in_the_last_place, difference
from tracecomp.eager.evaluate import by_host
from tracecomp.ir.arrays import in_parts, same_bits
from tracecomp.ir.graph import Graph, Input, Node, Output, Value
from tracecomp.ir.interpret import interpret
from tracecomp.ir.loop_interp import interpret_program
from tracecomp.passes.graph.complex_to_real import split_complex
from tracecomp.passes.graph.host_segments import has_external, segments
from tracecomp.passes.steps import Log, Step
from tracecomp.record.backward.extract import extract, needed_nodes
from tracecomp.runtime.executable import Executable

Array = np.ndarray[Any, Any]
Evaluate = Callable[[Graph, list[Array]], list[Array]]


def run_native(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    """The outputs of ``graph``, lowered without graph passes and compiled; linear algebra routines run on the host."""
    if not has_external(graph):
        return NativeProgram(graph).run(arrays)
    values = dict(zip((i.value for i in graph.inputs if i.role != "constant"), arrays, strict=True))
    values.update((i.value, i.data) for i in graph.inputs if i.role == "constant" and i.data is not None)
    for part in segments(graph):
        given = [values[v] for v in part.reads]
        if isinstance(part.work, Graph):
            found = NativeProgram(part.work).run(given)
        else:
            results = by_host(part.work.op, given, part.work.attrs)
            found = [*map(np.asarray, results)] if isinstance(results, tuple) else [np.asarray(results)]
        values.update(zip(part.writes, found, strict=True))
    return [values[o.value] for o in graph.outputs]


class NativeProgram:
    """An optimised graph as machine code; ``aliases`` and ``steady`` as in ``building.build``.

    Outputs that are written over inputs are given the memory of a copy of the input.
    """

    def __init__(self, graph: Graph, aliases: Mapping[int, int] | None = None, steady: Set[int] = frozenset()) -> None:
        self.graph = graph
        self.aliases = dict(aliases or {})
        self.lowered = passes.lower(graph, self.aliases, frozen=steady)
        self.executable = Executable(self.lowered.program)

    def memory(self, arrays: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        """The memory of the program: inputs, including constants, and outputs."""
        given = iter(arrays)
        inputs = [i.data if i.role == "constant" else next(given) for i in self.graph.inputs]
        written = set(self.aliases.values())
        dense = [np.array(a, order="C") if n in written else np.asarray(a, order="C") for n, a in enumerate(inputs)]
        outputs = [
            dense[self.aliases[n]] if n in self.aliases else np.empty(o.value.shape, o.value.dtype.numpy)
            for n, o in enumerate(self.graph.outputs)
        ]
        return [*dense, *(np.asarray(c, order="C") for c in self.lowered.constants)], outputs

    def run(self, arrays: Sequence[Array], threads: int | None = None, seen: object = None) -> list[Array]:
        """The outputs, in new memory."""
        inputs, outputs = self.memory(arrays)
        self.executable.run(inputs, outputs, threads, seen)
        return outputs

    def interpret_loops(self, arrays: Sequence[Array]) -> list[Array]:
        """The outputs, by the interpreter of loop programs."""
        inputs, outputs = self.memory(arrays)
        interpret_program(self.lowered.program, inputs, outputs)
        return outputs


def after_pass(step: Step[Graph]) -> Evaluate:
    """Evaluation by the interpreter after one pass."""
    return lambda graph, arrays: interpret(step.run(graph, Log()), arrays)


def after_split(graph: Graph, arrays: list[Array]) -> list[Array]:
    """Evaluation by the interpreter of a graph of complex numbers as one of pairs; results are pairs."""
    return interpret(split_complex(graph, Log()), [*map(in_parts, arrays)])


def every_value(graph: Graph, arrays: Sequence[Array]) -> dict[Value, Array]:
    """All values of ``graph`` by the interpreter."""
    values = dict(zip((i.value for i in graph.inputs if i.role != "constant"), arrays, strict=True))

    def keep(node: Node, results: tuple[Array, ...]) -> None:
        values.update(zip(node.outputs, results, strict=True))

    interpret(graph, arrays, keep)
    return values


def first_bad_node(
    graph: Graph, arrays: list[Array], evaluate: Evaluate, tolerance: float | None, exact: Evaluate | None = None,
    zeros: bool = False,
) -> Node | None:  # fmt: skip
    """The first node, in order, whose prefix of the graph is wrong under ``evaluate``; None if none is.

    The graph is cut after a node, everything that the rest reads becomes an output, and the cut is moved by bisection.
    With ``exact``, a value is wrong if its bits differ from those of ``exact``; else, if its distance from the
    interpreter's exceeds ``tolerance``. Complex values may be given as pairs. With ``zeros``, the sign of a zero
    counts, by which a later node may divide.
    """
    nodes = list(graph.live_nodes())
    values, moved = every_value(graph, arrays), every_value(graph, changed_in_the_last_place(arrays))
    given = [values[i.value] for i in graph.inputs if i.role != "constant"]

    def is_bad(count: int) -> bool:
        part = _up_to(graph, nodes, count)
        try:
            found = evaluate(part, given)
        except Exception:  # any exception counts as wrong
            return True
        if exact is not None:
            return not all(map(same_bits, found, exact(part, given)))
        wanted = _frontier(graph, nodes, count)
        return any(
            not difference(have, in_parts(values[v]), in_parts(moved[v])).agrees(tolerance)
            or (zeros and _other_zeros(have, in_parts(values[v])))
            for have, v in zip(found, wanted, strict=True)
        )

    low, high = 0, len(nodes)
    if not nodes or not is_bad(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_bad(middle) else (middle, high)
    return nodes[high - 1]


def _other_zeros(a: Array, b: Array) -> bool:
    """Whether some zero has another sign."""
    return a.dtype.kind == "f" and bool(((a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))).any())


def first_bad_step(run: Callable[[], bool]) -> str:
    """The lowering step from which on ``run`` says that the program is wrong, which it compiles with fewer steps.

    Steps that are needed always run; if these alone go wrong, it is one of them.
    """
    for count in range(len(passes.LOWERING) + 1):
        with config.override(stop_after=len(passes.PIPELINE) + count):
            wrong = run()
        if wrong:
            return passes.LOWERING[count - 1].name if count else ""
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

"""Recording of every graph that calls of a program run, with its arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tracecomp.base import config
from tracecomp.compiled.backends import Hosted, Interpreted
from tracecomp.compiled.budget import Unlimited
from tracecomp.compiled.function import Compiled
from tracecomp.compiled.graph_bisection import NativeProgram, run_native
from tracecomp.eager.evaluate import INEXACT, evaluate
from tracecomp.ir.arrays import in_parts
from tracecomp.ir.graph import Graph, Node
from tracecomp.ir.interpret import Interpreter
from tracecomp.passes.graph.host_segments import has_external
from tracecomp.passes.pipeline import PIPELINE

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class GraphRun:
    """A graph, the arguments of its compilation (``building.build``), and the arrays of the first call that ran it."""

    graph: Graph
    aliases: Mapping[int, int]
    steady: Set[int]
    arrays: list[Array]

    @property
    def is_backward(self) -> bool:
        return self.graph.name.endswith("_backward")


def run_as_calls_do(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    """The outputs of ``graph`` as machine code; with parts for the host, as compiled calls run it: the way in which
    they hand results on may be wrong."""
    if not has_external(graph):
        return run_native(graph, arrays)
    outputs = [np.empty(o.value.shape, o.value.dtype.numpy) for o in graph.outputs]
    Hosted(graph, {}, None, frozenset()).run(arrays, outputs)
    return outputs


def run_eagerly(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    """The outputs of ``graph``, complex ones as pairs, whose operators run one by one as in eager mode: compiled code
    has the same bits."""
    with config.override(eager="native"):
        return [*map(in_parts, Interpreter(graph).run(arrays, evaluate=evaluate))]


def run_unfused(graph: Graph, arrays: Sequence[Array], steady: Set[int] = frozenset()) -> list[Array]:
    """The outputs of the program built with the required lowering steps only.

    ``steady`` as in the reference program: frozen transformed weights may decide the order of a sum.
    """
    with config.override(stop_after=len(PIPELINE)):
        return NativeProgram(graph, steady=steady).run(arrays, 1)


_BITS = frozenset(("view", "creation", "gather", "pad", "concat", "random"))
"""Kinds of operators without rounding."""


def rounds_alike(node: Node) -> bool:
    """Whether numpy and machine code give the same bits: operators that round at most once."""
    return node.op.kind in _BITS or (node.op.kind == "elementwise" and node.op.name not in INEXACT)


class _Noting(Interpreted):
    """The interpreter, with a log of its inputs."""

    def __init__(
        self, runs: list[GraphRun], graph: Graph, aliases: Mapping[int, int], threads: int | None, steady: Set[int]
    ) -> None:
        super().__init__(graph, aliases, threads, steady)
        self.runs, self.aliases, self.steady = runs, aliases, steady
        self.noted = False

    def run(self, arrays: Sequence[Array], outputs: Sequence[Array], seen: object = None) -> None:
        """Compute ``outputs`` from ``arrays``."""
        if not self.noted:
            self.noted = True
            self.runs.append(GraphRun(self.graph, self.aliases, self.steady, [np.array(a, order="C") for a in arrays]))
        super().run(arrays, outputs)


class Unhurried(Compiled):
    """A compiled function that records every call that no recording fits, whether that pays or not.

    ``compare`` makes many calls that differ. Without this all but the first few would run eagerly.
    """

    _new_budget = Unlimited


class Noted(Unhurried):
    """A compiled function whose graphs run in the interpreter; ``runs`` are those of it and of its parts."""

    def __init__(self, fn: object, runs: list[GraphRun] | None = None, **options: Any) -> None:
        super().__init__(fn, backend="interpret", **options)
        self.quiet = True
        self.runs: list[GraphRun] = [] if runs is None else runs
        self._planner.make = partial(_Noting, self.runs)

    def _alike(self) -> Callable[[Any], Compiled]:
        return partial(Noted, runs=self.runs, threads=self.threads, dynamic=self.dynamic)

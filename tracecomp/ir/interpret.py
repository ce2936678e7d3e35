"""The numpy interpreter of graphs: every operator's ``impl`` in order. It is slow and simple, and compiled code must
agree with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from tracecomp.ir.op import Op
from tracecomp.ir.values import GraphData, Node, Value

Array = np.ndarray[Any, Any]
Observer = Callable[[Node, tuple[Array, ...]], None]
Evaluate = Callable[[Op, Sequence[Array], dict[str, Any]], Any]


class Interpreter:
    """A graph prepared for running: live nodes, and after each the values that have no later reader."""

    def __init__(self, graph: GraphData) -> None:
        self.graph = graph
        last: dict[Value, int] = {}
        self.nodes = list(graph.live_nodes())
        for number, node in enumerate(self.nodes):
            for value in (*node.outputs, *node.inputs):
                last[value] = number
        for output in graph.outputs:
            last.pop(output.value, None)
        self.dead: list[list[Value]] = [[] for _ in self.nodes]
        for value, number in last.items():
            self.dead[number].append(value)

    def run(
        self, arrays: Sequence[Array], observer: Observer | None = None, evaluate: Evaluate | None = None
    ) -> list[Array]:
        """The outputs, in order, for ``arrays``: one per graph input that is not a constant.

        ``observer(node, results)`` sees every intermediate; ``evaluate(op, operands, attrs)`` computes instead of
        ``op.impl``. TypeError when an array does not have its input's type.
        """
        values = self._bind(arrays)
        with np.errstate(all="ignore") if evaluate is None else nullcontext():
            for node, dead in zip(self.nodes, self.dead, strict=True):
                operands = [values[v] for v in node.inputs]
                found = evaluate(node.op, operands, node.attrs) if evaluate else node.op.impl(*operands, **node.attrs)
                results = tuple(map(np.asarray, found)) if isinstance(found, tuple) else (np.asarray(found),)
                values.update(zip(node.outputs, results, strict=True))
                if observer is not None:
                    observer(node, results)
                for value in dead:
                    del values[value]
        return [values[o.value] for o in self.graph.outputs]

    def _bind(self, arrays: Sequence[Array]) -> dict[Value, Array]:
        open_inputs = [i for i in self.graph.inputs if i.role != "constant"]
        if len(arrays) != len(open_inputs):
            raise TypeError(f"graph {self.graph.name} takes {len(open_inputs)} arrays, got {len(arrays)}")
        values: dict[Value, Array] = {}
        for given, array in zip(open_inputs, arrays, strict=True):
            want = given.value.type
            if array.shape != want.shape or array.dtype != want.dtype.numpy:
                raise TypeError(f"input {given.name!r} is {want}, got {array.dtype.name}{list(array.shape)}")
            values[given.value] = array
        for constant in self.graph.inputs:
            if constant.role == "constant":
                if constant.data is None:
                    raise TypeError(f"constant {constant.name!r} has no data: the graph was printed in short form")
                values[constant.value] = constant.data
        return values


def interpret(graph: GraphData, arrays: Sequence[Array], observer: Observer | None = None) -> list[Array]:
    """Run ``graph`` once; see ``Interpreter.run``."""
    return Interpreter(graph).run(arrays, observer)

"""Whether a graph that knows its sizes is, for other sizes, a graph that was recorded there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracecomp.ir.graph import Graph, Node, Value, attrs_key
from tracecomp.ir.printer import print_graph
from tracecomp.record.dynamic_shapes.padding import NotSized
from tracecomp.record.recording import Sizes
from tracecomp.record.symbolic.sym_int import evaluated

Array = np.ndarray[Any, Any]
OPERATIONS = "the size changes which operations there are"


def check_same(first: Graph, second: Graph, sizes: Sizes, values: Sequence[int], numbers: dict[Value, int]) -> None:
    """Check that ``second``, with sizes ``sizes``, equals ``first`` for the sizes ``values``; NotSized otherwise.

    ``numbers`` are the inputs of ``second`` that are sizes. Values that depend on them alone may be constants in
    ``first``, whose sizes are static.
    """
    if len(first.outputs) != len(second.outputs):
        raise NotSized("the computation depends on the size")
    _Comparison(second, sizes, values, numbers).outputs(first, second)


class _Comparison:
    def __init__(self, second: Graph, sizes: Sizes, values: Sequence[int], numbers: dict[Value, int]) -> None:
        self._origin = second.origin
        self._sizes = sizes
        self._values = values
        self._numbers = numbers
        self._inputs: dict[Value, tuple[str, str]] = {}
        self._known: dict[Value, Array | None] = {}
        self._seen: set[tuple[Value, Value]] = set()

    def outputs(self, first: Graph, second: Graph) -> None:
        """Compare from the results backwards; nodes that no result needs are ignored."""
        for graph in (first, second):
            for i in graph.inputs:
                self._inputs[i.value] = (i.name, i.role)
                self._known[i.value] = i.data
            for node in graph.nodes:
                self._known.update(dict.fromkeys(node.outputs))
        for value, number in self._numbers.items():
            self._known[value] = np.array(self._values[number])
        for graph in (first, second):
            for node in graph.nodes:
                self._fold(node)
        todo = [(a.value, b.value) for a, b in zip(first.outputs, second.outputs, strict=True)]
        while todo:
            pair = todo.pop()
            if pair not in self._seen:
                self._seen.add(pair)
                todo += self._pair(*pair)

    def _fold(self, node: Node) -> None:
        """Compute nodes that depend only on sizes and constants and have one element."""
        given = [self._known[v] for v in node.inputs]
        plain = node.op.kind == "elementwise" or node.op.name == "full"
        if not plain or any(v.shape for v in (*node.inputs, *node.outputs)):
            return
        if all(a is not None for a in given):
            with np.errstate(all="ignore"):
                found = node.op.impl(*given, **node.attrs)
            self._known[node.outputs[0]] = np.asarray(found)

    def _pair(self, a: Value, b: Value) -> list[tuple[Value, Value]]:
        """The other pairs that must be equal for ``a`` and ``b`` to be."""
        shape = evaluated(self._sizes.shapes.get(b, b.shape), self._values)
        if a.dtype is not b.dtype or a.shape != shape:
            raise NotSized(f"a value is {a.type} at one size and {b.type} at another")
        one, other = self._known[a], self._known[b]
        if one is not None and other is not None:
            if one.shape != other.shape or one.tobytes() != other.tobytes():
                raise NotSized("the size changes a constant")
            return []
        if a.node is None or b.node is None:
            if a.node is not b.node or self._inputs.get(a) != self._inputs.get(b):
                raise NotSized("the inputs of the program depend on the size")
            return []
        self._same_node(a.node, b.node)
        if a.node.outputs.index(a) != b.node.outputs.index(b):
            raise NotSized(OPERATIONS)
        return list(zip(a.node.inputs, b.node.inputs, strict=True))

    def _same_node(self, m: Node, n: Node) -> None:
        if m.op is not n.op or len(m.inputs) != len(n.inputs):
            raise NotSized(OPERATIONS)
        for name, attr in self._sizes.attrs.get(n, n.attrs).items():
            if _key(m.attrs[name]) != _key(evaluated(attr, self._values)):
                raise NotSized(
                    f"{name} of {m.op.name}, at {self._origin[n].source}, is {m.attrs[name]} at one size and "
                    f"{n.attrs[name]} at another, which is not a function of the size"
                )


def _key(attr: object) -> Any:
    """Return a key of an attribute. The bodies of loops and branches are traced again in every recording."""
    return print_graph(attr) if isinstance(attr, Graph) else attrs_key({"": attr})

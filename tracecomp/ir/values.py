"""The parts of a graph, for readers: printer, interpreters, verifier.

``ir.graph.Graph`` adds construction to ``GraphData``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from tracecomp.base.errors import Source
from tracecomp.ir.immutable import immutable
from tracecomp.ir.op import Attrs, Op
from tracecomp.ir.types import DType, TensorType

AttrsKey: TypeAlias = "tuple[tuple[str, object], ...]"
"""Attributes as a hashable key."""


class Node:
    """One application of an operator. Immutable; equal applications in one graph are the same object.

    ``key`` is that of ``attrs`` (``ir.graph.attrs_key``).
    """

    __slots__ = ("attrs", "inputs", "key", "op", "outputs")

    def __init__(
        self, op: Op, inputs: tuple[Value, ...], attrs: Attrs, types: Sequence[TensorType], key: AttrsKey
    ) -> None:
        self.op = op
        self.inputs = inputs
        self.attrs = attrs
        self.key = key
        self.outputs = tuple([Value(self, i, t) for i, t in enumerate(types)])

    def __repr__(self) -> str:
        return f"<{self.op.name} {', '.join(str(v.type) for v in self.outputs)}>"


class Value:
    """A result of a node, or (``node is None``) an input of the graph."""

    __slots__ = ("__weakref__", "index", "node", "type")

    def __init__(self, node: Node | None, index: int, type: TensorType) -> None:
        self.node = node
        self.index = index
        self.type = type

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    def __repr__(self) -> str:
        return f"<value {self.type} of {self.node.op.name if self.node else 'input'}>"


@immutable
class Input:
    """A graph input. ``role``: argument, state, host, room or constant.

    ``room`` is an argument in memory that even calls that fail may write, behind the elements in use. ``data`` holds a
    constant's array.
    """

    value: Value
    name: str
    role: str
    data: np.ndarray[Any, Any] | None = None


@immutable
class Output:
    """A graph output. ``role``: result, state (``name`` is the state input it updates, or a slot) or predicate."""

    value: Value
    name: str
    role: str


class ModuleName(str):
    """A scope that is a module's attribute path, in contrast to a library function's name. Equal to its text."""

    __slots__ = ()


@immutable
class Origin:
    """Origin of a node: the user's line, the scopes around it, the pass that created it ("" = recorded)."""

    source: Source | None = None
    scope: tuple[str, ...] = ()
    made_by: str = ""


class GraphData:
    """A pure program: ``inputs`` -> nodes in topological order -> ``outputs``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.inputs: list[Input] = []
        self.outputs: list[Output] = []
        self.origin: dict[Node, Origin] = {}
        self._interned: dict[Any, Node] = {}
        self._pruned: tuple[int, int] | None = None  # the numbers of nodes and outputs when dead nodes were dropped

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every node in creation order, which is topological."""
        return tuple(self._interned.values())

    def users(self) -> dict[Value, list[Node]]:
        """The nodes that read each value."""
        result: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(node.inputs):
                result.setdefault(value, []).append(node)
        return result

    def live_nodes(self) -> Iterator[Node]:
        """Nodes that some output needs, in order."""
        if self._pruned == (len(self._interned), len(self.outputs)):
            return iter(self.nodes)
        live = live_nodes([o.value for o in self.outputs])
        return (n for n in self.nodes if n in live)


def live_nodes(values: Iterable[Value]) -> set[Node]:
    """The nodes that the computation of ``values`` needs."""
    live: set[Node] = set()
    stack = [v.node for v in values if v.node]
    while stack:
        node = stack.pop()
        if node not in live:
            live.add(node)
            for value in node.inputs:
                if (producer := value.node) is not None and producer not in live:
                    stack.append(producer)
    return live

"""The batch sizes of a recording: first sizes of arguments, which calls may change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracecomp.eager.tensor import Tensor
from tracecomp.eager.vjp_program import ArrayType
from tracecomp.ir.graph import Graph
from tracecomp.ir.op import Attrs
from tracecomp.ir.types import TensorType, int64
from tracecomp.record.context import RecordingContext
from tracecomp.record.size_range import SizeRange
from tracecomp.record.symbolic.sym_int import SizedGraph, SymInt, without
from tracecomp.record.traced_value import TracedValue


class BatchSizes:
    """Where shapes hold such sizes, and which argument has which.

    ``context`` is the recorder; ``traced`` gives what a tensor is worth in its ``graph``.
    """

    def __init__(self, graph: Graph, context: RecordingContext, traced: Callable[[Tensor], TracedValue | None]) -> None:
        self.graph = graph
        self._context = context
        self._traced = traced
        self.ranges: dict[int, SizeRange] = {}
        self.leading: dict[int, list[int]] = {}
        self.sizes: dict[int, Tensor] = {}
        self.sized_nodes: dict[Any, tuple[dict[str, Any], list[ArrayType], list[ArrayType]]] = {}

    def note_size(self, size: int, leaf: int) -> None:
        """Note that argument ``leaf`` has the first size ``size``; arguments with the same one share it."""
        same = self.leaf_of(size)
        if same is None:
            self.ranges[leaf] = SizeRange(size)
        self.leading.setdefault(leaf if same is None else same, []).append(leaf)

    def leaf_of(self, size: int) -> int | None:
        """The argument whose first size ``size`` is."""
        return next((i for i, r in self.ranges.items() if r.value == size), None)

    def shape_of(self, t: Tensor) -> tuple[int, ...]:
        """The shape of ``t``, with SymInts where calls may change it."""
        shape: tuple[int, ...] = t._data.shape
        cell = self._traced(t) if self._context.open and isinstance(self.graph, SizedGraph) else None
        if cell is None or cell.value.shape != shape or not isinstance(self.graph, SizedGraph):
            return shape
        return self.graph.shape(cell.value)

    def size_tensor(self, leaf: int) -> Tensor:
        """The size in ``leaf`` as an input of the graph."""
        if leaf not in self.sizes:
            t = Tensor._wrap(np.array(self.ranges[leaf].value))
            name = f"size{len(self.sizes) or ''}"
            t._value = TracedValue(self._context, self.graph.add_input(TensorType(int64, ()), name, "host"))
            self.sizes[leaf] = t
        return self.sizes[leaf]

    def sized_operands(self, operands: tuple[object, ...]) -> tuple[Any, ...]:
        """``operands`` with tensors in place of sizes."""
        if not any(type(x) is SymInt for x in operands):
            return operands
        dtype = next((x.dtype for x in reversed(operands) if isinstance(x, Tensor)), int64)
        return tuple(x.tensor.to(dtype) if type(x) is SymInt and x.live else x for x in operands)

    @staticmethod
    def without_sizes(attrs: Attrs) -> dict[str, Any]:
        """``attrs`` with plain numbers in place of sizes."""
        return {k: without(v) for k, v in attrs.items()}

    def note_node(self, node: Any, attrs: Attrs, operands: Sequence[object], outs: Sequence[Tensor]) -> None:
        """Note how what a derivative rule sees depends on sizes."""
        shapes = [self.shape_of(x) if isinstance(x, Tensor) else () for x in operands]
        types = [(dtype, shape) for (dtype, _), shape in zip(node.types, shapes, strict=True)]
        self.sized_nodes[node] = (attrs, types, [(t._data.dtype, self.shape_of(t)) for t in outs])

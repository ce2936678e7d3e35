"""The autograd history of a recorded call as a template, to be built again on the values of later calls.

A compiled backward graph is enough for gradients. To differentiate those again from outside, the eager nodes are
made anew: what they saved is recomputed by the interpreter, and their edges end at the inputs of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracecomp.autograd.function import FunctionCtx, FunctionNode
from tracecomp.ir.graph import Graph, Input, Output, Value
from tracecomp.ir.interpret import Interpreter
from tracecomp.node import AccumulateGrad, CopySlices, Edge, Node, OpNode, Packed, SavedOut, View, op_node
from tracecomp.record.extract import extract
from tracecomp.tensor import Tensor, gradient_edge

Array = np.ndarray[Any, Any]
Target = tuple[Node, int]
Mark = tuple[int, int] | None  # an edge: node number and result number; targets are numbered -1, -2, ...
Build = Callable[["_Site"], Node]


@dataclass(frozen=True, slots=True)
class _Saved:
    """A saved tensor: the number of its value, and where its own gradient goes."""

    slot: int
    mark: Mark


class Template:
    """Functions that make each node again, in order of creation; ``graph`` computes what the nodes saved."""

    def __init__(
        self, source: Graph, inputs: Sequence[Input], roots: Sequence[Target], targets: Sequence[Target],
        value_of: Callable[[Tensor], Value],
    ) -> None:  # fmt: skip
        self._value_of = value_of
        self._values: list[Value] = []
        self._targets = {t: (-1 - k, 0) for k, t in enumerate(targets)}
        nodes = sorted(_history([n for n, _ in roots], {n for n, _ in targets}), key=lambda n: n.number)
        self._numbers = {n: i for i, n in enumerate(nodes)}
        self._builders = [self._builder(n) for n in nodes]
        self._hooks = [(n.tensor_hooks, n.pre_hooks, n.post_hooks) for n in nodes]
        self._roots = [self._mark(r) for r in roots]
        outputs = [Output(v, f"v{k}", "result") for k, v in enumerate(self._values)]
        self.graph = extract(f"{source.name}_history", source, inputs, outputs)
        self._interpreter = Interpreter(self.graph)
        del self._value_of, self._values, self._targets, self._numbers

    def build(self, arrays: Sequence[Array], ends: Sequence[Edge]) -> list[Target]:
        """The roots of a new history on input ``arrays`` that ends at ``ends``, one per target."""
        site = _Site(self._interpreter.run(arrays), ends)
        for make, hooks in zip(self._builders, self._hooks, strict=True):
            node = make(site)
            node.tensor_hooks, node.pre_hooks, node.post_hooks = hooks
            site.made.append(node)
        return [e for e in map(site.edge, self._roots) if e is not None]

    def _mark(self, edge: Edge) -> Mark:
        if edge is None or edge in self._targets:
            return None if edge is None else self._targets[edge]
        number = self._numbers.get(edge[0])
        return None if number is None else (number, edge[1])

    def _save(self, tensor: Tensor, mark: Mark) -> _Saved:
        self._values.append(self._value_of(tensor))
        return _Saved(len(self._values) - 1, mark)

    def _builder(self, node: Node) -> Build:
        marks = tuple(map(self._mark, node.edges))
        if isinstance(node, OpNode):
            return self._op(node, marks)
        if isinstance(node, CopySlices):
            chain, out_types = node.chain, node.out_types
            return lambda site: site.copy_slices(marks, chain, out_types)
        assert isinstance(node, FunctionNode), node
        return self._function(node, marks)

    def _op(self, node: OpNode, marks: tuple[Mark, ...]) -> Build:
        ins = []
        for x, mark in zip(node.ins or (), marks, strict=True):
            x = x.unpacked() if isinstance(x, Packed) else x
            ins.append(self._save(x, mark) if isinstance(x, Tensor) else x)
        outs = []
        for i, s in enumerate(node.outs):
            outs.append(self._save(s.unpacked() if isinstance(s, Packed) else s.restored(node, i), None))
        op, attrs, types, out_types = node.op, node.attrs, node.types, node.out_types

        def make(site: _Site) -> Node:
            operands = tuple(site.tensor(x) if isinstance(x, _Saved) else x for x in ins)
            results = [site.tensor(x) for x in outs]
            return op_node(op, attrs, operands, types, tuple(map(site.edge, marks)), results, out_types)

        return make

    def _function(self, node: FunctionNode, marks: tuple[Mark, ...]) -> Build:
        saved: list[tuple[_Saved | None, int | None]] = []
        for s in node.ctx._saved or ():
            if s is None:
                saved.append((None, None))
            elif isinstance(s, Packed):
                saved.append((self._save(s.unpacked(), self._mark(s.edge)), None))
            elif isinstance(s[0], SavedOut):
                saved.append((self._save(s[0].restored(node, s[2]), None), s[2]))
            else:
                saved.append((self._save(s[0], self._mark(gradient_edge(s[0]))), None))
        ctx = {k: v for k, v in node.ctx.__dict__.items() if k not in ("_saved", "_to_save")}
        kind, function, inputs, out_types = type(node), node.function, node.inputs, node.out_types

        def make(site: _Site) -> Node:
            new = kind(function, FunctionCtx(), tuple(map(site.edge, marks)), inputs, ())
            new.out_types = out_types
            new.ctx.__dict__.update(ctx)
            new.ctx._saved = tuple(site.function_saved(s, n, new) for s, n in saved)
            return new

        return make


class _Site:
    """One building of a template: arrays of saved values, nodes made so far, edges to end at."""

    def __init__(self, arrays: Sequence[Array], ends: Sequence[Edge]) -> None:
        self.arrays = arrays
        self.ends = ends
        self.made: list[Node] = []

    def edge(self, mark: Mark) -> Edge:
        if mark is None:
            return None
        number, result = mark
        return self.ends[-1 - number] if number < 0 else (self.made[number], result)

    def tensor(self, saved: _Saved) -> Tensor:
        t = Tensor._wrap(self.arrays[saved.slot])
        edge = self.edge(saved.mark)
        if edge is not None:
            t._grad_fn, t._output_nr = edge
        return t

    def copy_slices(self, marks: tuple[Mark, ...], chain: tuple[View, ...], out_types: Any) -> Node:
        new = CopySlices(self.edge(marks[0]), self.edge(marks[1]), chain, np.empty(0))
        new.out_types = out_types
        return new

    def function_saved(self, saved: _Saved | None, number: int | None, node: Node) -> Any:
        if saved is None:
            return None
        t = self.tensor(saved)
        return (t, t._version) if number is None else (SavedOut(t), node, number)


def _history(roots: Sequence[Node], ends: set[Node]) -> set[Node]:
    """The nodes between ``roots`` and ``ends``; leaves made inside the call are left out."""
    found: set[Node] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in found or node in ends or isinstance(node, AccumulateGrad):
            continue
        found.add(node)
        stack.extend(e[0] for e in node.edges if e is not None)
    return found

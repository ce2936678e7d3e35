"""The autograd history of a recorded call as a template, to be rebuilt on the values of later calls.

A compiled backward graph is enough for gradients. To differentiate the gradients again, the eager nodes are rebuilt, on
tensors: their saved values are recomputed, and their edges end at the inputs of the call. Recording that gives a
function whose graphs are the next derivative's.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from tracecomp.autograd.engine import run_backward
from tracecomp.autograd.function import FunctionCtx, FunctionNode, values_within
from tracecomp.eager.grad_fn import AccumulateGrad, CopySlices, OpNode, Packed, SavedOut, op_node
from tracecomp.eager.modes import modes, no_grad
from tracecomp.eager.tensor import Tensor, gradient_edge, wrap
from tracecomp.eager.tensor_base import Edge, Grads, Node, TensorBase, View
from tracecomp.ir.graph import Graph, Input, Output, Value
from tracecomp.ir.graph import Node as GraphNode
from tracecomp.record.backward.extract import extract, needed_nodes
from tracecomp.record.pytree import flatten, unflatten
from tracecomp.record.recorder import Recorder
from tracecomp.record.symbolic.sym_int import SizedGraph, SymInt, evaluated, without
from tracecomp.record.symbolic.sym_scalar import SymScalar

Target = tuple[Node, int]
Mark = tuple[int, int] | None  # an edge: node number and result number; targets are numbered -1, -2, ...
Build = Callable[["_Site"], Node]


@dataclass(frozen=True, slots=True)
class _Saved:
    """A saved tensor: the number of its value, and where its own gradient goes."""

    slot: int
    mark: Mark


@dataclass(frozen=True, slots=True)
class _Number:
    """A Python number that a recording follows."""

    saved: _Saved


class Template:
    """Functions that rebuild each node, in order of creation; ``graph`` computes the values that the nodes saved.

    ``reads`` are the input values that it takes. ``inner`` numbers the roots that are ancestors of others. A backward
    pass frees the saved values of the nodes that it runs. Nodes that save values are numbered in groups, which the same
    roots lead to; ``freeing`` has the groups of each root. A later pass fails if one of its groups is freed.
    """

    def __init__(
        self, source: Graph, inputs: Sequence[Input], roots: Sequence[Target], targets: Sequence[Target],
        recorder: Recorder,
    ) -> None:  # fmt: skip
        self._recorder = recorder
        self._sized_nodes = recorder.sizes.sized_nodes
        self._stale: str | None = None
        self._values: list[Value] = []
        self._targets = {t: (-1 - k, 0) for k, t in enumerate(targets)}
        nodes = sorted(_history([n for n, _ in roots], {n for n, _ in targets}), key=lambda n: n.number)
        self._numbers = {n: i for i, n in enumerate(nodes)}
        self._groups, self.freeing = self._grouped(nodes, [n for n, _ in roots])
        self._builders = [self._builder(n) for n in nodes]
        self._hooks = [(n.tensor_hooks, n.pre_hooks, n.post_hooks) for n in nodes]
        self._check(self._hooks, "a hook")
        self._roots = [self._mark(r) for r in roots]
        passed = {e for n in nodes for e in n.edges}
        self.inner = frozenset(k for k, r in enumerate(roots) if r in passed)
        outputs = [Output(v, f"v{k}", "result") for k, v in enumerate(self._values)]
        used = _used(self._values, {i.value for i in inputs})
        inputs = [i for i in inputs if i.value in used]
        self.reads = [i.value for i in inputs]
        mapping: dict[Value, Value] = {}
        self.graph = extract(f"{source.name}_history", source, inputs, outputs, mapping)
        sized = source.attrs if isinstance(source, SizedGraph) else {}
        self._attrs = {n: sized[old] for old in sized if (n := mapped(old, mapping)) is not None}
        del self._recorder, self._sized_nodes, self._values, self._targets, self._numbers

    def backward(
        self, ends: Sequence[Edge], inputs: Sequence[Tensor], grads: Grads, results: Sequence[Edge], before: Grads
    ) -> Grads:
        """Return the gradients at ``ends``, one per target, of ``grads`` at the roots, with a history in grad mode.

        The history leads to ``results`` of the roots themselves, if backward reads them. Gradients are added to those
        that the ends have ``before``.
        """
        if self._stale is not None:
            raise RuntimeError(self._stale)
        roots, _ = self._build(inputs, ends, {}, None)
        for (node, number), edge in zip(roots, results, strict=True):
            if isinstance(node, OpNode) and edge is not None:
                node.behind = {**(node.behind or {}), number: (weakref.ref(edge[0]), edge[1])}
        given = [*zip(ends, before, strict=True), *zip(roots, grads, strict=True)]
        pairs = [(e, cast("Tensor", g)) for e, g in given if e is not None and g is not None]
        found = run_backward(
            [e for e, _ in pairs], [g for _, g in pairs], keep_graph=True, create_graph=modes.grad,
            targets=[e for e in ends if e is not None], accumulate=False, inside=True,
        )  # fmt: skip
        return [None if e is None else found.get(e) for e in ends]

    @property
    def keeps(self) -> bool:
        """Whether some nodes save values, so that backward can run only once."""
        return bool(self._groups)

    def _grouped(self, nodes: Sequence[Node], roots: Sequence[Node]) -> tuple[dict[int, int], list[frozenset[int]]]:
        """The group of each node that saves values, by its number; the groups of each root."""
        leading = dict.fromkeys(nodes, 0)  # bits of the roots that lead to a node
        for k, root in enumerate(roots):
            if root in leading:
                leading[root] |= 1 << k
        for node in reversed(nodes):  # newest first: before the nodes that its edges lead to
            for edge in node.edges:
                if edge is not None and edge[0] in leading:
                    leading[edge[0]] |= leading[node]
        # For a write through a view (CopySlices) only the history is kept: its backward reads no values.
        keeping = [n for n in nodes if isinstance(n, FunctionNode) or (isinstance(n, OpNode) and n.keeps())]
        number = {bits: group for group, bits in enumerate(dict.fromkeys(leading[n] for n in keeping))}
        freeing = [frozenset(group for bits, group in number.items() if bits >> k & 1) for k in range(len(roots))]
        return {self._numbers[n]: number[leading[n]] for n in keeping}, freeing

    def nodes(
        self, ends: Sequence[Edge], inputs: Sequence[Tensor] | None, before: float,
        behind: Mapping[int, Node] | None = None, sizes: Sequence[int] | None = None, freed: Set[int] = frozenset(),
    ) -> list[Target]:  # fmt: skip
        """The roots of the nodes made again, which get the numbers just below ``before``.

        If ``behind`` has a node for root k, other nodes lead to the root through it. It gets a newer number than the
        root. ``sizes`` are those of a call that may differ from the recorded one. Nodes of the ``freed`` groups have
        no saved values; if all groups are freed, ``inputs`` is None.
        """
        if self._stale is not None:
            raise RuntimeError(self._stale)
        behind = behind or {}
        through = {self._roots[k]: (node, 0) for k, node in behind.items()}
        roots, made = self._build(inputs, ends, through, sizes)
        for n, node in enumerate(reversed(made), 1):
            node.number = before - n / (len(made) + 1)
        for number, group in self._groups.items():
            if group in freed:
                made[number].release()
        for k, node in behind.items():
            node.edges = (roots[k],)
            node.number = roots[k][0].number + 0.5 / (len(made) + 1)
        return roots

    def _build(
        self, inputs: Sequence[Tensor] | None, ends: Sequence[Edge], through: Mapping[Mark, Target],
        sizes: Sequence[int] | None,
    ) -> tuple[list[Target], list[Node]]:  # fmt: skip
        """The roots of a new history on ``inputs`` that ends at ``ends``, and all its nodes."""
        with no_grad():
            site = _Site(self._computed(inputs, sizes), ends, through, sizes)
        for make, hooks in zip(self._builders, self._hooks, strict=True):
            node = make(site)
            node.tensor_hooks, node.pre_hooks, node.post_hooks = hooks
            site.made.append(node)
        return [e for e in map(site.made_at, self._roots) if e is not None], site.made

    def _computed(self, inputs: Sequence[Tensor] | None, sizes: Sequence[int] | None) -> list[Tensor]:
        """Compute the tensors that the nodes saved. Without inputs, they are zeros, which no node reads."""
        if inputs is None:
            types = [o.value.type for o in self.graph.outputs]
            return [wrap(np.broadcast_to(np.zeros((), t.dtype.numpy), t.shape)) for t in types]
        given = iter(inputs)
        known = {i.value: next(given) if i.data is None else wrap(i.data) for i in self.graph.inputs}
        for node in self.graph.nodes:
            attrs = node.attrs
            if sizes is not None and node in self._attrs:
                attrs = {k: evaluated(v, sizes) for k, v in self._attrs[node].items()}
            found = Tensor.__tracecomp_apply__(node.op, tuple([known[v] for v in node.inputs]), attrs)
            known.update(zip(node.outputs, found if type(found) is tuple else (found,), strict=True))
        return [known[o.value] for o in self.graph.outputs]

    def _mark(self, edge: Edge) -> Mark:
        if edge is None or edge in self._targets:
            return None if edge is None else self._targets[edge]
        number = self._numbers.get(edge[0])
        return None if number is None else (number, edge[1])

    def _save(self, tensor: TensorBase, mark: Mark) -> _Saved:
        self._values.append(self._recorder.value(cast("Tensor", tensor)))
        return _Saved(len(self._values) - 1, mark)

    def _kept(self, value: object) -> object:
        """A value of a context: tensors and followed numbers are those of each call."""
        if type(value) is SymScalar:
            return _Number(self._save(value.tensor, None))
        return self._save(value, self._mark(gradient_edge(value))) if isinstance(value, Tensor) else value

    def _check(self, holder: object, what: str) -> None:
        """Note when ``holder`` keeps values of the recorded call, which are not those of later calls."""
        if any(self._of_the_call(v) for v in values_within(holder)):
            self._stale = (
                f"{what} holds values of a compiled call whose gradients are differentiated again outside of it: it "
                "would see those of the call that was recorded. Differentiate inside of the compiled function, or "
                "save tensors with save_for_backward."
            )

    def _of_the_call(self, value: object) -> bool:
        return self._recorder.of_the_call(value) if isinstance(value, Tensor) else type(value) in (SymInt, SymScalar)

    def _builder(self, node: Node) -> Build:
        marks = tuple(map(self._mark, node.edges))
        if isinstance(node, OpNode):
            return self._op(node, marks)
        if isinstance(node, CopySlices):
            chain, (_, _, out_types) = node.chain, self._sized_nodes.get(node, ({}, [], node.out_types))
            return lambda site: site.copy_slices(marks, chain, out_types)
        assert isinstance(node, FunctionNode), node
        return self._function(node, marks)

    def _op(self, node: OpNode, marks: tuple[Mark, ...]) -> Build:
        ins = []
        for x, mark in zip(node.operands(), marks, strict=True):
            x = x.unpacked() if isinstance(x, Packed) else x
            ins.append(self._save(x, mark) if isinstance(x, Tensor) else x)
        outs = []
        for s in node.outs:  # some may be overwritten: a history whose derivatives read those is spent
            outs.append(self._save(s.unpacked() if isinstance(s, Packed) else s.tensor(), None))
        op = node.op
        attrs, types, out_types = self._sized_nodes.get(node, (node.attrs, node.types, node.out_types))

        def make(site: _Site) -> Node:
            operands = tuple(site.tensor(x) if isinstance(x, _Saved) else x for x in ins)
            results = [site.tensor(x) for x in outs]
            given = {k: site.settled(v) for k, v in attrs.items()}
            kinds = [site.settled(t) for t in types]
            made = tuple(map(site.settled, out_types))
            return op_node(op, given, operands, kinds, tuple(map(site.edge, marks)), results, made)

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
        left: list[Any] = []
        kept = {k: v for k, v in node.ctx.__dict__.items() if k not in ("_saved", "_to_save")}
        structure = flatten(kept, left)
        apart = [v for v in left if not isinstance(v, Tensor) and type(v) not in (SymInt, SymScalar)]
        self._check(apart, f"the context of {node.name()}")
        left = [self._kept(v) for v in left]
        kind, function, inputs = type(node), node.function, node.inputs
        _, _, out_types = self._sized_nodes.get(node, ({}, [], node.out_types))

        def make(site: _Site) -> Node:
            new = kind(function, FunctionCtx(), tuple(map(site.edge, marks)), inputs, ())
            new.out_types = tuple(map(site.settled, out_types))
            found = [site.kept(v) for v in left]
            new.ctx.__dict__.update(unflatten(structure, found))
            new.ctx._saved = tuple(site.function_saved(s, n, new) for s, n in saved)
            return new

        return make


class _Site:
    """One building of a template: saved values, nodes made so far, edges to end at, what leads to some of the nodes.

    ``sizes`` are those of the call, where it is not the recorded one.
    """

    def __init__(
        self, values: Sequence[Tensor], ends: Sequence[Edge], through: Mapping[Mark, Target],
        sizes: Sequence[int] | None,
    ) -> None:  # fmt: skip
        self.sizes = sizes
        self.values = values
        self.ends = ends
        self.through = through
        self.made: list[Node] = []

    def settled(self, x: object) -> Any:
        """``x``, which may hold formulas of sizes, for this call."""
        return without(x) if self.sizes is None else evaluated(x, self.sizes)

    def kept(self, value: object) -> Any:
        """A value of a context, for this call."""
        if isinstance(value, _Number):
            return self.tensor(value.saved).item()
        return self.tensor(value) if isinstance(value, _Saved) else self.settled(value)

    def edge(self, mark: Mark) -> Edge:
        return self.through[mark] if mark in self.through else self.made_at(mark)

    def made_at(self, mark: Mark) -> Edge:
        if mark is None:
            return None
        number, result = mark
        return self.ends[-1 - number] if number < 0 else (self.made[number], result)

    def tensor(self, saved: _Saved) -> Tensor:
        t = self.values[saved.slot].detach()
        edge = self.edge(saved.mark)
        if edge is not None:
            t._grad_fn, t._output_nr = edge
        return t

    def copy_slices(self, marks: tuple[Mark, ...], chain: tuple[View, ...], out_types: Any) -> Node:
        settled = tuple((op, {k: self.settled(v) for k, v in attrs.items()}) for op, attrs in chain)
        new = CopySlices(self.edge(marks[0]), self.edge(marks[1]), settled, np.empty(0))
        new.out_types = tuple(map(self.settled, out_types))
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


def _used(values: Sequence[Value], inputs: set[Value]) -> set[Value]:
    """Those of ``inputs`` that ``values`` are computed from."""
    return inputs & {*values, *(v for n in needed_nodes(values, inputs) for v in n.inputs)}


def mapped(node: GraphNode, mapping: Mapping[Value, Value]) -> GraphNode | None:
    """Return the counterpart of ``node`` in the graph whose values ``mapping`` gives."""
    new = mapping.get(node.outputs[0])
    return None if new is None else new.node

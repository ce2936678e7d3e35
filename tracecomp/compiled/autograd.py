"""Compiled calls differentiated from outside: the history of their results."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence, Set
from typing import Any

import numpy as np

from tracecomp.compiled.dynamic_shapes import Runner
from tracecomp.compiled.trial_runs import Unfit
from tracecomp.eager import dispatch
from tracecomp.eager.device import use
from tracecomp.eager.grad_fn import FREED, OpNode, ProgramNode, modified, run_on_arrays
from tracecomp.eager.modes import asks_for_eager, modes, unseen
from tracecomp.eager.tensor import Tensor, gradient_edge
from tracecomp.eager.tensor_base import Edge, Grads, Node
from tracecomp.eager.vjp_program import ArrayType, Derivative, Run, flatten
from tracecomp.record.binding import Binding, read, tensor_of
from tracecomp.record.pytree import Leaves
from tracecomp.record.recording import Split

Array = np.ndarray[Any, Any]


class Freed(Node):
    """History of a result whose backward pass ran inside the compiled call."""

    __slots__ = ()

    def backward(self, grads: Grads) -> Grads:
        raise RuntimeError(FREED)


class CompiledNode(ProgramNode):
    """``grad_fn`` of the results of a compiled call.

    ``derivative`` gives the compiled backward graph. ``again`` gives the backward pass as a compiled function over the
    eager nodes. It serves passes that are differentiated, those with gradients of some results only, and those that add
    several gradients to one that has arrived already: as in eager mode, one after the other. It is None for a call
    whose ``sizes`` differ from the recorded ones. A result that is an ancestor of other
    results has a separate node in ``inner``, whose gradients pass on to this node. ``take_apart`` replaces this node by
    the eager nodes, and the ``inner`` nodes then lead to those. It runs once a program observes the gradient of such a
    result, now or in a pass that will be differentiated. It also runs if a mode must see each operator of a backward
    pass: a recorder (also that of ``vmap``) or a dispatch mode.

    As in eager mode, a pass frees the nodes that it runs, and later passes can run the others: ``freed`` has the groups
    of nodes that are freed (``Template``), and ``last`` the results that had gradients in the last pass. The saved
    values are dropped when no result can read them.
    """

    __slots__ = (
        "again", "apart", "derivative", "freed", "history", "inner", "last", "refused", "saved", "sizes", "split",
        "sums",
    )  # fmt: skip

    compiled = True

    def __init__(
        self, derivative: Callable[[], Runner], again: Callable[[], Callable[..., Grads]] | None, split: Split,
        leaves: Leaves, kept: Kept, sizes: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        tensors = [tensor_of(b, leaves) for b, _ in split.wanted]
        edges: tuple[Edge, ...] = tuple([gradient_edge(t) for t in tensors])
        super().__init__(edges, ((np.dtype(np.float32), ()),) * split.roots)
        self.derivative = derivative
        self.again = again
        self.split = split
        self.sums = split.summed
        self.sizes = sizes
        self.saved: list[_Kept] | None = [kept.of(s, leaves) for s in split.saved]
        self.history = [kept.old(b) if overwritten else kept.of(b, leaves) for b, overwritten in split.history_inputs]
        self.inner: dict[int, weakref.ref[InnerResult]] = {}
        self.apart = False
        self.refused: str | None = None
        self.freed: frozenset[int] = frozenset()
        self.last: Set[int] = self.freed

    def form(self) -> Any:
        if self.observed or self.apart or self.freed or self.saved is None or self.sizes is not None:
            return None
        return self.split.form

    def program(self, present: tuple[bool, ...]) -> Derivative:
        if not all(present):
            raise Unfit("a result of a compiled call has no gradient")
        return _Backward(self.derivative(), self.split)

    def value_types(self) -> Sequence[ArrayType]:
        inputs = self.split.backward.inputs[: len(self.split.saved)]
        return [(i.value.type.dtype.numpy, i.value.type.shape) for i in inputs]

    def take(self, slots: Sequence[int], arrays: list[Array]) -> bool:
        assert self.saved is not None
        try:
            arrays += [self.saved[slot].array() for slot in slots]
        except RuntimeError:
            return False
        self.last = frozenset(range(len(self.out_types)))
        return True

    def add_root(self, number: int, kind: ArrayType) -> tuple[Node, int]:
        """Note dtype and shape of differentiable result ``number``; its history."""
        self.out_types = (*self.out_types[:number], kind, *self.out_types[number + 1 :])
        if number not in self.split.history.inner:
            return self, number
        before = self.inner.get(number)
        node = None if before is None else before()
        if node is None:
            node = InnerResult(((self, number),), (kind,))
            self.inner[number] = weakref.ref(node)
        return node, 0

    @unseen()
    def take_apart(self) -> None:
        """Replace this node by rebuilt nodes of the eager call. If that is impossible, backward raises."""
        if self.apart:
            return
        inner = {k: node for k, ref in self.inner.items() if (node := ref()) is not None}
        try:
            inputs = None if self.saved is None else [s.tensor() for s in self.history]
            roots = self.split.history.nodes(self.edges, inputs, self.number, inner, self.sizes, self.freed)
        except RuntimeError as e:  # a saved value was overwritten, or a hook keeps tensors of another call
            self.refused = str(e)
            return
        for k, node in inner.items():
            made, number = roots[k]
            if isinstance(made, OpNode):
                made.behind = {**(made.behind or {}), number: (weakref.ref(node), 0)}
        # In the middle of a pass, the inner nodes have passed their gradients on to this node: they get them back.
        self.edges = tuple([(inner[k], 0) if k in inner else root for k, root in enumerate(roots)])
        self.apart = self.passes_on = True
        self.saved, self.history = [], []

    def _is_partial(self, present: Set[int]) -> bool:
        """Whether an input leads to results with and without gradients.

        The backward graph adds up what all results contribute. Zeros for a missing gradient would add ``0 * x``, which
        is NaN for infinite ``x``. They would also run a ``Function`` that eager mode skips.
        """
        return any(not roots <= present and not roots.isdisjoint(present) for roots in self.split.leading)

    def edges_of(self, number: int) -> Sequence[Edge]:
        if self.apart:
            return self.edges[number : number + 1]
        return [e for e, roots in zip(self.edges, self.split.leading, strict=True) if number in roots]

    def release(self) -> None:
        if self.apart or not self.split.history.keeps:
            return
        freeing = self.split.history.freeing
        self.freed = self.freed.union(*[freeing[k] for k in self.last])
        if not any(groups and groups.isdisjoint(self.freed) for groups in freeing):
            self.saved = None
            self.history = []

    def backward(self, grads: Grads) -> Grads:
        """Run the compiled backward graph if it gives the sums of eager mode, in its order.

        Otherwise the nodes inside run one by one: if the gradients are differentiated, if some have arrived already, or
        if an input leads to results with and without gradients.
        """
        self.last = present = {k for k, g in enumerate(grads) if g is not None}
        if self.freed and not self.apart:
            freeing = self.split.history.freeing
            if not all(freeing[k].isdisjoint(self.freed) for k in present):
                raise RuntimeError(FREED)
        # Without a pass, the program calls this node itself, and nothing has arrived anywhere.
        current = modes.backward_pass
        summed = self.split.summed if current is not None else ()
        by_node = modes.grad or any(current.has_arrived(self.edges[k]) for k in summed) or self._is_partial(present)
        if (by_node and self.again is None) or self.saved is None or _is_watched(grads):
            self.take_apart()
        if self.refused is not None:
            raise RuntimeError(self.refused)
        if self.apart:
            return grads
        assert self.saved is not None
        like = next(g for g in grads if g is not None)
        if by_node:
            assert self.again is not None
            ends = [None if e is None else _end(e) for e in self.edges]
            results = [_end((self, k)) for k in range(len(self.out_types))]
            before = [current.taken(e) if k in summed else None for k, e in enumerate(self.edges)]
            return self.again()(ends, [s.tensor() for s in self.history], list(grads), results, before)
        saved = [s.array() for s in self.saved]
        given = [
            np.zeros(shape, dtype) if g is None else g._data
            for g, (dtype, shape) in zip(grads, self.out_types, strict=True)
        ]
        runner = self.derivative()
        outputs = [np.empty(o.value.shape, o.value.dtype.numpy) for o in runner.graph.outputs]
        runner.run([*saved, *given], outputs)
        pairs = zip(self.split.wanted, self.split.leading, strict=True)
        # An input that only leads to results without gradients has none, which differs from zeros. The zeros above are
        # given to results whose inputs have no others.
        return [None if n is None or roots.isdisjoint(present) else like._wrap(outputs[n]) for (_, n), roots in pairs]


class _Backward(Derivative):
    """The backward graph of a compiled call as a program among others; on arrays, what ``runner`` runs."""

    __slots__ = ("_numbers", "_runner")

    def __init__(self, runner: Runner, split: Split) -> None:
        graph, numbers = split.backward, [n for _, n in split.wanted]
        found = [None if n is None else graph.outputs[n].value for n in numbers]
        whole = flatten(graph, found, len(split.saved))
        # Machine code takes all saved values.
        super().__init__(whole.steps, whole.results, frozenset(range(len(split.saved))), whole.size)
        self._numbers = numbers
        self._runner = runner

    def run(self, slots: list[Any], run: Run) -> list[Any]:
        if run is not run_on_arrays:
            return super().run(slots, run)
        outputs = [np.empty(o.value.shape, o.value.dtype.numpy) for o in self._runner.graph.outputs]
        self._runner.run(slots, outputs)
        return [None if n is None else outputs[n] for n in self._numbers]


class InnerResult(Node):
    """``grad_fn`` of a result that is an ancestor of others of the same call: gradients pass on to the call's node."""

    __slots__ = ()

    def observe(self) -> None:
        (edge,) = self.edges
        if edge is not None and isinstance(edge[0], CompiledNode):
            edge[0].take_apart()

    def backward(self, grads: Grads) -> Grads:
        return grads


def differentiable(split: Split, name: str) -> Callable[..., Grads]:
    """The backward pass as a function of tensors for the ends, of its saved values, and of result gradients.

    ``results`` represent the results of the call: gradients of one that backward reads go there. ``before`` are
    gradients that the ends have already.
    """

    def backward(
        ends: Sequence[Tensor | None], inputs: Sequence[Tensor], grads: Grads, results: Sequence[Tensor], before: Grads
    ) -> Grads:
        edges = [None if t is None else gradient_edge(t) for t in ends]
        return split.history.backward(edges, inputs, grads, [gradient_edge(t) for t in results], before)

    backward.__name__ = f"{name}_backward"
    return backward


def _is_watched(grads: Grads) -> bool:
    """Whether a mode, or the class of a gradient, is to see each operator of a backward pass."""
    return modes.recorder is not None or asks_for_eager() is not None or (bool(use.begun) and dispatch.asked(grads))


def _end(edge: tuple[Node, int]) -> Tensor:
    """A tensor whose gradient goes to ``edge``; its values are not read."""
    dtype, shape = edge[0].out_types[edge[1]]
    t = Tensor._wrap(np.broadcast_to(np.zeros((), dtype), shape))
    t._grad_fn, t._output_nr = edge
    return t


class Kept:
    """The arrays of one call that backward will read."""

    __slots__ = ("before", "outputs", "values")

    def __init__(self, bindings: Sequence[Binding], arrays: Sequence[Array], before: dict[int, Array]) -> None:
        self.values = {id(b): a for b, a in zip(bindings, arrays, strict=True)}
        self.before = before
        self.outputs: Sequence[Array] = ()

    def of(self, source: Binding | int, leaves: Leaves) -> _Kept:
        """An output of the call, or an input that it has not written."""
        if isinstance(source, int):
            return _Kept(self.outputs[source], None)
        array = self.values.get(id(source))
        if array is None:
            array = read(source, leaves)
        return _Kept(array, None if source.kind in ("host", "size", "number") else tensor_of(source, leaves))

    def old(self, source: Binding | int) -> _Kept:
        """An input as it was before the call."""
        return _Kept(self.before[id(source)], None)


class _Kept:
    """Saved values of backward; the memory of ``tensor``, if given, unchanged since the call."""

    __slots__ = ("_array", "_tensor", "_version")

    def __init__(self, array: Array, tensor: Any) -> None:
        self._array = array
        self._tensor = tensor if isinstance(tensor, Tensor) else None
        self._version = 0 if self._tensor is None else self._tensor._version

    def array(self) -> Array:
        if self._tensor is not None and self._tensor._version != self._version:
            raise RuntimeError(modified(self._tensor, self._version))
        return self._array

    def tensor(self) -> Tensor:
        """The array as a tensor, which shares the count of writes."""
        t = Tensor._wrap(self.array())
        if self._tensor is not None:
            t._storage = self._tensor._shared_storage()
        return t

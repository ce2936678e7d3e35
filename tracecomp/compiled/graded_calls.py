"""Calls of functions whose results require grad as two native programs: one forward, one for the derivative."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracecomp.autograd.engine import contributions
from tracecomp.compiled.replay import Plan
from tracecomp.eager.aliasing import gradient_edge
from tracecomp.eager.grad_fn import FREED, modified
from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import Grads, Node, TensorBase, blank, reserve_numbers
from tracecomp.eager_kernels.sums import in_order
from tracecomp.record.binding import Binding
from tracecomp.record.pytree import LEAF, unflatten
from tracecomp.record.results import Made
from tracecomp.runtime.aligned import maker

Array = np.ndarray[Any, Any]


class GradedCall:
    """A recorded call of tensors alone, whose results are new, as a function that gives them their history.

    ``named`` is the class of node that eager mode gives the results.
    """

    def __init__(self, plan: Plan, named: str) -> None:
        recording, split = plan.recording, plan.recording.split
        assert split is not None
        self.plan, self.split, self.named = plan, split, named
        self.forward = plan.program()
        self.arguments = [b.ref for b in recording.inputs]
        self.makers = [(maker(dtype.itemsize * math.prod(shape)), shape, dtype) for shape, dtype in plan.types]
        self.wanted = [b.ref for b, _ in split.wanted]
        self.saved = [s.ref if isinstance(s, Binding) else ~s for s in split.saved]
        self.history = [s.ref if isinstance(s, Binding) else ~s for s, _ in split.history_inputs]
        self.results = [r for r in recording.results if isinstance(r, Made)]
        self.structure = recording.structure
        types = {r.history.root: (plan.types[r.number][1], plan.types[r.number][0]) for r in self.results}
        self.out_types = tuple([types[root] for root in range(split.roots)])

    def __call__(self, *tensors: Tensor) -> Any:
        outputs = [make(shape, dtype) for make, shape, dtype in self.makers]
        self.forward.run([tensors[i]._data for i in self.arguments], outputs)
        node = GradedNode(self, tensors, outputs)
        found = []
        for r in self.results:
            t = blank(Tensor)
            t._data = outputs[r.number]
            if r.history.root is not None:
                t._grad_fn = node
                if r.history.root:
                    t._output_nr = r.history.root
            found.append(t)
        return found[0] if self.structure is LEAF else unflatten(self.structure, found)


class GradedNode(Node):
    """``grad_fn`` of the results of one call. What it reads are arguments, which must not change, and outputs.

    It gives the engine, one by one, what the nodes of the eager call would. When the gradient is differentiated itself,
    or recorded, it makes those nodes and leads on to them; it has kept numbers for them. So gradients that have several
    sources are added up in the same order.
    """

    __slots__ = ("call", "first", "outputs", "tensors", "unfolded", "versions")

    tensors: Sequence[Tensor] | None

    def __init__(self, call: GradedCall, tensors: Sequence[Tensor], outputs: Sequence[Array]) -> None:
        super().__init__(tuple([gradient_edge(tensors[i]) for i in call.wanted]), call.out_types)
        self.first = reserve_numbers(len(call.split.history) + 1)
        self.number = self.first + len(call.split.history)
        self.unfolded = False
        self.call = call
        self.tensors = tensors
        self.versions = [0 if t._storage is None else t._storage.version for t in tensors]
        self.outputs = outputs

    def name(self) -> str:
        return self.call.named

    def release(self) -> None:
        self.tensors = None
        self.outputs = ()

    def spent(self) -> bool:
        tensors, versions = self.tensors, self.versions
        if tensors is None:
            return not self.unfolded
        return any(n >= 0 and tensors[n]._version != versions[n] for n in self.call.saved)

    def held(self) -> Sequence[Tensor]:
        return self.tensors or ()

    def _array(self, number: int) -> Array:
        """Argument ``number``, unchanged, or output ``~number``."""
        if number < 0:
            return self.outputs[~number]
        assert self.tensors is not None
        t = self.tensors[number]
        if t._version != self.versions[number]:
            raise RuntimeError(modified(t, self.versions[number]))
        return t._data

    def backward(self, grads: Grads) -> Grads:
        if self.unfolded:
            return grads
        if self.tensors is None:
            raise RuntimeError(FREED)
        if not all(g is None or in_order(g._data) for g in grads):
            return self._through_history(grads)
        call = self.call
        like = next(g for g in grads if g is not None)
        saved = [self._array(n) for n in call.saved]
        given = [
            np.zeros(shape, dtype) if g is None else g._data
            for g, (dtype, shape) in zip(grads, self.out_types, strict=True)
        ]
        runner = call.plan.derivative()
        outputs = [np.empty(o.value.shape, o.value.dtype.numpy) for o in runner.graph.outputs]
        runner.run([*saved, *given], outputs)
        return [None if n is None else like._wrap(outputs[n]) for _, n in call.split.wanted]

    def _through_history(self, grads: Grads) -> Grads:
        """The same by the nodes of the eager call: sums of what lies in another order add in that order."""
        call = self.call
        edges = [e for e in dict(zip(call.wanted, self.edges, strict=True)).values() if e is not None]
        ends: list[tuple[Node, int]] = [(Node((), (e[0].out_types[e[1]],)), 0) for e in edges]
        roots = call.split.history.build(ends, [self._tensor(n) for n in call.history])
        given = [(r, g) for r, g in zip(roots, grads, strict=True) if g is not None]
        found = contributions([r for r, _ in given], [Tensor._wrap(g._data) for _, g in given], ends)
        result: list[TensorBase | None] = []
        for end, argument in zip(ends, dict.fromkeys(call.wanted), strict=True):
            each = found.get(end, [])
            result += [*each, *[None] * (call.wanted.count(argument) - len(each))]
        return result

    def unfold(self) -> None:
        if self.unfolded or self.tensors is None:
            return
        call = self.call
        ends = dict(zip(call.wanted, self.edges, strict=True))
        inputs = [self._tensor(n) for n in call.history]
        self.edges = tuple(call.split.history.build(list(ends.values()), inputs, self.first))
        self.unfolded = True
        self.tensors, self.outputs = None, ()

    def _tensor(self, number: int) -> Tensor:
        """The same as a tensor; an argument's shares the count of writes."""
        found = Tensor._wrap(self._array(number))
        if number >= 0 and self.tensors is not None:
            found._storage = self.tensors[number]._shared_storage()
        return found

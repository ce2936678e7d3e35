"""Compiled calls differentiated from outside: the history of their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracecomp.autograd.engine import run_backward
from tracecomp.modes import modes
from tracecomp.node import FREED, Edge, Grads, Node, modified
from tracecomp.record.binding import Binding, read, tensor_of
from tracecomp.record.recording import Split
from tracecomp.runner import Backend
from tracecomp.tensor import Tensor, gradient_edge

Array = np.ndarray[Any, Any]


class Freed(Node):
    """History of a result whose backward pass ran inside the compiled call."""

    __slots__ = ()

    def backward(self, grads: Grads) -> Grads:
        raise RuntimeError(FREED)


class CompiledNode(Node):
    """``grad_fn`` of the results of a compiled call."""

    __slots__ = ("derivative", "history", "saved", "split")

    def __init__(
        self, derivative: Callable[[], Backend], split: Split, leaves: Sequence[Any], kept: Kept
    ) -> None:
        tensors = [tensor_of(b, leaves) for b, _ in split.wanted]
        edges: tuple[Edge, ...] = tuple([gradient_edge(t) for t in tensors])
        super().__init__(edges, tuple([(kept.outputs[n].dtype, kept.outputs[n].shape) for n in split.roots]))
        self.derivative = derivative
        self.split = split
        self.saved: list[Any] | None = [
            kept.outputs[s] if isinstance(s, int) else kept.input(s, leaves) for s in split.saved
        ]
        self.history: list[Any] = [
            kept.before[id(b)] if overwritten else kept.input(b, leaves) for b, overwritten in split.history_inputs
        ]

    def release(self) -> None:
        self.saved = None
        self.history = []

    def backward(self, grads: Grads) -> Grads:
        if self.saved is None:
            raise RuntimeError(FREED)
        like = next(g for g in grads if g is not None)
        if modes.grad:
            return self._differentiably(grads)
        saved = [_array(s) for s in self.saved]
        given = [
            np.zeros(shape, dtype) if g is None else g._data
            for g, (dtype, shape) in zip(grads, self.out_types, strict=True)
        ]
        runner = self.derivative()
        outputs = [np.empty(o.value.shape, o.value.dtype.numpy) for o in runner.graph.outputs]
        runner.run([*saved, *given], outputs)
        return [None if n is None else like._wrap(outputs[n]) for _, n in self.split.wanted]

    def _differentiably(self, grads: Grads) -> Grads:
        """The gradients with a history of their own: the nodes of the recorded call are built again and run."""
        roots = self.split.history.build([_array(s) for s in self.history], self.edges)
        pairs = [(r, g) for r, g in zip(roots, grads, strict=True) if g is not None]
        targets = [e for e in self.edges if e is not None]
        found = run_backward(
            [r for r, _ in pairs], [g for _, g in pairs], keep_graph=True, create_graph=True, targets=targets,
            accumulate=False, hook_targets=False,
        )  # fmt: skip
        return [None if e is None else found.get(e) for e in self.edges]


class Kept:
    """The arrays of one call, for what backward will read."""

    __slots__ = ("before", "outputs", "values")

    def __init__(self, bindings: Sequence[Binding], arrays: Sequence[Array], before: dict[int, Array]) -> None:
        self.values = {id(b): a for b, a in zip(bindings, arrays, strict=True)}
        self.before = before
        self.outputs: Sequence[Array] = ()

    def input(self, binding: Binding, leaves: Sequence[Any]) -> _Kept:
        array = self.values.get(id(binding))
        if array is None:
            array = read(binding, leaves)
        return _Kept(binding, array, leaves)


def _array(saved: Any) -> Array:
    return saved.array() if isinstance(saved, _Kept) else saved


class _Kept:
    """An input that backward reads, unchanged since the call."""

    __slots__ = ("_array", "_tensor", "_version")

    def __init__(self, binding: Binding, array: Array, leaves: Sequence[Any]) -> None:
        tensor = None if binding.kind in ("host", "size") else tensor_of(binding, leaves)
        self._array = array
        self._tensor = tensor if isinstance(tensor, Tensor) else None
        self._version = 0 if self._tensor is None else self._tensor._version

    def array(self) -> Array:
        if self._tensor is not None and self._tensor._version != self._version:
            raise RuntimeError(modified(self._tensor, self._version))
        return self._array

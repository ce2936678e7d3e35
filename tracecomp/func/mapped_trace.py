"""The recording of one example whose graph runs for all examples, and functions run through it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from tracecomp.autograd.function import Function
from tracecomp.base.errors import user_source
from tracecomp.eager.modes import modes, unrecorded
from tracecomp.eager.rng import default_generator
from tracecomp.eager.tangents import apart
from tracecomp.eager.tensor import Tensor
from tracecomp.func.batching import Batch, batched_node
from tracecomp.func.custom_functions import VmapInfo, batched_call, check_mappable
from tracecomp.func.trace import DETACH, NO_GRAD, Trace, traced
from tracecomp.functional.primitives import prim
from tracecomp.ir.graph import Node, Value
from tracecomp.ir.types import TensorType
from tracecomp.record.pytree import flatten, unflatten

CONTROL_FLOW = (
    "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow, or to call .item() on "
    "it, which vmap cannot do for every example: the value at {source} differs between examples. Use where instead."
)


def mapped(
    func: Callable[..., Any], structure: Any, leaves: Sequence[Any], axes: Sequence[int | None], info: VmapInfo,
) -> tuple[Any, list[Any]]:  # fmt: skip
    """Run ``func`` of one example for all examples along ``axes`` of ``leaves``, which ``structure`` nests.

    Returns the structure and the leaves of the results: a ``Batch`` for each tensor that depends on batched leaves.
    Writes to batched leaves reach the caller's tensors.
    """
    with unrecorded():  # otherwise an outer recording guards the flag of the example, a new tensor at every call
        examples = [x if a is None else _first(x, a).requires_grad_(x.requires_grad)
                    for x, a in zip(leaves, axes, strict=True)]  # fmt: skip
    batched = [(e, x, a) for e, x, a in zip(examples, leaves, axes, strict=True) if a is not None]
    trace = MappedTrace({id(e): _moved(x, a, 0) for e, x, a in batched}, info)
    args, kwargs = unflatten(structure, examples)
    results, result_structure = traced(trace, func, args, kwargs, [e for e, _, _ in batched])
    trace.check_effects()
    written = [(e, x, a) for e, x, a in batched if trace.value(e) is not trace.inputs.initial[id(e)]]
    values = [trace.value(x) if isinstance(x, Tensor) else None for x in results]
    changed = [trace.value(e) for e, _, _ in written]
    known = trace.results([*[v for v in values if v is not None], *changed])
    for value, (_, x, a) in zip(changed, written, strict=True):
        new = known[value]
        x.copy_(_moved(new.value, 0, a) if isinstance(new, Batch) else prim.reshape(new, shape=_with_axis(new, a)))
    return result_structure, [x if v is None else known[v] for x, v in zip(results, values, strict=True)]


def _moved(x: Tensor, axis: int, to: int) -> Tensor:
    """``x`` with ``axis`` at position ``to``."""
    if axis == to:
        return x
    order = [i for i in range(x.ndim) if i != axis]
    order.insert(to, axis)
    return prim.permute(x, dims=tuple(order))


def _with_axis(x: Tensor, axis: int) -> tuple[int, ...]:
    """The shape of ``x`` with an axis of size 1 at ``axis``."""
    return (*x.shape[:axis], 1, *x.shape[axis:])


def _first(x: Tensor, axis: int) -> Tensor:
    """The first example, copied to new memory; zeros if there is none."""
    with unrecorded():
        if x._data.shape[axis] == 0:
            return Tensor._wrap(np.zeros((*x._data.shape[:axis], *x._data.shape[axis + 1 :]), x._data.dtype))
        return Tensor._wrap(np.array(x._data.take(0, axis=axis)))


class MappedTrace(Trace):
    """The recording of one example. ``batches`` are the values of its arguments for all examples.

    Calls of users' Functions run for all examples at once, while the example is still being recorded: their results
    become further inputs of the graph. So ``forward``, or the class's ``vmap``, runs once, on real batches, and
    histories outside of ``vmap`` have the Function's derivative.
    """

    maps_functions = True

    def __init__(self, batches: Mapping[int, Tensor], info: VmapInfo) -> None:
        super().__init__("vmap", modes.recorder)
        self.batches = dict(batches)
        self.info = info
        self.known: dict[Value, Any] = {}
        self._done = 0
        self._modes = modes.grad, modes.levels

    def check_effects(self) -> None:
        """RuntimeError for writes that every example would repeat."""
        if self.wrote_grad():
            raise RuntimeError("vmap: backward() inside of a mapped function would write .grad; use func.grad instead.")
        if any(id(t) not in self.inputs.arguments and t is not default_generator.state for t in self.written()):
            raise RuntimeError(
                "vmap: inplace arithmetic on a tensor that is not an argument of the mapped function is not possible: "
                "every example would write to it."
            )

    def map_function(self, function: type[Function], args: tuple[object, ...], kwargs: Mapping[str, object]) -> Any:
        """The output of ``forward`` for the example, computed for all examples."""
        check_mappable(function, kwargs)
        leaves: list[Any] = []
        structure = flatten(args, leaves)
        values = [self.value(x) if isinstance(x, Tensor) else None for x in leaves]
        with self._outside():
            self._advance()
            given = [x if v is None else self.known[v] for x, v in zip(leaves, values, strict=True)]
            output_structure, outputs = batched_call(mapped, function, self.info, structure, given, kwargs)
        operands = {id(_tensor(x)): e for x, e, v in zip(given, leaves, values, strict=True) if v is not None}
        examples = [self._example(x, operands.get(id(_tensor(x)))) for x in outputs]
        return unflatten(output_structure, examples)

    def _example(self, x: Any, operand: Tensor | None) -> Any:
        """The example of a result: ``operand``, with its new elements, if the Function returned that."""
        if not isinstance(x, Tensor | Batch):
            return x
        example = _first(x.value, 0) if isinstance(x, Batch) else Tensor._wrap(np.array(x._data))
        if not modes.grad:
            with self._outside():
                x = Batch(apart(x.value, False)) if isinstance(x, Batch) else apart(x, False)
        value = self.graph.add_input(TensorType(example.dtype, example._data.shape), f"f{len(self.graph.inputs)}")
        self.known[value] = x
        self._made(example, value, None, user_source())
        if operand is None:
            return example
        np.copyto(operand._data, example._data)
        operand._shared_storage().wrote()
        self.write(operand, example)
        return operand

    @contextmanager
    def _outside(self) -> Iterator[None]:
        """Run in the recording, the modes and with the random state around ``vmap``."""
        state = default_generator.state._data
        inside, before = state.copy(), (modes.recorder, modes.grad, modes.levels)
        np.copyto(state, self.random_state)
        modes.recorder, (modes.grad, modes.levels) = self.outer, self._modes
        try:
            yield
        finally:
            modes.recorder, modes.grad, modes.levels = before
            self.random_state = state.copy()
            np.copyto(state, inside)

    def results(self, wanted: Sequence[Value]) -> dict[Value, Any]:
        """Every wanted value, a ``Batch`` where it differs between examples."""
        graph = self.graph
        for v in (*wanted, *[p.value for p in self.predicates]):
            graph.add_output(v)
        self._meet_inputs()
        self.forget()
        for node in graph.live_nodes():
            self._run(node)
        for p in self.predicates:
            found = self.known[p.value]
            if isinstance(found, Batch):
                raise RuntimeError(CONTROL_FLOW.format(source=p.source))
            if modes.recorder is not None:
                modes.recorder.observe(found, p.seen)
        return {v: self.known[v] for v in wanted}

    def _advance(self) -> None:
        """Run all nodes so far: a Function may write to its operands, which earlier nodes read."""
        self._meet_inputs()
        nodes = self.graph.nodes
        for node in nodes[self._done :]:
            self._run(node)
        self._done = len(nodes)

    def _meet_inputs(self) -> None:
        for key, value in self.inputs.initial.items():
            if value not in self.known:
                self.known[value] = Batch(self.batches[key]) if key in self.batches else self.values.outside[key]
        for given in self.graph.inputs:
            if given.role == "constant" and given.data is not None and given.value not in self.known:
                self.known[given.value] = Tensor._wrap(given.data)
                if modes.recorder is not None:
                    modes.recorder.constant(self.known[given.value])

    def _run(self, node: Node) -> None:
        if node.outputs[0] not in self.known:
            self.known.update(zip(node.outputs, self._results(node), strict=True))

    def _results(self, node: Node) -> list[Any]:
        operands = [self.known[v] for v in node.inputs]
        if node.op is DETACH or node.op is NO_GRAD:
            (x,) = operands
            ended = Tensor.detach if node.op is DETACH else partial(apart, history=False)
            return [Batch(ended(x.value)) if isinstance(x, Batch) else ended(x)]
        if node.op.kind == "random":
            return [self._drawn(node.attrs["shape"])]
        if not operands:
            return [Tensor.__tracecomp_apply__(node.op, (), node.attrs)]
        return batched_node(self.info.batch_size, node, operands)

    def _drawn(self, shape: tuple[int, ...]) -> Any:
        if self.info.randomness == "error":
            raise RuntimeError(
                "vmap: called random operation while in randomness error mode. Please either use the 'same' or "
                "'different' randomness flags on vmap or perform the randomness operation out of vmap"
            )
        if self.info.randomness == "same":
            return default_generator.bits(shape)
        return Batch(default_generator.bits((self.info.batch_size, *shape)))


def _tensor(x: Any) -> Any:
    return x.value if isinstance(x, Batch) else x

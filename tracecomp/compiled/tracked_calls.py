"""Machine code for eager calls whose results have a history: one node replaces those of the call.

It saves the same values as they do: operands, with their numbers of writes, and intermediate values. It therefore
detects the same changes, even in memory without write counts (``.data``, arrays), and raises in the same cases. It has
an edge for each of theirs that leaves the call, in their order: every contribution to a gradient is added separately to
the others.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

import numpy as np

from tracecomp.autograd.engine import run_backward
from tracecomp.base.interrupts import uninterrupted
from tracecomp.compiled.backends import BACKENDS
from tracecomp.compiled.replay import Plan
from tracecomp.compiled.served_kinds import ServedKinds
from tracecomp.compiled.trial_runs import Array, Unfit, all_random, copies, of_tensors, random_like, same
from tracecomp.eager.device import use
from tracecomp.eager.grad_fn import FREED, AccumulateGrad, OpNode, ProgramNode, modified, run_on_arrays
from tracecomp.eager.modes import modes, unseen
from tracecomp.eager.storage import Storage
from tracecomp.eager.tensor import Tensor, gradient_edge
from tracecomp.eager.tensor_base import Grads, Node, TensorBase, node_count
from tracecomp.eager.vjp_program import ArrayType, Derivative, Run, flatten
from tracecomp.functional.warm import Statics, Warm
from tracecomp.record.binding import Binding
from tracecomp.record.capture import record
from tracecomp.record.pytree import LEAF
from tracecomp.record.recording import Recording, Split
from tracecomp.record.results import Given, Made, Result

_new, _new_object, _empty = Tensor._wrap, object.__new__, np.empty
_NOTHING: Mapping[int, Any] = MappingProxyType({})


def tracked_call(warm: Warm, statics: Statics, tensors: list[Tensor]) -> TrackedCall:
    """A call like this one, whose result has a history, made ready to be served; Unfit when that cannot be."""
    eager = of_tensors(warm, statics)
    name = _worth(eager, tensors)
    served = TrackedCall(_plan(eager, tensors), name, eager)
    for given in (tensors, all_random(tensors)):
        same(_all(served.call, given), _all(eager, given))
    return served


def add_tracked(warm: Warm, statics: Statics, tensors: list[Tensor], served: TrackedCall) -> None:
    """Serve calls like this one from Python."""
    tracked = warm.tracked
    if tracked is None:
        tracked = _Tracked(warm)
        tracked.add(statics, tensors, served)
        warm.serve_tracked(tracked)
    elif isinstance(tracked, _Tracked):
        tracked.add(statics, tensors, served)


def _worth(call: Callable[..., Any], tensors: Sequence[Tensor]) -> str:
    """The name of the last node of ``call``; Unfit unless they lead to operands alone."""
    result = call(*tensors)
    root = result.grad_fn if isinstance(result, Tensor) else None
    if root is None or result._linked:
        raise Unfit("its result is not a new tensor with gradient history")
    reached, stack, ends = {root}, [root], set()
    while stack:
        for edge in stack.pop().edges:
            if edge is not None and isinstance(edge[0], AccumulateGrad):
                ends.add(id(edge[0].variable))
            elif edge is not None and edge[0] not in reached:
                reached.add(edge[0])
                stack.append(edge[0])
    if not ends <= {id(t) for t in tensors}:
        raise Unfit("its history leads to a tensor that is not an operand")
    return root.name()


def _plan(call: Callable[..., object], tensors: list[Tensor]) -> Plan:
    """``call`` recorded and compiled with its derivative; Unfit unless all it does is to make one new tensor.

    It may write to arguments that have no part in gradients, as statistics that run along.
    """
    _, recording = record(call, tuple(tensors), {}, call.__name__)
    if not isinstance(recording, Recording):
        raise Unfit(recording.reason)
    if recording.unsettled or recording.predicates or recording.effects or recording.rebased:
        raise Unfit("it has effects other than its results")
    split, results = recording.split, recording.results
    if any(b.kind != "argument" for b in recording.inputs) or recording.structure is not LEAF or split is None:
        raise Unfit("it reads non-arguments or returns more than one tensor")
    if not isinstance(results[0], Made) or results[0].order is not None or split.roots != 1:
        raise Unfit("its result is an existing tensor")
    recording.guards.modes.ignore_settings()
    _check_written(recording, split, results[0].number)
    plan = Plan(recording, BACKENDS["native"], None, _eagerly)
    plan.derivative()
    return plan


def _check_written(recording: Recording, split: Split, result: int) -> None:
    """Unfit where the derivative, or the result, has to do with what the call writes."""
    written = {b.ref for b, _ in recording.updates}
    outputs = {out for _, out in recording.updates}
    kept = [*split.saved, *[source for source, _ in split.history_inputs], *[b for b, _ in split.wanted], result]
    if any(b.kind != "argument" for b, _ in recording.updates):
        raise Unfit("it writes to a tensor that is not an argument")
    if any(x.ref in written if isinstance(x, Binding) else x in outputs for x in kept):
        raise Unfit("its derivative reads a tensor that it overwrites")


def _eagerly(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Derivatives of derivatives are those of eager nodes."""
    return fn


def _all(call: Callable[..., Any], tensors: Sequence[Tensor]) -> list[Array]:
    """The result of ``call``, gradients of a random sum of it, after those of other uses of its operands, and operands.

    Those are copied first, as it may write to some.
    """
    tensors = copies(tensors)
    result = call(*tensors)
    rng = np.random.default_rng(1)
    seed = _new(np.asarray(rng.standard_normal(result._data.shape)).astype(result._data.dtype))
    wanted = list(dict.fromkeys(t for t in tensors if t.requires_grad))
    edges = [e for t in wanted if (e := gradient_edge(t)) is not None]
    others = [random_like(t) for t in wanted]
    found = run_backward(
        [*edges, (result._grad_fn, 0)], [*others, seed], keep_graph=False, create_graph=False, targets=edges,
        accumulate=False,
    )  # fmt: skip
    # Gradients take the layout of their parameters on arrival, so any order is valid here.
    gradients = [np.ascontiguousarray(g._data) for e in edges if (g := found.get(e)) is not None]
    return [result._data, *gradients, *[t._data for t in tensors]]


def has_inference(tensors: Sequence[Tensor]) -> bool:
    """Whether one of the tensors was made in inference mode, so that only the eager call may write or save it."""
    for t in tensors:  # noqa: SIM110 - a generator takes twice the time
        if t._inference:
            return True
    return False


class _Tracked(ServedKinds["TrackedCall"]):
    """The calls of a function that machine code serves, by kinds."""

    def __call__(self, args: tuple[Any, ...]) -> Tensor | None:
        """The result; None where the call is not one that is served."""
        for i in self.places:
            t = args[i]
            if t._requires_grad or t._grad_fn is not None or t._linked:
                break
        else:
            return None
        if not modes.grad or modes.recorder is not None or modes.autocast is not None or use.begun:
            return None
        if modes.inference or modes.save_hooks or modes.anomaly:
            return None
        found = self.find(args)
        if found is None:
            return None
        served, tensors = found
        for t in tensors:
            if t._inference:
                return None
        if not served.updates:
            return served.call(*tensors)
        return served.call(*tensors) if served.may_write(tensors) else None


class TrackedCall:
    """A call as two programs: the result and what backward reads, and the gradients."""

    def __init__(self, plan: Plan, name: str, eager: Callable[..., Tensor]) -> None:
        self._eager = eager
        self.plan = plan
        recording = plan.recording
        assert recording.split is not None
        self.split: Split = recording.split
        self._inputs = [b.ref for b in recording.inputs]
        self._types = plan.types
        self.updates = [(b.ref, out) for b, out in recording.updates]
        self._writes = [(b.ref, times) for b, times in recording.writes]
        self._forward = plan.program()
        self.backward = plan.derivative()
        self.grad_types = [(o.value.shape, o.value.dtype.numpy) for o in self.backward.graph.outputs]
        (made,) = recording.results
        assert isinstance(made, Made)
        self.result = made.number
        outputs = [o.value for o in recording.graph.outputs]
        # A saved value that is the result is that tensor's memory, and its writes count.
        self.saved = [self._source(s, outputs) for s in self.split.saved]
        # Views keep the memory that an operand has; a node that keeps the operand sees what memory it has later.
        self.viewed = [n for k, (operand, n) in enumerate(self.saved) if operand and k in self.split.views]
        self.wanted = [(b.ref, n) for b, n in self.split.wanted if n is not None]
        # Only values that backward reads, or from which the eager nodes are rebuilt, are saved.
        again = [source for source, _ in self.split.history_inputs]
        self.operands = {n for operand, n in self.saved if operand} | {b.ref for b in again if isinstance(b, Binding)}
        self.results = {n for operand, n in self.saved if not operand} | {n for n in again if isinstance(n, int)}
        self._node = type(name, (_TrackedNode,), {"__slots__": ()})
        shape, dtype = plan.types[self.result]
        self._out_types = ((dtype, shape),)
        self._kept = tuple(sorted(self.operands))

    def _source(self, source: Binding | int, outputs: Sequence[Any]) -> tuple[bool, int]:
        """Whether it is an operand, and its number."""
        if isinstance(source, Binding):
            return True, source.ref
        return False, self.result if outputs[source] is outputs[self.result] else source

    def may_write(self, tensors: Sequence[Tensor]) -> bool:
        """Whether written tensors are not constants, and overlap with nothing else."""
        for i, _ in self.updates:
            array = tensors[i]._data
            if not array.flags.writeable or not array.flags.c_contiguous:
                return False
            if any(np.may_share_memory(array, t._data) for k, t in enumerate(tensors) if k != i):
                return False
        return True

    def call(self, *tensors: Tensor) -> Tensor:
        """The result, with its history."""
        outputs = [_empty(shape, dtype) for shape, dtype in self._types]
        arrays = [tensors[i]._data for i in self._inputs]
        inputs = [a if a.flags.c_contiguous else np.ascontiguousarray(a) for a in arrays]
        if self.updates:
            for i, n in self.updates:
                outputs[n] = tensors[i]._data
            with uninterrupted:  # all is written and counted, or nothing
                uninterrupted.allow_in_loops(True)
                self._forward.run(inputs, outputs)
                uninterrupted.allow_in_loops(False)
                for i, times in self._writes:
                    tensors[i]._shared_storage().wrote(times)
        else:
            self._forward.run(inputs, outputs)
        found = _new(outputs[self.result])
        found._grad_fn = self._history(tensors, outputs, found)
        return found

    def gradients(self, arrays: Sequence[Array]) -> list[Array]:
        """The gradients of operands, from saved values and the gradient of the result."""
        outputs = [_empty(shape, dtype) for shape, dtype in self.grad_types]
        self.backward.run([a if a.flags.c_contiguous else np.ascontiguousarray(a) for a in arrays], outputs)
        return [outputs[n] for _, n in self.wanted]

    @cached_property
    def program(self) -> Derivative:
        """The derivative as a program."""
        return _Backward(self)

    @cached_property
    def value_types(self) -> Sequence[ArrayType]:
        """The types of the saved values."""
        inputs = self.backward.graph.inputs[: len(self.saved)]
        return [(i.value.type.dtype.numpy, i.value.type.shape) for i in inputs]

    def for_native_code(self, tensors: Sequence[Tensor]) -> Callable[[tuple[Tensor, ...]], Tensor]:
        """Make ``plan`` one that native code can run alone; return the function that builds the result from its return
        value.

        It returns the result, other values that backward reads, and the operands.
        """
        outputs = [self.result, *sorted(self.results - {self.result})]
        places = [id(t) for t in tensors]
        operands = [Given(Binding("argument", places.index(place))) for place in places]
        results: list[Result] = [*map(Made, outputs), *operands]
        structure = (tuple, *(LEAF,) * len(results))
        self.plan.recording = replace(self.plan.recording, split=None, results=results, structure=structure)
        return partial(self._finished, outputs, len(outputs))

    def _finished(self, outputs: list[int], first: int, values: tuple[Tensor, ...]) -> Tensor:
        """The result, with its history, of what native code has made; rare modes have the eager call.

        A call that writes cannot be repeated. Native guards exclude those modes, and its caller tensors of inference
        mode.
        """
        tensors = values[first:]
        if not self.updates and (modes.save_hooks or modes.anomaly or use.begun or has_inference(tensors)):
            return self._eager(*tensors)
        arrays: dict[int, Array] = {}
        if self.results:
            arrays = {n: values[k]._data for k, n in enumerate(outputs)}
        found = values[0]
        found._grad_fn = self._history(tensors, arrays, found)
        return found

    def _history(self, tensors: tuple[Tensor, ...], outputs: Mapping[int, Array] | list[Array], found: Tensor) -> Node:
        """The node of one call: written out, because every call waits for it."""
        node: _TrackedNode = _new_object(self._node)
        node.edges = tuple([gradient_edge(tensors[i]) for i, _ in self.wanted])
        node.out_types = self._out_types
        node.number = node_count()
        node._served = self
        kept = self._kept
        node._tensors = {i: tensors[i] for i in kept} if kept else _NOTHING
        node._counts = {i: tensors[i]._version for i in kept} if kept else _NOTHING
        viewed = self.viewed
        node._arrays = {i: tensors[i]._data for i in viewed} if viewed else _NOTHING
        results = self.results
        node._outputs = {n: outputs[n] for n in results} if results else _NOTHING
        node._storage = found._shared_storage() if self.result in results else None
        node._apart = False
        return node


class _Backward(Derivative):
    """The derivative of a call as a program among others; on arrays, its machine code."""

    __slots__ = ("_served",)

    def __init__(self, served: TrackedCall) -> None:
        graph = served.backward.graph
        outputs = [graph.outputs[n].value for _, n in served.wanted]
        whole = flatten(graph, outputs, len(served.saved))
        super().__init__(whole.steps, whole.results, whole.reads, whole.size)
        self._served = served

    def run(self, slots: list[Any], run: Run) -> list[Any]:
        return self._served.gradients(slots) if run is run_on_arrays else super().run(slots, run)


class _TrackedNode(ProgramNode):
    """The nodes of one call as one. ``tensors`` are the operands, where they are kept."""

    __slots__ = ("_apart", "_arrays", "_counts", "_outputs", "_served", "_storage", "_tensors")

    compiled = True
    _apart: bool
    _arrays: Mapping[int, Array]
    _counts: Mapping[int, int]
    _outputs: Mapping[int, Array]
    _served: TrackedCall
    _storage: Storage | None
    _tensors: Mapping[int, Tensor] | None

    def form(self) -> Any:
        return None if self.observed or self._apart or self._tensors is None else self._served

    def program(self, present: tuple[bool, ...]) -> Derivative:
        return self._served.program

    def value_types(self) -> Sequence[ArrayType]:
        return self._served.value_types

    def take(self, slots: Sequence[int], arrays: list[Array]) -> bool:
        try:
            saved = self._saved()
        except RuntimeError:
            return False
        arrays += [saved[slot] for slot in slots]
        return True

    def release(self) -> None:
        if self._served.split.history.keeps:  # else the eager nodes could be passed again, and so can this one
            self._tensors, self._outputs, self._arrays = None, _NOTHING, _NOTHING

    def held(self) -> Sequence[TensorBase]:
        return list((self._tensors or _NOTHING).values())

    def spent(self) -> bool:
        if self._apart:
            return False
        try:
            self._saved()
        except RuntimeError:
            return True
        return False

    def _saved(self) -> list[Array]:
        """The saved values; RuntimeError if they were freed, or written to since."""
        if self._tensors is None:
            raise RuntimeError(FREED)
        arrays = []
        for operand, n in self._served.saved:
            if operand:
                t = self._tensors[n]
                if t._version != self._counts[n]:
                    raise RuntimeError(modified(t, self._counts[n]))
                arrays.append(self._arrays.get(n, t._data))
            else:
                if n == self._served.result and self._storage is not None and self._storage.version:
                    result = _new(self._outputs[n])
                    result._storage = self._storage
                    raise RuntimeError(modified(result, 0, self, 0))
                arrays.append(self._outputs[n])
        return arrays

    def backward(self, grads: Grads) -> Grads:
        (grad,) = grads
        assert grad is not None
        if self._apart:
            return grads
        saved, served = self._saved(), self._served
        if modes.grad or modes.recorder is not None or use.begun:
            self._take_apart()
            return grads
        return list(map(grad._wrap, served.gradients([*saved, grad._data])))

    @unseen()
    def _take_apart(self) -> None:
        """Replace this node by rebuilt nodes of the eager call.

        A derivative that is differentiated has these nodes' history. They also receive later gradients of this node.
        """
        tensors, split = self._tensors, self._served.split
        assert tensors is not None
        inputs = []
        for source, _ in split.history_inputs:
            array = self._outputs[source] if isinstance(source, int) else tensors[source.ref]._data
            inputs.append(_new(array))
            if isinstance(source, Binding):
                inputs[-1]._storage = tensors[source.ref]._shared_storage()
        known = dict(zip([i for i, _ in self._served.wanted], self.edges, strict=True))
        ends = [known.get(i) for i in dict.fromkeys(b.ref for b, _ in split.wanted)]
        ((root, number),) = split.history.nodes(ends, inputs, self.number)
        self.edges = ((root, number),)
        if isinstance(root, OpNode):
            root.behind = {number: (weakref.ref(self), 0)}
        self._apart = True

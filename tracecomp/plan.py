"""Running a recording: read inputs, run the graph, check predicates, write state, build results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from tracecomp.autograd.engine import run_backward
from tracecomp.dump import Dump
from tracecomp.ir.graph import Graph, Value
from tracecomp.ir.interpret import Interpreter
from tracecomp.modes import modes
from tracecomp.node import FREED, Edge, Grads, Node, look, modified
from tracecomp.passes import build
from tracecomp.passes.explain import describe_built
from tracecomp.passes.segments import has_external, segments
from tracecomp.record.pytree import LEAF, unflatten
from tracecomp.record.recording import Binding, Given, Made, Plain, Recording, Split
from tracecomp.runtime.executable import Executable
from tracecomp.tensor import Tensor, gradient_edge

Array = np.ndarray[Any, Any]


def _write(outputs: Sequence[Array], found: Sequence[Array], arrays: Sequence[Array]) -> None:
    """Copy results to outputs, some of which may be the memory of inputs that other results look at."""
    kept = [f.copy() if any(np.may_share_memory(f, a) for a in arrays) else f for f in found]
    for out, result in zip(outputs, kept, strict=True):
        np.copyto(out, result)


class Interpreted:
    """A graph run by the numpy interpreter."""

    def __init__(self, graph: Graph, aliases: Mapping[int, int], threads: int | None) -> None:
        self.graph = graph
        self._interpreter = Interpreter(graph)

    def run(self, arrays: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Compute ``outputs`` from ``arrays``."""
        _write(outputs, self._interpreter.run(arrays), arrays)

    def explain(self) -> str:
        """What was decided: nothing."""
        return "runs in the numpy interpreter, as recorded"


class Native:
    """A graph compiled to machine code. ``aliases`` as in ``passes.build``."""

    def __init__(self, graph: Graph, aliases: Mapping[int, int], threads: int | None) -> None:
        self.graph = graph
        dump = Dump(graph.name)
        self.built = build(graph, aliases, dump)
        self.executable = Executable(self.built.program)
        if dump.folder is not None:
            dump.write("llvm", self.executable.llvm_ir, "ll")
            dump.write("assembly", self.executable.assembly, "s")
        self.threads = threads
        given = iter(range(sum(i.role != "constant" for i in graph.inputs)))
        self._slots = [
            (next(given), None) if i.role != "constant" else (0, _dense(i.data)) for i in self.built.graph.inputs
        ]
        self._constants = [_dense(c) for c in self.built.constants]
        self._plain = len(self._constants) == 0 and all(c is None for _, c in self._slots)

    def run(self, arrays: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Compute ``outputs`` from ``arrays``; IndexError when an index is out of range."""
        dense = [a if a.flags.c_contiguous else np.ascontiguousarray(a) for a in arrays]
        if not self._plain:
            dense = [dense[k] if c is None else c for k, c in self._slots] + self._constants
        self.executable.run(dense, outputs, self.threads)

    def explain(self) -> str:
        """What the passes decided, what fused and why the rest did not."""
        return describe_built(self.built.stages, self.built.lowered.partition)


def _dense(array: Any) -> Array:
    return np.ascontiguousarray(array)


class Hosted:
    """A graph whose linear algebra routines the host runs, between parts compiled to machine code."""

    def __init__(self, graph: Graph, aliases: Mapping[int, int], threads: int | None) -> None:
        self.graph = graph
        self._open = [i.value for i in graph.inputs if i.role != "constant"]
        self._constants = {i.value: _dense(i.data) for i in graph.inputs if i.role == "constant"}
        self._parts = [
            (Native(s.work, {}, threads) if isinstance(s.work, Graph) else s.work, s.reads, s.writes)
            for s in segments(graph)
        ]

    def run(self, arrays: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Compute ``outputs`` from ``arrays``."""
        known: dict[Value, Array] = {**self._constants, **dict(zip(self._open, arrays, strict=True))}
        for work, reads, writes in self._parts:
            given = [known[v] for v in reads]
            if isinstance(work, Native):
                found = [np.empty(v.shape, v.dtype.numpy) for v in writes]
                work.run(given, found)
            else:
                result = work.op.impl(*given, **work.attrs)
                found = [*map(np.asarray, result)] if isinstance(result, tuple) else [np.asarray(result)]
            known.update(zip(writes, found, strict=True))
        _write(outputs, [known[o.value] for o in self.graph.outputs], arrays)

    def explain(self) -> str:
        """What was decided for each compiled part."""
        return "\n".join(
            work.explain() if isinstance(work, Native) else f"{work.op.name}: run by the host"
            for work, *_ in self._parts
        )


Backend = Interpreted | Native | Hosted


def native(graph: Graph, aliases: Mapping[int, int], threads: int | None) -> Backend:
    """The graph as machine code, around what only the host can run."""
    return (Hosted if has_external(graph) else Native)(graph, aliases, threads)


BACKENDS: dict[str, Callable[..., Backend]] = {"native": native, "interpret": Interpreted}


class Plan:
    """A recording made ready to run."""

    def __init__(self, recording: Recording, backend: str, threads: int | None) -> None:
        self.recording = recording
        self._make = BACKENDS[backend]
        self._threads = threads
        graph, inputs = recording.graph, recording.inputs
        self._arguments = [b.ref for b in inputs if b.kind == "argument"]
        self._array_arguments = bool(recording.guards.arrays)
        self._states = [b.ref for b in inputs if b.kind == "state"]
        self._others = [_reader(b) for b in inputs if b.kind in ("grad", "host")]
        position = {id(b): i for i, b in enumerate(inputs)}
        pairs = [(out, position.get(id(b))) for b, out in recording.updates]
        self._aliases = [] if recording.predicates else [(out, i) for out, i in pairs if i is not None]
        in_place = {out for out, _ in self._aliases}
        self._types = [(o.value.shape, o.value.dtype.numpy) for o in graph.outputs]
        self._fresh = [(n, *t) for n, t in enumerate(self._types) if n not in in_place]
        self._reusable = self._reusable_grads()
        self._lone = _lone_result(recording)
        self.forward: Backend = self._make(graph, dict(self._aliases), threads)
        self._backward: Backend | None = None

    def _reusable_grads(self) -> list[tuple[Tensor, int]]:
        """Gradients that each call replaces and does not read: their memory may be written again if nobody holds it."""
        recording = self.recording
        if recording.predicates:
            return []
        shown = {r.number for r in recording.results if isinstance(r, Made)}
        read = {id(b.ref) for b in recording.inputs if b.kind == "grad"}
        numbers = [n for _, n in recording.grads if isinstance(n, int)]
        return [
            (t, n) for t, n in recording.grads
            if isinstance(n, int) and n not in shown and id(t) not in read and numbers.count(n) == 1
        ]  # fmt: skip

    @property
    def backends(self) -> list[Backend]:
        """What runs the forward graph and, once it was needed, the backward graph."""
        return [self.forward] if self._backward is None else [self.forward, self._backward]

    @property
    def backward(self) -> Backend:
        """The compiled backward graph, compiled when first needed."""
        if self._backward is None:
            assert self.recording.split is not None
            self._backward = self._make(self.recording.split.backward, {}, self._threads)
        return self._backward

    def call(self, leaves: Sequence[Any]) -> tuple[int, Any]:
        """Run on argument ``leaves``: how many predicates held, and the results.

        When a predicate does not hold, its value takes the place of the results, and nothing outside was written.
        """
        recording = self.recording
        if self._array_arguments:
            arrays = [leaves[i]._data if isinstance(leaves[i], Tensor) else leaves[i] for i in self._arguments]
        else:
            arrays = [leaves[i]._data for i in self._arguments]
        arrays += [t._data for t in self._states]
        if self._others:
            arrays += [read(leaves) for read in self._others]
        outputs = self._outputs(arrays)
        kept = None if recording.split is None else self._keep(leaves, arrays)
        self.forward.run(arrays, outputs)
        for k, (out, seen, _) in enumerate(recording.predicates):
            now = outputs[out].tolist()
            if not _same(now, seen):
                return k, now
        for b, out in recording.updates:
            t = _tensor(b, leaves)
            if outputs[out] is not t._data:
                np.copyto(t._data, outputs[out])
            t._shared_storage().version += 1
        recording.calls += 1
        if self._lone is not None:
            return len(recording.predicates), Tensor._wrap(outputs[self._lone])
        return len(recording.predicates), self._results(leaves, outputs, kept)

    def _outputs(self, arrays: Sequence[Array]) -> list[Any]:
        """Memory for the outputs: the state's own where it is updated in place, old gradients', or new."""
        outputs: list[Any] = [None] * len(self._types)
        for t, n in self._reusable:
            outputs[n] = _unshared(t, *self._types[n])
        for n, i in self._aliases:
            outputs[n] = arrays[i] if arrays[i].flags.c_contiguous else np.empty(*self._types[n])
        for n, shape, dtype in self._fresh:
            if outputs[n] is None:
                outputs[n] = np.empty(shape, dtype)
        return outputs

    def _keep(self, leaves: Sequence[Any], arrays: Sequence[Array]) -> Kept | None:
        """What a backward pass from outside may need; copies of what this call is going to overwrite."""
        split = self.recording.split
        if split is None or not modes.grad:
            return None
        before = {id(b): _read(b, leaves).copy() for b, overwritten in split.history_inputs if overwritten}
        return Kept(self.recording.inputs, arrays, before)

    def _results(self, leaves: Sequence[Any], outputs: Sequence[Array], kept: Kept | None) -> Any:
        recording = self.recording
        made: dict[int, Tensor] = {}
        node = None
        if kept is not None and recording.split is not None:
            kept.outputs = outputs
            node = CompiledNode(self, recording.split, leaves, kept)
        for n, binding, root in recording.rebased if modes.grad else ():
            _rebase(_tensor(binding, leaves), outputs[n], node, root)
        for t, new in recording.grads:
            if isinstance(new, int) and t._grad is not None and t._grad._data is outputs[new]:
                continue
            t._grad = _given(new, leaves) if isinstance(new, Given) else _made(made, outputs, new)
        values = []
        for r in recording.results:
            if isinstance(r, Plain):
                values.append(r.value)
            elif isinstance(r, Given):
                values.append(_given(r, leaves))
            else:
                values.append(self._result(r, _made(made, outputs, r.number), node))
        return unflatten(recording.structure, values)

    def _result(self, r: Made, t: Tensor | None, node: Node | None) -> Tensor | None:
        if t is not None and (r.root is not None or r.freed):
            _rebase(t, t._data, node, r.root)
        return t


def _rebase(t: Tensor, array: Array, node: Node | None, root: int | None) -> None:
    """Make result ``root`` of ``node`` the history of ``t``; without a root, a history that was used up."""
    if root is None:
        t._grad_fn, t._output_nr = Freed((), ((array.dtype, array.shape),)), 0
    elif node is not None:
        t._grad_fn, t._output_nr = node, root
    t._requires_grad = False


class Freed(Node):
    """History of a result whose backward pass ran inside the compiled call."""

    __slots__ = ()

    def backward(self, grads: Grads) -> Grads:
        raise RuntimeError(FREED)


class CompiledNode(Node):
    """``grad_fn`` of the results of a compiled call."""

    __slots__ = ("history", "plan", "saved", "split")

    def __init__(self, plan: Plan, split: Split, leaves: Sequence[Any], kept: Kept) -> None:
        tensors = [_tensor(b, leaves) for b, _ in split.wanted]
        edges: tuple[Edge, ...] = tuple([gradient_edge(t) for t in tensors])
        super().__init__(edges, tuple([(kept.outputs[n].dtype, kept.outputs[n].shape) for n in split.roots]))
        self.plan = plan
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
        runner = self.plan.backward
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
            array = _read(binding, leaves)
        return _Kept(binding, array, leaves)


def _array(saved: Any) -> Array:
    return saved.array() if isinstance(saved, _Kept) else saved


class _Kept:
    """An input that backward reads, unchanged since the call."""

    __slots__ = ("_array", "_tensor", "_version")

    def __init__(self, binding: Binding, array: Array, leaves: Sequence[Any]) -> None:
        tensor = None if binding.kind == "host" else _tensor(binding, leaves)
        self._array = array
        self._tensor = tensor if isinstance(tensor, Tensor) else None
        self._version = 0 if self._tensor is None else self._tensor._version

    def array(self) -> Array:
        if self._tensor is not None and self._tensor._version != self._version:
            raise RuntimeError(modified(self._tensor, self._version))
        return self._array


def _lone_result(recording: Recording) -> int | None:
    """The output that is all there is to return, when that is so."""
    if recording.grads or recording.rebased or recording.split is not None or recording.structure is not LEAF:
        return None
    (only,) = recording.results
    return only.number if isinstance(only, Made) and not only.freed else None


def _unshared(t: Tensor, shape: tuple[int, ...], dtype: Any) -> Array | None:
    """The memory of ``t.grad`` when nothing else refers to it."""
    grad = t._grad
    # References: the attribute, the local name, the argument of getrefcount; for the array, one name less.
    if grad is None or getrefcount(grad) != 3 or getrefcount(grad._data) != 2:
        return None
    array = grad._data
    fits = array.shape == shape and array.dtype == dtype and array.flags.c_contiguous and array.flags.owndata
    return array if fits and grad._grad_fn is None else None


def _read(binding: Binding, leaves: Sequence[Any]) -> Array:
    if binding.kind in ("grad", "host"):
        return _reader(binding)(leaves)
    found = _tensor(binding, leaves)
    return found._data if isinstance(found, Tensor) else found


def _reader(binding: Binding) -> Callable[[Any], Array]:
    """A function that reads the array of a gradient or host input."""
    ref = binding.ref
    if binding.kind == "grad":
        return lambda leaves: ref._grad._data
    owner, key = ref
    if isinstance(owner, Mapping):
        return lambda leaves: np.array(float(owner[key]))
    return lambda leaves: np.array(float(getattr(owner, key)))


def _tensor(binding: Binding, leaves: Sequence[Any]) -> Any:
    """The tensor (or array) behind an input."""
    if binding.kind == "argument":
        return leaves[binding.ref]
    return binding.ref._grad if binding.kind == "grad" else binding.ref


def _given(r: Given, leaves: Sequence[Any]) -> Tensor:
    t: Tensor = _tensor(r.source, leaves)
    if r.view:
        t = look(t, r.chain)
        if not r.linked:
            t = t.detach()
    return t


def _made(made: dict[int, Tensor], outputs: Sequence[Array], number: int | None) -> Tensor | None:
    """The tensor of output ``number``, one object per call."""
    if number is None:
        return None
    t = made.get(number)
    if t is None:
        t = made[number] = Tensor._wrap(outputs[number])
    return t


def _same(now: Any, seen: Any) -> bool:
    if isinstance(seen, list):
        return all(_same(a, b) for a, b in zip(now, seen, strict=True))
    return bool(now == seen) or (isinstance(seen, float) and math.isnan(seen) and math.isnan(now))

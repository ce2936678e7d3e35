"""Running a recording: read inputs, run the graph, check predicates, write state, build results."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from sys import getrefcount
from typing import Any, TypeAlias

import numpy as np

from tracecomp.base.errors import TracecompError
from tracecomp.base.interpreter import ARGUMENT_REFERENCES
from tracecomp.base.interrupts import uninterrupted
from tracecomp.compiled.autograd import CompiledNode, Kept, differentiable
from tracecomp.compiled.backends import Backend, Make, Native, where
from tracecomp.compiled.background import Job, Later, begin
from tracecomp.compiled.checked import Checked
from tracecomp.compiled.dynamic_shapes import Runner, SizedBackend, SizedRun, grown_outputs
from tracecomp.compiled.growing import Appended, growing
from tracecomp.compiled.inputs import aliases_of, frozen_inputs
from tracecomp.compiled.kernel_profile import Profile, profile_backend
from tracecomp.compiled.results import Builder
from tracecomp.eager.aliasing import check_places
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.arrays import SMALL_BYTES
from tracecomp.ir.graph import Graph
from tracecomp.record.binding import read, reader, tensor_of
from tracecomp.record.dynamic_shapes.generalize import Sized
from tracecomp.record.pytree import LEAF, Leaves
from tracecomp.record.recording import Recording, same_value
from tracecomp.record.results import Made, bottoms
from tracecomp.runtime.aligned import maker
from tracecomp.runtime.result_pool import Spare, fits, kept_outputs

Array = np.ndarray[Any, Any]
Arguments = tuple[tuple[Any, ...], dict[str, Any]]
CallSizes: TypeAlias = tuple[int, ...] | None
"""The dynamic sizes of a call; None for a program without any."""
_new = Tensor._wrap


class Plan:
    """A recording made ready to run: ``make`` is one of ``BACKENDS``, ``compile`` compiles functions as its own was.

    ``sized`` is what serves more sizes than those of the recording. ``background`` are the settings under which the
    backward graph may be compiled in the background; None if calls wait for it. ``seconds`` is what making the code of
    the forward graph took.
    """

    def __init__(
        self, recording: Recording, make: Make, threads: int | None, compile: Callable[[Any], Any],
        sized: Sized | None = None, background: Mapping[str, object] | None = None,
    ) -> None:  # fmt: skip
        self.recording = recording
        self.sized = sized
        self._background = background
        self._make = make
        self._threads = threads
        graph, inputs = recording.graph, recording.inputs
        self._arguments = [b.ref for b in inputs if b.kind == "argument"]
        self._array_arguments = recording.guards.takes_arrays
        self._states = [b.ref for b in inputs if b.kind == "state"]
        self._others = [reader(b) for b in inputs if b.kind in ("memory", "place", "grad", "host", "size", "number")]
        grown = frozenset() if recording.sizes is None or sized is None else grown_outputs(graph, recording.sizes)
        self._aliases = [(out, i) for out, i in aliases_of(recording).items() if out not in grown]
        in_place = {out for out, _ in self._aliases} | grown
        self.types = [(o.value.shape, o.value.dtype.numpy) for o in graph.outputs]
        self.kept = kept_outputs(self.types)
        self._fresh = [(n, self._maker(n)) for n in range(len(self.types)) if n not in in_place]
        self.reusable = _reusable_grads(recording)
        self._lone = _lone_result(recording)
        start = time.perf_counter()
        self._build()
        self.seconds = time.perf_counter() - start
        self._checked = isinstance(self.forward, Checked)
        self._backward: Backend | SizedBackend | Later | None = None
        self._compile = compile
        self.again: Any = None

    def _build(self) -> None:
        """Make the backend of the forward graph, with the facts about its inputs now."""
        self.forward = self._backend(self.recording.graph, dict(self._aliases), frozen_inputs(self.recording))
        self.frozen: list[Tensor] = self._frozen(self.forward)

    def _backend(self, graph: Graph, aliases: Mapping[int, int], frozen: Set[int]) -> Backend | SizedBackend:
        if self.sized is None:
            return self._make(graph, aliases, self._threads, frozen)  # type: ignore[no-any-return]
        grows = growing(self.recording) if graph is self.recording.graph else []
        return SizedBackend(self.sized.sizes_of(graph), self._make, graph, aliases, self._threads, frozen, grows)

    def _maker(self, n: int) -> Callable[[], Array]:
        """The allocator of output ``n``."""
        shape, dtype = self.types[n]
        nbytes = dtype.itemsize * math.prod(shape)
        spare = nbytes > SMALL_BYTES and n in self.kept
        return Spare(shape, dtype).take if spare else partial(maker(nbytes), shape, dtype)

    @property
    def backends(self) -> list[Backend | SizedBackend | Later]:
        """The backends of the forward graph and, once needed, of the backward graph."""
        return [self.forward] if self._backward is None else [self.forward, self._backward]

    @property
    def says(self) -> str:
        """Describe the valid sizes, and why some have separate programs."""
        if self.sized is None:
            return ""
        reasons = dict.fromkeys(r for b in self.backends if isinstance(b, SizedBackend) for r in b.reasons)
        return "; ".join([f"runs for any size {self.sized.says}", *(f"static sizes: {r}" for r in reasons)])

    def is_ready(self, sizes: CallSizes) -> bool:
        """Whether there is a program for the sizes of a call."""
        return sizes is None or self.forward.has(sizes)  # type: ignore[union-attr]

    def prepare(self, sizes: CallSizes) -> None:
        """Make the program for the sizes of a call."""
        if sizes is not None:
            self.program(sizes)

    def begin(self, sizes: CallSizes) -> Job | None:
        """Start to compile the program for the sizes of a call in the background."""
        assert sizes is not None and isinstance(self.forward, SizedBackend)
        return self.forward.begin(self.recording.graph.name, sizes)

    def make_begun(self) -> None:
        """Make the program that ``begin`` began."""
        if isinstance(self.forward, SizedBackend):
            self.forward.make_planned()

    def wait(self) -> None:
        """Wait for the backward program that is being compiled in the background."""
        if isinstance(self._backward, Later):
            self._backward = self._backward.latest(waits=True)
        elif isinstance(self._backward, SizedBackend):
            self._backward.wait()

    def program(self, sizes: Sequence[int] | None = None) -> Runner:
        """The backend of the forward graph for the ``sizes`` of a call."""
        return _at(self.forward, sizes)

    def derivative(self, sizes: Sequence[int] | None = None) -> Runner:
        """The compiled backward graph, compiled when first needed, for the ``sizes`` of a call."""
        if self._backward is None:
            assert self.recording.split is not None
            graph = self.recording.split.backward
            job = None if self._background is None or self.sized else self._begun(graph)
            self._backward = Later(graph, job, self._backend) if job else self._backend(graph, {}, frozenset())
        if isinstance(self._backward, Later):
            self._backward = self._backward.latest()
        if isinstance(self._backward, SizedBackend) and sizes is not None and self._background is not None:
            return self._backward.soon(sizes, self._background)
        return _at(self._backward, sizes)

    def _begun(self, graph: Graph) -> Job | None:
        assert self._background is not None
        return where(self._background, lambda: begin(graph.name, graph, {}, frozenset()))  # type: ignore[no-any-return]

    def differentiable(self) -> Any:
        """Return the backward pass as a compiled function, made when it is first differentiated."""
        if self.again is None:
            assert self.recording.split is not None
            self.again = self._compile(differentiable(self.recording.split, self.recording.graph.name))
        return self.again

    def call(self, leaves: Leaves, given: Arguments = ((), {}), sizes: CallSizes = None) -> tuple[int, Any]:
        """Run on argument ``leaves``: how many predicates held, and the results. ``sizes`` are those that are dynamic.

        When a predicate does not hold, its value takes the place of the results, and nothing outside was written. If
        the program fails, the error takes their place, with -1, and nothing was written either.
        """
        if self._checked:
            self.recording.guards.verify()
        with uninterrupted:  # state is as before the call or as after it, whenever Ctrl-C comes
            return self._call(leaves, given, sizes)

    def _call(self, leaves: Leaves, given: Arguments, sizes: CallSizes) -> tuple[int, Any]:
        recording = self.recording
        arrays = self._arrays(leaves)
        outputs = self._outputs(arrays)
        kept = None if recording.split is None else self._keep(leaves, arrays)
        try:
            runner, seen = self._runner(sizes)
            appended = Appended(recording, runner.grown if isinstance(runner, SizedRun) else (), leaves)
            uninterrupted.allow_in_loops(True)
            runner.run(arrays, outputs, seen)
            uninterrupted.allow_in_loops(False)
        except TracecompError:
            raise
        except (IndexError, RuntimeError) as error:
            return -1, error
        for k, (out, seen, *_) in enumerate(recording.predicates):
            now = outputs[out].tolist()
            if not same_value(now, seen):
                return k, now
        if recording.updates:
            self._write(leaves, outputs)
        recording.calls += 1
        if self._lone is not None:
            results: Any = _new(outputs[self._lone])
        else:
            results = self._results(leaves, outputs, kept, given, sizes)
        appended.part(outputs)
        return len(recording.predicates), results

    def _arrays(self, leaves: Leaves) -> list[Array]:
        """The current arrays of the graph's inputs."""
        if self._array_arguments:
            arrays = [leaves[i]._data if isinstance(leaves[i], Tensor) else leaves[i] for i in self._arguments]
        else:
            arrays = [leaves[i]._data for i in self._arguments]
        if self._states:
            arrays += [t._data for t in self._states]
        if self._others:
            arrays += [read_one(leaves) for read_one in self._others]
        return arrays

    def _frozen(self, runner: Runner | SizedBackend) -> list[Tensor]:
        """State that a program need not check again while it is known to be unchanged."""
        return [self.recording.inputs[n].ref for n in runner.frozen]

    def _runner(self, sizes: Sequence[int] | None) -> tuple[Runner, list[Any] | None]:
        """The program for the ``sizes`` of a call, and the versions of its frozen inputs."""
        runner = self.program(sizes)
        frozen = self.frozen if sizes is None else self._frozen(runner)
        seen = self._seen(frozen) if frozen else None
        if frozen and seen is None:
            # Other code has got memory of weights that this program keeps packed. It would pack them at every call.
            self._build()
            return self._runner(sizes)
        return runner, seen

    def _seen(self, frozen: Sequence[Tensor]) -> list[Any] | None:
        """The versions of the frozen inputs; None if they can change unnoticed."""
        memories = [(t._storage or t._shared_storage()).memory for t in frozen]
        counts = [m.writes for m in memories]
        return None if None in counts else [*memories, *counts]

    def profile(self, leaves: Leaves, calls: int) -> Profile:
        """The times of the forward graph's kernels, on copies: nothing outside is written."""
        if isinstance(self.forward, SizedBackend):
            raise RuntimeError("profile(): dynamic sizes are not supported. Compile with dynamic=False")
        seen = self._seen(self.frozen) if self.frozen else None
        return profile_backend(self.forward, *self._copies(leaves), calls, seen)

    def prepare_timing(self) -> None:
        """Make the code that times its kernels, so that the first call that is timed need not."""
        if isinstance(self.forward, Native):
            self.forward.executable.prepare_timing()

    def run_once(self, leaves: Leaves) -> Callable[[], None]:
        """A call of the forward graph on copies, made ready: memory of results is the process's already."""
        assert not isinstance(self.forward, SizedBackend)
        arrays, outputs = self._copies(leaves)
        given = {n for n, _ in self._aliases}
        for n, out in enumerate(outputs):
            if n not in given:
                out.fill(0)
        return partial(self.forward.run, arrays, outputs)

    def operands(self, leaves: Leaves) -> list[Array]:
        """The forward graph's inputs of a call, copied to new memory."""
        return [a.copy() for a in self._arrays(leaves)]

    def _copies(self, leaves: Leaves) -> tuple[list[Array], list[Array]]:
        """Inputs and outputs of a call, copied to new memory."""
        arrays = self.operands(leaves)
        outputs = [np.empty(*t) for t in self.types]
        for n, i in self._aliases:
            outputs[n] = arrays[i]
        return arrays, outputs

    def _write(self, leaves: Leaves, outputs: Sequence[Array]) -> None:
        """Give the state that the program writes its new values."""
        for b, out in self.recording.updates:
            t = b.ref if b.kind == "state" else tensor_of(b, leaves)
            array = t._data if isinstance(t, Tensor) else t
            if outputs[out] is not array:
                check_places(array)
                np.copyto(array, outputs[out])
        for b, times in self.recording.writes:
            t = b.ref if b.kind == "state" else tensor_of(b, leaves)
            (t._storage or t._shared_storage()).wrote(times)

    def _outputs(self, arrays: list[Array]) -> list[Any]:
        """Memory for the outputs: the state's own for in-place updates, old gradients', or new.

        For state that is not dense, a copy in ``arrays`` is updated.
        """
        outputs: list[Any] = [None] * len(self.types)
        for t, n in self.reusable:
            outputs[n] = _unshared(t, *self.types[n])
        for n, i in self._aliases:
            if not arrays[i].flags.c_contiguous:
                arrays[i] = arrays[i].copy()
            outputs[n] = arrays[i]  # the program takes both for the same memory
        for n, make in self._fresh:
            if outputs[n] is None:
                outputs[n] = make()
        return outputs

    def _keep(self, leaves: Leaves, arrays: Sequence[Array]) -> Kept | None:
        """Values for a later backward pass; copies of those that this call overwrites."""
        split = self.recording.split
        if split is None:
            return None
        overwritten = [b for b, is_overwritten in split.history_inputs if is_overwritten and not isinstance(b, int)]
        before = {id(b): read(b, leaves).copy() for b in overwritten}
        return Kept(self.recording.inputs, arrays, before)

    def _results(
        self, leaves: Leaves, outputs: Sequence[Array], kept: Kept | None, given: Arguments,
        sizes: Sequence[int] | None,
    ) -> Any:  # fmt: skip
        recording = self.recording
        node = None
        # In the order of an eager call: flags, history, gradients, results, then what the call did to objects.
        for binding, flag in recording.requires_grad:
            tensor_of(binding, leaves)._requires_grad = flag
        if kept is not None and recording.split is not None:
            kept.outputs = outputs
            again = self.differentiable if sizes is None else None
            node = CompiledNode(partial(self.derivative, sizes), again, recording.split, leaves, kept, sizes)
        builder = Builder(leaves, outputs, node, sizes, given)
        for binding, root in recording.rebased:
            builder.rebase(tensor_of(binding, leaves), root)
        for holder, new in recording.grads:
            t = tensor_of(holder, leaves)
            # The gradient that is there already has the new numbers: it stays the same tensor for whoever holds it.
            if isinstance(new, Made) and t._grad is not None and t._grad._data is outputs[new.number]:
                builder.keep(new, t._grad)
            else:
                t._grad = None if new is None else builder.tensor(new)
        # All values are read before anything is put anywhere, as one place may be read for another.
        rebound = [(r, builder.values(r.structure, r.results)) for r in recording.rebound]
        results = builder.values(recording.structure, recording.results)
        effects = [builder.effect(e) for e in recording.effects]
        for r, held in rebound:
            r.place.put(held, r.same_object)
        for effect in effects:
            effect()
        return results


def _reusable_grads(recording: Recording) -> list[tuple[Tensor, int]]:
    """Gradients of state that each call replaces and does not read, and the numbers of the new ones.

    Their memory may be reused if it is unreferenced.
    """
    if recording.may_be_left:
        return []
    shown = {r.number for r in bottoms(recording.results)}
    updated = [b for b, _ in recording.updates]  # also of a gradient that is overwritten, and no input therefore
    read = {id(b.ref) for b in [*recording.inputs, *updated] if b.kind == "grad"}
    numbers = Counter(r.number for r in bottoms([r for _, r in recording.grads]))
    return [
        (b.ref, r.number) for b, r in recording.grads
        if b.kind == "state" and isinstance(r, Made) and r.order is None and r.number not in shown
        and id(b) not in read and numbers[r.number] == 1
    ]  # fmt: skip


def forward_of(recording: Recording) -> tuple[Graph, Mapping[int, int], Set[int]]:
    """The forward graph, the outputs that are inputs' memory, and the inputs that are likely to stay the same."""
    return recording.graph, aliases_of(recording), frozen_inputs(recording)


def _at(backend: Backend | SizedBackend | Later, sizes: Sequence[int] | None) -> Runner:
    """The runner of a call with ``sizes``."""
    return backend if sizes is None or not isinstance(backend, SizedBackend) else backend.at(sizes)  # type: ignore[return-value]


def _lone_result(recording: Recording) -> int | None:
    """The output that is all there is to return, when that is so."""
    if recording.grads or recording.requires_grad or recording.rebased or recording.rebound or recording.effects:
        return None
    if recording.split is not None or recording.structure is not LEAF:
        return None
    (only,) = recording.results
    return only.number if isinstance(only, Made) and only == Made(only.number) else None


def _unshared(t: Tensor, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array | None:
    """The memory of ``t.grad`` when nothing else refers to it."""
    grad = t._grad
    # References: the attribute, the local name, the argument of getrefcount; for the array, no name.
    if grad is None or getrefcount(grad) != 2 + ARGUMENT_REFERENCES or getrefcount(grad._data) != 2:
        return None
    array = grad._data
    return array if grad._grad_fn is None and fits(array, shape, dtype) else None

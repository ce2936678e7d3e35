"""Dynamic shapes: recordings that serve every size, by graphs made for some range of sizes each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from itertools import count, takewhile
from typing import Any

import numpy as np

from tracecomp.base.locks import Lock
from tracecomp.compiled import background
from tracecomp.compiled.backends import Backend, Interpreted, Make, RunByEager, where
from tracecomp.compiled.checked import Checked
from tracecomp.compiled.growing import room_for
from tracecomp.ir.graph import Graph, Input
from tracecomp.passes.cost.machine import host
from tracecomp.record.dynamic_shapes.instantiate import Growth, Instantiated
from tracecomp.record.dynamic_shapes.padding import NotSized
from tracecomp.record.recording import Sizes
from tracecomp.record.size_forms import Box, Form
from tracecomp.record.symbolic.sizes import LEAST
from tracecomp.record.symbolic.sym_int import SymInt
from tracecomp_runtime.open_sizes import block_length

Array = np.ndarray[Any, Any]
MOST_BOXES = 64
"""Programs of one recording altogether."""


@dataclass(frozen=True, slots=True)
class Made:
    """A program and the sizes that it serves. ``grown`` are its results that continue in the memory of an input."""

    box: Box
    inner: Backend
    blocks: Sequence[tuple[Form, int]]
    grown: Sequence[Growth] = ()

    @property
    def exact(self) -> bool:
        """Whether it serves one choice of sizes."""
        return all(low == high for low, high in self.box)

    def serves(self, sizes: Sequence[int]) -> bool:
        return all(low <= n <= high for n, (low, high) in zip(sizes, self.box, strict=True))

    def says(self) -> str:
        return "for sizes " + ", ".join(f"{low}" if low == high else f"{low} to {high}" for low, high in self.box)


@dataclass(frozen=True, slots=True)
class _Planned:
    """The graph of a program that is not compiled yet, planned for a call with ``sizes``."""

    sizes: Sequence[int]
    box: Box
    found: Instantiated


class _GrownShapes:
    """The shapes of outputs that depend on sizes. Outputs often share formulas, so each is evaluated once."""

    def __init__(self, shapes: Mapping[int, tuple[Any, ...]]) -> None:
        self._forms = list(dict.fromkeys(x.form for shape in shapes.values() for x in shape if type(x) is SymInt))
        number = {form: k for k, form in enumerate(self._forms)}
        self._axes = [
            (n, [(number[x.form], 0) if type(x) is SymInt else (-1, x) for x in shape]) for n, shape in shapes.items()
        ]

    def at(self, sizes: Sequence[int]) -> list[tuple[int, tuple[int, ...]]]:
        """The outputs with their shapes for ``sizes``."""
        found = [form.at(sizes) for form in self._forms]
        return [(n, tuple([found[k] if k >= 0 else extent for k, extent in axes])) for n, axes in self._axes]


class SizedBackend:
    """A graph that knows its ``sizes``, compiled for boxes of them as calls come; ``run`` is that of ``at``."""

    frozen: Sequence[int] = ()

    def __init__(
        self, sizes: Sizes, make: Make, graph: Graph, aliases: Mapping[int, int], threads: int | None,
        frozen: Set[int], growing: Sequence[Growth] = (),
    ) -> None:  # fmt: skip
        self.graph = graph
        self._growing = growing
        self._sizes = sizes
        self._make = make
        before = len(sizes.sources)
        self._aliases = {out: i + before for out, i in aliases.items()}
        self._frozen = frozenset(i + before for i in _packed_inputs(graph, frozen))
        self._threads = threads
        self._shapes = _GrownShapes({n: sizes.shapes[graph.outputs[n].value] for n in grown_outputs(graph, sizes)})
        self._seen = [{r.value} for r in sizes.conditions.ranges]
        self.made: list[Made] = []
        self._last: Made | None = None
        self._planned: _Planned | None = None
        self._job: background.Job | None = None
        self._failed = False
        self._eager: dict[tuple[int, ...], Made] = {}
        self.reasons: dict[str, None] = {}
        self._lock = Lock()

    def has(self, sizes: Sequence[int]) -> bool:
        """Whether a program for these sizes was made."""
        return self._serving(sizes) is not None

    def _serving(self, sizes: Sequence[int]) -> Made | None:
        last = self._last
        if last is None or not last.serves(sizes):
            last = self._last = next((m for m in self.made if m.serves(sizes)), None)
        return last

    def at(self, sizes: Sequence[int]) -> SizedRun:
        """The runner of calls with these sizes."""
        found = self._serving(sizes)
        if found is None:
            with self._lock:
                found = self._serving(sizes) or self._new(sizes)
        return self._run(found, sizes)

    def soon(self, sizes: Sequence[int], settings: Mapping[str, object]) -> SizedRun:
        """The runner of a call with these sizes, which does not wait for their program.

        Until another process has compiled it under ``settings``, the call runs operator by operator.
        """
        if not self.has(sizes):
            with self._lock:
                self._take()
                if not self.has(sizes):
                    self._job = self._job or where(settings, lambda: self.begin(self.graph.name, sizes))
                    if self._job is not None:
                        return self._run(self._by_eager(tuple(sizes)), sizes)
        return self.at(sizes)

    def wait(self) -> None:
        """Wait for the program that is being compiled for ``soon``."""
        if self._job is not None:
            self._job.wait()
            with self._lock:
                self._take()
                if not self._failed:
                    self.make_planned()  # in place, if this process is a child without the job

    def begin(self, name: str, sizes: Sequence[int]) -> background.Job | None:
        """Start to compile the program for these sizes in the background; None where it is better done in place."""
        with self._lock:
            planned = self._planned = self._plan(sizes)
        return background.begin(name, planned.found.graph, self._aliases_of(planned.found), self._frozen)

    def make_planned(self) -> None:
        """Make the program that ``begin`` began."""
        with self._lock:
            if self._planned is not None:
                self._make_from(self._planned)

    def _take(self) -> None:
        """Use the program that was compiled for ``soon``. If it failed, sizes without a program stay in eager mode."""
        job = self._job
        if job is None or self._failed or not (job.lost or job.done.is_set()):
            return
        if job.error:
            self._failed = True
            background.failed(job)
            return
        if not job.lost:
            with job.delivered():
                self.make_planned()
            self._eager.clear()
        self._job = None

    def _by_eager(self, sizes: tuple[int, ...]) -> Made:
        """The graph for exactly these sizes, run by the operators of eager mode."""
        if sizes not in self._eager:
            box: Box = [(n, n) for n in sizes]
            found = Instantiated(self.graph, self._sizes, box)
            self._eager[sizes] = Made(box, RunByEager(found.graph, {}, None, frozenset()), found.blocks)
        return self._eager[sizes]

    def _run(self, made: Made, sizes: Sequence[int]) -> SizedRun:
        return SizedRun(self.graph, made, sizes, self._shapes.at(sizes))

    def _new(self, sizes: Sequence[int]) -> Made:
        """A program for sizes around these, as far as one program can serve them."""
        planned = self._planned
        return self._make_from(planned if planned is not None and planned.sizes == sizes else self._plan(sizes))

    def _make_from(self, planned: _Planned) -> Made:
        found = planned.found
        inner = self._make(found.graph, self._aliases_of(found), self._threads, self._frozen)
        made = Made(planned.box, inner, found.blocks, found.grown)
        self.made = [made, *self.made[: MOST_BOXES - 1]]
        self._planned = None
        return made

    def _aliases_of(self, found: Instantiated) -> Mapping[int, int]:
        """The outputs of a program that are in the memory of an input."""
        return self._aliases | {g.output: g.input + len(found.box) for g in found.grown}

    def _plan(self, sizes: Sequence[int]) -> _Planned:
        for k, n in enumerate(sizes):
            self._seen[k].add(n)
        box: Box = [self._class(k, n) for k, n in enumerate(sizes)]
        if _interprets(self._make):
            box = [(n, n) for n in sizes]
        while True:
            try:
                return _Planned(sizes, box, Instantiated(self.graph, self._sizes, box, self._growing))
            except NotSized as reason:
                if all(low == high for low, high in box):
                    raise
                self.reasons[str(reason)] = None
                box = _smaller(box, sizes, reason.only)

    def _class(self, k: int, n: int) -> tuple[int, int]:
        """The sizes to make a program for: up to the next of 3, 4, 6, 8, ..., and of one that grows twice as many."""
        if n < LEAST or len(self._seen[k]) == 1:  # a size that has not varied yet
            return n, n
        if any(low < high == n - 1 for low, high in (m.box[k] for m in self.made)):
            return n, 2 * (n - 1)
        high = last_of_program(n)
        return max((end + 1 for end in takewhile(lambda end: end < high, _ends())), default=LEAST), high


def _packed_inputs(graph: Graph, frozen: Set[int]) -> Set[int]:
    """Those of ``frozen`` inputs that each program may pack.

    Without the matrices of a model that exceeds the last cache: every program would keep a copy of them.
    """
    types = {n: graph.inputs[n].value.type for n in frozen}
    if sum(t.nbytes for t in types.values()) <= host().l3_bytes:
        return frozen
    return {n for n, t in types.items() if len(t.shape) != 2}


def _interprets(make: Make) -> bool:
    """Whether it makes interpreters, also such as note what they run: arrays must have the very shapes of the graph."""
    made = make.func if isinstance(make, partial) else make
    return isinstance(made, type) and issubclass(made, Interpreted)


def last_of_program(size: int) -> int:
    """The largest size that a program made for ``size``, which has varied, serves."""
    return next(high for high in _ends() if size <= high)


def _ends() -> Iterator[int]:
    """2, 3, 4, 6, 8, 12, ...; 63 in place of 64, from which on sums have more lanes."""
    yield from (2, 3)
    for k in count(2):
        yield 63 if k == 6 else 1 << k
        yield 3 << (k - 1)


def _smaller(box: Box, sizes: Sequence[int], only: Set[int]) -> Box:
    """Half of ``box``, along the sizes in ``only``, that holds ``sizes``; without any named, just these sizes."""
    if not any(box[k][0] < box[k][1] for k in only):
        return [(n, n) for n in sizes]
    found = list(box)
    for k in only:
        low, high = box[k]
        middle = (low + high) // 2
        found[k] = (low, middle) if sizes[k] <= middle else (middle + 1, high)
    return found


def grown_outputs(graph: Graph, sizes: Sizes) -> frozenset[int]:
    """The outputs whose shapes depend on sizes."""
    return frozenset(n for n, o in enumerate(graph.outputs) if o.value in sizes.shapes)


class SizedRun:
    """A program with the sizes of a call."""

    def __init__(
        self, graph: Graph, made: Made, sizes: Sequence[int], shapes: Sequence[tuple[int, tuple[int, ...]]]
    ) -> None:
        self.graph = graph
        self.frozen = [n - len(sizes) for n in made.inner.frozen]
        self.grown = made.grown
        self._made = made
        self._sizes = sizes
        self._shapes = shapes

    def run(self, arrays: Sequence[Array], outputs: list[Any], seen: Any = None) -> None:
        """Compute ``outputs`` from ``arrays``; those whose shapes depend on sizes become new arrays."""
        made = self._made
        arrays, rooms = list(arrays), {}
        for g in made.grown:
            room = rooms[g.output] = room_for(arrays[g.input], made.inner.graph.outputs[g.output].value.shape, g.axis)
            outputs[g.output] = arrays[g.input] = room.memory
        for n, shape in self._shapes:
            if n not in rooms:
                wide = shape if made.exact else made.inner.graph.outputs[n].value.shape
                outputs[n] = np.empty(wide, self.graph.outputs[n].value.dtype.numpy)
        blocks = [block_length(form.at(self._sizes), target) for form, target in made.blocks]
        dense = [np.asarray(a, order="C") for a in arrays]
        given = [*map(np.array, self._sizes), *dense, *map(np.array, blocks)]
        if isinstance(made.inner, Checked):  # the interpreter takes arrays of the very shapes of the graph
            given = list(map(_with_room, given, made.inner.graph.inputs))
        made.inner.run(given, outputs, seen)
        for n, shape in self._shapes:
            if n in rooms:
                outputs[n] = rooms[n].filled(shape)
            else:
                outputs[n] = outputs[n].reshape(-1)[: math.prod(shape)].reshape(shape)


def _with_room(array: Array, given: Input) -> Array:
    """``array`` as the first elements of one that has the shape of an input."""
    if array.size == given.value.type.numel:
        return array.reshape(given.value.shape)
    found = np.zeros(given.value.shape, array.dtype)
    found.reshape(-1)[: array.size] = array.reshape(-1)
    return found


Runner = Backend | SizedRun | background.Later

"""Backends of graphs: the numpy interpreter, machine code, or machine code around routines of the host."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence, Set
from contextvars import copy_context
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

import tracecomp.passes as passes
from tracecomp.autograd import profiler
from tracecomp.base import config, logs, progress
from tracecomp.base.dump import Dump
from tracecomp.base.gc_pause import without_collecting
from tracecomp.compiled.checked import Checked
from tracecomp.eager.evaluate import by_host, evaluate
from tracecomp.ir.arrays import in_parts
from tracecomp.ir.graph import Graph, Node, Value
from tracecomp.ir.interpret import Interpreter
from tracecomp.ir.op import External
from tracecomp.ir.program import CallStep, call_steps
from tracecomp.ir.types import STORAGE_DTYPES
from tracecomp.passes.cost.machine import host
from tracecomp.passes.graph.host_segments import has_external, operator_name, segments, started
from tracecomp.passes.steps import Log
from tracecomp.runtime import program_cache
from tracecomp.runtime.executable import Executable

if TYPE_CHECKING:  # passes are loaded when something is built
    from tracecomp.passes.building import Built

Array = np.ndarray[Any, Any]


def _write(outputs: Sequence[Array], found: Sequence[Array], arrays: Sequence[Array]) -> None:
    """Copy results to outputs, some of which may be in the memory of inputs that other results are views of."""
    inputs = {id(a) for a in arrays}

    def is_inputs(result: Array) -> bool:
        if result.base is None:  # owned memory
            return id(result) in inputs
        return any(np.may_share_memory(result, a) for a in arrays)

    kept = [f.copy() if is_inputs(f) else f for f in found]
    for out, result in zip(outputs, kept, strict=True):
        np.copyto(out, result)


class Interpreted:
    """A graph run by the numpy interpreter."""

    frozen: Sequence[int] = ()
    says = "runs in the numpy interpreter, as recorded"

    def __init__(self, graph: Graph, aliases: Mapping[int, int], threads: int | None, frozen: Set[int]) -> None:
        self.graph = graph
        self._interpreter = Interpreter(graph)

    def run(self, arrays: Sequence[Array], outputs: Sequence[Array], seen: object = None) -> None:
        """Compute ``outputs`` from ``arrays``."""
        _write(outputs, self._interpreter.run(arrays), arrays)


class RunByEager(Interpreted):
    """A graph whose operators run as in eager mode, with the bits of eager mode."""

    says = "runs operator by operator as in eager mode: it has types without arithmetic, such as uint16"

    def run(self, arrays: Sequence[Array], outputs: Sequence[Array], seen: object = None) -> None:
        _write(outputs, self._interpreter.run(arrays, evaluate=evaluate), arrays)


class Native:
    """A graph compiled to machine code. ``aliases`` and ``frozen`` as in ``building.build``.

    ``frozen`` are the numbers of inputs that calls need not check while they are known to be unchanged; ``loaded``: the
    code came from the disk.
    """

    def __init__(self, graph: Graph, aliases: Mapping[int, int], threads: int | None, frozen: Set[int]) -> None:
        self.graph = graph
        self.threads = threads
        self._aliases = aliases
        self._frozen = frozen
        self._settings = {"fast_math": config.current().fast_math, "check": config.current().check}
        self._dump = Dump(graph.name)
        self.loaded = False
        self.executable, self.places = without_collecting(self._prepare)
        self._plain = all(isinstance(a, int) for a in self.places)
        self.frozen = [a for a in (self.places[n] for n in self.executable.image.frozen) if isinstance(a, int)]

    def _prepare(self) -> tuple[Executable, tuple[int | Array, ...]]:
        """The executable and where its arguments come from; from the disk where another process left them."""
        if self._dump.folder is not None or config.current().verify:
            executable = self._compile()
            self._dump.write("llvm", lambda: executable.llvm_ir, "ll")
            self._dump.write("assembly", lambda: executable.assembly, "s")
            return executable, self._argument_places()
        key = program_cache.key_of(self.graph, host(), self._aliases, self._frozen)
        found = program_cache.load(key)
        if found is not None:
            self.loaded = True
            self._log()
            return Executable(lambda: self.built.program, found.image), found.arguments
        executable = self._compile()
        self._log()
        program_cache.save(key, executable.image, self._argument_places())
        return executable, self._argument_places()

    def _compile(self) -> Executable:
        with progress.shown(f"compiling {self.graph.name}"):
            return Executable(self.built.program)

    def _log(self) -> None:
        """Log the decisions to enabled topics."""
        name = self.graph.name
        if logs.wanted("code"):
            how = "machine code from the cache" if self.loaded else "compiled"
            logs.log("code", f"{name}: {how}")
        if logs.wanted("fusion"):
            logs.log("fusion", f"{name}:\n{passes.describe_partition(self.built.lowered.partition)}")
        if logs.wanted("schedule"):
            logs.log("schedule", f"{name}: {passes.describe_schedules(self.built.program)}")
        if logs.wanted("memory"):
            logs.log("memory", f"{name}: {self.built.program.arena_bytes} bytes of temporary values")

    @cached_property
    def built(self) -> Built:
        """The graph after every pass, and its program."""
        found: Built = where(self._settings, lambda: passes.build(self.graph, self._aliases, self._dump, self._frozen))
        return found

    def _argument_places(self) -> tuple[int | Array, ...]:
        given = count()
        places = [next(given) if i.role != "constant" else _dense(i.data) for i in self.built.graph.inputs]
        return (*places, *map(_dense, self.built.constants))

    def run(self, arrays: Sequence[Array], outputs: Sequence[Array], seen: object = None) -> None:
        """Compute ``outputs`` from ``arrays``; IndexError when an index is out of range.

        ``seen`` as in ``Executable.run``, for the inputs ``frozen``.
        """
        if profiler.watching():
            times = self.timed(arrays, outputs, seen)
            names = (step.kernel.name for step in self.steps())
            return profiler.kernels_ran(list(zip(names, times, strict=True)))
        if not self._plain:
            arrays = [arrays[a] if isinstance(a, int) else a for a in self.places]
        self.executable.run(arrays, outputs, self.threads, seen)

    def steps(self) -> list[CallStep]:
        """Every kernel call, in order."""
        return list(call_steps(self.built.program.steps))

    def timed(self, arrays: Sequence[Array], outputs: Sequence[Array], seen: object = None) -> list[float]:
        """Run as ``run`` does; the seconds of each kernel call, in order."""
        given = [*map(np.ascontiguousarray, (arrays[a] if isinstance(a, int) else a for a in self.places))]
        return [seconds for _, seconds in self.executable.run_profiled(given, outputs, self.threads, seen)]


def _dense(array: object) -> Array:
    return np.ascontiguousarray(array)


def _span(node: Node, reads: tuple[int, ...]) -> Span:
    return Span(operator_name(node), sum(v.type.nbytes for v in node.inputs), reads)


def _at_once(run: Callable[[], object], attrs: Mapping[str, object]) -> Callable[[], Any]:
    found = run()
    return lambda: found


@dataclass
class Span:
    """Times of a part of a call, in seconds: code (``name`` is empty), or an operator that the host ran.

    ``waited`` is how long the call waited for it; ``reads`` are numbers of the parts whose results it read.
    """

    name: str
    nbytes: int
    reads: tuple[int, ...]
    begin: float = 0.0
    end: float = 0.0
    waited: float = 0.0


class _Coming:
    """A node that the host runs, at once or in parallel with code, and its results."""

    def __init__(self, node: Node, given: Sequence[Array], beside: bool, span: Span) -> None:
        self._node, self._span = node, span
        start = node.op.loop.start if beside and isinstance(node.op.loop, External) else None
        begin = time.perf_counter()
        self._result: Callable[[], Any] = (start or _at_once)(lambda: self._run(given), node.attrs)
        span.waited = 0.0 if start else time.perf_counter() - begin

    def _run(self, given: Sequence[Array]) -> Any:
        self._span.begin = time.perf_counter()
        try:
            return by_host(self._node.op, given, self._node.attrs)
        finally:
            self._span.end = time.perf_counter()

    def wait(self, known: dict[Value, Array]) -> None:
        """Put the results where they are read."""
        begin = time.perf_counter()
        with profiler.record_function(f"waiting for {operator_name(self._node)}"):
            result = self._result()
        self._span.waited += time.perf_counter() - begin
        found = [*map(np.asarray, result)] if isinstance(result, tuple) else [np.asarray(result)]
        known.update(zip(self._node.outputs, found, strict=True))


class Hosted:
    """A graph some of whose operators the host runs, between parts compiled to machine code."""

    frozen: Sequence[int] = ()

    def __init__(self, graph: Graph, aliases: Mapping[int, int], threads: int | None, frozen: Set[int]) -> None:
        self.graph = graph
        split = passes.split_complex(graph, Log())
        self._open = [i.value for i in split.inputs if i.role != "constant"]
        self._constants = {i.value: _dense(i.data) for i in split.inputs if i.role == "constant"}
        self._outputs = [o.value for o in split.outputs]
        parts = segments(split)
        self._started = started(parts)
        self._parts = [
            (Native(s.work, {}, threads, frozenset()) if isinstance(s.work, Graph) else s.work, s.reads, s.writes)
            for s in parts
        ]
        made = {v: number for number, part in enumerate(parts) for v in part.writes}
        self._reads = [tuple({made[v]: None for v in part.reads if v in made}) for part in parts]
        self.last: list[Span] = []
        self.seconds = 0.0
        """The parts of the last completed call, and their times."""

    def run(self, arrays: Sequence[Array], outputs: Sequence[Array], seen: object = None) -> None:
        """Compute ``outputs`` from ``arrays``."""
        begin = time.perf_counter()
        arrays = [*map(in_parts, arrays)]
        known: dict[Value, Array] = {**self._constants, **dict(zip(self._open, arrays, strict=True))}
        coming: dict[Value, _Coming] = {}  # results of communication that may be under way

        def value(v: Value) -> Array:
            if v not in known:
                coming[v].wait(known)
            return known[v]

        spans: list[Span] = []
        for (work, reads, writes), of in zip(self._parts, self._reads, strict=True):
            given = [value(v) for v in reads]
            spans.append(Span("", 0, of) if isinstance(work, Native) else _span(work, of))
            if isinstance(work, Native):
                found = [np.empty(v.shape, v.dtype.numpy) for v in writes]
                spans[-1].begin = time.perf_counter()
                work.run(given, found)
                spans[-1].end = time.perf_counter()
                known.update(zip(writes, found, strict=True))
            else:
                coming.update(dict.fromkeys(writes, _Coming(work, given, work in self._started, spans[-1])))
        _write([*map(in_parts, outputs)], [value(v) for v in self._outputs], arrays)
        self.last, self.seconds = spans, time.perf_counter() - begin

    @property
    def says(self) -> str:
        """Which operators the host runs."""
        names = dict.fromkeys(operator_name(work) for work, *_ in self._parts if not isinstance(work, Native))
        return f"host routines between compiled parts: {', '.join(names)}"

    @property
    def between_bytes(self) -> int:
        """Bytes of values that parts leave for later ones."""
        return sum(v.type.nbytes for _, _, writes in self._parts for v in writes)

    @property
    def compiled(self) -> list[Native]:
        """The parts that are machine code."""
        return [work for work, *_ in self._parts if isinstance(work, Native)]


Backend = Interpreted | Native | Hosted | Checked


def native(graph: Graph, aliases: Mapping[int, int], threads: int | None, frozen: Set[int]) -> Backend:
    """Compile the graph to machine code, around parts that only the host can run; with the interpreter on request.

    Types without arithmetic, such as uint16, have no machine code: eager mode's operators run graphs with them.
    """
    if _has_storage_types(graph):
        return RunByEager(graph, aliases, threads, frozen)
    found = (Hosted if has_external(graph) else Native)(graph, aliases, threads, frozen)
    return Checked(graph, found, aliases) if config.current().check else found


def native_graphs(
    graph: Graph, aliases: Mapping[int, int], frozen: Set[int]
) -> list[tuple[Graph, Mapping[int, int], Set[int]]]:
    """The graphs that ``native`` compiles to machine code, each with its aliases and frozen inputs."""
    if _has_storage_types(graph):
        return []
    if not has_external(graph):
        return [(graph, aliases, frozen)]
    works = [s.work for s in segments(passes.split_complex(graph, Log()))]
    return [(work, {}, frozenset()) for work in works if isinstance(work, Graph)]


def _has_storage_types(graph: Graph) -> bool:
    """Whether a value of the graph has a type without arithmetic."""
    types = {i.value.type.dtype for i in graph.inputs}
    types.update([v.type.dtype for node in graph.nodes for v in node.outputs])
    return not types.isdisjoint(STORAGE_DTYPES)


def with_settings(
    settings: Mapping[str, object], make: Make, graph: Graph, aliases: Mapping[int, int], threads: int | None,
    frozen: Set[int],
) -> Any:  # fmt: skip
    """Return the result of ``make`` under ``settings``."""
    return where(settings, lambda: make(graph, aliases, threads, frozen))


def where(settings: Mapping[str, object], work: Callable[[], object]) -> Any:
    """Run ``work()`` in a separate context, whose settings end with it even after Ctrl-C."""

    def run() -> Any:
        with config.override(**settings):
            return work()

    return copy_context().run(run)


Make = Callable[[Graph, Mapping[int, int], int | None, Set[int]], Any]
BACKENDS: dict[str, Make] = {"native": native, "interpret": Interpreted}

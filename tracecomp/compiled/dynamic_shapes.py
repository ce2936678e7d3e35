"""Dynamic shapes: graphs made for more rows than a call has, and recordings that serve every size with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any

import numpy as np

from tracecomp.base.locks import Lock
from tracecomp.compiled.backends import Backend, Make
from tracecomp.compiled.kernel_profile import Profile
from tracecomp.compiled.replay import Arguments, Plan
from tracecomp.ir.graph import Graph
from tracecomp.record.dynamic_shapes.generalize import Sized
from tracecomp.record.dynamic_shapes.instantiate import Instantiated
from tracecomp.record.dynamic_shapes.padding import Rows

Array = np.ndarray[Any, Any]


class Padded:
    """A graph run by the one that ``stretched`` holds, for calls with at most as many rows."""

    def __init__(self, graph: Graph, stretched: Instantiated, inner: Backend) -> None:
        self.graph = graph
        self.inner = inner
        self.rows = stretched.rows
        self.frozen = inner.frozen
        self._in = stretched.rows_in
        self._out = stretched.rows_out
        self._wide = [(o.value.shape, o.value.dtype.numpy) for o in stretched.graph.outputs]

    def run(self, arrays: Sequence[Array], outputs: list[Any], seen: Any = None) -> None:
        """Compute ``outputs`` from ``arrays``; those that have rows become new arrays."""
        size = next(rows.size(a) for a, rows in zip(arrays, self._in, strict=True) if rows is not None)
        given = [a if rows is None else self._extended(a, rows) for a, rows in zip(arrays, self._in, strict=True)]
        found = [
            out if rows is None else np.empty(*wide)
            for out, rows, wide in zip(outputs, self._out, self._wide, strict=True)
        ]
        self.inner.run([*given, np.array(size)], found, seen)
        for n, rows in enumerate(self._out):
            if rows is not None:
                meant = (slice(None),) * rows.axis + (slice(rows.count(size)),)
                outputs[n] = np.ascontiguousarray(found[n][meant])

    def _extended(self, array: Array, rows: Rows) -> Array:
        """``array`` with its last row repeated, as its padding."""
        here, count = array.shape[rows.axis], rows.count(self.rows)
        if here == count:
            return array
        found = np.empty((*array.shape[: rows.axis], count, *array.shape[rows.axis + 1 :]), array.dtype)
        before = (slice(None),) * rows.axis
        found[(*before, slice(here))] = array
        found[(*before, slice(here, None))] = array[(*before, slice(here - 1, here))]
        return found


class SizedPlan:
    """A recording that serves every size, with a plan for each range of sizes; its arguments are those of ``Plan``."""

    def __init__(self, sized: Sized, make: Make, threads: int | None, compile: Callable[[Any], Any]) -> None:
        self.recording = sized.recording
        self._sized = sized
        self._make = make
        self._threads = threads
        self._compile = compile
        self._plans: dict[int, Plan] = {}
        self._lock = Lock()

    @property
    def says(self) -> str:
        """Which sizes are served."""
        return f"runs for any size {self._sized.says}"

    @property
    def backends(self) -> list[Any]:
        """What runs each range of sizes that was met, smallest first: ``Padded`` all of them."""
        return [backend for _, plan in sorted(self._plans.items()) for backend in plan.backends]

    def call(self, leaves: Sequence[Any], given: Arguments = ((), {})) -> tuple[int, Any]:
        """As ``Plan.call``."""
        return self._plan(leaves).call(leaves, given)

    def profile(self, leaves: Sequence[Any], calls: int) -> Profile:
        """RuntimeError: profiles are of one size."""
        raise RuntimeError("profile(): with dynamic=True a call has no profile; compile for one size to get it")

    def prepare_timing(self) -> None:
        """Nothing: which graph a call runs is known when it is made."""

    def _plan(self, leaves: Sequence[Any]) -> Plan:
        rows = _enough(self._sized.size(leaves))
        with self._lock:
            if rows not in self._plans:
                make = partial(self._padded, rows)
                self._plans[rows] = Plan(self.recording, make, self._threads, self._compile, self._sized.settle)
            return self._plans[rows]

    def _padded(
        self, rows: int, graph: Graph, aliases: Mapping[int, int], threads: int | None, frozen: Set[int]
    ) -> Padded:
        stretched = self._sized.stretched(graph, rows)
        return Padded(graph, stretched, self._make(stretched.graph, aliases, threads, frozen))


def _enough(size: int) -> int:
    """The next power of two, or three quarters of it."""
    most = 1 << max(size - 1, 0).bit_length()
    return most // 4 * 3 if size <= most // 4 * 3 else most

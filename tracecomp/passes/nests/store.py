"""Nests are built once and shared: implicit padding and row fusion inspect them, kernels are built from them.

A nest has separate buffers for each value it reads or stores. Aliases between them, and the order of a kernel's
parameters, are known only when the kernel is built. Then the nest is moved to the kernel's buffers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tracecomp.ir.loops import Buffer
from tracecomp.passes.fusion.groups import Group, Partition
from tracecomp.passes.fusion.members import with_rematerialized
from tracecomp.passes.nests.contraction_nest import BilinearNest, labelled_bilinear
from tracecomp.passes.nests.loop_nest import Nest, build_nest
from tracecomp.passes.nests.scalar_exprs import Params

AnyNest = TypeVar("AnyNest", Nest, BilinearNest)


@dataclass
class Nests:
    """Cache of the unscheduled nests of a frame's groups. Returned nests are immutable."""

    known: dict[Any, Nest | BilinearNest] = field(default_factory=dict)
    seconds: float = 0.0
    """Time spent on building nests."""

    def loops(self, group: Group, partition: Partition) -> Nest:
        """The nest of elementwise nodes and reductions."""
        found = self._of(group, partition)
        assert isinstance(found, Nest)
        return found

    def contraction(self, group: Group, partition: Partition) -> BilinearNest:
        """The nest of a contraction, with the variables of its spec."""
        found = self._of(group, partition)
        assert isinstance(found, BilinearNest)
        return found

    def _of(self, group: Group, partition: Partition) -> Nest | BilinearNest:
        # The key is everything that determines a nest: nodes in order, which are row results, stored values and their
        # places. Callers with equal keys share one object.
        stored, whole = partition.stored[group], with_rematerialized(group, partition)
        places = tuple(partition.slices.get(v) for v in stored)
        rows = frozenset(whole.per_row)
        key = (whole.kind, tuple(whole.nodes), rows, whole.domain, tuple(stored), places)
        if key not in self.known:
            params = Params(partition.materialized_views, slices=partition.slices)
            build = labelled_bilinear if group.kind == "bilinear" else build_nest
            start = time.perf_counter()
            # A rematerialized producer is part of the nest, so the group is completed first.
            self.known[key] = build(whole, stored, params)
            self.seconds += time.perf_counter() - start
        return self.known[key]

    def forget(self) -> None:
        """Free the nests once kernels are built; a later request builds them again."""
        self.known.clear()


def taken(nest: Nest | BilinearNest, params: Params) -> dict[Buffer, Buffer]:
    """Map the buffers of a nest to those of a kernel: adds them to ``params`` in the order of first use."""
    # Order of first use in the nest, so that equal kernels take parameters in equal order.
    written = nest.params.writes
    return {
        own: params.written(value) if own.name in written else params.of(value)
        for value, own in nest.params.buffers.items()
    }


def on(nest: AnyNest, params: Params) -> AnyNest:
    """Return the nest on the buffers of a kernel."""
    buffers = taken(nest, params)
    if isinstance(nest, BilinearNest):
        # ``plain`` shares operands with the nest, so it moves to the same buffers.
        plain = nest.plain and _moved(nest.plain, buffers, params)
        return replace(_moved(nest, buffers, params), plain=plain)
    return _moved(nest, buffers, params)


def _moved(nest: AnyNest, buffers: Mapping[Buffer, Buffer], params: Params) -> AnyNest:
    # A nest that uses the same buffers already need not be copied.
    if any(own != new for own, new in buffers.items()):
        if isinstance(nest, Nest):
            nest = nest.mapped({}, nest.outer, nest.reduced, lambda b, at: (buffers.get(b, b), at))
        else:
            nest = nest.mapped({}, nest.out, nest.reduce, lambda b, at: (buffers.get(b, b), at))
    return replace(nest, params=params)

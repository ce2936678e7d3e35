"""Nests are built once and handed on: implicit padding and row fusion look at them, kernels are made of them.

A nest stands on buffers of its own, one for each value it reads or stores. Which of them are one memory, and in what
order a kernel takes them, is known only when the kernel is made; then the nest is put on the kernel's buffers.
"""

from __future__ import annotations

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
    """The unscheduled nests of a frame's groups, by what decides them; nobody changes a nest that was handed out."""

    known: dict[Any, Nest | BilinearNest] = field(default_factory=dict)

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
        # What decides a nest: nodes in order, which are row results, what is stored
        # and where. Two askers with equal keys get one object.
        stored, whole = partition.stored[group], with_rematerialized(group, partition)
        places = tuple(partition.slices.get(v) for v in stored)
        rows = frozenset(whole.per_row)
        key = (whole.kind, tuple(whole.nodes), rows, whole.domain, tuple(stored), places)
        if key not in self.known:
            params = Params(partition.materialized_views, slices=partition.slices)
            build = labelled_bilinear if group.kind == "bilinear" else build_nest
            # A rematerialized producer is part of the nest, so the group is completed before.
            self.known[key] = build(whole, stored, params)
        return self.known[key]

    def forget(self) -> None:
        """Free the nests when kernels are made; who asks again builds them again."""
        self.known.clear()


def taken(nest: Nest | BilinearNest, params: Params) -> dict[Buffer, Buffer]:
    """The buffers of a kernel for those of a nest: ``params`` has them afterwards, in the order of first use."""
    # Order of first use in the nest, so that equal kernels take parameters in equal order.
    written = nest.params.writes
    return {
        own: params.written(value) if own.name in written else params.of(value)
        for value, own in nest.params.buffers.items()
    }


def on(nest: AnyNest, params: Params) -> AnyNest:
    """The nest on the buffers of a kernel."""
    buffers = taken(nest, params)
    if isinstance(nest, BilinearNest):
        # ``plain`` shares operands with the nest, so it moves to the same buffers.
        plain = nest.plain and _moved(nest.plain, buffers, params)
        return replace(_moved(nest, buffers, params), plain=plain)
    return _moved(nest, buffers, params)


def _moved(nest: AnyNest, buffers: Mapping[Buffer, Buffer], params: Params) -> AnyNest:
    # A nest that stands on the same buffers already need not be copied.
    if any(own != new for own, new in buffers.items()):
        if isinstance(nest, Nest):
            nest = nest.mapped({}, nest.outer, nest.reduced, lambda b, at: (buffers.get(b, b), at))
        else:
            nest = nest.mapped({}, nest.out, nest.reduce, lambda b, at: (buffers.get(b, b), at))
    return replace(nest, params=params)

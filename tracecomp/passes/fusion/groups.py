"""Groups of nodes that become one kernel, their iteration space, and the record of why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tracecomp.ir.graph import Node, Value
from tracecomp.ir.immutable import immutable
from tracecomp.ir.index import Index, Var, index
from tracecomp.ir.op import Reduced
from tracecomp.ir.sum_order import lanes_for
from tracecomp.ir.types import Shape
from tracecomp.passes.fusion.access import MaterializedViews


@immutable
class Domain:
    """An iteration space as runs ``(extent, reduced)`` in row-major order, equal neighbours merged, extents of 1
    dropped.

    ``lanes``: the partial sums of a reduction, among which the elements of the innermost run are distributed.
    """

    runs: tuple[tuple[int, bool], ...]
    lanes: int = 1

    @staticmethod
    def of(shape: Shape, axes: tuple[int, ...] = ()) -> Domain:
        """The space of an operand whose ``axes`` are reduced."""
        runs: list[tuple[int, bool]] = []
        for axis, extent in enumerate(shape):
            reduced = axis in axes
            # Axes of size 1 do not affect the order. Kept ones still separate reduced axes from what follows, so that a
            # batch of one has the order of a larger batch.
            if extent == 1 and (reduced or not axes or not runs):
                continue
            # Neighbours of one kind become one variable, because the operand is dense and row-major.
            if runs and runs[-1][1] == reduced:
                runs[-1] = (runs[-1][0] * extent, reduced)
            else:
                runs.append((extent, reduced))
        # Lanes only if the innermost run is reduced; else lanes are kept variables and sums are in order.
        return Domain(tuple(runs), lanes_for(runs[-1][0]) if runs and runs[-1][1] else 1)

    @property
    def numel(self) -> int:
        total = 1
        for extent, _ in self.runs:
            total *= extent
        return total

    @property
    def row_count(self) -> int:
        total = 1
        for extent, reduced in self.runs:
            total *= 1 if reduced else extent
        return total

    @property
    def has_reduction(self) -> bool:
        return any(reduced for _, reduced in self.runs)

    def vars(self) -> tuple[Var, ...]:
        return tuple(Var(f"{'k' if red else 'i'}{n}", extent) for n, (extent, red) in enumerate(self.runs))

    def offsets(self) -> tuple[Index, Index]:
        """The flat position of an element, and of its row, in terms of ``vars()``."""
        element = row = Index()
        for var, (extent, reduced) in zip(self.vars(), self.runs, strict=True):
            # Horner's form of the row-major offset: each run multiplies what came before by its extent.
            element = element * extent + index(var)
            if not reduced:
                row = row * extent + index(var)
        return element, row


@dataclass(eq=False)
class Group:
    """Nodes of one kernel. ``kind``: loops, bilinear, imperative, control. ``per_row``: nodes with one value per
    row."""

    id: int
    kind: str
    nodes: list[Node]
    domain: Domain
    per_row: set[Node] = field(default_factory=set)
    ancestors: int = 0

    @property
    def has_reduction(self) -> bool:
        return any(isinstance(n.op.loop, Reduced) for n in self.nodes)


@immutable
class Decision:
    """A fusion decision and its reason."""

    producer: Node
    consumer: Node
    fused: bool
    reason: str


@dataclass(frozen=True)
class RowFusion:
    """Groups, neighbours in the partition's order, that run as one loop over blocks of ``height`` rows.

    Rows are numbered by an outer variable of extent ``outer`` and a position below ``count``. ``block_values`` are read
    by these groups alone and kept for one block at a time. Results of ``non_row_outputs`` are not computed row by row
    in this order, so none of the groups reads them.
    """

    groups: tuple[Group, ...]
    outer: int
    count: int
    height: int
    block_values: tuple[Value, ...]
    non_row_outputs: frozenset[Group] = frozenset()


@dataclass(frozen=True)
class BufferSlice:
    """The place of a value that is stored within the memory of a larger one, ``whole``.

    Each step maps a part to its whole, or to the next part: runs of that many elements, that many apart, the first at
    some offset.
    """

    whole: Value
    steps: tuple[tuple[int, int, int], ...]

    def offset(self, own: Index) -> Index:
        """Return the offset in the whole of the element at offset ``own``."""
        for run, apart, first in self.steps:
            # Each run of ``run`` elements moves on by the gap between runs; within a run elements stay side by side.
            own = own + (own // run) * (apart - run) + first
        return own


@dataclass
class Partition:
    """Groups in an order that respects their dependences, with the values that each stores and recomputes.

    ``slices`` are stored values without separate memory; only the whole is read. ``rematerialized`` are nodes that are
    evaluated again by each kernel that reads them, ``materialized_views`` are views that are stored.
    """

    groups: list[Group] = field(default_factory=list)
    stored: dict[Group, list[Value]] = field(default_factory=dict)
    rematerialized: set[Node] = field(default_factory=set)
    decisions: list[Decision] = field(default_factory=list)
    order: dict[Node, int] = field(default_factory=dict)
    materialized_views: MaterializedViews = frozenset()
    row_fusions: list[RowFusion] = field(default_factory=list)
    slices: dict[Value, BufferSlice] = field(default_factory=dict)

    def memory(self, value: Value) -> Value:
        """The value whose memory contains a stored one."""
        return self.slices[value].whole if value in self.slices else value

    def units(self) -> Iterator[Group | RowFusion]:
        """Units that become one kernel each: row fusions, and the groups outside of them."""
        fusion_of = {g: c for c in self.row_fusions for g in c.groups}
        for group in self.groups:
            fused = fusion_of.get(group)
            if fused is None:
                yield group
            # A row fusion takes the place of its first group: the others follow directly, so order is kept.
            elif group is fused.groups[0]:
                yield fused

"""Row-tiled fusion: choose kernels that run block by block of rows, so that values passed between them stay in cache.

This is the tile-and-fuse of Halide's ``compute_at`` and of FlashAttention. A candidate starts at a contraction with a
large result. Kernels that read it row by row join (``passes/row_fusion/row_tiles.py`` decides), and so do the readers
of their results. The arithmetic per element must be so little that moving the element through memory costs about as
much. Later kernels may rematerialize values instead of reading them from memory, block by block, in a separate fusion.
Padding and the depthwise convolution that reads it are a fusion of two, on blocks small enough for the first cache.
Operations and their order do not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from tracecomp.ir.graph import Graph, Node, Value
from tracecomp.ir.index import Index, Var
from tracecomp.ir.op import Bilinear
from tracecomp.passes.cost.machine import Machine
from tracecomp.passes.fusion.access import buffer_of
from tracecomp.passes.fusion.groups import Group, Partition, RowFusion
from tracecomp.passes.fusion.members import values_read
from tracecomp.passes.fusion.signature import signature
from tracecomp.passes.nests.scalar_exprs import Params
from tracecomp.passes.nests.store import Nests
from tracecomp.passes.row_fusion.lowering import block_slots
from tracecomp.passes.row_fusion.row_tiles import Misaligned, RowBlock, Rows, Summed

MAX_TERMS = 256
"""Most multiply-adds per element passed between kernels: moving it through memory costs about as much."""
WINDOW_TERMS = 32
"""The same for an element that only a convolution reads."""
MAX_HEIGHT = 64
"""Most rows of a block: more are read from memory no faster, and leave less of the cache."""
MIN_HEIGHT = 16
"""Least rows of a block, as register tiles have up to 14 rows and each block reads the other operand again."""
WANTED_BLOCKS = 16
"""Blocks that threads should find to share."""
WANTED_OUTER = 8
"""Values of the outer variable that threads should find to share if a block adds to totals over its rows."""

Unit = tuple[Group, ...]


def with_row_fusions(
    partition: Partition, graph: Graph, aliases: Mapping[int, int], machine: Machine, nests: Nests
) -> Partition:
    """Return the partition with its row fusions, whose groups become neighbours. Values that overwrite ``aliases`` are
    in none."""
    # Overwriting is checked element by element over a whole kernel; in blocks it would happen before later blocks have
    # read.
    overwriting = {buffer_of(graph.outputs[o].value) for o in aliases}
    search = _Search(partition, {buffer_of(o.value) for o in graph.outputs}, overwriting, machine, nests)
    for group in partition.groups:
        search.start(group)
    # After all others, as these fusions gain less and take the remaining kernels.
    for group in partition.groups:
        search.start_before(group)
    row_fusions = list(map(search.row_fusion, search.candidate))
    return replace(search.partition, groups=[g for unit in search.units for g in unit], row_fusions=row_fusions)


@dataclass
class Candidate:
    """A row fusion as it grows: a trial block of rows, the members, units that come later.

    ``non_row_outputs`` are members whose results are not made row by row, ``sums`` those of them that sum over rows.
    ``rematerialized`` are copies of an earlier fusion's groups, whose results are computed again. ``in_l1``: blocks
    stay in the first cache.
    """

    rows: Rows
    members: list[Group]
    rematerialized: frozenset[Group] = frozenset()
    non_row_outputs: set[Group] = field(default_factory=set)
    sums: set[Group] = field(default_factory=set)
    later: list[Unit] = field(default_factory=list)
    in_l1: bool = False


class _Search:
    """``units`` are the groups of row fusions, and single groups, each after its dependences."""

    def __init__(
        self, partition: Partition, wanted: set[Value], overwriting: set[Value], machine: Machine, nests: Nests
    ) -> None:
        self.nests = nests
        self.stored = dict(partition.stored)
        self.partition = replace(partition, stored=self.stored)
        # Parts of concatenations that have no kernel are stored for others, so they count as wanted.
        self.wanted = wanted | set(partition.slices)
        self.overwriting = overwriting
        self.machine = machine
        self.reads: dict[Group, set[Value]] = {}
        # Keyed by the kernels' computations, not identities: equal layers of a network share the analysis.
        self.tried: dict[Any, tuple[bool, bool, bool]] = {}
        self.aligned: dict[Any, bool] = {}
        self.units: list[Unit] = [(g,) for g in partition.groups]
        self.candidate: list[Candidate] = []

    # ---- growing

    def start(self, head: Group) -> None:
        """Add the fusion that starts at ``head``, if there is one, and the one that rematerializes its results."""
        # A group that is in a fusion already is not a unit.
        if head.kind != "bilinear" or (head,) not in self.units or not self._light(head, self.stored[head]):
            return
        # All but the last axis of the result number rows, the last of these within the outer ones.
        candidate = Candidate(_rows((1, *_root(head).outputs[0].shape[:-1])), [head])
        if not self._fits(candidate, head):
            return
        self._grow(candidate, self.units.index((head,)) + 1)
        if self._pays(candidate):
            self._add(candidate)
            self._start_rematerialized(candidate)

    def start_before(self, head: Group) -> None:
        """Add the fusion of ``head`` and the contraction that alone reads its result, if it has little work per
        element."""
        # A group that is in a fusion already is not a unit.
        if head.kind != "loops" or (head,) not in self.units or len(self.stored[head]) != 1:
            return
        if not self._light(head, self.stored[head]):
            return
        (made,) = self.stored[head]
        readers = [unit for unit in self.units if made in self._loaded(unit)]
        if made in self.wanted or len(readers) != 1 or len(readers[0]) != 1:
            return
        (reader,) = readers[0]
        # See ``with_row_fusions``.
        if reader.kind != "bilinear" or self.overwriting & set(self.stored[reader]):
            return
        # A convolution that does much with each element hides the load; fusing would only shrink its tiles.
        if _terms(_root(reader)) > WINDOW_TERMS * made.type.numel:
            return
        # Finer rows first, with as many leading axes as align: blocks for the first cache have to be small.
        for axes in range(len(made.shape) - 1, 0, -1):
            candidate = Candidate(_rows((1, *made.shape[:axes])), [head], in_l1=True)
            if self._fits(candidate, head) and self._fits(candidate, reader) and not candidate.sums:
                candidate.members.append(reader)
                if self._height(candidate) is not None:
                    self._add(candidate)
                return

    def _grow(self, candidate: Candidate, first: int) -> None:
        """Let units from number ``first`` join, or mark them as coming after the fusion."""
        made = {v for g in candidate.members for v in self.stored[g]}
        # A value that is stored, but not row by row in this order, must have no reader inside.
        out_of_reach = {self.partition.memory(v) for g in candidate.non_row_outputs for v in self.stored[g]}
        for unit in self.units[first:]:
            needed = self._loaded(unit)
            blocked = not needed.isdisjoint(out_of_reach)
            if not blocked and needed.isdisjoint(made):
                # The order in ``units`` respects all dependences, and is kept for units without any to the members.
                continue  # not connected to the members: its position stays
            given = [v for g in candidate.members for v in self.stored[g] if v in needed]
            joins = len(unit) == 1 and not blocked and self._light(unit[0], given)
            if joins and self._fits(candidate, unit[0]):
                candidate.members.append(unit[0])
                made.update(self.stored[unit[0]])
                if unit[0] in candidate.non_row_outputs:
                    # Its readers cannot go block by block, so they come later.
                    out_of_reach.update(map(self.partition.memory, self.stored[unit[0]]))
            else:
                candidate.later.append(unit)
                # And so do those that read what comes later.
                out_of_reach.update(self.partition.memory(v) for g in unit for v in self.stored[g])

    def _light(self, group: Group, handed: list[Value]) -> bool:
        """Whether keeping ``handed`` in cache pays, for the work of ``group`` per element."""
        # A value that fits the second cache is still there for the next kernel.
        large = [v for v in handed if self._is_large(v)]
        if not large or group.kind not in ("loops", "bilinear") or self.overwriting & set(self.stored[group]):
            return False
        # Arithmetic above some hundred operations for each element takes longer than fetching the element.
        return group.kind == "loops" or _terms(_root(group)) <= MAX_TERMS * max(v.type.numel for v in large)

    def _is_large(self, value: Value) -> bool:
        return value.type.nbytes > self.machine.l2_bytes

    def _fits(self, candidate: Candidate, group: Group) -> bool:
        """Whether ``group`` reads row by row; records whether it also computes its results so, or sums over rows."""
        # Legality and the order of summation depend on the shapes of the computation, so results are cached by
        # signature.
        shape, _ = signature((*candidate.members, group), self.partition, {})
        key = (shape, candidate.rows, *(g in candidate.non_row_outputs for g in candidate.members))
        if key not in self.tried:
            self.tried[key] = self._tried(candidate, group)
        fits, apart, summed = self.tried[key]
        # Totals continue through all blocks of an outer position, so that threads share outer positions only: there
        # must be enough.
        if not fits or (summed and candidate.rows.outer.extent < WANTED_OUTER):
            return False
        if apart:
            candidate.non_row_outputs.add(group)
        if summed:
            candidate.sums.add(group)
        return True

    def _tried(self, candidate: Candidate, group: Group) -> tuple[bool, bool, bool]:
        """Whether ``group`` reads row by row, whether it computes its results otherwise, whether it sums over rows."""
        made = [v for g in candidate.members if g not in candidate.non_row_outputs for v in self.stored[g]]
        # Tested on one trial block, without memory: only the positions of accesses matter.
        block = RowBlock(candidate.rows, self.nests, self._params(), made, {}, self.stored[group])
        try:
            nest = block.nest(group, self.partition)
        except Misaligned:
            return False, False, False
        return True, bool(block.apart), isinstance(nest, Summed)

    def _params(self) -> Params:
        return Params(self.partition.materialized_views, slices=self.partition.slices)

    def _loaded(self, unit: Unit) -> set[Value]:
        """The values that a unit loads from other units."""
        if len(unit) == 1:
            return self._read(unit[0])
        # Values passed between members are not loads of the unit.
        return {v for g in unit for v in self._read(g)} - {v for g in unit for v in self.stored[g]}

    def _read(self, group: Group) -> set[Value]:
        if group not in self.reads:
            self.reads[group] = values_read(group, self.partition)
        return self.reads[group]

    # ---- rematerializing

    def _start_rematerialized(self, first: Candidate) -> None:
        """Start a fusion of the readers of large results of ``first``: it computes these again, and they are not
        stored."""
        # Values that kernels outside the fusion still need.
        needed = {v for u in self.units if u != tuple(first.members) for v in self._loaded(u)}
        given = [v for g in first.members for v in self.stored[g] if v in needed and v not in self.wanted]
        width = _root(first.members[0]).outputs[0].type.numel
        # Only values as large as the head's result: statistics of rows are cheaper to keep than to compute again.
        makers = self._makers(first, {v for v in given if v.type.numel >= width})
        # A value that is not computed row by row cannot be computed again for one block.
        if not makers or makers & first.non_row_outputs:
            return
        # Copies of the groups, as the originals are still in the first fusion.
        copies = {g: Group(-1, g.kind, g.nodes, g.domain, g.per_row) for g in first.members if g in makers}
        self.stored.update({copy: self.stored[g] for g, copy in copies.items()})
        candidate = Candidate(first.rows, list(copies.values()), frozenset(copies.values()))
        # Start after the first fusion, among the readers of its results.
        self._grow(candidate, self.units.index(tuple(first.members)) + 1)
        pays = self._pays(candidate)
        missed = {v for u in candidate.later for v in self._loaded(u)} & {v for g in makers for v in self.stored[g]}
        # It pays only if no reader is left out, as the large values would have to be stored for that one.
        if pays and all(v.type.numel < width for v in missed):
            self._add(candidate)
            # The first fusion no longer stores the values that the second computes, and the second stores only those
            # that it reads.
            self._store_less(first)
            self._store_less(candidate)
        else:
            for copy in copies.values():
                del self.stored[copy]

    def _makers(self, row_fusion: Candidate, values: set[Value]) -> set[Group]:
        """The members that compute ``values``."""
        makers: set[Group] = set()
        # Last first, so that what a maker reads makes its own makers known.
        for group in reversed(row_fusion.members):
            if values & set(self.stored[group]):
                makers.add(group)
                values = values | self._read(group)
        return makers

    def _store_less(self, row_fusion: Candidate) -> None:
        """Members store values that are read; rematerialized members only those that the fusion itself reads."""
        own = {v for g in row_fusion.members for v in self._read(g)}
        others = self._loaded_elsewhere(row_fusion) | self.wanted
        for group in row_fusion.members:
            kept = own if group in row_fusion.rematerialized else own | others
            self.stored[group] = [v for v in self.stored[group] if v in kept]

    # ---- results

    def _add(self, candidate: Candidate) -> None:
        """Put the members at the position of the last of them, before their readers."""
        members = [(g,) for g in candidate.members if g not in candidate.rematerialized]
        # At the position of the last member, all operands of members exist, and no reader has run yet.
        end = self.units.index(members[-1]) + 1
        # Units between members that depend on one of them come after the fusion.
        moved = [u for u in self.units[:end] if u in candidate.later]
        before = [u for u in self.units[:end] if u not in members and u not in moved]
        self.units = [*before, tuple(candidate.members), *moved, *self.units[end:]]
        self.candidate.append(candidate)

    def _loaded_elsewhere(self, candidate: Candidate) -> set[Value]:
        members = set(candidate.members)
        return {v for u in self.units if not members & set(u) for v in self._loaded(u)}

    def _pays(self, candidate: Candidate) -> bool:
        """Whether the fusion keeps a large value in cache; the last members leave until that fits."""
        while self._height(candidate) is None and len(candidate.members) > 1 + len(candidate.rematerialized):
            # Members that joined last are the easiest to leave out: no other member depends on them.
            last = candidate.members.pop()
            candidate.later.append((last,))
            candidate.non_row_outputs.discard(last)
            candidate.sums.discard(last)
        return self._height(candidate) is not None and any(map(self._is_large, self._block_values(candidate)))

    def _block_values(self, candidate: Candidate) -> list[Value]:
        """The values that are kept for one block at a time."""
        elsewhere = self._loaded_elsewhere(candidate) | self.wanted
        by_rows = (g for g in candidate.members if g not in candidate.non_row_outputs)
        kept = [v for g in by_rows for v in self.stored[g] if v not in elsewhere]
        # The first fusion still stores the values of a rematerializing fusion that others read; its copy lives for a
        # block.
        return [*kept, *(v for g in candidate.rematerialized for v in self.stored[g] if v in elsewhere)]

    def _height(self, candidate: Candidate) -> int | None:
        """Choose the rows of a block so that block values stay in cache, and threads have blocks to share."""
        rows = candidate.rows
        # Memory of a block for each slot, reused among values that are not alive together.
        slots = block_slots(tuple(candidate.members), self._block_values(candidate), self.partition)
        row_bytes = sum(v.type.nbytes for v in {slot: v for v, slot in slots.items()}.values()) // rows.total
        # Half of the cache; the rest is for the kernels' other operands.
        least = 1 if candidate.in_l1 else min(MIN_HEIGHT, rows.count)
        # Half of the cache; the rest is for the kernels' other operands.
        room = (self.machine.l1_bytes if candidate.in_l1 else self.machine.l2_bytes) // 2
        # Even the lowest block would not stay in cache: no fusion.
        if least * row_bytes > (self.machine.l2_bytes // 4 if candidate.in_l1 else 2 * self.machine.l2_bytes):
            return None
        # With totals the blocks of one outer position run in order, and their number does not matter to threads.
        parts = 1 if candidate.sums else -(-WANTED_BLOCKS // rows.outer.extent)
        fitting = max(min(MAX_HEIGHT, rows.count // parts, room // max(row_bytes, 1)), least)
        # The trial block's height is legal; a different height may split a variable where an index divides it.
        height = _even(rows.count, fitting)
        if self._aligned(candidate, height):
            return height
        height = fitting // rows.height * rows.height
        return height if height and self._aligned(candidate, height) else None

    def _aligned(self, candidate: Candidate, height: int) -> bool:
        """Whether the members are legal for blocks of ``height``, of which the last may be lower.

        Multiples of the trial block's height are.
        """
        # A multiple of the trial height joins blocks that are each legal.
        if height % candidate.rows.height == 0 == candidate.rows.count % candidate.rows.height:
            return True
        shape, _ = signature(tuple(candidate.members), self.partition, {})
        key = (shape, candidate.rows, height, *(g in candidate.non_row_outputs for g in candidate.members))
        if key not in self.aligned:
            made = [v for g in candidate.members if g not in candidate.non_row_outputs for v in self.stored[g]]
            blocks = [RowBlock(rows, self.nests, self._params(), made, {}) for rows in candidate.rows.cut(height)]
            try:
                # Full and remaining blocks have different indices, and each must align.
                self.aligned[key] = bool([b.nest(g, self.partition) for b in blocks for g in candidate.members])
            except Misaligned:
                self.aligned[key] = False
        return self.aligned[key]

    def row_fusion(self, candidate: Candidate) -> RowFusion:
        """The row fusion of the candidate."""
        height = self._height(candidate)
        assert height is not None
        rows, block_values = candidate.rows, tuple(self._block_values(candidate))
        apart = frozenset(candidate.non_row_outputs)
        return RowFusion(tuple(candidate.members), rows.outer.extent, rows.count, height, block_values, apart)


def _rows(shape: tuple[int, ...]) -> Rows:
    """Rows numbered by axes of ``shape``, with a trial block of them."""
    *lead, count = shape
    outer = Var("outer", prod(lead))
    return Rows(outer, count, Index(), count).cut(min(count, MIN_HEIGHT))[0]


def _even(count: int, fitting: int) -> int:
    """A height of blocks up to ``fitting`` that divides ``count`` or leaves no small remainder."""
    # Equal blocks if a height above half of the maximum divides the rows; else as equal as possible.
    even = next((h for h in range(fitting, fitting // 2, -1) if count % h == 0), None)
    return even or -(-count // -(-count // fitting))


def _root(group: Group) -> Node:
    return next(n for n in group.nodes if isinstance(n.op.loop, Bilinear))


def _terms(node: Node) -> int:
    """Multiply-adds of a contraction."""
    assert isinstance(node.op.loop, Bilinear)
    form = node.op.loop.fn([v.type for v in node.inputs], node.outputs[0].type, **node.attrs)
    return prod(form.extents[n] for n in (*form.out, *form.reduce))

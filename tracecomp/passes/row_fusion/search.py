"""Row-tiled fusion: which kernels run tile by tile, on blocks of rows, so that what one hands the next stays in cache.

This is the tile-and-fuse of Halide's ``compute_at`` and of FlashAttention. A candidate starts at a contraction with a
large result. Kernels that read it row by row join (``passes/row_fusion/row_tiles.py`` tells), and so do those that read
their results, as long as the arithmetic for each element handed over is so little that moving the element through
memory costs about as much. What a fusion leaves in memory for later kernels, these may rather rematerialize, block by
block, in a fusion of their own. Padding and the depthwise convolution that reads it are a fusion of two, on blocks
small enough for the first cache. What is computed, and in which order, stays the same.
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
"""Multiply-adds for each element that is handed over, up to which moving it through memory costs about as much."""
WINDOW_TERMS = 32
"""The same for an element that is handed to a convolution by itself."""
MAX_HEIGHT = 64
"""Rows of a block at most: more are read from memory no faster, and leave less of the cache."""
MIN_HEIGHT = 16
"""Rows of a block at least, as register tiles have up to 14 rows and each block reads the other operand anew."""
WANTED_BLOCKS = 16
"""Blocks that threads should find to share."""
WANTED_OUTER = 8
"""Values of the outer variable that threads should find to share where a block adds to totals of its rows."""

Unit = tuple[Group, ...]


def with_row_fusions(
    partition: Partition, graph: Graph, aliases: Mapping[int, int], machine: Machine, nests: Nests
) -> Partition:
    """The partition with its row fusions, whose groups become neighbours. What ``aliases`` overwrites is in none."""
    # Overwriting is settled element by element over a whole kernel; in
    # blocks it would happen before later blocks have read.
    overwriting = {buffer_of(graph.outputs[o].value) for o in aliases}
    search = _Search(partition, {buffer_of(o.value) for o in graph.outputs}, overwriting, machine, nests)
    for group in partition.groups:
        search.start(group)
    # After all others, as these fusions are smaller gains and take what is left.
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
    """``units`` are the groups of row fusions, and other groups by themselves, each after what it depends on."""

    def __init__(
        self, partition: Partition, wanted: set[Value], overwriting: set[Value], machine: Machine, nests: Nests
    ) -> None:
        self.nests = nests
        self.stored = dict(partition.stored)
        self.partition = replace(partition, stored=self.stored)
        # Parts of concatenations are stored for what is no kernel any more, so they count as wanted.
        self.wanted = wanted | set(partition.slices)
        self.overwriting = overwriting
        self.machine = machine
        self.reads: dict[Group, set[Value]] = {}
        # By what the kernels compute and not by which they are: the layers of a network ask the same questions again.
        self.tried: dict[Any, tuple[bool, bool, bool]] = {}
        self.aligned: dict[Any, bool] = {}
        self.units: list[Unit] = [(g,) for g in partition.groups]
        self.candidate: list[Candidate] = []

    # ---- growing

    def start(self, head: Group) -> None:
        """Add the fusion that starts at ``head``, if there is one, and the one that computes its results again."""
        # A group that is in a fusion already is no unit by itself.
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
        """Add the fusion of ``head`` and the contraction that alone reads its result, if that does little with it."""
        # A group that is in a fusion already is no unit by itself.
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
        # Finer rows, as many leading axes as align, are tried first: blocks for the first cache have to be small.
        for axes in range(len(made.shape) - 1, 0, -1):
            candidate = Candidate(_rows((1, *made.shape[:axes])), [head], in_l1=True)
            if self._fits(candidate, head) and self._fits(candidate, reader) and not candidate.sums:
                candidate.members.append(reader)
                if self._height(candidate) is not None:
                    self._add(candidate)
                return

    def _grow(self, candidate: Candidate, first: int) -> None:
        """Let units from number ``first`` on join, or note that they come after the fusion."""
        made = {v for g in candidate.members for v in self.stored[g]}
        # What is stored, but not row by row in this order, nobody inside may read.
        out_of_reach = {self.partition.memory(v) for g in candidate.non_row_outputs for v in self.stored[g]}
        for unit in self.units[first:]:
            needed = self._loaded(unit)
            blocked = not needed.isdisjoint(out_of_reach)
            if not blocked and needed.isdisjoint(made):
                # Order in ``units`` respects all dependences, and is kept for those that have none with the members.
                continue  # no edge to the members: it stays where it is, before or after them
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
        """Whether what is ``handed`` is worth keeping in cache, for what ``group`` computes with each element."""
        # What fits the second cache is found there anyway by the next kernel.
        large = [v for v in handed if self._is_large(v)]
        if not large or group.kind not in ("loops", "bilinear") or self.overwriting & set(self.stored[group]):
            return False
        # Arithmetic above some hundred operations for each element takes longer than fetching the element.
        return group.kind == "loops" or _terms(_root(group)) <= MAX_TERMS * max(v.type.numel for v in large)

    def _is_large(self, value: Value) -> bool:
        return value.type.nbytes > self.machine.l2_bytes

    def _fits(self, candidate: Candidate, group: Group) -> bool:
        """Whether ``group`` reads row by row; notes whether it also makes its results so, or sums over rows."""
        # The order of summation and legality depend on the shape of what is
        # computed, so answers are kept by signature.
        shape, _ = signature((*candidate.members, group), self.partition, {})
        key = (shape, candidate.rows, *(g in candidate.non_row_outputs for g in candidate.members))
        if key not in self.tried:
            self.tried[key] = self._tried(candidate, group)
        fits, apart, summed = self.tried[key]
        # Totals go on through all blocks of an outer position, so that threads
        # share outer positions only: there must be enough.
        if not fits or (summed and candidate.rows.outer.extent < WANTED_OUTER):
            return False
        if apart:
            candidate.non_row_outputs.add(group)
        if summed:
            candidate.sums.add(group)
        return True

    def _tried(self, candidate: Candidate, group: Group) -> tuple[bool, bool, bool]:
        """Whether ``group`` reads row by row, whether it makes its results otherwise, whether it sums over rows."""
        made = [v for g in candidate.members if g not in candidate.non_row_outputs for v in self.stored[g]]
        # Tried on one block, with memory for nothing: only where accesses lie matters.
        block = RowBlock(candidate.rows, self.nests, self._params(), made, {}, self.stored[group])
        try:
            nest = block.nest(group, self.partition)
        except Misaligned:
            return False, False, False
        return True, bool(block.apart), isinstance(nest, Summed)

    def _params(self) -> Params:
        return Params(self.partition.materialized_views, slices=self.partition.slices)

    def _loaded(self, unit: Unit) -> set[Value]:
        """What a unit loads that it has not made itself."""
        if len(unit) == 1:
            return self._read(unit[0])
        # What members hand each other is no load of the unit.
        return {v for g in unit for v in self._read(g)} - {v for g in unit for v in self.stored[g]}

    def _read(self, group: Group) -> set[Value]:
        if group not in self.reads:
            self.reads[group] = values_read(group, self.partition)
        return self.reads[group]

    # ---- rematerializing

    def _start_rematerialized(self, first: Candidate) -> None:
        """A fusion for those that need large results of ``first``: these are made again there, and not stored."""
        # Values that kernels outside of the fusion still need.
        needed = {v for u in self.units if u != tuple(first.members) for v in self._loaded(u)}
        given = [v for g in first.members for v in self.stored[g] if v in needed and v not in self.wanted]
        width = _root(first.members[0]).outputs[0].type.numel
        # Only what is as large as the head's result: statistics of rows cost less to keep than to make again.
        makers = self._makers(first, {v for v in given if v.type.numel >= width})
        # What is not made row by row cannot be made again for a block alone.
        if not makers or makers & first.non_row_outputs:
            return
        # Copies of the groups, as the originals still stand in the first fusion.
        copies = {g: Group(-1, g.kind, g.nodes, g.domain, g.per_row) for g in first.members if g in makers}
        self.stored.update({copy: self.stored[g] for g, copy in copies.items()})
        candidate = Candidate(first.rows, list(copies.values()), frozenset(copies.values()))
        # From behind the first fusion on, where those that need its results are.
        self._grow(candidate, self.units.index(tuple(first.members)) + 1)
        pays = self._pays(candidate)
        missed = {v for u in candidate.later for v in self._loaded(u)} & {v for g in makers for v in self.stored[g]}
        # It is worth it only if no reader is left out, as the large values would have to be stored for that one.
        if pays and all(v.type.numel < width for v in missed):
            self._add(candidate)
            # Now what the second makes itself the first no longer stores, and
            # the second stores of it only what it reads.
            self._store_less(first)
            self._store_less(candidate)
        else:
            for copy in copies.values():
                del self.stored[copy]

    def _makers(self, row_fusion: Candidate, values: set[Value]) -> set[Group]:
        """The members that it takes to make ``values``."""
        makers: set[Group] = set()
        # Last first, so that what a maker reads makes its own makers known.
        for group in reversed(row_fusion.members):
            if values & set(self.stored[group]):
                makers.add(group)
                values = values | self._read(group)
        return makers

    def _store_less(self, row_fusion: Candidate) -> None:
        """Members store what somebody reads; what is made again, only what the fusion itself reads."""
        own = {v for g in row_fusion.members for v in self._read(g)}
        others = self._loaded_elsewhere(row_fusion) | self.wanted
        for group in row_fusion.members:
            kept = own if group in row_fusion.rematerialized else own | others
            self.stored[group] = [v for v in self.stored[group] if v in kept]

    # ---- what comes of it

    def _add(self, candidate: Candidate) -> None:
        """Put the members where the last of them stands, before what needs them."""
        members = [(g,) for g in candidate.members if g not in candidate.rematerialized]
        # Where the last member stands, all that members need is made; what needs members has not run yet.
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
        """Whether the fusion keeps something large in cache; its last members leave as long as that does not fit."""
        while self._height(candidate) is None and len(candidate.members) > 1 + len(candidate.rematerialized):
            # Those that joined last are most easily left out: nobody in the fusion depends on them.
            last = candidate.members.pop()
            candidate.later.append((last,))
            candidate.non_row_outputs.discard(last)
            candidate.sums.discard(last)
        return self._height(candidate) is not None and any(map(self._is_large, self._block_values(candidate)))

    def _block_values(self, candidate: Candidate) -> list[Value]:
        """What is kept for one block at a time."""
        elsewhere = self._loaded_elsewhere(candidate) | self.wanted
        by_rows = (g for g in candidate.members if g not in candidate.non_row_outputs)
        kept = [v for g in by_rows for v in self.stored[g] if v not in elsewhere]
        # Of a rematerializing fusion, what others read is stored by the first
        # fusion still; its own copy lives for a block.
        return [*kept, *(v for g in candidate.rematerialized for v in self.stored[g] if v in elsewhere)]

    def _height(self, candidate: Candidate) -> int | None:
        """Rows of a block, so that what is kept inside stays in cache, and threads have blocks to share."""
        rows = candidate.rows
        # Memory of a block for each slot, reused among values that are not alive together.
        slots = block_slots(tuple(candidate.members), self._block_values(candidate), self.partition)
        row_bytes = sum(v.type.nbytes for v in {slot: v for v, slot in slots.items()}.values()) // rows.total
        # Below a register tile's height contractions read their other operand for too few rows.
        least = 1 if candidate.in_l1 else min(MIN_HEIGHT, rows.count)
        # Half of the cache; the rest is what else the kernels read.
        room = (self.machine.l1_bytes if candidate.in_l1 else self.machine.l2_bytes) // 2
        # Even the lowest block would not stay in cache: no fusion.
        if least * row_bytes > (self.machine.l2_bytes // 4 if candidate.in_l1 else 2 * self.machine.l2_bytes):
            return None
        # With totals the blocks of one outer position run in order, and their number does not matter to threads.
        parts = 1 if candidate.sums else -(-WANTED_BLOCKS // rows.outer.extent)
        fitting = max(min(MAX_HEIGHT, rows.count // parts, room // max(row_bytes, 1)), least)
        # The trial block's height was found to be legal; another one may cut a variable where an index divides it.
        height = _even(rows.count, fitting)
        if self._aligned(candidate, height):
            return height
        height = fitting // rows.height * rows.height
        return height if height and self._aligned(candidate, height) else None

    def _aligned(self, candidate: Candidate, height: int) -> bool:
        """Whether the members go row by row in blocks of ``height``, too, of which the last may be lower.

        Several of the blocks that were tried together do.
        """
        # A multiple of what was tried joins whole blocks that are legal each.
        if height % candidate.rows.height == 0 == candidate.rows.count % candidate.rows.height:
            return True
        shape, _ = signature(tuple(candidate.members), self.partition, {})
        key = (shape, candidate.rows, height, *(g in candidate.non_row_outputs for g in candidate.members))
        if key not in self.aligned:
            made = [v for g in candidate.members if g not in candidate.non_row_outputs for v in self.stored[g]]
            blocks = [RowBlock(rows, self.nests, self._params(), made, {}) for rows in candidate.rows.cut(height)]
            try:
                # Whole and remaining blocks have indices of their own, and each must align.
                self.aligned[key] = bool([b.nest(g, self.partition) for b in blocks for g in candidate.members])
            except Misaligned:
                self.aligned[key] = False
        return self.aligned[key]

    def row_fusion(self, candidate: Candidate) -> RowFusion:
        """What was found."""
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
    """A height of blocks up to ``fitting`` that divides ``count`` or leaves no small rest."""
    # Equal blocks if a height above half of what fits divides the rows; else as equal as can be.
    even = next((h for h in range(fitting, fitting // 2, -1) if count % h == 0), None)
    return even or -(-count // -(-count // fitting))


def _root(group: Group) -> Node:
    return next(n for n in group.nodes if isinstance(n.op.loop, Bilinear))


def _terms(node: Node) -> int:
    """Multiply-adds of a contraction."""
    assert isinstance(node.op.loop, Bilinear)
    form = node.op.loop.fn([v.type for v in node.inputs], node.outputs[0].type, **node.attrs)
    return prod(form.extents[n] for n in (*form.out, *form.reduce))

"""Which kernels take turns on blocks of rows, so that what one hands the next stays in cache and needs no memory.

A chain starts at a contraction with a large result. Kernels that read it row by row join
(``passes/row_fusion/row_tiles.py`` tells), and so do those that read their results, as long as the arithmetic for each
element handed over is so little that moving the element through memory costs about as much. What a chain leaves in
memory for later kernels, these may rather compute again, block by block, in a chain of their own. Padding and the
depthwise convolution that reads it are a chain of two, on blocks small enough for the nearest cache. What is computed,
and in which order, stays the same. This is row-tiled fusion (tile and fuse; Halide's ``compute_at``).
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
from tracecomp.passes.fusion.access import storage
from tracecomp.passes.fusion.groups import Chain, Group, Partition
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


def with_chains(
    partition: Partition, graph: Graph, aliases: Mapping[int, int], machine: Machine, nests: Nests
) -> Partition:
    """The partition with its chains, whose groups become neighbours. What ``aliases`` overwrites is in none."""
    overwriting = {storage(graph.outputs[o].value) for o in aliases}
    search = _Search(partition, {storage(o.value) for o in graph.outputs}, overwriting, machine, nests)
    for group in partition.groups:
        search.start(group)
    for group in partition.groups:
        search.start_before(group)
    chains = list(map(search.chain, search.grown))
    return replace(search.partition, groups=[g for unit in search.units for g in unit], chains=chains)


@dataclass
class _Grown:
    """A chain as it grows: a trial block of rows, the members, units that come later.

    ``ends`` are members whose results are not made row by row, ``sums`` those of them that sum over rows. ``again`` are
    copies of an earlier chain's groups, whose results are computed again. ``near``: blocks stay in the nearest cache.
    """

    rows: Rows
    members: list[Group]
    again: frozenset[Group] = frozenset()
    ends: set[Group] = field(default_factory=set)
    sums: set[Group] = field(default_factory=set)
    later: list[Unit] = field(default_factory=list)
    near: bool = False


class _Search:
    """``units`` are the groups of chains, and other groups by themselves, in an order that respects dependences."""

    def __init__(
        self, partition: Partition, wanted: set[Value], overwriting: set[Value], machine: Machine, nests: Nests
    ) -> None:
        self.nests = nests
        self.stored = dict(partition.stored)
        self.partition = replace(partition, stored=self.stored)
        self.wanted = wanted | set(partition.placed)
        self.overwriting = overwriting
        self.machine = machine
        self.reads: dict[Group, set[Value]] = {}
        self.tried: dict[Any, tuple[bool, bool, bool]] = {}
        self.aligned: dict[Any, bool] = {}
        self.units: list[Unit] = [(g,) for g in partition.groups]
        self.grown: list[_Grown] = []

    # ---- growing

    def start(self, head: Group) -> None:
        """Add the chain that starts at ``head``, if there is one, and the one that computes its results again."""
        if head.kind != "bilinear" or (head,) not in self.units or not self._light(head, self.stored[head]):
            return
        grown = _Grown(_rows((1, *_root(head).outputs[0].shape[:-1])), [head])
        if not self._fits(grown, head):
            return
        self._grow(grown, self.units.index((head,)) + 1)
        if self._pays(grown):
            self._add(grown)
            self._start_again(grown)

    def start_before(self, head: Group) -> None:
        """Add the chain of ``head`` and the contraction that alone reads its result, if that does little with it."""
        if head.kind != "loops" or len(self.stored[head]) != 1 or not self._light(head, self.stored[head]):
            return
        (made,) = self.stored[head]
        readers = [unit for unit in self.units if made in self._loaded(unit)]
        if made in self.wanted or len(readers) != 1 or len(readers[0]) != 1:
            return
        (reader,) = readers[0]
        if reader.kind != "bilinear" or self.overwriting & set(self.stored[reader]):
            return
        if _terms(_root(reader)) > WINDOW_TERMS * made.type.numel:
            return
        for axes in range(len(made.shape) - 1, 0, -1):
            grown = _Grown(_rows((1, *made.shape[:axes])), [head], near=True)
            if self._fits(grown, head) and self._fits(grown, reader) and not grown.sums:
                grown.members.append(reader)
                if self._height(grown) is not None:
                    self._add(grown)
                return

    def _grow(self, grown: _Grown, first: int) -> None:
        """Let units from number ``first`` on join, or note that they come after the chain."""
        made = {v for g in grown.members for v in self.stored[g]}
        out_of_reach = {self.partition.memory(v) for g in grown.ends for v in self.stored[g]}
        for unit in self.units[first:]:
            needed = self._loaded(unit)
            blocked = not needed.isdisjoint(out_of_reach)
            if not blocked and needed.isdisjoint(made):
                continue  # no edge to the members: it stays where it is, before or after them
            given = [v for g in grown.members for v in self.stored[g] if v in needed]
            joins = len(unit) == 1 and not blocked and self._light(unit[0], given)
            if joins and self._fits(grown, unit[0]):
                grown.members.append(unit[0])
                made.update(self.stored[unit[0]])
                if unit[0] in grown.ends:
                    out_of_reach.update(map(self.partition.memory, self.stored[unit[0]]))
            else:
                grown.later.append(unit)
                out_of_reach.update(self.partition.memory(v) for g in unit for v in self.stored[g])

    def _light(self, group: Group, handed: list[Value]) -> bool:
        """Whether what is ``handed`` is worth keeping in cache, for what ``group`` computes with each element."""
        large = [v for v in handed if self._is_large(v)]
        if not large or group.kind not in ("loops", "bilinear") or self.overwriting & set(self.stored[group]):
            return False
        return group.kind == "loops" or _terms(_root(group)) <= MAX_TERMS * max(v.type.numel for v in large)

    def _is_large(self, value: Value) -> bool:
        return value.type.nbytes > self.machine.l2_bytes

    def _fits(self, grown: _Grown, group: Group) -> bool:
        """Whether ``group`` reads row by row; notes whether it also makes its results so, or sums over rows."""
        shape, _ = signature((*grown.members, group), self.partition, {})
        key = (shape, grown.rows, *(g in grown.ends for g in grown.members))
        if key not in self.tried:
            self.tried[key] = self._tried(grown, group)
        fits, apart, summed = self.tried[key]
        if not fits or (summed and grown.rows.outer.extent < WANTED_OUTER):
            return False
        if apart:
            grown.ends.add(group)
        if summed:
            grown.sums.add(group)
        return True

    def _tried(self, grown: _Grown, group: Group) -> tuple[bool, bool, bool]:
        """Whether ``group`` reads row by row, whether it makes its results otherwise, whether it sums over rows."""
        made = [v for g in grown.members if g not in grown.ends for v in self.stored[g]]
        block = RowBlock(grown.rows, self.nests, self._params(), made, {}, self.stored[group])
        try:
            nest = block.nest(group, self.partition)
        except Misaligned:
            return False, False, False
        return True, bool(block.apart), isinstance(nest, Summed)

    def _params(self) -> Params:
        return Params(self.partition.opaque, placed=self.partition.placed)

    def _loaded(self, unit: Unit) -> set[Value]:
        """What a unit loads that it has not made itself."""
        if len(unit) == 1:
            return self._read(unit[0])
        return {v for g in unit for v in self._read(g)} - {v for g in unit for v in self.stored[g]}

    def _read(self, group: Group) -> set[Value]:
        if group not in self.reads:
            self.reads[group] = values_read(group, self.partition)
        return self.reads[group]

    # ---- computing again

    def _start_again(self, first: _Grown) -> None:
        """A chain for those that need large results of ``first``: these are made again there, and not stored."""
        needed = {v for u in self.units if u != tuple(first.members) for v in self._loaded(u)}
        given = [v for g in first.members for v in self.stored[g] if v in needed and v not in self.wanted]
        width = _root(first.members[0]).outputs[0].type.numel
        makers = self._makers(first, {v for v in given if v.type.numel >= width})
        if not makers or makers & first.ends:
            return
        copies = {g: Group(-1, g.kind, g.nodes, g.domain, g.rows) for g in first.members if g in makers}
        self.stored.update({copy: self.stored[g] for g, copy in copies.items()})
        grown = _Grown(first.rows, list(copies.values()), frozenset(copies.values()))
        self._grow(grown, self.units.index(tuple(first.members)) + 1)
        pays = self._pays(grown)
        missed = {v for u in grown.later for v in self._loaded(u)} & {v for g in makers for v in self.stored[g]}
        if pays and all(v.type.numel < width for v in missed):
            self._add(grown)
            self._store_less(first)
            self._store_less(grown)
        else:
            for copy in copies.values():
                del self.stored[copy]

    def _makers(self, chain: _Grown, values: set[Value]) -> set[Group]:
        """The members that it takes to make ``values``."""
        makers: set[Group] = set()
        for group in reversed(chain.members):
            if values & set(self.stored[group]):
                makers.add(group)
                values = values | self._read(group)
        return makers

    def _store_less(self, chain: _Grown) -> None:
        """Members store what somebody reads; what is made again, only what the chain itself reads."""
        own = {v for g in chain.members for v in self._read(g)}
        others = self._loaded_elsewhere(chain) | self.wanted
        for group in chain.members:
            kept = own if group in chain.again else own | others
            self.stored[group] = [v for v in self.stored[group] if v in kept]

    # ---- what comes of it

    def _add(self, grown: _Grown) -> None:
        """Put the members where the last of them stands, before what needs them."""
        members = [(g,) for g in grown.members if g not in grown.again]
        end = self.units.index(members[-1]) + 1
        moved = [u for u in self.units[:end] if u in grown.later]
        before = [u for u in self.units[:end] if u not in members and u not in moved]
        self.units = [*before, tuple(grown.members), *moved, *self.units[end:]]
        self.grown.append(grown)

    def _loaded_elsewhere(self, grown: _Grown) -> set[Value]:
        members = set(grown.members)
        return {v for u in self.units if not members & set(u) for v in self._loaded(u)}

    def _pays(self, grown: _Grown) -> bool:
        """Whether the chain keeps something large in cache; its last members leave as long as that does not fit."""
        while self._height(grown) is None and len(grown.members) > 1 + len(grown.again):
            last = grown.members.pop()
            grown.later.append((last,))
            grown.ends.discard(last)
            grown.sums.discard(last)
        return self._height(grown) is not None and any(map(self._is_large, self._inside(grown)))

    def _inside(self, grown: _Grown) -> list[Value]:
        """What is kept for one block at a time."""
        elsewhere = self._loaded_elsewhere(grown) | self.wanted
        kept = [v for g in grown.members if g not in grown.ends for v in self.stored[g] if v not in elsewhere]
        return [*kept, *(v for g in grown.again for v in self.stored[g] if v in elsewhere)]

    def _height(self, grown: _Grown) -> int | None:
        """Rows of a block, so that what is kept inside stays in cache, and threads have blocks to share."""
        rows = grown.rows
        slots = block_slots(tuple(grown.members), self._inside(grown), self.partition)
        row_bytes = sum(v.type.nbytes for v in {slot: v for v, slot in slots.items()}.values()) // rows.total
        least = 1 if grown.near else min(MIN_HEIGHT, rows.count)
        room = (self.machine.l1_bytes if grown.near else self.machine.l2_bytes) // 2
        if least * row_bytes > (self.machine.l2_bytes // 4 if grown.near else 2 * self.machine.l2_bytes):
            return None
        parts = 1 if grown.sums else -(-WANTED_BLOCKS // rows.outer.extent)
        fitting = max(min(MAX_HEIGHT, rows.count // parts, room // max(row_bytes, 1)), least)
        # The trial block's height was found to be legal; another one may cut a variable where an index divides it.
        height = _even(rows.count, fitting)
        if self._aligned(grown, height):
            return height
        height = fitting // rows.height * rows.height
        return height if height and self._aligned(grown, height) else None

    def _aligned(self, grown: _Grown, height: int) -> bool:
        """Whether the members go row by row in blocks of ``height``, too, of which the last may be lower.

        Several of the blocks that were tried together do.
        """
        if height % grown.rows.height == 0 == grown.rows.count % grown.rows.height:
            return True
        shape, _ = signature(tuple(grown.members), self.partition, {})
        key = (shape, grown.rows, height, *(g in grown.ends for g in grown.members))
        if key not in self.aligned:
            made = [v for g in grown.members if g not in grown.ends for v in self.stored[g]]
            blocks = [RowBlock(rows, self.nests, self._params(), made, {}) for rows in grown.rows.cut(height)]
            try:
                self.aligned[key] = bool([b.nest(g, self.partition) for b in blocks for g in grown.members])
            except Misaligned:
                self.aligned[key] = False
        return self.aligned[key]

    def chain(self, grown: _Grown) -> Chain:
        """What was found."""
        height = self._height(grown)
        assert height is not None
        rows, inside = grown.rows, tuple(self._inside(grown))
        return Chain(tuple(grown.members), rows.outer.extent, rows.count, height, inside, frozenset(grown.ends))


def _rows(shape: tuple[int, ...]) -> Rows:
    """Rows numbered by axes of ``shape``, with a trial block of them."""
    *lead, count = shape
    outer = Var("outer", prod(lead))
    return Rows(outer, count, Index(), count).cut(min(count, MIN_HEIGHT))[0]


def _even(count: int, fitting: int) -> int:
    """A height of blocks up to ``fitting`` that divides ``count`` or leaves no small rest."""
    even = next((h for h in range(fitting, fitting // 2, -1) if count % h == 0), None)
    return even or -(-count // -(-count // fitting))


def _root(group: Group) -> Node:
    return next(n for n in group.nodes if isinstance(n.op.loop, Bilinear))


def _terms(node: Node) -> int:
    """Multiply-adds of a contraction."""
    assert isinstance(node.op.loop, Bilinear)
    form = node.op.loop.fn([v.type for v in node.inputs], node.outputs[0].type, **node.attrs)
    return prod(form.extents[n] for n in (*form.out, *form.reduce))

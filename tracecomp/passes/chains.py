"""Which kernels take turns on blocks of rows, so that what one hands the next stays in cache and needs no memory.

A chain starts at a contraction with a large result. Kernels that read it row by row join (``row_blocks.py`` tells), and
so do those that read their results, as long as the arithmetic for each element handed over is so little that moving the
element through memory costs about as much. What is computed, and in which order, stays the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from tracecomp.ir.graph import Graph, Node, Value
from tracecomp.ir.index import Var, index
from tracecomp.ir.op import Bilinear
from tracecomp.passes.evaluate import Params
from tracecomp.passes.groups import Chain, Group, Partition
from tracecomp.passes.inline import values_read
from tracecomp.passes.machine import Machine
from tracecomp.passes.reads import storage
from tracecomp.passes.row_blocks import Misaligned, RowBlock, Rows

LARGE_BYTES = 1 << 20
MAX_TERMS = 256
MAX_HEIGHT = 64
MIN_HEIGHT = 16
WANTED_BLOCKS = 16


def with_chains(partition: Partition, graph: Graph, aliases: Mapping[int, int], machine: Machine) -> Partition:
    """The partition with its chains, whose groups become neighbours. What ``aliases`` overwrites is in none."""
    overwriting = {storage(graph.outputs[o].value) for o in aliases}
    search = _Search(partition, {storage(o.value) for o in graph.outputs}, overwriting, machine)
    for group in partition.groups:
        search.start(group)
    return replace(partition, groups=[g for unit in search.units for g in unit], chains=search.chains)


@dataclass
class _Growing:
    """A chain as it grows: the trial block of rows, members, and the units that need it but are not in it."""

    rows: Rows
    members: list[Group]
    later: list[tuple[Group, ...]]


class _Search:
    """``units`` are the groups of chains, and other groups by themselves, in an order that respects dependences."""

    def __init__(self, partition: Partition, wanted: set[Value], overwriting: set[Value], machine: Machine) -> None:
        self.partition = partition
        self.stored = partition.stored
        self.wanted = wanted
        self.overwriting = overwriting
        self.machine = machine
        self.units: list[tuple[Group, ...]] = [(g,) for g in partition.groups]
        self.reads = {g: values_read(g, partition) for g in partition.groups}
        self.chains: list[Chain] = []

    def start(self, head: Group) -> None:
        """Add the chain that starts at ``head``, if there is one."""
        if head.kind != "bilinear" or (head,) not in self.units or not self._light(head, self.stored[head]):
            return
        *lead, count, _ = (1, *_root(head).outputs[0].shape)
        height = min(count, MIN_HEIGHT)
        rows = Rows(Var("outer", prod(lead)), count, index(Var("part", count // height)) * height, height)
        growing = _Growing(rows, [head], [])
        if not self._aligned(growing, head):
            return
        for unit in self.units[self.units.index((head,)) + 1 :]:
            self._grow(growing, unit)
        chain = self._finished(growing)
        if chain is not None:
            self.chains.append(chain)
            self._move_together(growing)

    def _grow(self, growing: _Growing, unit: tuple[Group, ...]) -> None:
        """Let ``unit`` join, or note that it comes after the chain, or neither when it needs nothing of it."""
        needed = {v for g in unit for v in self.reads[g]}
        behind = {v for u in growing.later for g in u for v in self.stored[g]}
        given = [v for g in growing.members for v in self.stored[g] if v in needed]
        if not given and not needed & behind:
            return
        if len(unit) == 1 and not needed & behind and self._light(unit[0], given) and self._aligned(growing, unit[0]):
            growing.members.append(unit[0])
        else:
            growing.later.append(unit)

    def _light(self, group: Group, handed: list[Value]) -> bool:
        """Whether values are ``handed`` that are worth keeping in cache, for what ``group`` computes with each element."""
        large = [v for v in handed if v.type.nbytes >= LARGE_BYTES]
        if not large or group.kind not in ("loops", "bilinear") or self.overwriting & set(self.stored[group]):
            return False
        return group.kind == "loops" or _terms(_root(group)) <= MAX_TERMS * max(v.type.numel for v in large)

    def _aligned(self, growing: _Growing, group: Group) -> bool:
        """Whether ``group`` goes row by row."""
        made = [v for g in (*growing.members, group) for v in self.stored[g]]
        try:
            RowBlock(growing.rows, Params(self.partition.opaque), made, {}).nest(group, self.partition)
        except Misaligned:
            return False
        return True

    def _finished(self, growing: _Growing) -> Chain | None:
        """The chain with blocks that fit the cache; None when it would keep nothing there."""
        members, rows = growing.members, growing.rows
        made = [v for g in members for v in self.stored[g]]
        others = [g for unit in self.units for g in unit if g not in members]
        read = {v for g in others for v in self.reads[g]}
        inside = tuple(v for v in made if v not in read and v not in self.wanted)
        if not any(v.type.nbytes >= LARGE_BYTES for v in inside):
            return None
        row_bytes = sum(v.type.nbytes for v in inside) // rows.total
        fitting = min(MAX_HEIGHT, self.machine.l2_bytes // 2 // row_bytes)
        if fitting < min(MIN_HEIGHT, rows.count):
            return None
        parts = max(-(-rows.count // fitting), min(-(-WANTED_BLOCKS // rows.outer.extent), rows.count // MIN_HEIGHT))
        return Chain(tuple(members), rows.outer.extent, rows.count, -(-rows.count // parts), inside)

    def _move_together(self, growing: _Growing) -> None:
        """Put the members where the last of them stands, before what needs them."""
        members = [(g,) for g in growing.members]
        end = self.units.index(members[-1]) + 1
        before, after = self.units[:end], self.units[end:]
        moved = [u for u in before if u in growing.later]
        before = [u for u in before if u not in members and u not in moved]
        self.units = [*before, tuple(growing.members), *moved, *after]


def _root(group: Group) -> Node:
    return next(n for n in group.nodes if isinstance(n.op.loop, Bilinear))


def _terms(node: Node) -> int:
    """Multiply-adds of a contraction."""
    assert isinstance(node.op.loop, Bilinear)
    form = node.op.loop.fn([v.type for v in node.inputs], node.outputs[0].type, **node.attrs)
    return prod(form.extents[n] for n in (*form.out, *form.reduce))

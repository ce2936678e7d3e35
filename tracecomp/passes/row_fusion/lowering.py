"""Row-tiled fusion as one kernel: a loop over blocks of rows in which the groups' loops follow each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tracecomp.ir.graph import Value
from tracecomp.ir.index import Index, Var, index
from tracecomp.ir.loop_copy import Copier
from tracecomp.ir.loops import SHARED, Buffer, Local, Loop, Stmt, children, walk, with_children
from tracecomp.passes.contraction.contractions import schedule_parts
from tracecomp.passes.cost.work import shared_where_it_pays
from tracecomp.passes.fusion.groups import Group, Partition, RowFusion
from tracecomp.passes.fusion.members import values_read
from tracecomp.passes.nests.contraction_nest import BilinearNest, tidied
from tracecomp.passes.nests.loop_nest import Nest
from tracecomp.passes.nests.scalar_exprs import Params
from tracecomp.passes.nests.store import Nests
from tracecomp.passes.row_fusion.row_tiles import RowBlock, Rows, Summed
from tracecomp.passes.schedule.elementwise import schedule_nest
from tracecomp.passes.schedule.records import Chooser


def row_fusion_body(
    fused: RowFusion, partition: Partition, nests: Nests, params: Params, chooser: Chooser
) -> tuple[Stmt, ...]:
    """Return the statements of a row fusion's kernel: packing, then the blocks, of which the last may be lower."""
    outer = Var("outer", fused.outer)
    lowering = _Lowering(fused, partition, nests, params, chooser)
    # The last block is lower if heights do not divide; it has separate loops.
    cut = Rows(outer, fused.count, Index(), fused.count).cut(fused.height)
    blocks = [(Var("part", fused.count // fused.height if n == 0 else 1), lowering.block(r)) for n, r in enumerate(cut)]
    # Totals that continue from block to block prevent sharing the blocks of one outer position: threads share outer
    # positions.
    if lowering.finish:
        body = [s for part, block in blocks for s in (Loop("serial", part, block),)]
        within = (*lowering.locals, *lowering.start, *body, *lowering.finish)
        loops: tuple[Stmt, ...] = (Loop("parallel", outer, within),)
    # Otherwise all blocks are independent and numbered together.
    else:
        loops = tuple(_numbered(outer, part, (*lowering.locals, *block)) for part, block in blocks)
    # Whether threads share the loop depends on the whole kernel's work, known once all loops are built.
    return (*lowering.packing, *shared_where_it_pays(loops, chooser.machine))


def block_slots(groups: tuple[Group, ...], block_values: Iterable[Value], partition: Partition) -> dict[Value, int]:
    """Numbers of block memory for ``block_values``; values of one type that are never alive together share a number."""
    # Liveness inside a block: memory is free after the last group that reads it.
    last = {v: n for n, g in enumerate(groups) for v in values_read(g, partition)}
    free: dict[tuple[object, int], list[int]] = {}
    slots: dict[Value, int] = {}
    wanted = set(block_values)
    count = 0
    for n, group in enumerate(groups):
        for value in (v for v in partition.stored[group] if v in wanted):
            # Slots are shared by values of one type only: every block buffer has one dtype and size.
            kind = (value.dtype, value.type.numel)
            if not free.get(kind):
                free[kind] = [count]
                count += 1
            slots[value] = free[kind].pop()
            # An unread value is freed at once.
            last.setdefault(value, n)
        for value in (v for v in slots if last[v] == n):
            free[value.dtype, value.type.numel].append(slots[value])
    return slots


@dataclass
class _Lowering:
    """Lower the groups of a row fusion for blocks of different heights.

    ``packing`` comes before all blocks; ``start`` and ``finish`` around the blocks of one outer position.
    """

    fused: RowFusion
    partition: Partition
    nests: Nests
    params: Params
    chooser: Chooser
    packing: list[Stmt] = field(default_factory=list)
    locals: list[Stmt] = field(default_factory=list)
    start: list[Stmt] = field(default_factory=list)
    finish: list[Stmt] = field(default_factory=list)
    copies: int = 0

    def __post_init__(self) -> None:
        fused = self.fused
        self.made = [v for g in fused.groups if g not in fused.non_row_outputs for v in self.partition.stored[g]]
        slots = block_slots(fused.groups, fused.block_values, self.partition)
        self.local: dict[Value, Buffer] = {}
        for value, slot in slots.items():
            # Rows of one block, whatever the number of rows.
            size = value.type.numel // (fused.outer * fused.count) * fused.height
            self.local[value] = Buffer(f"rows{slot}", value.dtype, size)
        self.locals.extend(map(Local, dict.fromkeys(self.local.values())))

    def block(self, rows: Rows) -> tuple[Stmt, ...]:
        """The loops of all groups for a block."""
        block = RowBlock(rows, self.nests, self.params, self.made, self.local)
        first = not self.copies
        return tuple(s for n, g in enumerate(self.fused.groups) for s in self._group(n, g, block, first))

    def _group(self, number: int, group: Group, block: RowBlock, first: bool) -> tuple[Stmt, ...]:
        """The loops of one group for a block; statements before and after all blocks are collected."""
        nest = block.nest(group, self.partition)
        if not isinstance(nest, Summed):
            return self._scheduled(nest)
        renamed = {nest.totals: Buffer(f"totals{number}", nest.totals.dtype, nest.totals.size)}
        # Packing and totals belong to all blocks; they are collected for the first kind of block only.
        if first:
            self.locals.extend(map(Local, renamed.values()))
            self.start.extend(self._scheduled(nest.start, renamed))
            self.finish.extend(self._scheduled(nest.finish, renamed))
        return self._scheduled(nest.block, renamed)

    def _scheduled(self, nest: Nest | BilinearNest, renamed: dict[Buffer, Buffer] | None = None) -> tuple[Stmt, ...]:
        """Schedule the loops of a nest, with distinct names."""
        packing: tuple[Stmt, ...] = ()
        if isinstance(nest, BilinearNest):
            # Tidied here and not earlier: the blocks' variables replace the joined ones.
            packing, body = schedule_parts(tidied(nest), self.chooser)
        else:
            body = schedule_nest(nest, self.chooser)
        self.copies += 1
        suffix = f"_{self.copies}"
        # Local buffers of the groups are renamed, as one kernel contains them.
        own = {s.buffer for s in walk((*packing, *body)) if isinstance(s, Local)}
        names = {b: Buffer(b.name + suffix, b.dtype, b.size) for b in own} | (renamed or {})
        copier = Copier({}, suffix, lambda buffer, offset: (names.get(buffer, buffer), offset))
        # Packing does not depend on the block (``schedule_parts``), so it comes before all of them.
        self.packing.extend(copier.stmts(packing))
        return _serial(copier.stmts(body))


def _numbered(outer: Var, part: Var, body: tuple[Stmt, ...]) -> Stmt:
    """One loop over all blocks."""
    number = Var("row_block", outer.extent * part.extent)
    mapping = {outer: index(number) // part.extent, part: index(number) % part.extent}
    return Loop("parallel", number, Copier(mapping).stmts(body))


def _serial(body: Iterable[Stmt]) -> tuple[Stmt, ...]:
    """Make the statements' loops serial: threads share the blocks."""
    found: list[Stmt] = []
    for stmt in body:
        inner = _serial(children(stmt))
        if isinstance(stmt, Loop):
            # Each thread has a whole block.
            found.append(Loop("serial" if stmt.kind in SHARED else stmt.kind, stmt.var, inner))
        else:
            found.append(with_children(stmt, inner) if inner else stmt)
    return tuple(found)

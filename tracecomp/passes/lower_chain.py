"""A chain of groups as one kernel: a loop over blocks of rows in which the groups' loops follow each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tracecomp.ir.graph import Value
from tracecomp.ir.index import Index, Var, index
from tracecomp.ir.loops import Buffer, Local, Loop, Stmt, children, walk, with_children
from tracecomp.passes.bilinear import BilinearNest
from tracecomp.passes.evaluate import Params
from tracecomp.passes.groups import Chain, Group, Partition
from tracecomp.passes.machine import Machine
from tracecomp.passes.rename import Copier
from tracecomp.passes.row_blocks import RowBlock, Rows
from tracecomp.passes.schedule import schedule_nest
from tracecomp.passes.schedule_bilinear import schedule_parts
from tracecomp.passes.work import shared_where_it_pays


def chain_body(chain: Chain, partition: Partition, params: Params, machine: Machine) -> tuple[Stmt, ...]:
    """The statements of a chain's kernel: what is packed once, then the blocks, of which the last may be lower."""
    whole, rest = divmod(chain.count, chain.height)
    outer, part = Var("outer", chain.outer), Var("part", whole)
    lowering = _Lowering(chain, partition, params, machine)
    loops = lowering.blocks(Rows(outer, chain.count, index(part) * chain.height, chain.height), part)
    if rest:
        loops += lowering.blocks(Rows(outer, chain.count, Index((), whole * chain.height), rest), Var("part", 1))
    return (*lowering.packing, *shared_where_it_pays(loops))


@dataclass
class _Lowering:
    """Lowers the groups of a chain for blocks of different heights. ``packing`` comes before all blocks."""

    chain: Chain
    partition: Partition
    params: Params
    machine: Machine

    def __post_init__(self) -> None:
        self.packing: list[Stmt] = []
        self.made = [v for g in self.chain.groups for v in self.partition.stored[g]]
        self.copies = 0

    def blocks(self, rows: Rows, part: Var) -> tuple[Stmt, ...]:
        """The loop over all blocks of one height."""
        local: dict[Value, Buffer] = {}
        for value in self.chain.inside:
            name = f"rows{len(local)}_{self.copies}"
            local[value] = Buffer(name, value.dtype, rows.width(value) * rows.height)
        block = RowBlock(rows, self.params, self.made, local)
        number = Var("chain", rows.outer.extent * part.extent)
        mapping = {rows.outer: index(number) // part.extent, part: index(number) % part.extent}
        body = [s for g in self.chain.groups for s in self._group(g, block, mapping)]
        return (Loop("parallel", number, (*map(Local, local.values()), *body)),)

    def _group(self, group: Group, block: RowBlock, mapping: dict[Var, Index]) -> tuple[Stmt, ...]:
        """The loops of one group for a block; what it packs joins the packing of all."""
        nest = block.nest(group, self.partition)
        if isinstance(nest, BilinearNest):
            packing, body = schedule_parts(nest, self.machine)
        else:
            packing, body = (), schedule_nest(nest, self.machine)
        own = {s.buffer for s in walk((*packing, *body)) if isinstance(s, Local)}
        self.copies += 1
        suffix = f"_{self.copies}"

        def move(buffer: Buffer, offset: Index) -> tuple[Buffer, Index]:
            return (Buffer(buffer.name + suffix, buffer.dtype, buffer.size) if buffer in own else buffer), offset

        self.packing.extend(Copier({}, suffix, move).stmts(packing))
        return _serial(Copier(mapping, suffix, move).stmts(body))


def _serial(body: Iterable[Stmt]) -> tuple[Stmt, ...]:
    """The statements without loops of their own for threads: the blocks are what threads share."""
    found: list[Stmt] = []
    for stmt in body:
        inner = _serial(children(stmt))
        if isinstance(stmt, Loop):
            found.append(Loop("serial" if stmt.kind == "parallel" else stmt.kind, stmt.var, inner))
        else:
            found.append(with_children(stmt, inner) if inner else stmt)
    return tuple(found)

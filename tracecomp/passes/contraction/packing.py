"""Panels: copies of an operand in which the lanes that a register tile multiplies are contiguous, term by term.

For a convolution these are rows of the im2col matrix, packed block by block.
"""

from __future__ import annotations

from tracecomp.ir.index import Index, Var, index, linear
from tracecomp.ir.loop_copy import Copier
from tracecomp.ir.loops import Buffer, Let, Load, Local, Read, Stmt, Store
from tracecomp.ir.pieces import Pieces
from tracecomp.passes.contraction.tile_schedule import TileSchedule
from tracecomp.passes.cost.reference import NOMINAL_LANES, SHUFFLED_STRIDE
from tracecomp.passes.nests.contraction_nest import BilinearNest, Operand, product_of
from tracecomp.passes.nests.loop_vars import merge_vars, merged
from tracecomp.passes.schedule.tiling import around_tiles, shared_out, strip, tiles


class Panels:
    """The panels of B, the operand that varies along the lanes, for every position of the variables that it depends on.

    ``by_block``: the panel of a single block, packed by that block.
    """

    def __init__(self, nest: BilinearNest, tiles: TileSchedule) -> None:
        self.nest, self.b_operand, self.vector = nest, nest.b_operand(tiles.vector), tiles.vector
        self.by_block = tiles.pack == "block"
        # A block's own panel is read at once, in the block's loop; a panel for all blocks has a place for every outer
        # position.
        around = () if self.b_operand.inside or self.by_block else nest.outside
        moved = [] if self.by_block else tiles.moved(nest, self.b_operand)
        self.others = [v for v in around if self.b_operand.depends(v)] + moved
        self.terms = product_of(nest.reduce)

    def buffer(self, columns: Pieces) -> Buffer:
        """The memory of all panels with these columns."""
        # One panel at a time if blocks pack their own: it stays in the thread's cache.
        count = 1 if self.by_block else product_of(self.others) * columns.count
        return Buffer(f"panel{columns.first}", self.nest.acc.dtype, count * self.terms * columns.length)

    def read(self, columns: Pieces, column: Index, lane: Var) -> Operand:
        """Return the operand as read from its panel."""
        panel = self.buffer(columns)
        load = Load(panel, self._offset(columns, column, index(lane)))
        return Operand([Let("packed", load)], Read("packed", panel.dtype, frozenset((*self.nest.reduce, lane))))

    def packed(self, columns: Pieces, kind: str) -> tuple[Stmt, ...]:
        """Return loops of ``kind`` that pack the panels of all columns."""
        column = Var("column", columns.count)
        several = columns.count > 1
        body, around, _ = self._copy(columns, index(column) if several else Index(), "")
        outer = [*self.others, *([column] if several else []), *around]
        return (Local(self.buffer(columns)), *shared_out(kind, outer, body))

    def packed_by_block(self, columns: Pieces, column: Index, suffix: str) -> tuple[Stmt, ...]:
        """Pack the panel of one column where it is read; names in it end in ``suffix``."""
        body, around, far = self._copy(columns, column, suffix)
        if far:  # contiguous reads, of few rows at a time
            body, around = tuple(s for group in body for s in around_tiles(group, around)), []
        return (Local(self.buffer(columns)), *shared_out("serial", around, body))

    def _offset(self, columns: Pieces, column: Index, lane: Index) -> Index:
        """Offset in the panel of one lane of one term: by outer position, column, term, lane."""
        at = linear([index(v) for v in self.others], [v.extent for v in self.others])
        at = Index() if self.by_block else at * columns.count + column
        # Terms in the order of the sum, each with all lanes of the column: a tile reads the panel sequentially.
        term = linear([index(v) for v in self.nest.reduce], [v.extent for v in self.nest.reduce])
        return (at * self.terms + term) * columns.length + lane

    def _copy(self, columns: Pieces, column: Index, suffix: str) -> tuple[tuple[Stmt, ...], list[Var], bool]:
        """Return loops that copy one panel, the loop variables around them, and whether the source is denser along
        those than along lanes."""
        operand, panel, lane = self.b_operand, self.buffer(columns), Var("lane", columns.length)
        store = Store(panel, self._offset(columns, column, index(lane)), operand.expr)
        at = columns.start(column) + index(lane)
        body = Copier({self.vector: at}, f"_{panel.name}{suffix}").stmts((*operand.stmts, store))
        joined = merge_vars(self.nest.reduce, list(body))
        summed = merged(self.nest.reduce, joined)
        body = Copier(joined).stmts(body)
        loads = Operand(list(body[:-1]), operand.expr)
        # A summed variable along which the operand is dense decides the copy's order: read along it, store across
        # (transposed blocks).
        fast = next((v for v in summed if abs(loads.stride(v) or 0) == 1), None)
        if fast is not None and loads.stride(fast) == -1:  # flipped windows: memory is read forwards
            body = Copier({fast: index(fast) * -1 + (fast.extent - 1)}).stmts(body)
        stride = operand.stride(self.vector) or 0
        # Largest strides outermost, so that accesses to one cache line are close in time.
        if fast is None:  # accesses to a line come before its eviction
            summed.sort(key=lambda v: -abs(loads.stride(v) or 0))
        # Lanes with a small stride are loaded with shuffles instead of transposed blocks.
        if 1 <= stride <= SHUFFLED_STRIDE or fast is None:
            return strip(lane, columns.length, body), summed, False
        rest = [v for v in summed if v != fast]
        # The panel's rows are then the farthest apart: read a few of them at a time, each for all terms.
        far = all(abs(stride) > abs(loads.stride(v) or 0) for v in rest)
        return tiles(lane, NOMINAL_LANES, strip(fast, NOMINAL_LANES, body)), rest, far

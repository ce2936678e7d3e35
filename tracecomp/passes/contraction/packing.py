"""Panels: an operand copied so that the lanes which a register tile multiplies lie together, term by term.

For a convolution these are rows of what im2col would make, packed block by block.
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
    """The panels of the operand that moves with the lanes, B, for every position of the variables that it depends on.

    ``by_block``: of one block alone, which packs its own.
    """

    def __init__(self, nest: BilinearNest, tiles: TileSchedule) -> None:
        self.nest, self.b_operand, self.vector = nest, nest.b_operand(tiles.vector), tiles.vector
        self.by_block = tiles.pack == "block"
        # A panel that a block packs is read at once, in the block's loop; one
        # for all needs a place for every outer position.
        around = () if self.b_operand.inside or self.by_block else nest.outside
        moved = [] if self.by_block else tiles.moved(nest, self.b_operand)
        self.others = [v for v in around if self.b_operand.depends(v)] + moved
        self.terms = product_of(nest.reduce)

    def buffer(self, columns: Pieces) -> Buffer:
        """The memory of all panels of so many columns."""
        # One panel at a time where blocks pack their own: it stays in the thread's cache.
        count = 1 if self.by_block else product_of(self.others) * columns.count
        return Buffer(f"panel{columns.first}", self.nest.acc.dtype, count * self.terms * columns.length)

    def read(self, columns: Pieces, column: Index, lane: Var) -> Operand:
        """The operand as it is read from its panel."""
        panel = self.buffer(columns)
        load = Load(panel, self._offset(columns, column, index(lane)))
        return Operand([Let("packed", load)], Read("packed", panel.dtype, frozenset((*self.nest.reduce, lane))))

    def packed(self, columns: Pieces, kind: str) -> tuple[Stmt, ...]:
        """The panels of all columns, made by loops of ``kind``."""
        column = Var("column", columns.count)
        several = columns.count > 1
        body, around, _ = self._copy(columns, index(column) if several else Index(), "")
        outer = [*self.others, *([column] if several else []), *around]
        return (Local(self.buffer(columns)), *shared_out(kind, outer, body))

    def packed_by_block(self, columns: Pieces, column: Index, suffix: str) -> tuple[Stmt, ...]:
        """The panel of one column, made where it is read; names in it end in ``suffix``."""
        body, around, far = self._copy(columns, column, suffix)
        if far:  # memory is read in runs, of few rows at a time
            body, around = tuple(s for group in body for s in around_tiles(group, around)), []
        return (Local(self.buffer(columns)), *shared_out("serial", around, body))

    def _offset(self, columns: Pieces, column: Index, lane: Index) -> Index:
        """Where the panel holds one lane of one term: by outer position, column, term, lane."""
        at = linear([index(v) for v in self.others], [v.extent for v in self.others])
        at = Index() if self.by_block else at * columns.count + column
        # Terms in the order of the sum, each with all lanes of the column: a tile reads the panel from front to back.
        term = linear([index(v) for v in self.nest.reduce], [v.extent for v in self.nest.reduce])
        return (at * self.terms + term) * columns.length + lane

    def _copy(self, columns: Pieces, column: Index, suffix: str) -> tuple[tuple[Stmt, ...], list[Var], bool]:
        """Loops that copy one panel, variables to loop over around them, and whether those step less than lanes do."""
        operand, panel, lane = self.b_operand, self.buffer(columns), Var("lane", columns.length)
        store = Store(panel, self._offset(columns, column, index(lane)), operand.expr)
        at = columns.start(column) + index(lane)
        body = Copier({self.vector: at}, f"_{panel.name}{suffix}").stmts((*operand.stmts, store))
        joined = merge_vars(self.nest.reduce, list(body))
        summed = merged(self.nest.reduce, joined)
        body = Copier(joined).stmts(body)
        loads = Operand(list(body[:-1]), operand.expr)
        # A summed variable along which the operand is dense decides how the
        # copy runs: read along it, store across (squares).
        fast = next((v for v in summed if abs(loads.stride(v) or 0) == 1), None)
        if fast is not None and loads.stride(fast) == -1:  # flipped windows: memory is read forwards
            body = Copier({fast: index(fast) * -1 + (fast.extent - 1)}).stmts(body)
        stride = operand.stride(self.vector) or 0
        # Largest strides outside, so that what shares a line is read together.
        if fast is None:  # what shares lines is read before they leave the cache
            summed.sort(key=lambda v: -abs(loads.stride(v) or 0))
        # Lanes that lie near each other are loaded with shuffles; no squares are needed.
        if 1 <= stride <= SHUFFLED_STRIDE or fast is None:
            return strip(lane, columns.length, body), summed, False
        rest = [v for v in summed if v != fast]
        # Rows of the panel are then farther apart than anything else: read a
        # few of them at a time, each for all terms.
        far = all(abs(stride) > abs(loads.stride(v) or 0) for v in rest)
        return tiles(lane, NOMINAL_LANES, strip(fast, NOMINAL_LANES, body)), rest, far

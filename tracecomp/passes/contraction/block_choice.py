"""The rest of a contraction's schedule, for chosen tiles: copies, packing, blocks for threads, prefetches."""

from __future__ import annotations

from dataclasses import replace

from tracecomp.ir.index import Index, Var
from tracecomp.ir.loops import Buffer, Load, Stmt, Store, expressions
from tracecomp.ir.pieces import Pieces
from tracecomp.passes.contraction.operand_copies import copied_order, with_copies
from tracecomp.passes.contraction.packing import Panels
from tracecomp.passes.contraction.sliding_windows import written_out
from tracecomp.passes.contraction.tile_choice import cold, lines_held, once_computed, read_often, tiles_of
from tracecomp.passes.contraction.tile_schedule import TILE_FIELDS, TileSchedule, check_blocks, check_tiles
from tracecomp.passes.cost.machine import Machine
from tracecomp.passes.cost.parallel import parallel_kind_of_products
from tracecomp.passes.cost.reference import REFERENCE
from tracecomp.passes.nests.contraction_nest import BilinearNest, Operand, product_of
from tracecomp.passes.schedule.records import Chooser, with_fields


def tile_schedule(nest: BilinearNest, chooser: Chooser) -> TileSchedule:
    """The schedule of a contraction in register tiles: chosen, but for the fields that were handed in."""
    given, machine = chooser.next_given(), chooser.machine
    tiles = tiles_of(nest, machine)
    # First everything that is chosen without a record: its lists of variables are what a record is compared with.
    made = _completed(nest, tiles, machine)
    if given is not None:
        variables = {v.name: v for v in (*nest.out, *nest.reduce)}
        asked = with_fields(tiles, given, variables, TILE_FIELDS)
        check_tiles(asked, tiles, nest, machine.registers)
        # Blocks follow from tiles. With other tiles they are chosen anew, and then the rest of the record applies.
        whole = _completed(nest, asked, machine, packed_so="pack" in given.fields)
        asked, chosen = with_fields(whole, given, variables), made
        check_blocks(asked, chosen, nest)
        made = asked
    chooser.made.append(made)
    return made


def _completed(nest: BilinearNest, tiles: TileSchedule, machine: Machine, packed_so: bool = False) -> TileSchedule:
    """The schedule with what is chosen for its tiles; ``packed_so``: how these are packed is not to be chosen."""
    copies = tuple(side for side in ("lhs", "rhs") if _copied(nest, side, tiles, machine))
    # A copy's work is its elements, each moved once.
    sizes = [product_of(copied_order(nest, getattr(nest, side), tiles)) for side in copies]
    kinds = tuple(parallel_kind_of_products(size, machine) for size in sizes)
    tiles = replace(tiles, copies=copies, copy_threads=kinds)
    # Blocks are chosen for the nest that reads copies: strides and loads are others then.
    _, copying = with_copies(nest, tiles)
    return _Blocks(copying, tiles, machine).schedule(packed_so)


# ---- copies of operands


def _copied(nest: BilinearNest, side: str, tiles: TileSchedule, machine: Machine) -> bool:
    """Whether a copy of an operand in memory pays, from which tiles read what they multiply."""
    operand = nest.lhs if side == "lhs" else nest.rhs
    # An operand that is made in the same kernel, or that moves with outer loops, would be copied again at every turn.
    if operand.inside or any(map(operand.depends, nest.outside)):
        return False
    # What moves with the lanes is converted when its panel is packed.
    computed = operand is not nest.b_operand(tiles.vector) and once_computed(nest, operand, machine)
    return computed or _lanes_apart(nest, operand, tiles, machine) or _terms_apart(nest, operand, tiles, machine)


def _lanes_apart(nest: BilinearNest, operand: Operand, tiles: TileSchedule, machine: Machine) -> bool:
    """Whether lanes lie apart, and both operands move with them, so that no panel holds them together."""
    tuning = (REFERENCE if nest.padded else machine).tuning  # see tiles_of
    apart = operand.depends(tiles.vector) and operand.stride(tiles.vector) != 1
    # One-sided: then a panel holds the lanes together, at less memory than a whole copy.
    return apart and not nest.one_sided(tiles.vector) and read_often(nest, operand, tuning.transposed_reads)


def _terms_apart(nest: BilinearNest, operand: Operand, tiles: TileSchedule, machine: Machine) -> bool:
    """Whether the rows of k-blocks read lines that come from no cache, or push each other out before the next tile."""
    if nest.padded:  # see tiles_of
        # Decided on the reference machine: whether a padded operand is copied decides which terms
        # are masked, and with infinite weights that is a matter of bits.
        tiles, machine = tiles_of(nest, REFERENCE), REFERENCE
    k_blocks, tuning = tiles.k_blocks, machine.tuning
    # A, which stays the same along the lanes, is read as scalars that are
    # spread; its rows are what may lie far apart.
    a_operand = nest.a_operand(tiles.vector)
    # Without k-blocks the next tile reads other lines anyway, so that holding them gains nothing.
    if k_blocks is None or operand is not a_operand or operand.depends(tiles.vector):
        return False
    row = abs(operand.stride(nest.reduce[-1]) or 0) * nest.acc.dtype.itemsize
    if not (row >= tuning.far_bytes and read_often(nest, operand, tuning.strided_reads)):
        return False
    terms = k_blocks.length * product_of(k_blocks.inner)
    # No cache has them, or more lines than the ways of a cache hold at that
    # distance: then they push each other out however small they are.
    return cold(operand, machine) or terms > lines_held(row, machine)


# ---- blocks


class _Blocks:
    """Chooses the blocks of a nest that reads copies."""

    def __init__(self, nest: BilinearNest, tiles: TileSchedule, machine: Machine) -> None:
        self.nest, self.machine, self.tuning = nest, machine, machine.tuning
        self.b_operand = nest.b_operand(tiles.vector)
        # Judged with the epilogue, which threads share as well.
        self.threads = parallel_kind_of_products(nest.work, machine)
        whole = nest.plain or nest
        # The rest of the program must not decide what is left out of a padded sum, so the plain nest is asked.
        out = tiles.tile is not None and (written_out(whole) if nest.padded else bool(tiles.window))
        # Terms that are written out are not cut.
        k_blocks = None if out else tiles.k_blocks
        inner = self._block_vars(tiles) if k_blocks else []
        self.tiles = replace(
            tiles,
            k_blocks=k_blocks,
            threads=self.threads,
            block_vars=tuple(inner),
            written_out=out,
            unrolled_terms=self.tuning.unrolled_terms,
            written_terms=self.tuning.sliding_updates,
        )
        self.others = [v for v in tiles.beside(nest) if v not in inner]

    def schedule(self, packed_so: bool) -> TileSchedule:
        """The tiles with blocks for them."""
        # Packing may have been handed in; whether it happens at all is then not chosen again.
        if self.tiles.pack != "no" and not packed_so:
            self.tiles = replace(self.tiles, pack=self._pack())
        outer, columns = product_of(self.others), self.tiles.columns()
        # Blocks of whole rows need their number of blocks once, blocks of columns once for each width.
        by_rows = self._by_rows(outer)
        if by_rows:
            rows: tuple[int, ...] = (self._row_blocks(outer),)
        else:
            rows = self._blocks_of_columns(columns, self._row_blocks(outer * sum(c.count for c in columns)))
        # All blocks there are, over columns of every width and outer positions.
        total = outer * sum(
            c.count * some.count for c, n in zip(columns, rows, strict=False) for some in self.tiles.blocks_of_rows(n)
        )
        # Too few for threads: variables that a block has all of are then given to blocks of their own.
        few = not by_rows and self.threads != "serial" and total < self.tuning.least_blocks
        return replace(
            self.tiles,
            by_rows=by_rows,
            row_blocks=rows,
            split_vars=tuple(self._split(total)) if few else (),
            pack_threads=self._pack_threads(),
            prefetch_terms=self._terms_ahead(),
            prefetch=self._epilogue_ahead(),
        )

    def _blocks_of_columns(self, columns: list[Pieces], blocks: int) -> tuple[int, ...]:
        """Blocks of rows for each column, of about the same work: fewer of a narrow one, as long as there are rows."""
        least, width, most = self.tuning.least_width, self.tiles.width, max(self.tiles.steps, 1)
        # A narrow column is less work for each row, so its blocks are longer; the
        # minimum keeps very narrow ones from being a single block.
        wanted = [-(-blocks * max(c.length, least) // width) for c in columns]
        # More blocks than steps cannot be cut.
        return tuple(n if n <= most else blocks for n in wanted)

    def _block_vars(self, tiles: TileSchedule) -> list[Var]:
        """Of the variables that one operand alone moves with, those that a block has all of: its totals fit a cache."""
        # Totals of all inner variables stay in the cache between k-blocks. Those that B does not depend on
        # are dropped first: with them B's panel would be read again for each value.
        inner = list(filter(self.nest.one_sided, tiles.beside(self.nest)))
        tile = tiles.height * tiles.width * self.nest.acc.dtype.itemsize
        for var in [v for v in inner if not self.b_operand.depends(v)]:
            if product_of(inner) * tile > self.tuning.totals_bytes:
                inner.remove(var)
        return inner

    def _pack(self) -> str:
        """A block packs its own panel when it comes to it, unless there are too few blocks then for threads to share.

        Panels that are the same in many calls are packed by none of them.
        """
        # A block packs its own panel only if nobody else reads the same one,
        # that is if it depends on all outer variables,
        moved = self.tiles.moved(self.nest, self.b_operand)
        below = 1 if self.tiles.block_vars else max(self.tiles.steps // self._least(), 1)
        columns = sum(c.count for c in self.tiles.columns())
        # and if there are enough blocks then. Else a few threads would pack large panels while others wait.
        enough = product_of(moved) * columns * below >= self.tuning.least_blocks
        apart = not (self.b_operand.inside or self._around()) and moved == self.others and enough
        # Weights that last are packed in the first call (prepacking), which needs a step of its own for packing.
        return "block" if apart and not self.nest.is_frozen(self.b_operand) else "once"

    def _around(self) -> tuple[Var, ...]:
        return () if self.b_operand.inside else self.nest.outside

    def _pack_threads(self) -> tuple[str, ...]:
        if self.tiles.pack != "once":
            return ()
        panels = Panels(self.nest, self.tiles)
        work = (panels.terms * panels.buffer(columns).size for columns in self.tiles.columns())
        return tuple(parallel_kind_of_products(n, self.machine) for n in work)

    def _by_rows(self, outer: int) -> bool:
        """Whether a block has all columns of its rows, so that a thread finds what it needs next in its own cache."""
        tiles = self.tiles
        # All terms of one column of B: the panel that a block goes through for each of its tiles.
        column = product_of((*self.nest.reduce, tiles.vector)) * self.nest.acc.dtype.itemsize
        # It must fit near the core, as it is read for each tile of rows; and with
        # k-blocks or own panels blocks are columns already.
        plain = column <= 2 * self.machine.l1_bytes and tiles.pack != "block" and tiles.k_blocks is None
        return self.threads != "serial" and plain and outer * tiles.steps >= self.tuning.wanted_blocks

    def _row_blocks(self, others: int) -> int:
        """Into how many blocks the tile's variable is cut: threads should find enough to share, totals fit a cache."""
        # A block reads all of a panel, or of memory that no cache holds.
        tiles, tuning = self.tiles, self.tuning
        # Each block more reads the whole panel once more, so fewer are wanted where that comes from memory.
        alone = tiles.pack == "block"
        wanted = tuning.wanted_panels if alone or tiles.k_blocks else tuning.wanted_blocks
        least = self._least() if alone else 2
        inner, blocks = product_of(tiles.block_vars), 1
        # Only threads that are awake come, so half of the blocks will do.
        wanted = wanted // 2 if self.threads == "opportunistic" else wanted
        if self.threads != "serial" and others < wanted and tiles.steps * inner >= least:
            # A power of two cuts most extents evenly.
            blocks = _power_below(min(-(-wanted // others), tiles.steps * inner // least))
        if tiles.k_blocks:
            row = inner * tiles.width * self.nest.acc.dtype.itemsize
            # However few threads there are: totals of a block between k-blocks have to stay in the cache.
            blocks = max(blocks, tiles.steps * tiles.height * row // tuning.totals_bytes)
        return max(1, min(blocks, tiles.steps))

    def _least(self) -> int:
        """How many tiles below each other a block has at least if it packs its own panel."""
        return -(-self.tuning.packed_rows // self.tiles.height)

    def _split(self, blocks: int) -> list[Var]:
        """Of the block's variables those that it has one value of, so that there are enough blocks for threads.

        No more than that if every block would read all the data from memory, because the last cache does not hold them.
        """
        # A and B themselves; copies and panels are smaller or as large.
        loads = [o.load for o in (self.nest.lhs, self.nest.rhs) if o.load is not None]
        data = sum(x.buffer.size * x.dtype.itemsize for x in loads)
        enough = [v for v in self.tiles.block_vars if blocks * v.extent >= self.tuning.least_blocks]
        # From the cache every block may read all of them; from memory the fewest additional blocks are best.
        if not enough or data <= self.machine.l3_bytes // 2:
            return list(self.tiles.block_vars)
        return [min(enough, key=lambda v: v.extent)]

    # ---- fetching ahead

    def _terms_ahead(self) -> int:
        """By how many terms A is fetched ahead, where they lie too far apart for hardware to foresee them."""
        tiles, nest = self.tiles, self.nest
        load, last = nest.a_operand(tiles.vector).load, nest.reduce[-1] if nest.reduce else None
        # k-blocks and windows keep what they read in cache. Without a tile there is no row of A to fetch.
        if load is None or last is None or tiles.tile is None or tiles.k_blocks or tiles.written_out or tiles.turned:
            return 0
        a_operand = nest.a_operand(tiles.vector)
        far = abs(a_operand.stride(last) or 0) * load.dtype.itemsize >= self.tuning.far_bytes
        # A position that is data is not known ahead.
        known = all(isinstance(atom, Var) for atom, _ in load.offset.terms)
        # Long sums only: the first terms are fetched too late. Along the tile A
        # has to be dense, so that one line serves all rows.
        long = last.extent >= self.tuning.far_terms and a_operand.stride(tiles.tile) == 1
        return self.tuning.terms_ahead if far and known and long else 0

    def _epilogue_ahead(self) -> tuple[str, ...]:
        """Large buffers that the epilogue reads or writes row by row of a tile."""
        tiles = self.tiles
        # The lines are asked for term by term of the sum, so there has to be one loop over all terms.
        if tiles.tile is None or not self.nest.reduce or tiles.k_blocks or tiles.written_out or tiles.turned:
            return ()
        found = (
            buffer.name
            for buffer, offset in epilogue_accesses(self.nest.epilogue)
            if buffer.size * buffer.dtype.itemsize >= self.tuning.epilogue_bytes
            and offset.coefficient(tiles.vector) == 1
            # Row by row: each row of the tile is in lines of its own, which hardware does not foresee.
            and offset.coefficient(tiles.tile)
        )
        return tuple(dict.fromkeys(found))


def epilogue_accesses(after: list[Stmt]) -> list[tuple[Buffer, Index]]:
    """The places that statements read or write at positions known in advance, each once."""
    reads = [(x.buffer, x.offset) for x in expressions(after) if isinstance(x, Load)]
    writes = [(s.buffer, s.offset) for s in after if isinstance(s, Store)]
    # A prefetch computes its address when the sum begins: positions that are data are not known then.
    return [at for at in dict.fromkeys((*reads, *writes)) if all(isinstance(a, Var) for a, _ in at[1].terms)]


def _power_below(n: int) -> int:
    return 1 << (n.bit_length() - 1) if n else 0

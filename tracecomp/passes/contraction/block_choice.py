"""The rest of a contraction's schedule once its tiles are chosen: copies, packing, blocks for threads, prefetches."""

from __future__ import annotations

from dataclasses import replace

from tracecomp.ir.index import Index, Var
from tracecomp.ir.loops import Buffer, Load, Stmt, Store, expressions
from tracecomp.ir.pieces import Pieces
from tracecomp.passes.contraction.operand_copies import copied_order, with_copies
from tracecomp.passes.contraction.packing import Panels
from tracecomp.passes.contraction.sliding_windows import written_out
from tracecomp.passes.contraction.tile_choice import (
    cold,
    kept_packed,
    lines_held,
    once_computed,
    read_often,
    tiles_of,
)
from tracecomp.passes.contraction.tile_schedule import TILE_FIELDS, TileSchedule, check_blocks, check_tiles
from tracecomp.passes.cost.machine import Machine
from tracecomp.passes.cost.parallel import parallel_kind_of_products
from tracecomp.passes.cost.reference import REFERENCE
from tracecomp.passes.nests.contraction_nest import BilinearNest, Operand, product_of
from tracecomp.passes.schedule.records import Chooser, with_fields


def tile_schedule(nest: BilinearNest, chooser: Chooser) -> TileSchedule:
    """Choose the schedule of a contraction in register tiles, except the fields that ``given`` fixes."""
    given, machine = chooser.next_given(), chooser.machine
    tiles = _for_threads(nest, tiles_of(nest, machine), machine)
    # First choose everything without the record: the record is compared with these lists of variables.
    made = _completed(nest, tiles, machine)
    if given is not None:
        variables = {v.name: v for v in (*nest.out, *nest.reduce)}
        asked = with_fields(tiles, given, variables, TILE_FIELDS)
        check_tiles(asked, tiles, nest, machine.registers)
        # Blocks follow from tiles. For other tiles they are chosen again; the rest of the record then applies to those.
        whole = _completed(nest, asked, machine, packed_so="pack" in given.fields)
        asked, chosen = with_fields(whole, given, variables), made
        check_blocks(asked, chosen, nest)
        made = asked
    chooser.made.append(made)
    return made


def _for_threads(nest: BilinearNest, tiles: TileSchedule, machine: Machine) -> TileSchedule:
    """Return the tiles, narrower if threads would have too few of them to share.

    The rows of a narrow tile must still hide the latency of additions, so that one thread loses little: 0 to 18 % were
    measured, where two threads gain a factor of two.
    """
    lanes, tuning = machine.lanes(nest.acc.dtype.itemsize), machine.tuning
    # Unrolled terms, k-blocks and transposed blocks fix the width of their tiles.
    fixed = bool(tiles.window or tiles.k_blocks or tiles.transposed or tiles.tail)
    rows = tiles.height * (tiles.unrolled.extent if tiles.unrolled else 1)
    if fixed or rows < tuning.hidden_sums or parallel_kind_of_products(nest.work, machine) == "serial":
        return tiles
    outer = product_of(tiles.beside(nest)) * max(tiles.steps, 1)
    while tiles.width > lanes and outer * sum(c.count for c in tiles.columns()) < tuning.least_blocks:
        tiles = replace(tiles, width=-(-tiles.width // (2 * lanes)) * lanes)
    return tiles


def _completed(nest: BilinearNest, tiles: TileSchedule, machine: Machine, packed_so: bool = False) -> TileSchedule:
    """Return the schedule with everything that follows from its tiles; ``packed_so``: the record fixes the packing."""
    copies = tuple(side for side in ("lhs", "rhs") if _copied(nest, side, tiles, machine))
    # A copy's work is its elements, each moved once.
    sizes = [product_of(copied_order(nest, getattr(nest, side), tiles)) for side in copies]
    kinds = tuple(parallel_kind_of_products(size, machine) for size in sizes)
    tiles = replace(tiles, copies=copies, copy_threads=kinds)
    # Blocks are chosen for the nest that reads copies: strides and loads differ there.
    _, copying = with_copies(nest, tiles)
    return _Blocks(copying, tiles, machine).schedule(packed_so)


# ---- copies of operands


def _copied(nest: BilinearNest, side: str, tiles: TileSchedule, machine: Machine) -> bool:
    """Whether it pays to copy an operand in memory that tiles read directly."""
    operand = nest.lhs if side == "lhs" else nest.rhs
    # An operand that is computed in the same kernel, or that moves with outer loops, would be copied again in every
    # iteration.
    if operand.inside or any(map(operand.depends, nest.outside)):
        return False
    # The operand that varies along the lanes is converted when its panel is packed.
    computed = operand is not nest.b_operand(tiles.vector) and once_computed(nest, operand, machine)
    return computed or _lanes_apart(nest, operand, tiles, machine) or _terms_apart(nest, operand, tiles, machine)


def _lanes_apart(nest: BilinearNest, operand: Operand, tiles: TileSchedule, machine: Machine) -> bool:
    """Whether lanes are strided and both operands vary along them, so that no panel makes them contiguous."""
    tuning = (REFERENCE if nest.padded else machine).tuning  # see tiles_of
    apart = operand.depends(tiles.vector) and operand.stride(tiles.vector) != 1
    # One-sided: a panel makes the lanes contiguous, with less memory than a whole copy.
    return apart and not nest.one_sided(tiles.vector) and read_often(nest, operand, tuning.transposed_reads)


def _terms_apart(nest: BilinearNest, operand: Operand, tiles: TileSchedule, machine: Machine) -> bool:
    """Whether rows of k-blocks read lines that no cache holds, or that evict each other before the next tile."""
    if nest.padded:  # see tiles_of
        # Decided on the reference machine: whether a padded operand is copied decides which terms
        # are masked, and with infinite weights that is a matter of bits.
        tiles, machine = tiles_of(nest, REFERENCE), REFERENCE
    k_blocks, tuning = tiles.k_blocks, machine.tuning
    # A is constant along the lanes and read as broadcast scalars; its rows may be far apart.
    a_operand = nest.a_operand(tiles.vector)
    # Without k-blocks the next tile reads other lines, so keeping these in cache gains nothing.
    if k_blocks is None or operand is not a_operand or operand.depends(tiles.vector):
        return False
    row = abs(operand.stride(nest.reduce[-1]) or 0) * nest.acc.dtype.itemsize
    if not (row >= tuning.far_bytes and read_often(nest, operand, tuning.strided_reads)):
        return False
    terms = k_blocks.length * product_of(k_blocks.inner)
    # No cache holds them, or there are more lines at that distance than the cache has ways: they evict each other.
    return cold(operand, machine) or terms > lines_held(row, machine)


# ---- blocks


class _Blocks:
    """Chooses the blocks of a nest that reads copies."""

    def __init__(self, nest: BilinearNest, tiles: TileSchedule, machine: Machine) -> None:
        self.nest, self.machine, self.tuning = nest, machine, machine.tuning
        self.b_operand = nest.b_operand(tiles.vector)
        # Judged with the epilogue, whose work threads share too.
        self.threads = parallel_kind_of_products(nest.work, machine)
        whole = nest.plain or nest
        # The rest of the program must not decide which terms of a padded sum are left out, so the plain nest decides.
        out = tiles.tile is not None and (written_out(whole) if nest.padded else bool(tiles.window))
        # Unrolled terms are not split.
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
        """Return the tiles with blocks for them."""
        # A record may fix the packing; then it is not chosen here.
        if self.tiles.pack != "no" and not packed_so:
            self.tiles = replace(self.tiles, pack=self._pack())
        outer, columns = product_of(self.others), self.tiles.columns()
        # Blocks of whole rows need one number of blocks, blocks of columns one for each width.
        by_rows = self._by_rows(outer)
        if by_rows:
            rows: tuple[int, ...] = (self._row_blocks(outer),)
        else:
            rows = self._blocks_of_columns(columns, self._row_blocks(outer * sum(c.count for c in columns)))
        # All blocks there are, over columns of every width and outer positions.
        total = outer * sum(
            c.count * some.count for c, n in zip(columns, rows, strict=False) for some in self.tiles.blocks_of_rows(n)
        )
        # Too few blocks for threads: split some of the variables that a block spans.
        few = not by_rows and self.threads != "serial" and total < self.tuning.least_blocks
        return replace(
            self.tiles,
            by_rows=by_rows,
            row_blocks=rows,
            split_vars=tuple(self._split(total)) if few else (),
            pack_threads=self._pack_threads(),
            lines_ahead=self._lines_ahead(),
            prefetch_terms=self._terms_ahead(),
            prefetch=self._epilogue_ahead(),
        )

    def _blocks_of_columns(self, columns: list[Pieces], blocks: int) -> tuple[int, ...]:
        """Return blocks of rows for each column, of about the same work: fewer for a narrow one, as rows permit."""
        least, width, most = self.tuning.least_width, self.tiles.width, max(self.tiles.steps, 1)
        # A narrow column is less work for each row, so its blocks are longer; the
        # minimum keeps very narrow ones from being a single block.
        wanted = [-(-blocks * max(c.length, least) // width) for c in columns]
        # There are at most as many blocks as steps.
        return tuple(n if n <= most else blocks for n in wanted)

    def _block_vars(self, tiles: TileSchedule) -> list[Var]:
        """Choose the variables that a block spans, among those along which only one operand varies: its totals fit a
        cache."""
        # Totals of all inner variables stay in the cache between k-blocks. Those that B does not depend on are dropped
        # first: otherwise each of their values reads B's panel again.
        inner = list(filter(self.nest.one_sided, tiles.beside(self.nest)))
        tile = tiles.height * tiles.width * self.nest.acc.dtype.itemsize
        for var in [v for v in inner if not self.b_operand.depends(v)]:
            if product_of(inner) * tile > self.tuning.totals_bytes:
                inner.remove(var)
        return inner

    def _pack(self) -> str:
        """Each block packs its panel when it starts, unless that leaves too few blocks for threads.

        Frozen panels are packed in the first call, not by blocks.
        """
        # A block packs its panel only if no other block reads the same panel, that is if it depends on all outer
        # variables,
        moved = self.tiles.moved(self.nest, self.b_operand)
        below = 1 if self.tiles.block_vars else max(self.tiles.steps // self._least(), 1)
        columns = sum(c.count for c in self.tiles.columns())
        # and if there are enough blocks then. Else a few threads would pack large panels while others wait.
        enough = product_of(moved) * columns * below >= self.tuning.least_blocks
        apart = not (self.b_operand.inside or self._around()) and moved == self.others and enough
        # Frozen weights are packed in the first call (prepacking), which needs a separate packing step.
        kept = kept_packed(self.nest, self.b_operand, self.tiles.vector, self.machine)
        return "block" if apart and not kept else "once"

    def _around(self) -> tuple[Var, ...]:
        return () if self.b_operand.inside else self.nest.outside

    def _pack_threads(self) -> tuple[str, ...]:
        if self.tiles.pack != "once":
            return ()
        panels = Panels(self.nest, self.tiles)
        work = (panels.terms * panels.buffer(columns).size for columns in self.tiles.columns())
        return tuple(parallel_kind_of_products(n, self.machine) for n in work)

    def _by_rows(self, outer: int) -> bool:
        """Whether a block has all columns of its rows, so that a thread finds the next kernel's input in its own
        cache."""
        tiles = self.tiles
        # All terms of one column of B: the panel that a block reads for each of its tiles.
        column = product_of((*self.nest.reduce, tiles.vector)) * self.nest.acc.dtype.itemsize
        # The panel must fit near the core, as each tile of rows reads it; with k-blocks or panels per block, blocks are
        # columns already.
        plain = column <= 2 * self.machine.l1_bytes and tiles.pack != "block" and tiles.k_blocks is None
        return self.threads != "serial" and plain and outer * tiles.steps >= self.tuning.wanted_blocks

    def _row_blocks(self, others: int) -> int:
        """Choose the number of blocks along the tile's variable: enough for threads to share, with totals that fit a
        cache."""
        # A block reads a whole panel, or memory that no cache holds.
        tiles, tuning = self.tiles, self.tuning
        # Each further block reads the whole panel again, so fewer blocks pay if it comes from memory.
        alone = tiles.pack == "block"
        wanted = tuning.wanted_panels if alone or tiles.k_blocks else tuning.wanted_blocks
        least = self._least() if alone else 2
        inner, blocks = product_of(tiles.block_vars), 1
        # Only threads that are awake join, so half of the blocks are enough.
        wanted = wanted // 2 if self.threads == "opportunistic" else wanted
        if self.threads != "serial" and others < wanted and tiles.steps * inner >= least:
            # A power of two divides most extents.
            blocks = _power_below(min(-(-wanted // others), tiles.steps * inner // least))
        if tiles.k_blocks:
            row = inner * tiles.width * self.nest.acc.dtype.itemsize
            # For any number of threads the totals of a block must stay in the cache between k-blocks.
            blocks = max(blocks, tiles.steps * tiles.height * row // tuning.totals_bytes)
        return max(1, min(blocks, tiles.steps))

    def _least(self) -> int:
        """The least number of tiles along the rows for which a block packs a panel itself."""
        return -(-self.tuning.packed_rows // self.tiles.height)

    def _split(self, blocks: int) -> list[Var]:
        """Choose the block's variables that are split into one block per value, for enough blocks for threads.

        If the last cache does not hold the data, every block would read all of it from memory; then split no more than
        needed.
        """
        # A and B themselves; copies and panels are smaller or as large.
        loads = [o.load for o in (self.nest.lhs, self.nest.rhs) if o.load is not None]
        data = sum(x.buffer.size * x.dtype.itemsize for x in loads)
        enough = [v for v in self.tiles.block_vars if blocks * v.extent >= self.tuning.least_blocks]
        # From the cache every block may read all of them; from memory the fewest additional blocks are best.
        if not enough or data <= self.machine.l3_bytes // 2:
            return list(self.tiles.block_vars)
        return [min(enough, key=lambda v: v.extent)]

    # ---- prefetches

    def _lines_ahead(self) -> bool:
        """Whether to prefetch a transposed B that comes from memory, one column of tiles ahead."""
        tiles, load = self.tiles, self.b_operand.load
        if not tiles.transposed or load is None or len(self.nest.reduce) > 1:
            return False
        # The lines are counted as if lanes were adjacent. A column waits in the second cache until it is used.
        dense = self.b_operand.stride(tiles.vector) == self.nest.reduce[-1].extent
        column = tiles.width * self.nest.reduce[-1].extent * load.dtype.itemsize
        # Other weights evict this one between two calls unless it is much smaller than the cache.
        total = load.buffer.size * load.dtype.itemsize
        return dense and column <= self.machine.l2_bytes // 2 and total > self.machine.l2_bytes // 8

    def _terms_ahead(self) -> int:
        """How many terms ahead A is prefetched if its elements are too far apart for the hardware prefetcher."""
        tiles, nest = self.tiles, self.nest
        load, last = nest.a_operand(tiles.vector).load, nest.reduce[-1] if nest.reduce else None
        # k-blocks and windows keep their operands in cache. Without a tile A has no rows to fetch.
        if (
            load is None
            or last is None
            or tiles.tile is None
            or tiles.k_blocks
            or tiles.written_out
            or tiles.transposed
        ):
            return 0
        a_operand = nest.a_operand(tiles.vector)
        far = abs(a_operand.stride(last) or 0) * load.dtype.itemsize >= self.tuning.far_bytes
        # A position that is read from data is not known ahead.
        known = all(isinstance(atom, Var) for atom, _ in load.offset.terms)
        # Long sums only, as a prefetch of the first terms comes too late. A has to be dense along the tile, so that one
        # line serves all rows.
        long = last.extent >= self.tuning.far_terms and a_operand.stride(tiles.tile) == 1
        return self.tuning.terms_ahead if far and known and long else 0

    def _epilogue_ahead(self) -> tuple[str, ...]:
        """Large buffers that the epilogue reads or writes row by row of a tile."""
        tiles = self.tiles
        # The lines are fetched term by term of the sum, so the sum has to be a single loop.
        if tiles.tile is None or not self.nest.reduce or tiles.k_blocks or tiles.written_out or tiles.transposed:
            return ()
        found = (
            buffer.name
            for buffer, offset in epilogue_accesses(self.nest.epilogue)
            if buffer.size * buffer.dtype.itemsize >= self.tuning.epilogue_bytes
            and offset.coefficient(tiles.vector) == 1
            # Each row of the tile is in separate lines, which the hardware prefetcher does not predict.
            and offset.coefficient(tiles.tile)
        )
        return tuple(dict.fromkeys(found))


def epilogue_accesses(after: list[Stmt]) -> list[tuple[Buffer, Index]]:
    """Yield the positions, known in advance, at which statements read or write, each once."""
    reads = [(x.buffer, x.offset) for x in expressions(after) if isinstance(x, Load)]
    writes = [(s.buffer, s.offset) for s in after if isinstance(s, Store)]
    # A prefetch computes its address when the sum begins, before positions that are read from data are known.
    return [at for at in dict.fromkeys((*reads, *writes)) if all(isinstance(a, Var) for a, _ in at[1].terms)]


def _power_below(n: int) -> int:
    return 1 << (n.bit_length() - 1) if n else 0

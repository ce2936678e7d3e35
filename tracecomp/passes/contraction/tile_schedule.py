"""The schedule of a contraction in register tiles, as data: it is chosen, printed, and can be written by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tracecomp.ir.index import Var
from tracecomp.ir.pieces import Pieces, pieces
from tracecomp.passes.nests.contraction_nest import BilinearNest, Operand
from tracecomp.passes.schedule.k_blocking import KBlocks, k_blocks_read
from tracecomp.passes.schedule.records import (
    KINDS,
    ScheduleError,
    number,
    numbers,
    setting,
    variable,
    variable_or_none,
    variables_of,
    word,
    words,
    yes_or_no,
)

TILE_FIELDS = (
    "vector", "width", "tail", "tile", "height", "unrolled", "window", "k_blocks", "pack", "transposed",
    "written_out",
)  # fmt: skip
"""Fields on which the others depend: the other fields are chosen for the tiles that these describe."""


MOST_RESULTS = 64
"""Results of a tile per register, at most: four whole registers, of which all but one are in memory."""
PADDING = "skipped padding terms affect the bits"


@dataclass(frozen=True)
class RowBlocks:
    """Blocks of tiles along the rows, in ``steps`` of one tile, and one more block of ``last`` steps, if any.

    ``rest``: the last one includes the remaining rows.
    """

    steps: Pieces
    rest: bool = False
    last: int = 0

    @property
    def count(self) -> int:
        return self.steps.count + bool(self.last)

    @property
    def most(self) -> int:
        """Steps of the longest block."""
        return max(self.steps.length, self.last)


@dataclass(frozen=True)
class TileSchedule:
    """Rows of one variable by SIMD lanes of another, with the whole sum, or a k-block of it, inside."""

    TITLE: ClassVar[str] = "register tiles"

    vector: Var = setting(variable, "the result's variable along the SIMD lanes; the operand that it indexes is B")
    width: int = setting(number, "values of vector in a tile: the lanes of some registers")
    tile: Var | None = setting(variable_or_none, "the result's variable along the tile's rows")
    height: int = setting(number, "rows of a tile")
    tail: int = setting(number, "last lanes, computed in a vector of half the width", 0)
    unrolled: Var | None = setting(variable_or_none, "a second, short variable, unrolled in the tile", None)
    window: tuple[Var, ...] = setting(
        variables_of, "summed variables along which rows read the same vectors, so that each is loaded once", ()
    )
    written_out: bool = setting(yes_or_no, "unroll the tile's terms and leave out those of padding", False)
    k_blocks: KBlocks | None = setting(
        k_blocks_read, "the summed variables in order, one with its block length: k/392", None
    )
    pack: str = setting(word("no", "once", "block"), "pack B into panels: once, or in each block", "no")
    transposed: int = setting(number, "terms of B per block transposed in registers; 0: none", 0)
    copies: tuple[str, ...] = setting(words("lhs", "rhs"), "operands copied first, in float32, in the lanes' order", ())
    block_vars: tuple[Var, ...] = setting(variables_of, "variables kept whole in a block", ())
    split_vars: tuple[Var, ...] = setting(variables_of, "block_vars with one value per block", ())
    by_rows: bool = setting(yes_or_no, "a block has all columns of its rows", False)
    row_blocks: tuple[int, ...] = setting(numbers, "number of row blocks, per column of tiles or in total", (1,))
    threads: str = setting(word(*KINDS), "who shares the blocks", "serial")
    pack_threads: tuple[str, ...] = setting(words(*KINDS), "who shares the packing, for each column of tiles", ())
    copy_threads: tuple[str, ...] = setting(words(*KINDS), "who shares the copies, in the order of copies", ())
    lines_ahead: bool = setting(yes_or_no, "prefetch the next column of a transposed B in the order of memory", False)
    prefetch_terms: int = setting(number, "distance of prefetches of A, in terms; 0: none", 0)
    prefetch: tuple[str, ...] = setting(words(), "buffers of the epilogue to prefetch", ())
    unrolled_terms: int = setting(number, "longest innermost loop over terms that is unrolled", 4)
    written_terms: int = setting(number, "most multiply-adds of an unrolled tile", 700)

    def columns(self) -> list[Pieces]:
        """The lanes in columns of tiles: full ones, remaining lanes, the tail in a separate column."""
        found = list(pieces(self.vector.extent - self.tail, self.width))
        # Columns from left to right: full ones, a narrower remainder, and the tail.
        return [*found, *pieces(self.tail, self.tail, self.vector.extent - self.tail)]

    @property
    def tile_rows(self) -> int:
        return self.tile.extent if self.tile else 1

    @property
    def steps(self) -> int:
        """Number of full tiles along the rows."""
        return self.tile_rows // self.height

    @property
    def rows_left(self) -> int:
        """Number of rows after the last full tile."""
        return self.tile_rows % self.height

    def blocks_of_rows(self, blocks: int) -> list[RowBlocks]:
        """Split the rows into about ``blocks`` blocks of nearly one size."""
        # Blocks of nearly one size, so that threads finish together.
        steps, equal = self._even(blocks)
        found = [RowBlocks(Pieces(equal, 0, steps))] if equal else []
        done = equal * steps
        # The last block takes the remaining rows, as a tile of fewer rows.
        if self.steps > done or self.rows_left or not found:
            found.append(RowBlocks(Pieces(1, done, self.steps - done), bool(self.rows_left)))
        return found

    def joined_blocks(self, blocks: int) -> list[RowBlocks]:
        """``blocks_of_rows``, where possible as blocks that share one loop over tiles, so that its code exists once."""
        found = self.blocks_of_rows(blocks)
        # The length of a block with totals is a size of memory. Unrolled terms depend on the row.
        if len(found) == 1 or self.k_blocks is not None or self.written_out or not found[1].steps.length:
            return found
        equal, last = found
        return [RowBlocks(equal.steps, last.rest, last.steps.length)]

    def _even(self, blocks: int) -> tuple[int, int]:
        """Return the steps of a block and the number of such blocks; the remainder is one more block, of similar size
        if possible."""
        steps, rest = self.steps // blocks, self.rows_left / self.height
        # The number of steps for which the remainder for the last block is nearest to theirs. If the difference is less
        # than a block, the last block takes it; else it is one block more.
        cuts = [(abs(self.steps + rest - blocks * n), n) for n in (steps, steps + 1)]
        uneven, even = min(cuts)
        return (even, blocks - 1) if uneven < even else (steps, blocks)

    def beside(self, nest: BilinearNest) -> list[Var]:
        """The result's variables that are not in a tile."""
        return [v for v in nest.out if v not in (self.vector, self.tile, self.unrolled)]

    def moved(self, nest: BilinearNest, operand: Operand) -> list[Var]:
        """Those of ``outer`` that panels of ``operand`` depend on."""
        return [v for v in self.beside(nest) if operand.depends(v)] if self.pack != "no" else []


def check_tiles(tiles: TileSchedule, chosen: TileSchedule, nest: BilinearNest, registers: int) -> None:
    """ScheduleError if tiles written by hand do not fit a nest, or would change the order of its sums.

    ``chosen`` are the tiles that would have been chosen.
    """
    b_operand, k_blocks = nest.b_operand(tiles.vector), tiles.k_blocks
    in_tile = [v for v in (tiles.vector, tiles.tile, tiles.unrolled) if v is not None]
    # The order of summed variables is the order of the sum.
    summed = (*k_blocks.outer, k_blocks.cut, *k_blocks.inner) if k_blocks else tuple(nest.reduce)
    rows = tiles.height * (tiles.unrolled.extent if tiles.unrolled else 1)
    # Rows of a tile can share a panel only if they all read the same vectors.
    one_panel = b_operand.depends(tiles.vector) and nest.one_sided(tiles.vector)
    shared = tiles.tile is None or not b_operand.depends(tiles.tile)
    _refuse(
        (not set(in_tile) <= set(nest.out), "vector, tile and unrolled must be variables of the result"),
        (len(set(in_tile)) != len(in_tile), "a variable is repeated in the tile"),
        (not 0 < tiles.width <= tiles.vector.extent - tiles.tail, "width must be 1 to the size of vector"),
        (not 0 < tiles.height <= tiles.tile_rows, "height must be 1 to the size of tile"),
        (rows * tiles.width > MOST_RESULTS * registers, f"{rows} by {tiles.width} exceeds the registers"),
        # k_blocks list the whole order of the sum, which has to be the graph's.
        (summed != tuple(nest.reduce), f"k_blocks must list {' '.join(v.name for v in nest.reduce)} in this order"),
        # Strides determine which rows read the same vectors; a record cannot change that.
        (tiles.window not in ((), chosen.window), "window can be omitted but not changed"),
        (bool(tiles.window) and tiles.tile != chosen.tile, "window needs the default tile"),
        (
            tiles.pack != "no" and not (one_panel and shared),
            "set pack to no: the rows of a tile read different vectors",
        ),
        # Packed padding is added, which decides bits where a weight is infinite.
        (tiles.transposed > 0 and tiles.pack != "no", "set transposed to 0: panels are packed in lane order"),
        (nest.padded and (tiles.pack == "no") != (chosen.pack == "no"), PADDING),
    )


def check_blocks(schedule: TileSchedule, chosen: TileSchedule, nest: BilinearNest) -> None:
    """ScheduleError if the rest of the schedule does not fit."""
    parts, steps = len(schedule.columns()), max(schedule.steps, 1)
    beside = set(schedule.beside(nest))
    by_block = schedule.pack == "block"
    moved = schedule.moved(nest, nest.b_operand(schedule.vector))
    others = [v for v in schedule.beside(nest) if v not in schedule.block_vars]
    _refuse(
        (
            len(schedule.row_blocks) != (1 if schedule.by_rows else parts),
            "row_blocks: give one number per column of tiles",
        ),
        (any(not 0 < n <= steps for n in schedule.row_blocks), "row_blocks: give at most one block per step of rows"),
        (len(schedule.pack_threads) != (parts if schedule.pack == "once" else 0), "pack_threads: one per column"),
        (len(schedule.copy_threads) != len(schedule.copies), "copy_threads: one per copy"),
        (schedule.copies != chosen.copies and nest.padded, PADDING),
        (schedule.written_out != chosen.written_out and nest.padded, PADDING),
        (schedule.written_out and schedule.tile is None, "written_out needs rows"),
        (
            schedule.transposed > 0 and schedule.written_out,
            "set written_out to no: transposed needs a loop over terms",
        ),
        (
            schedule.lines_ahead and (not schedule.transposed or len(nest.reduce) != 1),
            "lines_ahead needs transposed and one summed variable",
        ),
        (not set(schedule.split_vars) <= set(schedule.block_vars), "split_vars must be in block_vars"),
        (not set(schedule.block_vars) <= beside, "block_vars must differ from the tile's variables"),
        # Totals between k-blocks are kept for a block's variables; without k-blocks there are none.
        (bool(schedule.block_vars) and schedule.k_blocks is None, "block_vars needs k_blocks"),
        # A block's own panel must be the only one that its tiles read.
        (by_block and (bool(nest.outside) or moved != others), "set pack to once: blocks share panels"),
        (
            schedule.by_rows and (by_block or schedule.k_blocks is not None),
            "by_rows cannot be combined with pack block or k_blocks",
        ),
    )


def _refuse(*problems: tuple[bool, str]) -> None:
    for wrong, why in problems:
        if wrong:
            raise ScheduleError(f"{TileSchedule.TITLE}: {why}")

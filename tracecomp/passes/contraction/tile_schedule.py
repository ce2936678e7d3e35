"""The schedule of a contraction in register tiles, as data: it is chosen, prints, and can be written by hand."""

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

TILE_FIELDS = ("vector", "width", "tail", "tile", "height", "unrolled", "window", "k_blocks", "pack", "written_out")
"""Fields on which the others depend: these are chosen for the tiles that are wanted."""


@dataclass(frozen=True)
class RowBlocks:
    """Blocks of tiles below each other, in ``steps`` of one tile; ``rest``: the last one has the remaining rows too."""

    steps: Pieces
    rest: bool = False

    @property
    def count(self) -> int:
        return self.steps.count


@dataclass(frozen=True)
class TileSchedule:
    """Rows of one variable by SIMD lanes of another, with the whole sum, or a k-block of it, inside."""

    TITLE: ClassVar[str] = "register tiles"

    vector: Var = setting(variable, "the result's variable that is the SIMD lanes; the operand that moves with it is B")
    width: int = setting(number, "its values at a time: some registers' worth")
    tile: Var | None = setting(variable_or_none, "the result's variable whose values are the tile's rows")
    height: int = setting(number, "its values at a time")
    tail: int = setting(number, "last lanes that stand by themselves, in a vector of half the width", 0)
    unrolled: Var | None = setting(variable_or_none, "a second, short variable that is in the tile as a whole", None)
    window: tuple[Var, ...] = setting(
        variables_of, "summed variables along which rows read the same vectors, so that each is loaded once", ()
    )
    written_out: bool = setting(yes_or_no, "the tile's terms are written out; terms of padding are left out", False)
    k_blocks: KBlocks | None = setting(k_blocks_read, "the summed variables in order, one in pieces: k/392", None)
    pack: str = setting(word("no", "once", "block"), "B is packed into panels: once for all, or by the block", "no")
    copies: tuple[str, ...] = setting(words("lhs", "rhs"), "operands copied first, in float32, in the lanes' order", ())
    block_vars: tuple[Var, ...] = setting(variables_of, "variables that a block has all of, with their totals", ())
    split_vars: tuple[Var, ...] = setting(variables_of, "those of them that it has one value of after all", ())
    by_rows: bool = setting(yes_or_no, "a block has all columns of its rows", False)
    row_blocks: tuple[int, ...] = setting(numbers, "blocks of rows: of each column of tiles, or of all", (1,))
    threads: str = setting(word(*KINDS), "who shares the blocks", "serial")
    pack_threads: tuple[str, ...] = setting(words(*KINDS), "who shares the packing, for each column of tiles", ())
    copy_threads: tuple[str, ...] = setting(words(*KINDS), "who shares the copies, in the order of copies", ())
    prefetch_terms: int = setting(number, "terms by which elements of A are fetched ahead; 0: not", 0)
    prefetch: tuple[str, ...] = setting(words(), "buffers of the epilogue that are fetched ahead", ())
    unrolled_terms: int = setting(number, "innermost terms up to which a loop over them is written out", 4)
    written_terms: int = setting(number, "multiply-adds of a tile that are written out at most", 700)

    def columns(self) -> list[Pieces]:
        """The lanes in columns of tiles: whole ones, remaining lanes, those that stand by themselves."""
        found = list(pieces(self.vector.extent - self.tail, self.width))
        return [*found, *pieces(self.tail, self.tail, self.vector.extent - self.tail)]

    @property
    def rows(self) -> int:
        return self.tile.extent if self.tile else 1

    @property
    def steps(self) -> int:
        """Whole tiles below each other."""
        return self.rows // self.height

    @property
    def rows_left(self) -> int:
        """Rows after the last whole tile."""
        return self.rows % self.height

    def blocks_of_rows(self, blocks: int) -> list[RowBlocks]:
        """The rows in about so many blocks of nearly one size."""
        steps, equal = self._even(blocks)
        found = [RowBlocks(Pieces(equal, 0, steps))] if equal else []
        done = equal * steps
        if self.steps > done or self.rows_left or not found:
            found.append(RowBlocks(Pieces(1, done, self.steps - done), bool(self.rows_left)))
        return found

    def _even(self, blocks: int) -> tuple[int, int]:
        """Steps of a block, and how many have them; what remains is one more block, of about that size if possible."""
        steps, rest = self.steps // blocks, self.rows_left / self.height
        cuts = [(abs(self.steps + rest - blocks * n), n) for n in (steps, steps + 1)]
        uneven, even = min(cuts)
        return (even, blocks - 1) if uneven < even else (steps, blocks)

    def beside(self, nest: BilinearNest) -> list[Var]:
        """The result's variables that are not in a tile."""
        return [v for v in nest.out if v not in (self.vector, self.tile, self.unrolled)]

    def moved(self, nest: BilinearNest, operand: Operand) -> list[Var]:
        """Those of them that panels of ``operand`` depend on."""
        return [v for v in self.beside(nest) if operand.depends(v)] if self.pack != "no" else []


def check(schedule: TileSchedule, chosen: TileSchedule, nest: BilinearNest, registers: int) -> None:
    """ScheduleError if a schedule that was written by hand does not fit a nest, or would change its results.

    ``chosen`` is what would have been chosen. Every order of the loops over results is right; what is summed keeps its
    order.
    """
    moving = nest.moving(schedule.vector)
    in_tile = [schedule.vector, schedule.tile, schedule.unrolled]
    k_blocks = schedule.k_blocks
    summed = (*k_blocks.outer, k_blocks.cut, *k_blocks.inner) if k_blocks else tuple(nest.reduce)
    rows = schedule.height * (schedule.unrolled.extent if schedule.unrolled else 1)
    vectors = -(-schedule.width // 64) * rows
    problems = (
        (any(v is not None and v not in nest.out for v in in_tile), "vector, tile and unrolled are the result's"),
        (len({v for v in in_tile if v}) != sum(v is not None for v in in_tile), "a variable stands in the tile twice"),
        (not 0 < schedule.width <= schedule.vector.extent - schedule.tail, "width is 1 to what there is of vector"),
        (not 0 < schedule.height <= schedule.rows, "height is 1 to what there is of tile"),
        (vectors > 4 * registers, f"a tile of {rows} by {schedule.width} is far more than {registers} registers hold"),
        (summed != tuple(nest.reduce), f"k_blocks has to name {' '.join(v.name for v in nest.reduce)} in this order"),
        (schedule.window != chosen.window and schedule.window != (), "window can be left out, not chosen"),
        (
            schedule.pack != "no" and (schedule.tile is not None and moving.depends(schedule.tile)),
            "rows of a tile that read panels of their own cannot share a packed one",
        ),
        (schedule.pack != "no" and not (moving.depends(schedule.vector) and nest.one_sided(schedule.vector)), "pack"),
        (len(schedule.row_blocks) != (1 if schedule.by_rows else len(schedule.columns())), "row_blocks: one a column"),
        (any(not 0 < n <= max(schedule.steps, 1) for n in schedule.row_blocks), "a block has one step of rows or more"),
        (not set(schedule.split_vars) <= set(schedule.block_vars), "split_vars are some of block_vars"),
        (not set(schedule.block_vars) <= set(schedule.beside(nest)), "block_vars are variables beside the tile's"),
        (schedule.pack == "block" and schedule.pack != chosen.pack and bool(nest.outside), "a panel for each block"),
        (
            nest.padded and (schedule.written_out, schedule.pack == "no") != (chosen.written_out, chosen.pack == "no"),
            "which terms of padding are left out decides bits",
        ),
    )
    for wrong, why in problems:
        if wrong:
            raise ScheduleError(f"{TileSchedule.TITLE}: {why}")

"""What schedules aim for: every tuned number that decides how fast a program is and not one bit of it.

Values come from timing on the reference machine, two cores of an AMD EPYC 9004 (Zen 4), when each was introduced.
``python -m benchmarks.tuning FIELD`` times a dozen programs with half and twice a value, in turns, on the machine at
hand; docs/reports/benchmarks.md (Tuned numbers) has what that gave. Sizes that follow from a cache are
no fields: they are computed from ``Machine``. Numbers that decide bits are in ``passes/cost/reference.py``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    """One value per decision; the text below each says its unit and why there is one."""

    # ---- sharing loops among threads

    parallel_work: float = 1 << 21
    """Vector additions. A loop of less is done in the time that waking a worker and its first chunk take: 60 us."""
    parallel_products: float = 1 << 22
    """Multiply-adds, for contractions: 80 us, as what they read has to come to a second core's caches as well."""
    opportunistic: int = 16
    """Times less work for which workers that are awake anyway are let in: helping then costs 1 us."""

    # ---- elementwise nests and reductions

    light_cost: float = 8.0
    """Vector additions per element up to which a column reduction waits for memory: rows are read in long runs."""
    heavy_cost: float = 24.0
    """Vector additions per element from which on two vectors at a time keep the arithmetic busy, not four."""
    gather_cost: float = 12.0
    """Vector additions that a load from a run-time position counts for, in the work of a loop."""
    four_rows_bytes: int = 256
    """Bytes of a row up to which four rows run at once: in short ones most time is waiting for the total before."""
    two_rows_bytes: int = 1024
    """Bytes of a row up to which two rows run at once."""
    most_splits: int = 24
    """Times that a nest's variables are split where indices divide them; more would be an endless nest."""
    column_rows: int = 6
    """Rows that are summed at once down wide blocks of columns: their loads hide that totals come from the cache."""
    column_totals_bytes: int = 1 << 14
    """Bytes of a block's totals: half of the smallest first cache, beside the rows that pass through it."""
    column_run_bytes: int = 4096
    """Bytes of a row's run when columns are cut for threads: a page, which is what hardware fetches ahead in."""

    # ---- transposes

    stripe_bytes: int = 4096
    """Bytes of a stripe of panels: a page, so that a stripe's lines need few entries of the address cache."""
    enough_panels: int = 16
    """Panels that threads should find to share."""
    foreseen_bytes: int = 1024
    """Bytes between rows from which on hardware no longer fetches the next rows by itself."""
    dense_bytes: int = 512
    """Bytes between lines below which stores past the caches need not write two lines that follow each other."""

    # ---- contractions: register tiles

    wanted_blocks: int = 32
    """Blocks that threads should find to share, so that those of several threads end at about the same time."""
    wanted_panels: int = 8
    """The same where a block reads all of a panel or all memory: each more reads it once more."""
    least_blocks: int = 4
    """Blocks below which a panel is packed for all of them rather than by each, so that threads have work to share."""
    least_width: int = 8
    """Lanes that a narrow column counts for at least, when blocks are cut to equal work."""
    totals_bytes: int = 1 << 18
    """Bytes of a block's totals between k-blocks: a quarter of a second cache of 1 MB."""
    packed_rows: int = 64
    """Rows that read a panel before packing it in the block that reads it is paid for."""
    unrolled_terms: int = 4
    """Terms of the innermost summed variable that are written out instead of looped over."""
    terms_ahead: int = 32
    """Terms by which elements that lie far apart are fetched ahead: some 100 ns of multiply-adds."""
    epilogue_bytes: int = 1 << 18
    """Bytes of a buffer from which on an epilogue's lines are fetched ahead, as the caches may not have them."""
    far_bytes: int = 2048
    """Bytes between terms from which on each is in a page of its own soon, and hardware does not fetch ahead."""
    far_terms: int = 256
    """Terms so far apart before a copy or a fetch ahead pays."""
    far_reads: int = 64
    """Reads of every element before a copy of rows far apart pays."""
    crowded_reads: int = 512
    """The same times the rows that share a place in the cache, where these push each other out."""
    computed_reads: int = 32
    """Reads of every element before half precision is converted in a copy."""
    transposed_reads: int = 8
    """Reads of every element before a copy in the order of the lanes pays, where both operands move with these."""
    strided_reads: int = 128
    """Reads of every element before a copy pays in which the terms of a row lie together."""
    sliding_updates: int = 700
    """Multiply-adds of a register tile that are written out: more take long to compile."""
    near_result_bytes: int = 256
    """Bytes between lanes of a result up to which what lies between them is worth storing together."""

    # ---- contractions: k-blocks

    k_block_terms: int = 512
    """Terms of a k-block at most: its panel of 64 lanes takes 128 KB, and stays in a second cache of 256 KB."""
    k_block_least: int = 64
    """Terms of a k-block at least, as each block loads and stores all totals once."""

    # ---- Winograd

    winograd_blocks: int = 8
    """Blocks of tiles that threads should find to share."""
    winograd_run_rows: int = 1024
    """Places times channels by a column of filters whose totals stay in the second cache."""

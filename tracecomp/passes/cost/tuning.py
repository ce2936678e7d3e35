"""Tuned numbers of schedules: they decide how fast a program is, and none of its bits.

Values come from timing on the reference machine, two cores of an AMD EPYC 9004 (Zen 4), when each was introduced.
``python -m benchmarks.tuning FIELD`` times a dozen programs with half and twice a value, alternating, on the actual
machine; docs/reports/benchmarks.md (Tuned numbers) has the results. Sizes that follow from a cache are not fields: they
are computed from ``Machine``. Numbers that decide bits are in ``passes/cost/reference.py``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    """One value per decision; the text below each gives its unit and reason."""

    # ---- sharing loops among threads

    parallel_work: float = 1 << 21
    """Vector additions. A smaller loop ends within the time that waking a worker and its first chunk take: 60 us."""
    parallel_products: float = 1 << 22
    """Multiply-adds, for contractions: 80 us, as a second core has to load the operands into its caches."""
    opportunistic: int = 16
    """Divisor of the work above for which workers that are awake may join: helping then costs 1 us."""
    opportunistic_products: int = 32
    """The same for contractions: 2.5 us of work, of which a second thread saves a third in steps of an LSTM."""

    # ---- elementwise nests and reductions

    light_cost: float = 8.0
    """Vector additions per element up to which a column reduction waits for memory: rows are read in long runs."""
    heavy_cost: float = 24.0
    """Vector additions per element above which two vectors at a time, not four, keep the arithmetic busy."""
    gather_cost: float = 12.0
    """Cost of a load from a run-time position, in vector additions, in the work of a loop."""
    four_rows_bytes: int = 256
    """Bytes of a row up to which four rows run at once: short rows mostly wait for the latency of one total."""
    two_rows_bytes: int = 1024
    """Bytes of a row up to which two rows run at once."""
    most_splits: int = 24
    """How many times a nest's variables are split where indices divide them; the limit makes splitting end."""
    column_rows: int = 6
    """Rows that are summed at once down wide blocks of columns: their loads hide that totals come from the cache."""
    column_totals_bytes: int = 1 << 14
    """Bytes of a block's totals: half of the smallest first cache; the rest is for the rows read."""
    column_run_bytes: int = 4096
    """Bytes of a row's run when columns are cut for threads: a page, which is what hardware fetches ahead in."""

    # ---- transposes

    stripe_bytes: int = 4096
    """Bytes of a stripe of panels: a page, so that a stripe's lines need few entries of the address cache."""
    enough_panels: int = 16
    """Panels that threads should find to share."""
    foreseen_bytes: int = 1024
    """Bytes between rows above which the hardware prefetcher no longer fetches the next rows."""
    dense_bytes: int = 512
    """Bytes between lines below which stores past the caches need not write two lines that follow each other."""

    # ---- contractions: register tiles

    wanted_blocks: int = 32
    """Blocks that threads should find to share, so that those of several threads end at about the same time."""
    wanted_panels: int = 8
    """The same where a block reads all of a panel or all memory: each further block reads it again."""
    least_blocks: int = 4
    """Blocks below which a panel is packed for all of them rather than by each, so that threads have work to share."""
    hidden_sums: int = 8
    """Sums that run at once for a multiply-add to start in every cycle: a latency of 4 cycles in two pipes."""
    least_width: int = 8
    """Lanes that a narrow column counts for at least, when blocks are cut to equal work."""
    totals_bytes: int = 1 << 18
    """Bytes of a block's totals between k-blocks: a quarter of a second cache of 1 MB."""
    packed_rows: int = 64
    """Rows that read a panel before packing it in the block that reads it is paid for."""
    unrolled_terms: int = 4
    """Terms of the innermost summed variable that are unrolled instead of looped over."""
    terms_ahead: int = 32
    """Prefetch distance, in terms, for elements that are far apart: some 100 ns of multiply-adds."""
    epilogue_bytes: int = 1 << 18
    """Bytes of a buffer above which an epilogue's lines are prefetched, as the caches may not have them."""
    far_bytes: int = 2048
    """Bytes between terms above which they are soon in different pages, which the hardware does not prefetch."""
    far_terms: int = 256
    """Least number of such terms for which a copy or a prefetch pays."""
    far_reads: int = 64
    """Least reads per element for which a copy of distant rows pays."""
    crowded_reads: int = 512
    """The same, times the rows that share a cache set, if these evict each other."""
    computed_reads: int = 32
    """Least reads per element for which half precision is converted in a copy."""
    transposed_reads: int = 8
    """Least reads per element for which a copy in the order of the lanes pays, if both operands vary along them."""
    strided_reads: int = 128
    """Least reads per element for which a copy with contiguous terms pays."""
    sliding_updates: int = 700
    """Multiply-adds of a register tile that are unrolled: more take long to compile."""
    near_result_bytes: int = 256
    """Bytes between lanes of a result up to which the elements between them are stored together with them."""

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

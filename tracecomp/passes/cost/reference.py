"""Costs that decide bits: the same numbers on every processor, whatever the actual machine has or measures.

The order in which a sum is added is part of a program's meaning (docs/numerics.md, Order of sums). A cost decides it
for the layout of images, Winograd's form, sums in lanes or in order, and terms of padding that are left out. The cost
is always the reference machine's: a core of an AMD EPYC 9004 (Zen 4). A number here may change only as the meaning of
an operator may: results of every program that it affects change in the last digits. Numbers that decide speed alone are
in ``passes/cost/tuning.py`` and ``passes/cost/machine.py``.
"""

from __future__ import annotations

from tracecomp.passes.cost.machine import Machine

REFERENCE = Machine(
    vector_bytes=64, registers=32, l1_bytes=32 << 10, l2_bytes=1 << 20, l3_bytes=32 << 20, in_halves=True
)
"""The machine for which choices that decide bits are made. Its lanes are only a number in a formula."""

# ---- choice of the lanes' variable (passes/contraction)

NOMINAL_LANES = 16
"""Lanes of a vector: one register of float32."""

SHUFFLED_STRIDE = 4
"""Largest stride in elements of lanes that are loaded together and shuffled: one line contains several vectors of
them."""

PACKED_CYCLES = 8.0
"""Cycles of a vector of strided elements, packed once into a panel by moving blocks of elements."""

TRANSPOSED_CYCLES = 4.0
"""Cycles of a vector of strided elements with contiguous terms, transposed in registers in square blocks."""

MAX_TRANSPOSED_ROWS = 8
"""Most rows of a tile for which blocks are transposed at each use: a quarter of the registers, which hold totals."""

SHUFFLED_CYCLES = 3.0
"""Cycles of a packed vector whose elements are at most ``SHUFFLED_STRIDE`` apart."""

STORE_CYCLES = 20.0
"""Cycles of storing a vector of results element by element, spread over the terms of a sum."""

FAR_CYCLES = 0.15
"""Additional cycles per term if rows of a tile read separate lines, too many to be prefetched."""

FAR_LINES = 1024
"""Most lines, one for each term, with which prefetching keeps up; more lines evict each other from the cache."""

FAR_APART_BYTES = 2048
"""Bytes between terms above which their lines are soon in different pages."""

AS_GOOD = 1.05
"""Factor by which lanes with contiguous results may cost more than lanes with strided results.

Blocks of rows share lines of strided results, for which threads contend.
"""

NEAR_STORES = 4
"""Largest stride in elements of results that count as contiguous: they share lines."""

SLIDING_TERMS = 64
"""Most terms of a window that a register tile unrolls: more would take long to compile."""

UPDATES_ASKED = 4
"""Multiply-adds per condition above which leaving out terms of padding is cheaper than adding them."""

# ---- layout of images (passes/graph/layout.py)

VECTOR_BYTES = 64
"""Bytes of a vector, for how well rows of pixels or channels fill vectors."""

BORDER_BYTES_PER_CYCLE = 3.2
"""Bytes per cycle of a transpose between channels first and channels last, read and written once."""

STRIDED_EFFICIENCY = 0.6
"""Share of the multipliers that gradients of weights keep busy with channels first: vectors are strided loads."""

FMA_LATENCY = 4.0
"""Cycles from one multiply-add to the next one of the same sum."""

CHANNELS_FIRST_EFFICIENCY = 0.95
"""Share of the multipliers that a convolution with channels first keeps busy: one more broadcast for each weight."""

PACKING_VECTORS = 4.0
"""Cost of packing a vector of strided elements, in vectors of multiply-adds: once for a group's filters."""

# ---- Winograd's form (passes/winograd/selection.py)

MOST_PLACES = 64
"""Most products of a tile: more lose more accuracy, and the tile no longer fits the first cache."""

LONGEST_PIECE = 3
"""Places of a window that are transformed together: longer forms need factors that round, such as thirds."""

LEAST_SPEED = 1.1
"""Least estimated gain for which the form is used: a tenth justifies the loss of accuracy."""

TRANSFORM_COST = 5.5
"""Time of transforming an element, in multiply-adds."""

TRANSFORM_COST_FAR = 20.0
"""The same for transformed weights that do not fit the caches."""

NOMINAL_IMAGES = 8
"""Number of images for which a convolution's form is chosen, so that an image's result does not depend on the batch
size.

A small batch: with fewer, the transform of weights would dominate; with many, it would vanish."""

FAR_WEIGHTS = 3 << 20
"""Elements of transformed weights that do not fit the caches: 12 MB of float32."""

GRADIENT_PARTS = 8
"""Parts at most that a gradient of weights is summed in, for threads to share."""

GRADIENT_PART_TILES = 64
"""Least tiles per part: fewer do not justify a separate total."""

GRADIENT_PARTS_WEIGHTS = 1 << 15
"""Groups times channels times filters times parts at most: totals of 2 MB of float32 at 16 places."""

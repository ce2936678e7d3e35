"""What decides bits: the same numbers on every processor, whatever the machine at hand has or measures.

The order in which a sum is added is part of a program's meaning (docs/numerics.md, Order of sums). Where a cost decides
it (the layout of images, Winograd's form, sums in lanes or in order, terms of padding that are left out), the cost is
that of one machine, the reference: a core of an AMD EPYC 9004 (Zen 4). A number here may be changed only as the
meaning of an operator may be: results of every program that it touches change in the last digits. Numbers that change
how fast a program is and nothing else are in ``passes/cost/tuning.py`` and ``passes/cost/machine.py``.
"""

from __future__ import annotations

from tracecomp.passes.cost.machine import Machine

REFERENCE = Machine(
    vector_bytes=64, registers=32, l1_bytes=32 << 10, l2_bytes=1 << 20, l3_bytes=32 << 20, in_halves=True
)
"""The machine for which choices that decide bits are made. Its lanes are a number in a formula: any machine has 64."""

# ---- which variable of a result is the lanes (passes/contraction)

NOMINAL_LANES = 16
"""Lanes of a vector: one register of float32."""

SHUFFLED_STRIDE = 4
"""Elements up to so far apart are loaded together and shuffled, as one line holds several vectors of them."""

PACKED_CYCLES = 8.0
"""Cycles of a vector whose elements lie apart: made once, in a packed panel, by moving squares of elements."""

TURNED_CYCLES = 4.0
"""Cycles of a vector whose elements lie apart, but whose terms lie together: made of squares turned in registers."""

TURNED_ROWS = 8
"""Rows up to which each square is turned for its use: a quarter of the registers for totals."""

SHUFFLED_CYCLES = 3.0
"""Cycles of a packed vector whose elements lie up to ``SHUFFLED_STRIDE`` apart."""

STORE_CYCLES = 20.0
"""Cycles of storing a vector of results element by element, spread over the terms of a sum."""

FAR_CYCLES = 0.15
"""Cycles more where rows of a tile read a line of their own for every term, out of too many to be fetched ahead."""

FAR_LINES = 1024
"""With so many lines, one for each term, fetching ahead keeps up; with more they push each other out of the cache."""

FAR_APART_BYTES = 2048
"""Bytes between terms from which on their lines are in different pages soon."""

AS_GOOD = 1.05
"""A choice of lanes whose results are stored side by side may cost so much more than one whose results are apart.

Blocks of rows have lines of those in common, for which threads contend.
"""

NEAR_STORES = 4
"""Elements up to so far apart are still side by side: they share lines."""

SLIDING_TERMS = 64
"""Terms of a window up to which a register tile is written out term by term: more would be long to compile."""

UPDATES_ASKED = 4
"""Multiply-adds for each condition from which on leaving out terms of padding costs less than adding them."""

# ---- layout of images (passes/graph/layout.py)

VECTOR_BYTES = 64
"""Bytes of a vector, for how well rows of pixels or channels fill vectors."""

BORDER_BYTES_PER_CYCLE = 3.2
"""Bytes per cycle of a transpose between channels first and channels last, read and written once."""

STRIDED_EFFICIENCY = 0.6
"""Share of the multipliers that gradients of weights keep busy channels first: vectors are loaded with a stride."""

CHANNELS_FIRST_EFFICIENCY = 0.95
"""Share of the multipliers that a convolution channels first keeps busy: a broadcast more for each weight."""

PACKING_VECTORS = 4.0
"""What packing a vector whose elements lie apart costs, in vectors of multiply-adds: once for a group's filters."""

# ---- Winograd's form (passes/winograd/selection.py)

MOST_PLACES = 64
"""Products for a tile up to which the form is used: more round more, and a tile no longer fits the first cache."""

LONGEST_PIECE = 3
"""Places of a window that are transformed together: longer forms need factors that round, such as thirds."""

LEAST_SPEED = 1.1
"""Estimated gain from which on the form is used: a tenth pays for what is lost in accuracy."""

TRANSFORM_COST = 5.5
"""Multiply-adds that transforming an element takes the time of."""

TRANSFORM_COST_FAR = 20.0
"""The same for weights that leave the caches once they are transformed."""

NOMINAL_IMAGES = 8
"""Images for which a convolution's form is chosen, so that an image's result does not depend on how many there are.

A small batch: fewer would charge one image with every transform of weights, many with next to none."""

FAR_WEIGHTS = 3 << 20
"""Transformed weights that leave the caches: 12 MB of float32."""

GRADIENT_PARTS = 8
"""Parts at most that a gradient of weights is summed in, for threads to share."""

GRADIENT_PART_TILES = 64
"""Tiles of a part at least: fewer are not worth a total of their own."""

GRADIENT_PARTS_WEIGHTS = 1 << 15
"""Groups times channels times filters times parts at most: totals of 2 MB of float32 at 16 places."""

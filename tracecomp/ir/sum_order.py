"""The order in which a reduction adds, determined by the operand's shape and the reduced axes alone
(``docs/numerics.md``).

Neighbouring axes that are all reduced or all kept are a *run*. A reduced innermost run is summed in lanes of partial
sums; long reductions have stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from tracecomp.ir.types import Shape

ROW_LONG = 1 << 18
"""Elements of a row above which it is split: shorter ones are summed before a second thread would start. Softmax and
norms of them, even of a large vocabulary, stay one kernel."""
COLUMN_LONG = 1024
"""Rows of a column above which it is split. Shorter ones stay in a cache for a second statistic, such as a variance,
which needs the mean."""
RUNS_LONG = 16384
"""Elements of separate runs above which the innermost run is summed first."""
ROW_BLOCK = 8192
"""Most elements of a block of a row: 32 KB of float32, a first cache."""
COLUMN_BLOCK = 256
"""Most rows of a block of columns."""
EXACT_REDUCTIONS = ("max", "min", "any", "all")
"""Reductions whose results do not depend on the order."""
SPLIT = ("sum", *EXACT_REDUCTIONS)
"""Reductions that are split into stages: sums, in a defined order, and the exact ones."""


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring axes that are all reduced or all kept, as one extent."""

    extent: int
    reduced: bool
    axes: tuple[int, ...] = ()


def runs_of(shape: Shape, axes: Sequence[int]) -> list[Run]:
    """The runs of ``shape``, without reduced axes of size 1, and without kept ones that follow no reduced axis.

    A kept axis of size 1 counts like a larger one, so that a batch of one has the order of a larger batch.
    """
    runs: list[Run] = []
    for axis, extent in enumerate(shape):
        reduced = axis in axes
        if extent == 1 and (reduced or not runs):
            continue
        if runs and runs[-1].reduced == reduced:
            runs[-1] = Run(runs[-1].extent * extent, reduced, (*runs[-1].axes, axis))
        else:
            runs.append(Run(extent, reduced, (axis,)))
    return runs


def lanes_for(extent: int) -> int:
    """Partial sums of a reduction whose innermost axes are reduced, and have ``extent`` elements as one run."""
    # Below 9 elements halving the lanes costs more than the sum in order. 16 and 64 are part of the order of
    # sums (docs/numerics.md, 3): the same on every machine, however wide its registers are.
    return 1 if extent < 9 else 16 if extent < 64 else 64


def stage(runs: Sequence[Run]) -> int | None:
    """The run that is reduced first, in part or whole; None if one stage is enough."""
    reduced = [d for d, r in enumerate(runs) if r.reduced]
    if not reduced:
        return None
    count = prod(r.extent for r in runs if r.reduced)
    inner = reduced[-1]
    if len(reduced) > 1:
        # Separate runs: the innermost first, as it is contiguous.
        return inner if count > RUNS_LONG else None
    # Rows or columns: lanes are kept axes, and blocks of rows provide work for threads.
    return inner if count > (ROW_LONG if inner == len(runs) - 1 else COLUMN_LONG) else None


def is_order_kept(shape: Shape, axes: Sequence[int], dims: Sequence[int]) -> bool:
    """Whether a sum along ``axes`` of a value of ``shape`` adds in the same order with its axis d at position
    ``dims[d]``.

    Kept axes matter only where they separate reduced ones.
    """
    places = [dims[d] for d in axes if shape[d] != 1]
    if any(a > b for a, b in pairwise(places)):
        return False
    moved = [0] * len(shape)
    for extent, place in zip(shape, dims, strict=True):
        moved[place] = extent
    return _plan(shape, axes) == _plan(tuple(moved), sorted(dims[d] for d in axes))


def _plan(shape: Shape, axes: Sequence[int]) -> tuple[int, ...]:
    """The parts of the order other than that of the reduced axes: the reduced runs, and whether the last one is
    innermost."""
    runs = runs_of(shape, axes)
    reduced = [r.extent for r in runs if r.reduced]
    inside = bool(reduced) and runs[-1].reduced
    if stage(runs) is None and (not inside or lanes_for(reduced[-1]) == 1):
        # Added in sequence, wherever the runs are.
        return ()
    return (inside, *reduced)

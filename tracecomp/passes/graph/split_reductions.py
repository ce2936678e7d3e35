"""Long reductions in two stages. The order of a sum is part of its meaning, and it is settled here.

* Long rows become blocks of a row, which threads can share, then a sum of blocks.
* Columns of many rows become blocks of rows, then a sum of blocks.
* Reductions over separate runs of axes, when long, take the innermost run first.

Only the extents that are reduced decide, so a row's result does not depend on how many rows there are. ``max``,
``min``, ``any`` and ``all`` do not depend on order and are cut the same way. See ``docs/numerics.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tracecomp.ir.graph import Graph, Node, Value
from tracecomp.ir.types import Shape
from tracecomp.passes.graph.reductions import EXACT_REDUCTIONS
from tracecomp.passes.graph.rewrite import Application, Replacement, Rewriter, Rules, has_node, rewrite
from tracecomp.passes.steps import Log
from tracecomp_runtime.open_sizes import block_length

ROW_LONG = 1 << 18
"""Elements of a row from which on it is cut: shorter ones are summed before a second thread has come, and softmax and
norms of them, of a large vocabulary too, stay one kernel."""
ROW_BLOCK = 8192
"""Elements of a block of a row at most: 32 KB of float32, a first cache."""

COLUMN_LONG = 1024
"""Rows of a column from which on it is cut. Shorter ones stay in a cache for a second statistic, as a variance is one
that needs the mean."""
COLUMN_BLOCK = 256
"""Rows of a block of columns at most."""

RUNS_LONG = 16384
"""Elements of separate runs from which on the innermost run is summed first."""

SPLIT = ("sum", *EXACT_REDUCTIONS)
"""Reductions that are cut: sums, in an order of their own, and those that any order leaves as they are."""


def split_reductions(graph: Graph, log: Log) -> Graph:
    """``graph`` with its long reductions in two stages."""
    if not has_node(graph, _is_long):
        return graph
    rules = Rules()
    rules.on(*SPLIT)(reduction_in_stages)
    return rewrite(graph, rules, log, "split_reductions")


def _is_long(node: Node) -> bool:
    return node.op.name in SPLIT and stage(runs_of(node.inputs[0].shape, node.attrs["axes"])) is not None


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring axes that are all reduced or all kept, as one extent."""

    extent: int
    reduced: bool


def runs_of(shape: Shape, axes: tuple[int, ...]) -> list[Run]:
    """The runs of ``shape``, without reduced axes of size 1, and without kept ones that follow no reduced axis.

    A kept axis of size 1 counts where it stands, as it would with more: one of a batch has the order of many.
    """
    runs: list[Run] = []
    for axis, extent in enumerate(shape):
        reduced = axis in axes
        if extent == 1 and (reduced or not runs):
            continue
        if runs and runs[-1].reduced == reduced:
            runs[-1] = Run(runs[-1].extent * extent, reduced)
        else:
            runs.append(Run(extent, reduced))
    return runs


def reduction_in_stages(g: Rewriter, a: Application) -> Replacement:
    """sum(x: [100000], (0,)) -> sum(sum(reshape(x, [20,5000]), (1,)), (0,))"""
    x, axes = a.inputs[0], a.attrs["axes"]
    runs = runs_of(x.shape, axes)
    at = stage(runs)
    if at is None or x.type.numel == 0:
        return None
    flat = g.reshape(x, tuple(r.extent for r in runs))
    if sum(r.reduced for r in runs) > 1:
        first = g.apply(a.op.name, flat, axes=(at,))
        rest = [r.reduced for d, r in enumerate(runs) if d != at]
        total = g.apply(a.op.name, first, axes=tuple(d for d, reduced in enumerate(rest) if reduced))
    else:
        total = _in_blocks(g, a.op.name, flat, at, COLUMN_BLOCK if at < len(runs) - 1 else ROW_BLOCK)
    return g.reshape(total, a.type.shape)


def stage(runs: list[Run]) -> int | None:
    """The run that is reduced first, in part or whole; None where one stage will do."""
    reduced = [d for d, r in enumerate(runs) if r.reduced]
    if not reduced:
        return None
    count = prod(r.extent for r in runs if r.reduced)
    inner = reduced[-1]
    if len(reduced) > 1:
        # Separate runs: the innermost first, as it is contiguous.
        return inner if count > RUNS_LONG else None
    # Rows, or columns: there lanes go along kept axes, and blocks of rows give threads work.
    return inner if count > (ROW_LONG if inner == len(runs) - 1 else COLUMN_LONG) else None


def _in_blocks(g: Rewriter, op: str, x: Value, axis: int, target: int) -> Value:
    """Axis ``axis`` of ``x`` reduced block by block; what does not fill a block is one more, shorter block."""
    extent = x.shape[axis]
    block = block_length(extent, target)
    whole = extent - extent % block
    main = _reduced_blocks(g, op, _part(g, x, axis, 0, whole), axis, block)
    if whole == extent:
        return g.apply(op, main, axes=(axis,))
    # The rest is one shorter block.
    tail = _reduced_blocks(g, op, _part(g, x, axis, whole, extent), axis, extent - whole)
    return g.apply(op, g.apply("concat", main, tail, axis=axis), axes=(axis,))


def _part(g: Rewriter, x: Value, axis: int, start: int, stop: int) -> Value:
    starts = tuple(start if d == axis else 0 for d in range(x.ndim))
    stops = tuple(stop if d == axis else n for d, n in enumerate(x.shape))
    return x if stop - start == x.shape[axis] else g.apply("slice", x, starts=starts, stops=stops, steps=(1,) * x.ndim)


def _reduced_blocks(g: Rewriter, op: str, x: Value, axis: int, block: int) -> Value:
    """One value per block of ``axis``."""
    shape = (*x.shape[:axis], x.shape[axis] // block, block, *x.shape[axis + 1 :])
    return g.apply(op, g.reshape(x, shape), axes=(axis + 1,))

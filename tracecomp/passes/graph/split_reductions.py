"""Split long reductions into two stages, and sums along strided rows into lanes.

The order of a sum is part of its meaning (``ir/sum_order.py``); this pass makes it explicit in the graph.

* Long rows become blocks of a row, which threads can share, then a sum of blocks.
* Columns of many rows become blocks of rows, then a sum of blocks.
* Reductions over separate runs of axes, when long, reduce the innermost run first.

* For a row whose elements are strided, the lanes become an axis: their sums are columns.

Only the reduced extents decide, so a row's result does not depend on how many rows there are. ``max``, ``min``, ``any``
and ``all`` do not depend on order and are split the same way. See ``docs/numerics.md``.
"""

from __future__ import annotations

from math import prod

from tracecomp.ir.graph import Graph, Node, Value
from tracecomp.ir.sum_order import COLUMN_BLOCK, ROW_BLOCK, SPLIT, lanes_for, runs_of, stage
from tracecomp.ir.types import compute_dtype
from tracecomp.passes.graph.reductions import reduction_of_permute, split_of_permute
from tracecomp.passes.graph.rewrite import Application, Replacement, Rewriter, Rules, has_node, made_by, rewrite
from tracecomp.passes.steps import Log
from tracecomp_runtime.open_sizes import block_length

HALVED = {64: 8, 16: 4, 8: 8, 4: 4}
"""Number of lanes to the number of them that one kernel combines."""
_COMBINE = {"sum": "add", "prod": "mul"}


def split_reductions(graph: Graph, log: Log) -> Graph:
    """``graph`` with its long reductions in two stages."""
    if not has_node(graph, _is_long):
        return graph
    rules = Rules()
    rules.on(*SPLIT)(reduction_in_stages)
    rules.on("sum", "prod")(reduction_of_permute)
    rules.on("sum", "prod")(reduction_lane_by_lane)
    rules.on("reshape")(split_of_permute)
    return rewrite(graph, rules, log, "split_reductions")


def _is_long(node: Node) -> bool:
    if node.op.name in SPLIT and stage(runs_of(node.inputs[0].shape, node.attrs["axes"])) is not None:
        return True
    return node.op.name in ("sum", "prod") and made_by(node.inputs[0], "permute") is not None


def reduction_in_stages(g: Rewriter, a: Application) -> Replacement:
    """sum(x: [100000], (0,)) -> sum(sum(reshape(x, [20,5000]), (1,)), (0,))"""
    x, axes = a.inputs[0], a.attrs["axes"]
    runs = runs_of(x.shape, axes)
    at = stage(runs)
    if at is None or x.type.numel == 0:
        return None
    if sum(r.reduced for r in runs) > 1:
        inner = runs[at].axes
        first = g.apply(a.op.name, x, axes=inner)
        # The inner run was last, but for kept axes and reduced ones of size 1.
        return g.apply(a.op.name, first, axes=tuple(d - sum(e < d for e in inner) for d in axes if d not in inner))
    flat = g.reshape(x, tuple(r.extent for r in runs))
    total = _in_blocks(g, a.op.name, flat, at, COLUMN_BLOCK if at < len(runs) - 1 else ROW_BLOCK)
    return g.reshape(total, a.type.shape)


def reduction_lane_by_lane(g: Rewriter, a: Application) -> Replacement:
    """sum(permute(x: [8,144,32], [0,2,1]), (2,)) -> sums of 64 lanes down columns of x, then the sum of the lanes"""
    permute = made_by(a.inputs[0], "permute")
    runs = runs_of(a.inputs[0].shape, a.attrs["axes"])
    if permute is None or not runs or not runs[-1].reduced or stage(runs) is not None:
        return None
    x, dims, extent = permute.inputs[0], permute.attrs["dims"], runs[-1].extent
    lanes, places = lanes_for(extent), [dims[d] for d in a.attrs["axes"] if a.inputs[0].shape[d] != 1]
    at, length = dims[runs[-1].axes[0]], len(runs[-1].axes)
    # Rows of one step have no columns to add; other orders of the axes would be strided reads.
    if extent <= lanes or places != sorted(places) or places[-length:] != list(range(at, at + length)):
        return None
    before, behind, steps = x.shape[:at], x.shape[at + length :], -(-extent // lanes)
    shape = (*before, steps, lanes, *behind)
    over = (*(d for d in sorted(dims[d] for d in a.attrs["axes"]) if d < at), at)
    # Rows are innermost already, or columns are so long that they are split.
    if prod(behind) == 1 or stage(runs_of(shape, over)) is not None:
        return None
    # Partial sums are rounded to the result's type once, at the end.
    wide = compute_dtype(x.dtype)
    exact = x if wide is x.dtype else g.apply("cast", x, dtype=wide)
    filled = _filled(g, a.op.name, g.reshape(exact, (*before, extent, *behind)), at, steps * lanes)
    columns = g.apply(a.op.name, g.reshape(filled, shape), axes=over)
    total = _halved(g, a.op.name, columns, at - sum(d < at for d in over), lanes)
    # The remaining axes of x, and their order in the result; reduced ones of size 1 are dropped.
    left = [d for d in range(x.ndim) if d not in places]
    kept = [d for d in dims if dims.index(d) not in a.attrs["axes"]]
    order = [*kept, *(d for d in left if d not in kept)]
    total = g.reshape(g.apply("permute", total, dims=tuple(left.index(d) for d in order)), a.type.shape)
    return total if wide is x.dtype else g.apply("cast", total, dtype=x.dtype)


def _halved(g: Rewriter, op: str, x: Value, axis: int, lanes: int) -> Value:
    """The lanes along ``axis`` combined by halving: some at a time, in one expression."""
    while lanes > 1:
        some = HALVED[lanes]
        lanes //= some
        x = g.reshape(x, (*x.shape[:axis], some, lanes, *x.shape[axis + 1 :]))
        parts = [_part(g, x, axis, n, n + 1) for n in range(some)]
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [g.apply(_COMBINE[op], a, b) for a, b in zip(parts[:half], parts[half:], strict=True)]
        x = g.reshape(parts[0], (*x.shape[:axis], lanes, *x.shape[axis + 2 :]))
    return g.reshape(x, (*x.shape[:axis], *x.shape[axis + 1 :]))


def _filled(g: Rewriter, op: str, x: Value, axis: int, length: int) -> Value:
    """Extend ``x`` along ``axis`` to ``length`` elements with the reduction's identity."""
    more = length - x.shape[axis]
    if not more:
        return x
    none = (0,) * x.ndim
    high = tuple(more if d == axis else 0 for d in range(x.ndim))
    return g.apply("pad", x, low=none, high=high, interior=none, value=1.0 if op == "prod" else 0.0)


def _in_blocks(g: Rewriter, op: str, x: Value, axis: int, target: int) -> Value:
    """Axis ``axis`` of ``x`` reduced block by block; the remainder is one more, shorter block."""
    extent = x.shape[axis]
    block = block_length(extent, target)
    whole = extent - extent % block
    main = _reduced_blocks(g, op, _part(g, x, axis, 0, whole), axis, block)
    if whole == extent:
        return g.apply(op, main, axes=(axis,))
    # The remainder is one shorter block.
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

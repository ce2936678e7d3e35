"""Long reductions in two stages. The order of a sum is part of its meaning, and it is settled here, by shape alone.

* Few rows of many elements become blocks of a row, which threads can share, then a sum of blocks.
* Columns of many rows become blocks of rows, then a sum of blocks. Shorter columns stay whole where one statistic of
  them needs another, as a variance the mean: they are read twice, and the second time from a cache.
* Reductions over separate runs of axes, when long, take the innermost run first.

``max``, ``min``, ``any`` and ``all`` do not depend on order and are cut the same way. See ``docs/numerics.md``.
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

LONG = 16384
"""Reductions over more elements are cut."""

ROWS_ENOUGH = 16
"""With this many rows, rows are whole: they keep all threads busy, and softmax and norms stay one kernel."""

ROW_BLOCK = 8192
"""Elements of a block of a row at most: 32 KB of float32, a first cache."""
COLUMN_LONG = 512
"""Rows of a column from which on it is cut."""
COLUMN_LONG_IN_STEPS = 1024
"""The same for columns of which one statistic needs another."""

COLUMN_LONG_ALTOGETHER = 65536
"""Elements of all columns from which on they are cut: fewer are summed before a second thread has come."""
COLUMN_BLOCK = 256
"""Rows of a block of columns at most."""

SPLIT = ("sum", *EXACT_REDUCTIONS)

Statistics = tuple[Shape, tuple[int, ...]]
"""What reductions over the same axes of one shape have in common."""


def split_reductions(graph: Graph, log: Log) -> Graph:
    """``graph`` with its long reductions in two stages."""
    if not has_node(graph, _is_long):
        return graph
    rules = Rules()
    rules.on(*SPLIT)(_Splitter(in_steps(graph)).reduction_in_stages)
    return rewrite(graph, rules, log, "split_reductions")


def _is_long(node: Node) -> bool:
    return node.op.name in SPLIT and stage(runs_of(node.inputs[0].shape, node.attrs["axes"]), COLUMN_LONG) is not None


def in_steps(graph: Graph) -> set[Statistics]:
    """Of ``graph`` and its regions, those of which one needs another, by elementwise operators and views alone."""
    found: set[Statistics] = set()
    needs: dict[Value, frozenset[Statistics]] = {}
    for node in graph.live_nodes():
        for region in (v for v in node.attrs.values() if isinstance(v, Graph)):
            # Bodies have statistics of their own.
            found |= in_steps(region)
        before = frozenset[Statistics]().union(*(needs.get(v, ()) for v in node.inputs))
        if node.op.name in SPLIT:
            own = (node.inputs[0].shape, node.attrs["axes"])
            # The same statistic of the same shape was needed on the way: mean, then variance.
            found |= before & {own}
            before |= {own}
        # Other operators break the chain: what follows reads other elements.
        elif node.op.kind not in ("elementwise", "view"):
            continue
        if before:
            needs.update((v, before) for v in node.outputs)
    return found


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring axes that are all reduced or all kept, as one extent."""

    extent: int
    reduced: bool


def runs_of(shape: Shape, axes: tuple[int, ...]) -> list[Run]:
    """The runs of ``shape``, axes of size 1 left out."""
    runs: list[Run] = []
    for axis, extent in enumerate(shape):
        if extent == 1:
            continue
        if runs and runs[-1].reduced == (axis in axes):
            runs[-1] = Run(runs[-1].extent * extent, runs[-1].reduced)
        else:
            runs.append(Run(extent, axis in axes))
    return runs


class _Splitter:
    """Cuts reductions, knowing which stay whole for others."""

    def __init__(self, in_steps: set[Statistics]) -> None:
        self._in_steps = in_steps

    def reduction_in_stages(self, g: Rewriter, a: Application) -> Replacement:
        """sum(x: [100000], (0,)) -> sum(sum(reshape(x, [20,5000]), (1,)), (0,))"""
        x, axes = a.inputs[0], a.attrs["axes"]
        runs = runs_of(x.shape, axes)
        at = stage(runs, COLUMN_LONG_IN_STEPS if (x.shape, axes) in self._in_steps else COLUMN_LONG)
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


def stage(runs: list[Run], column_long: int) -> int | None:
    """The run that is reduced first, in part or whole; None where one stage will do."""
    reduced = [d for d, r in enumerate(runs) if r.reduced]
    if not reduced:
        return None
    count = prod(r.extent for r in runs if r.reduced)
    rows = prod(r.extent for r in runs if not r.reduced)
    inner = reduced[-1]
    if len(reduced) > 1:
        # Separate runs: the innermost first, as it is contiguous.
        return inner if count > LONG else None
    if inner == len(runs) - 1:
        # Many rows keep threads busy as they are.
        return inner if count > LONG and rows < ROWS_ENOUGH else None
    # Columns: lanes go along kept axes, and blocks of rows give threads work.
    return inner if count > column_long and count * rows > COLUMN_LONG_ALTOGETHER else None


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

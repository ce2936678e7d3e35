"""Sums down the columns of memory that no cache holds: a few rows at a time, for all columns of a wide block.

Memory is then read in runs as long as a block. The block's totals stay in cache, and each continues from the previous
rows, term by term in the same order. Bits therefore do not depend on the block size.
"""

from __future__ import annotations

from dataclasses import replace

from tracecomp.ir.index import Index, Var, index
from tracecomp.ir.loop_copy import Copier
from tracecomp.ir.loops import Accumulate, Buffer, Let, Load, Local, Loop, Read, Stmt, Store, expressions
from tracecomp.passes.cost.machine import Machine
from tracecomp.passes.nests.loop_nest import Nest, ReductionPass
from tracecomp.passes.schedule.k_blocking import KBlocks
from tracecomp.passes.schedule.nest_schedules import ColumnSchedule
from tracecomp.passes.schedule.tiling import loops, parallel_loops, strip


def streams_columns(nest: Nest, vector: Var, chunk: int, machine: Machine) -> bool:
    """Whether chunks of columns, one after the other, would read parts of rows from memory that no cache holds."""
    # Nothing before and one body after: each column is one sum of one pass, whose rows can be grouped freely.
    if not nest.reduced or nest.scratch or len(nest.items) != 3:
        return False
    before, one_pass, _ = nest.items
    if before or not isinstance(one_pass, ReductionPass) or not one_pass.accs:
        return False
    loads = [x for x in expressions(one_pass.body) if isinstance(x, Load) and x.offset.coefficient(vector) == 1]
    # Larger than the second cache, and at predictable positions: data-dependent rows are fetched line by line in any
    # case.
    far = any(x.buffer.size * x.dtype.itemsize > machine.l2_bytes and not x.offset.is_computed for x in loads)
    return far and vector.extent > chunk and nest.reduced[-1].extent >= machine.tuning.column_rows


def column_schedule(nest: Nest, vector: Var, width: int, threads: str, machine: Machine) -> ColumnSchedule:
    """Choose the blocks for a nest."""
    # If there are outer variables, threads share those, and blocks inside are in order.
    kind = "serial" if len(nest.outer) > 1 else threads
    return ColumnSchedule(
        vector, width, _width(nest, vector, width, kind, machine), machine.tuning.column_rows, threads
    )


def column_sums(nest: Nest, schedule: ColumnSchedule) -> tuple[Stmt, ...]:
    """The nest by blocks of columns, in chunks of lanes."""
    vector = schedule.vector
    others = [v for v in nest.outer if v != vector]
    kind = "serial" if others else schedule.threads
    body: list[Stmt] = []
    cut = KBlocks((), vector, schedule.block, ())
    # Two pieces at most: whole blocks, and the narrower rest.
    for n, (counter, begin, column) in enumerate(cut.pieces()):
        mapping, suffix = {vector: begin + index(column)}, f"_{column.name}{n or ''}"
        block = _block(nest, column, schedule.width, schedule.rows_at_once, mapping, suffix)
        # A single block needs no loop: its counter is 0.
        one = counter.extent == 1
        body.extend(Copier({counter: Index()}).stmts(block) if one else loops(kind, [counter], block))
    return parallel_loops(others, tuple(body), schedule.threads)


def _width(nest: Nest, vector: Var, chunk: int, kind: str, machine: Machine) -> int:
    """Columns of a block: all if their totals fit, fewer if threads share blocks."""
    one_pass, tuning = next(item for item in nest.items if isinstance(item, ReductionPass)), machine.tuning
    # Totals and the rows that are read share the first cache; this is the least number of blocks.
    blocks = -(-vector.extent * sum(a.dtype.itemsize for a in one_pass.accs) // tuning.column_totals_bytes)
    if kind != "serial":
        # Threads need separate blocks, but none narrower than a page: shorter runs defeat the hardware prefetcher.
        blocks = max(blocks, vector.extent * one_pass.accs[0].dtype.itemsize // tuning.column_run_bytes)
    # Equal blocks, each a whole number of chunks.
    return min(-(-vector.extent // (blocks * chunk)) * chunk, vector.extent)


def _block(nest: Nest, column: Var, chunk: int, rows: int, mapping: dict[Var, Index], suffix: str) -> tuple[Stmt, ...]:
    """Return loops over all rows of a block with columns ``column``, ``rows`` at a time."""
    _, one_pass, after = nest.items
    assert isinstance(one_pass, ReductionPass) and not isinstance(after, ReductionPass)
    at = index(column)
    # Totals live in memory between groups of rows; ``going_on`` starts from them instead of from zero. The order of
    # terms is the same.
    totals = {a: Load(Buffer(f"{a.name}{suffix}", a.dtype, column.extent), at) for a in one_pass.accs}
    going_on = tuple(replace(a, init=total) for a, total in totals.items())
    *outer, row = nest.reduced

    def each(stmts: list[Stmt], suffix: str) -> tuple[Stmt, ...]:
        return strip(column, chunk, Copier(mapping, suffix).stmts(stmts))

    body: list[Stmt] = []
    for n, (number, begin, place) in enumerate(KBlocks((), row, rows, ()).pieces()):
        terms = Copier({row: begin + index(place)}).stmts(one_pass.body)
        # Each group of rows loads the totals once, adds its rows in order, and stores them.
        left = [Store(t.buffer, at, Read(a.name, a.dtype, frozenset(nest.outer))) for a, t in totals.items()]
        some = each([Accumulate(going_on, (Loop("serial", place, terms),)), *left], f"{suffix}_{place.name}{n or ''}")
        body.extend(loops("serial", [number], some))
    return (
        *(Local(t.buffer) for t in totals.values()),
        *each([Store(t.buffer, at, a.init) for a, t in totals.items()], f"{suffix}s"),
        *loops("serial", outer, tuple(body)),
        *each([*(Let(a.name, t) for a, t in totals.items()), *after], f"{suffix}e"),
    )

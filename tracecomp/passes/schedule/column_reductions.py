"""Sums down the columns of memory that no near cache holds: a few rows at a time, for all columns of a wide block.

Memory is then read in runs as long as a block. The block's totals stay in cache, and each continues from the previous
rows, term by term in the same order. Bits therefore do not depend on the block size. Several variables may count the
columns, where an operand is the same for some of them: the mean of a channel, for example.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tracecomp.ir.index import Index, Var, index
from tracecomp.ir.loop_copy import Copier
from tracecomp.ir.loops import Accumulate, Buffer, Let, Load, Local, Loop, Read, Stmt, Store, expressions, walk
from tracecomp.passes.cost.machine import Machine
from tracecomp.passes.nests.loop_nest import Nest, ReductionPass
from tracecomp.passes.schedule.k_blocking import KBlocks
from tracecomp.passes.schedule.nest_schedules import ColumnSchedule
from tracecomp.passes.schedule.tiling import loops, parallel_loops, strip


def streams_columns(nest: Nest, vector: Var, chunk: int, machine: Machine) -> bool:
    """Whether chunks of columns, one after the other, would read parts of rows from memory that no near cache holds."""
    # Values of the column before and one body after: each column is a sum of one pass, whose rows are grouped freely.
    if not nest.reduced or nest.scratch or len(nest.items) != 3:
        return False
    before, one_pass, _ = nest.items
    if not isinstance(one_pass, ReductionPass) or not one_pass.accs or not _are_values(before):
        return False
    names = columns(nest, vector)
    # Hardware fetches ahead within a page. Shorter parts of rows come slowly from the second cache, too.
    short = len(names) > 1 and vector.extent * one_pass.accs[0].dtype.itemsize < machine.tuning.column_run_bytes
    near = machine.l1_bytes if short else machine.l2_bytes
    # At predictable positions: data-dependent rows are fetched line by line in any case.
    far = any(x.buffer.size * x.dtype.itemsize > near and not x.offset.is_computed for x in _moving(nest, vector))
    wide = prod(v.extent for v in names) > chunk
    return far and wide and nest.reduced[-1].extent >= machine.tuning.column_rows


def _are_values(item: ReductionPass | list[Stmt]) -> bool:
    return isinstance(item, list) and all(isinstance(x, Let) for x in item)


def columns(nest: Nest, vector: Var) -> tuple[Var, ...]:
    """The variables that run through the columns of a row, outermost first and ``vector`` last."""
    names, extent = [vector], vector.extent
    loads = _moving(nest, vector)
    others = [v for v in nest.outer if v != vector]
    while found := next((v for v in others if any(x.offset.coefficient(v) == extent for x in loads)), None):
        names.insert(0, found)
        others.remove(found)
        extent *= found.extent
    return tuple(names)


def _moving(nest: Nest, vector: Var) -> list[Load]:
    """The loads along ``vector``."""
    _, one_pass, _ = nest.items
    assert isinstance(one_pass, ReductionPass)
    return [x for x in expressions(one_pass.body) if isinstance(x, Load) and x.offset.coefficient(vector) == 1]


def _streams(nest: Nest, vector: Var) -> int:
    """How many buffers are read or written along ``vector`` in each row."""
    _, one_pass, _ = nest.items
    assert isinstance(one_pass, ReductionPass)
    stores = [s for s in walk(tuple(one_pass.body)) if isinstance(s, Store) and s.offset.coefficient(vector) == 1]
    moved: list[Load | Store] = [*_moving(nest, vector), *stores]
    return len({x.buffer for x in moved if any(x.offset.coefficient(v) for v in nest.reduced)})


def column_schedule(nest: Nest, vector: Var, chunk: int, threads: str, machine: Machine) -> ColumnSchedule:
    """Choose the blocks for a nest; chunks of ``chunk`` lanes fill the registers with totals."""
    names = columns(nest, vector)
    # Half the width: a block's totals and some rows are both in registers. Short runs have few rows.
    width = chunk // 2 if len(names) == 1 else chunk
    # If there are other outer variables, threads share those, and blocks inside are in order.
    kind = "serial" if len(nest.outer) > len(names) else threads
    # Rows whose distance is a power of two share a set of the cache: together they may not exceed its ways.
    rows = max(machine.tuning.column_rows // _streams(nest, vector), 1)
    return ColumnSchedule(vector, width, _block_size(nest, names, width, kind, machine), rows, threads)


def column_sums(nest: Nest, schedule: ColumnSchedule) -> tuple[Stmt, ...]:
    """The nest by blocks of columns, in chunks of lanes."""
    first, *inner = columns(nest, schedule.vector)
    others = [v for v in nest.outer if v not in (first, *inner)]
    kind = "serial" if others else schedule.threads
    body: list[Stmt] = []
    cut = KBlocks((), first, schedule.block // prod(v.extent for v in inner), ())
    # Two pieces at most: whole blocks, and the narrower rest.
    for n, (counter, begin, column) in enumerate(cut.pieces()):
        mapping, suffix = {first: begin + index(column)}, f"_{column.name}{n or ''}"
        block = _block(nest, (column, *inner), schedule.width, schedule.rows_at_once, mapping, suffix)
        # A single block needs no loop: its counter is 0.
        one = counter.extent == 1
        body.extend(Copier({counter: Index()}).stmts(block) if one else loops(kind, [counter], block))
    return parallel_loops(others, tuple(body), schedule.threads)


def _block_size(nest: Nest, names: tuple[Var, ...], chunk: int, kind: str, machine: Machine) -> int:
    """Columns of a block: all if their totals fit, fewer if threads share blocks."""
    one_pass, tuning = next(item for item in nest.items if isinstance(item, ReductionPass)), machine.tuning
    first, unit = names[0], prod(v.extent for v in names[1:])
    whole = first.extent * unit
    # Totals and the rows that are read share the first cache; this is the least number of blocks.
    blocks = -(-whole * sum(a.dtype.itemsize for a in one_pass.accs) // tuning.column_totals_bytes)
    if kind != "serial":
        # Threads need separate blocks, but none narrower than a page: shorter runs defeat the hardware prefetcher.
        blocks = max(blocks, whole * one_pass.accs[0].dtype.itemsize // tuning.column_run_bytes)
    if len(names) > 1:
        return max(first.extent // blocks, 1) * unit
    # Equal blocks, each a whole number of chunks.
    return min(-(-whole // (blocks * chunk)) * chunk, whole)


def _block(
    nest: Nest, names: tuple[Var, ...], chunk: int, rows: int, mapping: dict[Var, Index], suffix: str
) -> tuple[Stmt, ...]:
    """Return loops over all rows of a block with columns ``names``, ``rows`` at a time."""
    before, one_pass, after = nest.items
    assert isinstance(one_pass, ReductionPass) and isinstance(before, list) and isinstance(after, list)
    *between, column = names
    at, size = Index(), 1
    for v in reversed(names):
        at, size = at + index(v) * size, size * v.extent
    # Totals live in memory between groups of rows; ``going_on`` starts from them instead of from zero. The order of
    # terms is the same.
    totals = {a: Load(Buffer(f"{a.name}{suffix}", a.dtype, size), at) for a in one_pass.accs}
    going_on = tuple(replace(a, init=total) for a, total in totals.items())
    *outer, row = nest.reduced

    def each(stmts: list[Stmt], suffix: str) -> tuple[Stmt, ...]:
        return loops("serial", between, strip(column, chunk, Copier(mapping, suffix).stmts(stmts)))

    body: list[Stmt] = []
    for n, (number, begin, place) in enumerate(KBlocks((), row, rows, ()).pieces()):
        terms = Copier({row: begin + index(place)}).stmts(one_pass.body)
        # Each group of rows loads the totals once, adds its rows in order, and stores them.
        left = [Store(t.buffer, at, Read(a.name, a.dtype, frozenset(nest.outer))) for a, t in totals.items()]
        some = each(
            [*before, Accumulate(going_on, (Loop("serial", place, terms),)), *left], f"{suffix}_{place.name}{n or ''}"
        )
        body.extend(loops("serial", [number], some))
    return (
        *(Local(t.buffer) for t in totals.values()),
        *each([Store(t.buffer, at, a.init) for a, t in totals.items()], f"{suffix}s"),
        *loops("serial", outer, tuple(body)),
        *each([*before, *(Let(a.name, t) for a, t in totals.items()), *after], f"{suffix}e"),
    )

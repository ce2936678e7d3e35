"""Contractions whose results are summed one by one: in the lanes along a summed variable, or in order.

For results with nothing to tile, or where lanes along the result would be dear or half empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from tracecomp.ir.index import Index, Var, index
from tracecomp.ir.loop_copy import Copier
from tracecomp.ir.loops import Accumulate, Expr, Loop, Stmt, Update
from tracecomp.passes.cost.machine import Machine
from tracecomp.passes.cost.parallel import parallel_kind_of_products
from tracecomp.passes.cost.reference import (
    DOT_CYCLES,
    DOT_SHARED_CYCLES,
    DOT_SHUFFLE_CYCLES,
    DOT_TILED_CYCLES,
    DOT_TOTAL_CYCLES,
    LEAST_LANES,
    NOMINAL_LANES,
    SHUFFLED_STRIDE,
    TILED_RESULTS,
)
from tracecomp.passes.fusion.groups import lanes_for
from tracecomp.passes.nests.contraction_nest import ACCUMULATOR, BilinearNest, Operand, product_of
from tracecomp.passes.schedule.k_blocking import KBlocks
from tracecomp.passes.schedule.records import (
    KINDS,
    Chooser,
    ScheduleError,
    number,
    numbers,
    setting,
    variable_or_none,
    variables_of,
    with_fields,
    word,
)
from tracecomp.passes.schedule.tiling import loops, strip, tiles


@dataclass(frozen=True)
class DotSchedule:
    """Every result by itself, a tile of results at a time: they share the vectors that they multiply."""

    TITLE: ClassVar[str] = "sums one by one"

    lanes: int = setting(number, "partial sums of a result, along the last summed variable; 1: in order; decides bits")
    tile: tuple[Var, ...] = setting(variables_of, "the result's variables that a tile spans, the outer one first", ())
    heights: tuple[int, ...] = setting(numbers, "values of each of them at a time", ())
    sliding: Var | None = setting(variable_or_none, "of the tile, the one whose results share summed rows", None)
    sliding_rows: int = setting(number, "summed rows at a time then", 1)
    threads: str = setting(word(*KINDS), "who shares the loop over results", "serial")


def dot_schedule(nest: BilinearNest, in_lanes: bool, chooser: Chooser) -> DotSchedule:
    """The schedule: chosen, but for the fields that were handed in."""
    machine, given = chooser.machine, chooser.next_given()
    lanes = dot_lanes(nest.plain or nest) if in_lanes else 1
    # Registers of one result: a sum of 64 lanes takes four registers of 16 floats.
    cut = _dot_tile(nest, max(1, lanes // machine.lanes(nest.acc.dtype.itemsize)), machine)
    chosen = DotSchedule(
        lanes,
        tuple(v for v, _ in cut),
        tuple(height for _, height in cut),
        # In order there is no vector of a row to share.
        _sliding_rows(nest, cut, machine) if lanes > 1 else None,
        machine.tuning.sliding_rows,
        parallel_kind_of_products(nest.work, machine),
    )
    made = with_fields(chosen, given, {v.name: v for v in (*nest.out, *nest.reduce)})
    _check(made, chosen, nest, machine)
    chooser.made.append(made)
    return made


def _check(made: DotSchedule, chosen: DotSchedule, nest: BilinearNest, machine: Machine) -> None:
    """ScheduleError if a schedule that was written by hand does not fit, or would change results."""
    extents = [v.extent for v in made.tile]
    problems = (
        (made.lanes != chosen.lanes, f"lanes decide bits: they are {chosen.lanes}"),
        # Each check names its field; together they keep a hand-written
        # record from changing a bit or from failing later.
        (len(made.tile) > 2 or len(set(made.tile)) != len(made.tile), "tile is up to two variables"),
        (not set(made.tile) <= set(filter(nest.one_sided, nest.out)), "tile: one operand alone moves with each"),
        (len(made.heights) != len(made.tile), "heights: one for each variable of the tile"),
        (any(not 0 < h <= n for h, n in zip(made.heights, extents, strict=False)), "heights: 1 to the extent"),
        (made.sliding not in (None, chosen.sliding), "sliding can be left out, not chosen"),
        (made.sliding is not None and made.heights != chosen.heights, "sliding needs the tile that was chosen"),
        (made.sliding_rows < 1, "sliding_rows is 1 at least"),
        # Spilled totals would be slow but right; far more would take minutes to compile.
        (prod(made.heights) > 4 * machine.registers, "heights: far more results than registers hold"),
    )
    for wrong, why in problems:
        if wrong:
            raise ScheduleError(f"{DotSchedule.TITLE}: {why}")


def dot_form(nest: BilinearNest, schedule: DotSchedule) -> tuple[Stmt, ...]:
    """The loops of a contraction whose results are summed one by one, a tile of them at a time."""
    lanes, sliding = schedule.lanes, schedule.sliding
    cut = list(zip(schedule.tile, schedule.heights, strict=True))
    content = _one_by_one(nest, lanes) if sliding is None else _by_rows(nest, sliding, lanes, schedule.sliding_rows)
    # Variables that move both operands: results along them share nothing,
    # so they are loops around the tile, for threads.
    shared = [v for v in nest.out if not nest.one_sided(v)]
    cut = [c for c in cut if c[0] != sliding]
    # The inner tile variable first, then plain loops, then the outer one: loops are made from the inside out.
    for var, height in cut[1:]:
        content = tiles(var, height, content, suffix="f")
    for var in reversed([v for v in nest.out if v not in (sliding, *shared) and all(v != c for c, _ in cut)]):
        content = (Loop("serial", var, content),)
    for var, height in cut[:1]:
        # The outer tile is what threads share, unless there are batches outside of it.
        content = tiles(var, height, content, "serial" if shared else schedule.threads)
    return loops(schedule.threads, shared[:1], loops("serial", shared[1:], content))


def dot_lanes(nest: BilinearNest) -> int:
    """How many lanes sum each result. A tile of many results keeps the machine busy with one vector for each."""
    if not nest.reduce or nest.reduce[-1].extent < LEAST_LANES:
        return 1
    # Results that share vectors, on both sides: a tile of them keeps the multipliers busy with 16 lanes each.
    one, other = (v.extent if v else 1 for v in _sides(nest))
    tiled = min(one, other) > 1 and one * other >= TILED_RESULTS
    # At least the nominal lanes: a short sum in a few lanes leaves the
    # rest of a register empty, and its order is fixed.
    lanes = lanes_for(max(nest.reduce[-1].extent, NOMINAL_LANES))
    return min(lanes, NOMINAL_LANES) if tiled else lanes


def _one_by_one(nest: BilinearNest, lanes: int) -> tuple[Stmt, ...]:
    """One result: a sum over everything."""
    body: tuple[Stmt, ...] = (*nest.lhs.stmts, *nest.rhs.stmts, nest.update())
    if nest.reduce:
        last = nest.reduce[-1]
        # Elements go to partial sum k mod lanes, in any number of registers.
        body = strip(last, lanes, body) if lanes > 1 else (Loop("serial", last, body),)
        body = loops("serial", nest.reduce[:-1], body)
    return (Accumulate((nest.accumulator(lanes),), body), *nest.epilogue)


def _sliding_rows(nest: BilinearNest, cut: list[tuple[Var, int]], machine: Machine) -> Var | None:
    """The tile's variable along which an operand is read like along the summed rows, so that results share rows."""
    if len(nest.reduce) < 2 or nest.reduce[-1].extent > machine.tuning.sliding_lanes:
        return None
    row = nest.reduce[-2]
    for var, height in cut:
        # The shared operand slides: a step along ``var`` is a whole number of steps along summed rows.
        one, other = (nest.lhs, nest.rhs) if nest.lhs.depends(var) else (nest.rhs, nest.lhs)
        # The whole extent, as the results along it are written out.
        if _rows_apart(one, row, var) and not other.depends(var) and height == var.extent:
            return var
    return None


def _rows_apart(operand: Operand, row: Var, sliding: Var) -> int:
    """How many places along ``sliding`` lead from one summed row to the next; 0 if results share no rows."""
    step, each = operand.stride(row), operand.stride(sliding)
    # Stride quotient: how many results further the same row is read. 0 if
    # it is no whole number or beyond the last result.
    return step // each if step and each and step % each == 0 and 0 < step // each < sliding.extent else 0


def _by_rows(nest: BilinearNest, sliding: Var, lanes: int, at_once: int) -> tuple[Stmt, ...]:
    """All results along ``sliding``: each row of the operand that they share is loaded once for several rows of sums.

    Every sum adds its rows in order, as one by one.
    """
    *outer, row, last = nest.reduce
    lane = Var(f"{last.name}v", last.extent)
    # Each result has names and an accumulator of its own, written out.
    results = [Copier({sliding: Index((), t)}, f"_{t}") for t in range(sliding.extent)]
    sums = [s for c in results for s in c.stmts([Accumulate((nest.accumulator(lanes),), ())])]
    body: tuple[Stmt, ...] = ()
    # Rows are added in order, a few at a time, for all results; each sum sees
    # its rows in the order in which one by one would.
    for counter, begin, place in KBlocks((), row, min(at_once, row.extent), ()).pieces():
        copier = Copier({row: begin, last: index(lane)}, f"_{place.extent}")
        rows = copier.stmts(_rows(nest, sliding, place.extent))
        body += loops("serial", [counter], (Loop("vector", lane, rows),))
    accs = tuple(a for s in sums if isinstance(s, Accumulate) for a in s.accs)
    return (Accumulate(accs, loops("serial", outer, body)), *(s for c in results for s in c.stmts(nest.epilogue)))


def _rows(nest: BilinearNest, sliding: Var, count: int) -> list[Stmt]:
    """The terms of ``count`` rows, by the row of the shared operand that they read."""
    row = nest.reduce[-2]
    shared_left = nest.lhs.depends(sliding)
    shared, own = (nest.lhs, nest.rhs) if shared_left else (nest.rhs, nest.lhs)
    apart = _rows_apart(shared, row, sliding)
    body: list[Stmt] = []
    mine: list[Expr] = []
    # Rows of the shared operand, in the order in which they lie; each is loaded once.
    for at in range(apart * (count - 1) + sliding.extent):
        # The other operand's row n is first needed where result 0 reads it.
        if at % apart == 0 and at // apart < count:
            copier = Copier({row: index(row) + at // apart}, f"_own{at}")
            body.extend(copier.stmts(own.stmts))
            mine.append(copier.expr(own.expr))
        # Result t reads this row as its own row number (at - t) / apart, where that is whole and among those at hand.
        readers = [(t, (at - t) // apart) for t in range(at % apart, min(at + 1, sliding.extent), apart)]
        readers = [(t, n) for t, n in readers if n < count]
        if not readers:
            continue
        first, place = readers[0]
        copier = Copier({row: index(row) + place, sliding: Index((), first)}, f"_at{at}")
        body.extend(copier.stmts(shared.stmts))
        read = copier.expr(shared.expr)
        for t, n in readers:
            body.append(Update(f"{ACCUMULATOR}_{t}", (read, mine[n]) if shared_left else (mine[n], read)))
    return body


def _dot_tile(nest: BilinearNest, registers: int, machine: Machine) -> list[tuple[Var, int]]:
    """The output variables that a tile of results spans, the one to loop over outside first, and how far it goes.

    One of each operand if possible, so that every loaded vector is used several times. ``registers``: of one result.
    """
    # Two sides: a tile then shares vectors of both.
    two = [v for v in _sides(nest) if v is not None]
    if len(two) < 2:
        # Else the two longest variables of any side.
        two = sorted(filter(nest.one_sided, nest.out), key=lambda v: v.extent)[-2:]
    # The longer one outside, so that the inner loop's rest is the smaller.
    two = sorted(two, key=lambda v: -v.extent)
    if len(two) < 2:
        # One variable: four results keep enough additions in flight.
        return [(v, min(4, v.extent)) for v in two]
    apart = _sides(nest)[0] is not None and _sides(nest)[1] is not None

    def cycles(a: int, b: int) -> float:
        # Loads of a tile: one for each row and each column, or, of one side,
        # one for each result and one that they share.
        loads = a + b if apart else a * b + 1
        covered = -(-two[0].extent // a) * -(-two[1].extent // b)
        # One cycle for each multiply-add or load, whichever are more, and a
        # tenth for what each row adds outside of the loop.
        return covered * (registers * max(a * b, loads) + 0.1 * (a + b))

    fitting = [
        (a, b)
        for a in range(1, min(two[0].extent, 12) + 1)
        for b in range(1, min(two[1].extent, 12) + 1)
        # All results of the tile in registers, one for a load, and two to spare.
        if (a * b + 1) * registers + 2 <= machine.registers
    ]
    a, b = min(fitting, key=lambda ab: cycles(*ab), default=(1, 1))
    return [(two[0], a), (two[1], b)]


def dot_cost(nest: BilinearNest) -> float:
    # In cycles for a vector of terms of one result; compared with the cost of lanes along results (tile_choice.py).
    if not nest.reduce:
        return float("inf")
    last = nest.reduce[-1]
    strides = [o.stride(last) for o in (nest.lhs, nest.rhs)]
    # Vectors of a summed row have to be loads and shuffles; and fewer terms than five leave lanes empty.
    if not all(s is not None and 0 <= s <= SHUFFLED_STRIDE for s in strides) or last.extent < LEAST_LANES:
        return float("inf")
    # With two sides, a tile multiplies vectors that are loaded for many results.
    two_sided = all(v is not None and v.extent > 2 for v in _sides(nest))
    shared = product_of(filter(nest.one_sided, nest.out)) >= TILED_RESULTS  # many results share one operand's vectors
    # Adding up the lanes comes once for a result, so it is spread over the vectors of its terms.
    vectors = product_of(nest.reduce) / NOMINAL_LANES
    apart = DOT_SHUFFLE_CYCLES * sum(s not in (0, 1) for s in strides)
    cycles = DOT_TILED_CYCLES if two_sided else DOT_SHARED_CYCLES if shared else DOT_CYCLES
    # Lanes beyond the extent compute nothing.
    return (cycles + apart + DOT_TOTAL_CYCLES / vectors) / filled(last.extent)


def _sides(nest: BilinearNest) -> tuple[Var | None, Var | None]:
    """The longest output variables that only the left operand, and that only the right one, moves with.

    Of equally long ones that along which the operand's elements lie closest.
    """

    def longest(one: Operand, other: Operand) -> Var | None:
        alone = [v for v in nest.out if one.depends(v) and not other.depends(v)]
        # Of equally long ones the nearer: its rows are in cache together.
        return max(alone, key=lambda v: (v.extent, -abs(one.stride(v) or 0)), default=None)

    return longest(nest.lhs, nest.rhs), longest(nest.rhs, nest.lhs)


def filled(extent: int) -> float:
    return extent / (-(-extent // NOMINAL_LANES) * NOMINAL_LANES)

"""Schedule a nest: choose the SIMD lanes, chunks and remainders, and the loop that threads share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf, prod
from typing import TypeVar

from tracecomp.codegen.kernels.transpose import MIN_TRANSPOSED_EXTENT
from tracecomp.ir.index import Computed, Index, Var
from tracecomp.ir.loop_copy import Copier
from tracecomp.ir.loops import Accumulate, Let, Load, Local, Loop, Stmt, Store, expressions
from tracecomp.passes.cost.machine import Machine
from tracecomp.passes.cost.parallel import parallel_kind
from tracecomp.passes.cost.reference import SHUFFLED_STRIDE
from tracecomp.passes.cost.scalar_cost import MOVING_COST, stmts_cost
from tracecomp.passes.nests.loop_nest import Nest, ReductionPass
from tracecomp.passes.nests.loop_vars import merge_vars, merged, replaced, split, wanted_split
from tracecomp.passes.nests.peeling import part_bodies, parts_of
from tracecomp.passes.schedule.column_reductions import column_schedule, column_sums, columns, streams_columns
from tracecomp.passes.schedule.interleave import with_interleaved_stores
from tracecomp.passes.schedule.nest_schedules import (
    ColumnSchedule,
    LaneSchedule,
    MapSchedule,
    RowSchedule,
    TransposeSchedule,
)
from tracecomp.passes.schedule.nontemporal import marked, marking, streamed
from tracecomp.passes.schedule.records import Chooser, ScheduleError, with_fields
from tracecomp.passes.schedule.tiling import chunks, in_squares, loops, one_after_another, parallel_loops, strip, tiles
from tracecomp.passes.schedule.transposes import interleaved, mirrored, transpose_schedule, transposed, transposed_pair


def schedule_nest(nest: Nest, chooser: Chooser) -> tuple[Stmt, ...]:
    """Return the scheduled loops of a nest."""
    machine = chooser.machine
    # Interleaved stores first, as they add a variable for lanes. Joining next, so that fewer and longer variables are
    # judged. Non-temporal stores last, on final offsets.
    split_nests = list(_splits(with_interleaved_stores(nest), machine))
    nest = streamed(_joined_outer(split_nests[-1]), machine)
    if any(v.extent == 0 for v in nest.outer):
        return ()
    threads = parallel_kind(_work(nest, machine), machine)
    # Partial sums decide: with them lanes have to go along the row, without them along kept variables.
    if nest.reduced and nest.lanes > 1:
        rows = RowSchedule(_rows_at_once(nest, machine), machine.lanes(4), threads)
        return _along_rows(nest, _handed_in(rows, nest, chooser))
    # Parts of a peeled loop are scheduled separately, as their accesses differ, and put under one outer loop again.
    parts = _parts(nest) or _parts_before_splits(split_nests[-2::-1], machine)
    return _together(s for part in parts or [nest] for s in _map(part, threads, chooser))


def _parts_before_splits(nests: Sequence[Nest], machine: Machine) -> list[Nest]:
    """Parts of the first of ``nests`` that has some: a later split hides conditions on the variable that it splits.

    A part decides most of the divisions for which the variable was split.
    """
    parts = next((found for nest in nests if (found := _parts(nest))), [])
    return [streamed(_joined_outer([*_splits(part, machine)][-1]), machine) for part in parts]


def _map(nest: Nest, threads: str, chooser: Chooser) -> tuple[Stmt, ...]:
    """Vectorize over row variables: the first schedule that is legal, or the user's."""
    # A user's schedule may have another form than the best; it is used if the nest permits that form.
    given, ways = chooser.peek(), _ways(nest, threads, chooser.machine)
    nest, schedule = first = next(ways)
    if given is not None:
        nest, schedule = next((way for way in (first, *ways) if given.title == way[1].TITLE), first)
    schedule = _handed_in(schedule, nest, chooser)
    if isinstance(schedule, TransposeSchedule):
        return transposed(marked(nest, schedule.nontemporal), schedule)
    if isinstance(schedule, ColumnSchedule):
        return column_sums(nest, schedule)
    return _across_rows(marked(nest, schedule.nontemporal), schedule)


def _ways(nest: Nest, threads: str, machine: Machine) -> Iterator[tuple[Nest, MapSchedule]]:
    """Yield the legal schedules of a nest, the best first, and the nest in the form that each applies to."""
    nontemporal = marking(nest)
    # A nest may be a transpose directly, with its interleaved pair as one variable, or mirrored; use the first that
    # fits.
    for variant in (nest, interleaved(nest), mirrored(nest)):
        pair = transposed_pair(variant)
        if pair is not None:
            yield variant, transpose_schedule(variant, *pair, nontemporal, threads, machine)
            break
    vector = _vector_row(nest, machine)
    width = _chunk(nest, vector, machine)
    if vector is not None and streams_columns(nest, vector, width, machine):
        yield nest, column_schedule(nest, vector, width, threads, machine)
    others, square = tuple(v for v in nest.outer if v != vector), _transposed(nest, vector, machine)
    width = square or width  # one vector of lanes: each lane reads a separate line
    yield nest, LaneSchedule(vector, width, others, square, nontemporal, threads)


S = TypeVar("S", RowSchedule, MapSchedule)


def _handed_in(chosen: S, nest: Nest, chooser: Chooser) -> S:
    """Return the chosen schedule with the user's fields, which have to fit."""
    variables = {v.name: v for v in (*nest.outer, *nest.reduced)}
    made = with_fields(chosen, chooser.next_given(), variables)
    # Checked before loops are built: a schedule may change speed only.
    for wrong, why in _problems(made, chosen, nest):
        if wrong:
            raise ScheduleError(f"{made.TITLE}: {why}")
    chooser.made.append(made)
    return made


def _problems(made: RowSchedule | MapSchedule, chosen: RowSchedule | MapSchedule, nest: Nest) -> list[tuple[bool, str]]:
    """Yield possible errors of a schedule written by hand, each with whether it occurs."""
    if isinstance(made, RowSchedule):
        rows = nest.outer[-1].extent if nest.outer else 1
        return [
            (not 0 < made.rows_at_once <= rows, f"rows_at_once must be 1 to {rows}"),
            # A kept row is one buffer; several rows at once would overwrite each other's.
            (made.rows_at_once > 1 and bool(nest.scratch), "rows_at_once must be 1: the row is kept in memory"),
            (made.split_from < 2, "split_from must be at least 2"),
        ]
    if isinstance(made, LaneSchedule):
        others = {v for v in nest.outer if v != made.vector}
        named = set(made.order) == others and len(made.order) == len(others)
        return [
            # Lanes along a summed variable would change the order of the sum.
            (made.vector is not None and made.vector not in nest.outer, "vector must be a variable that is not summed"),
            (made.width < 1, "width must be at least 1"),
            (not named, f"order must list {' '.join(v.name for v in nest.outer if v != made.vector)}"),
        ]
    if isinstance(made, ColumnSchedule):
        names = columns(nest, made.vector) if made.vector in nest.outer else ()
        unit = prod(v.extent for v in names[1:])
        return [
            (not names, "vector must be a variable that is not summed"),
            (
                not 0 < made.width <= made.block <= prod(v.extent for v in names),
                "width must be 1 to block, and block at most the number of columns",
            ),
            (made.block % unit > 0, f"block must be a multiple of {unit}"),
            (not 0 < made.rows_at_once <= nest.reduced[-1].extent, "rows_at_once must be 1 to the number of rows"),
        ]
    assert isinstance(chosen, TransposeSchedule)
    return [
        # Other variables have no unit stride: blocks could not be loaded as vectors.
        ((made.load, made.store) != (chosen.load, chosen.store), "load and store cannot be changed"),
        (not 0 < made.width <= made.load.extent, "width must be 1 to the size of load"),
        (not 0 < made.height <= made.store.extent, "height must be 1 to the size of store"),
    ]


def _together(body: Iterable[Stmt]) -> tuple[Stmt, ...]:
    """Join neighbouring loops over one variable, with which the parts of a nest begin."""
    result: list[Stmt] = []
    for stmt in body:
        last = result[-1] if result else None
        if isinstance(stmt, Loop) and isinstance(last, Loop) and (stmt.kind, stmt.var) == (last.kind, last.var):
            result[-1] = Loop(stmt.kind, stmt.var, _together((*last.body, *stmt.body)))
        else:
            result.append(stmt)
    return tuple(result)


def _splits(nest: Nest, machine: Machine) -> Iterator[Nest]:
    """The nest before and after each split of a variable."""
    yield nest
    # Each split removes a division; the bound guarantees termination.
    for _ in range(machine.tuning.most_splits):
        # Summed variables are split in multiples of the lanes alone, so that each element stays in its partial sum.
        found = wanted_split(nest.stmts, nest.outer) or wanted_split(nest.stmts, nest.reduced, nest.lanes)
        if found is None:
            return
        outer, inner, mapping = split(*found)
        rows = replaced(nest.outer, found[0], outer, inner)
        nest = nest.mapped(mapping, rows, replaced(nest.reduced, found[0], outer, inner))
        yield nest


def _parts(nest: Nest) -> list[Nest]:
    """Split the nest where conditions on one of its variables change; empty if there is no such place."""
    # Passes over a row share state, which copies of a part of the row would not.
    if nest.reduced or len(nest.items) != 1 or isinstance(nest.items[0], ReductionPass):
        return []
    found = parts_of(nest.outer, nest.items[0])
    if found is None:
        return []
    var, cuts = found
    result = []
    for new, body in part_bodies(var, cuts, nest.items[0]):
        rows = [new if v == var else v for v in nest.outer]
        # A part has no conditions, so variables may join that could not before.
        result.append(_joined_outer(Nest(rows, [], [body], nest.params, nest.lanes, [])))
    return result


def _joined_outer(nest: Nest) -> Nest:
    """Join neighbouring row variables if every index steps through them as one."""
    mapping = merge_vars(nest.outer, nest.stmts)
    return nest.mapped(mapping, merged(nest.outer, mapping), nest.reduced) if mapping else nest


def _work(nest: Nest, machine: Machine) -> float:
    """Elements times cost, a measure of running time; a cost below that of moving the element counts as the move."""
    total = 1.0
    for var in (*nest.outer, *nest.reduced):
        total *= var.extent
    # Memory is the limit of cheap bodies: they take as long as moving their elements.
    return total * max(_cost(nest, machine), MOVING_COST)


def _cost(nest: Nest, machine: Machine) -> float:
    innermost = [*nest.outer, *nest.reduced][-1:]
    gathers = sum(_gathers(s, innermost) for s in nest.stmts)
    return stmts_cost(nest.stmts) + machine.tuning.gather_cost * gathers


def _gathers(stmt: Stmt, innermost: list[Var]) -> bool:
    """Whether a statement loads from run-time positions, a different one for each element."""
    if not isinstance(stmt, Let) or not isinstance(stmt.value, Load):
        return False
    # A position that does not vary along the innermost variable is one scalar load for many elements.
    computed = [atom.expr for atom, _ in stmt.value.offset.terms if isinstance(atom, Computed)]
    return any(v in innermost for expr in computed for v in expr.vars())


def _chunk(nest: Nest, vector: Var | None, machine: Machine) -> int:
    accesses = [x for x in (*nest.stmts, *expressions(nest.stmts)) if isinstance(x, Store | Load)]
    # The widest element along the lanes determines how many fit a register: 8 doubles next to 16 floats would be two
    # registers for each vector of floats.
    widest = max((x.buffer.dtype.itemsize for x in accesses if vector in x.offset.vars()), default=4)
    # Bytes and halves count as four, because they are widened to compute.
    lanes = machine.lanes(max(widest, 4))
    sums = max((len(item.accs) for item in nest.items if isinstance(item, ReductionPass)), default=0)
    cost = _cost(nest, machine)
    if sums and cost <= machine.tuning.light_cost:  # runs of each row are long enough for the memory bandwidth
        # As many chains of additions as registers allow: each addition waits some cycles
        # for the one before it, and independent ones fill these.
        return lanes * max(4, machine.registers // 2 // sums)
    # Four vectors of cheap work keep loads and arithmetic busy; long bodies need the registers.
    return lanes * (2 if cost > machine.tuning.heavy_cost else 4)


def _transposed(nest: Nest, vector: Var | None, machine: Machine) -> int:
    """Elements of blocks that sums transpose in registers, if lanes are strided and each lane's terms are
    contiguous."""
    if vector is None or not nest.reduced or nest.reduced[-1].extent < MIN_TRANSPOSED_EXTENT:
        return 0
    # Each lane would load from a separate line. Blocks are loaded along the summed variable, in whole vectors, and
    # transposed: then the lanes are rows again, in order.
    passes = [item for item in nest.items if isinstance(item, ReductionPass) and item.accs]
    loads = [x for item in passes for x in expressions(item.body) if isinstance(x, Load) and x.where is None]
    found = [x for x in loads if x.offset.coefficient(nest.reduced[-1]) == 1]
    apart = [x for x in found if abs(x.offset.coefficient(vector) or 0) > SHUFFLED_STRIDE]
    return machine.lanes(max(x.dtype.itemsize for x in apart)) if apart else 0


def _along_rows(nest: Nest, schedule: RowSchedule) -> tuple[Stmt, ...]:
    """Run lanes along the innermost reduced variable, over one row or a few short ones at a time."""
    body: list[Stmt] = [Local(b) for b in nest.scratch]
    for item in nest.items:
        if isinstance(item, ReductionPass):
            names, stmts = _split_inner(nest.reduced, item, schedule.split_from)
            # Strips of ``lanes`` elements: element k goes to partial sum k mod lanes, on every machine.
            inner = loops("serial", names[:-1], strip(names[-1], nest.lanes, stmts))
            body.extend([Accumulate(item.accs, inner)] if item.accs else inner)
        else:
            body.extend(item)
    # Threads share rows, never parts of a row: its sum has one order.
    if schedule.rows_at_once == 1:
        return parallel_loops(nest.outer, tuple(body), schedule.threads)
    *others, last = nest.outer
    result: list[Stmt] = []
    # Full tiles of rows as a loop, the remaining rows separately.
    for stmt in tiles(last, schedule.rows_at_once, body):
        result.extend(
            parallel_loops([*others, stmt.var], stmt.body, schedule.threads)
            if isinstance(stmt, Loop) and stmt.kind == "serial"
            else parallel_loops(others, (stmt,), schedule.threads)
        )
    return tuple(result)


def _split_inner(names: list[Var], one_pass: ReductionPass, least: int) -> tuple[list[Var], tuple[Stmt, ...]]:
    """Return the variables of a pass and its body: a pass without a sum may use any order, in steps of a vector or
    more."""
    body = tuple(one_pass.body)
    # Only a pass without a sum may run over the row in another order.
    found = None if one_pass.accs else wanted_split(body, names)
    if found is None or found[1] < least:
        return names, body
    outer, inner, mapping = split(*found)
    return replaced(names, found[0], outer, inner), Copier(mapping).stmts(body)


def _rows_at_once(nest: Nest, machine: Machine) -> int:
    """Choose how many rows advance together.

    Short rows mostly wait for the total of the previous pass; rows that share an operand load its vectors once.
    """
    passes = [item for item in nest.items if isinstance(item, ReductionPass)]
    # Scratch holds one row.
    if not nest.outer or nest.scratch:
        return 1
    # Registers for the partial sums of all rows in flight: half of them, the rest is for operands.
    sums = max(sum(a.lanes // machine.lanes(a.dtype.itemsize) for a in one_pass.accs) for one_pass in passes)
    itemsize = max((b.dtype.itemsize for b in nest.params.buffers.values()), default=4)
    row = prod(v.extent for v in nest.reduced) * itemsize
    for height, most in ((4, machine.tuning.four_rows_bytes), (2, machine.tuning.two_rows_bytes)):
        fits = sums * height <= machine.registers // 2 and nest.outer[-1].extent >= height
        # One pass: rows that read something in common (a weight) load it once for all. Several passes: short rows wait
        # for totals, and other rows fill the time.
        if fits and (_share(passes[0], nest.outer[-1]) if len(passes) == 1 else row <= most):
            return height
    return 1


def _share(one_pass: ReductionPass, row: Var) -> bool:
    """Whether rows read some of what the pass loads in common."""
    return any(isinstance(x, Load) and row not in x.offset.vars() for x in expressions(one_pass.body))


def _across_rows(nest: Nest, schedule: LaneSchedule) -> tuple[Stmt, ...]:
    """Run lanes over a row variable; each lane computes a separate row."""
    content: list[Stmt] = []
    for item in nest.items:
        if isinstance(item, ReductionPass):
            body, square = tuple(item.body), schedule.transposed if item.accs else 0
            inner = in_squares(nest.reduced, body, square) if square else loops("serial", nest.reduced, body)
            content.extend([Accumulate(item.accs, inner)] if item.accs else inner)
        else:
            content.extend(item)
    others, vector, threads = list(schedule.order), schedule.vector, schedule.threads
    # No kept variable at all: one element, or sums in order.
    if vector is None:
        return parallel_loops(others, (*(Local(b) for b in nest.scratch), *content), threads)
    kind = "serial" if others else threads
    parts = chunks(vector, schedule.width, content, tuple(nest.scratch))
    # Passes of a chunk run in sequence while its rows are in cache; without passes each part of the loop is shared
    # separately.
    if nest.reduced:
        return parallel_loops(others, one_after_another(kind, parts), threads)
    return parallel_loops(others, tuple(s for part in parts for s in one_after_another(kind, [part])), threads)


def _vector_row(nest: Nest, machine: Machine) -> Var | None:
    """Choose the row variable with the most unit-stride accesses for its length, minus distant ones; of equals the
    inner."""
    # A statement of a pass runs for every summed element, one outside of passes once for a row.
    often = prod(v.extent for v in nest.reduced)
    accesses = [
        (offset, weight * often if isinstance(item, ReductionPass) else weight, near)
        for item in nest.items
        for stmt in (item.body if isinstance(item, ReductionPass) else item)
        for offset, weight, near in _accesses(stmt)
    ]
    # Inner variables first: of equal scores the inner one wins, as its neighbours in memory are nearer.
    best, best_score = None, -inf
    for var in reversed(nest.outer):
        lanes = machine.lanes(4)
        # Share of lanes that have work: a variable of 17 fills two registers of 16 by half.
        filled = var.extent / (-(-var.extent // lanes) * lanes)
        strides = [(offset.coefficient(var), weight, near) for offset, weight, near in accesses]
        unit = sum(weight for stride, weight, _ in strides if stride == 1)
        flat = sum(weight for stride, weight, _ in strides if stride == 0)
        apart = sum(weight for stride, weight, near in strides if stride is None or abs(stride) > near)
        # Unit strides are vectors. A stride of 0 is one load for all lanes, worth half. Distant reads are one load for
        # each lane and count against. The 0.1 breaks ties in favour of full registers.
        score = (unit + 0.5 * flat + 0.1) * filled - 0.5 * apart
        if score > best_score:
            best, best_score = var, score
    return best


def _accesses(stmt: Stmt) -> Iterable[tuple[Index, int, int]]:
    """Offset, weight, and the largest stride of elements that are moved together."""
    if isinstance(stmt, Store):
        # A store counts twice: a scattered one writes a line for every
        # element, where a load may find its line in cache.
        yield stmt.offset, 2, 1
    if isinstance(stmt, Let) and isinstance(stmt.value, Load):
        yield stmt.value.offset, 1, SHUFFLED_STRIDE

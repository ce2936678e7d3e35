"""Scheduling a nest: which variable becomes SIMD lanes, chunks and rests, which loop is split among threads."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from math import prod

from tracecomp.ir.index import Computed, Index, Var, index
from tracecomp.ir.loops import SHARED, Accumulate, Buffer, Let, Load, Local, Loop, Stmt, Store, walk
from tracecomp.passes.cost import expr_cost
from tracecomp.passes.machine import Machine
from tracecomp.passes.nest import Nest, Sweep
from tracecomp.passes.ranges import part, parts_of
from tracecomp.passes.rename import Copier, Move
from tracecomp.passes.split_vars import merge_vars, merged, replaced, split, wanted_split
from tracecomp.passes.streaming import streamed

# Less than this takes about as long as waking a worker and its first chunk: 60 us.
PARALLEL_WORK = 1 << 21
# How much less a loop may do that workers share who are awake.
BRIEF = 8
MOVING_COST = 3.0
LIGHT_COST = 8.0
HEAVY_COST = 24.0
GATHER_COST = 12.0
MAX_SPLITS = 24
BLOCK = 16
STRIPE = 64
# How many rows at once, up to how many bytes of each.
SHORT_ROWS = ((4, 256), (2, 1024))


def sharing(work: float, least: float) -> str:
    """The kind of a loop with so much work, where from ``least`` on it pays to wake threads for it."""
    return "parallel" if work >= least else "brief" if work * BRIEF >= least else "serial"


def schedule_nest(nest: Nest, machine: Machine) -> tuple[Stmt, ...]:
    """The loops of a nest for a machine."""
    nest = streamed(_joined_rows(_split_vars(nest)))
    if any(v.extent == 0 for v in nest.rows):
        return ()
    shared = sharing(_work(nest), PARALLEL_WORK)
    if nest.inner and nest.lanes > 1:
        return _along_rows(nest, machine, shared)
    return _together(s for part in _parts(nest) or [nest] for s in _map(part, machine, shared))


def _map(nest: Nest, machine: Machine, shared: str) -> tuple[Stmt, ...]:
    """Lanes over row variables."""
    pair = _transposed_pair(nest)
    if pair is not None:
        return _transposed(nest, *pair, shared)
    vector = _vector_row(nest, machine)
    return _across_rows(nest, vector, _chunk(nest, machine), shared)


def _together(body: Iterable[Stmt]) -> tuple[Stmt, ...]:
    """Neighbouring loops over one variable, which the parts of a nest begin with, as one loop."""
    result: list[Stmt] = []
    for stmt in body:
        last = result[-1] if result else None
        if isinstance(stmt, Loop) and isinstance(last, Loop) and (stmt.kind, stmt.var) == (last.kind, last.var):
            result[-1] = Loop(stmt.kind, stmt.var, _together((*last.body, *stmt.body)))
        else:
            result.append(stmt)
    return tuple(result)


def _split_vars(nest: Nest) -> Nest:
    for _ in range(MAX_SPLITS):
        body = [s for item in nest.items for s in (item.body if isinstance(item, Sweep) else item)]
        found = wanted_split(body, nest.rows) or wanted_split(body, nest.inner, nest.lanes)
        if found is None:
            break
        outer, inner, mapping = split(*found)
        rows = replaced(nest.rows, found[0], outer, inner)
        nest = mapped(nest, mapping, rows, replaced(nest.inner, found[0], outer, inner))
    return nest


def _parts(nest: Nest) -> list[Nest]:
    """The nest cut where conditions on one of its variables change; empty when there is nothing to cut."""
    if nest.inner or len(nest.items) != 1 or isinstance(nest.items[0], Sweep):
        return []
    found = parts_of(nest.rows, nest.items[0])
    if found is None:
        return []
    var, cuts = found
    result = []
    for low, high in pairwise(cuts):
        new, body = part(var, low, high, nest.items[0])
        rows = [new if v == var else v for v in nest.rows]
        result.append(_joined_rows(Nest(rows, [], [body], nest.params, nest.lanes, [])))
    return result


def _joined_rows(nest: Nest) -> Nest:
    """Neighbouring row variables as one, wherever every index steps through them as through one."""
    body = [s for item in nest.items for s in (item.body if isinstance(item, Sweep) else item)]
    mapping = merge_vars(nest.rows, body)
    return mapped(nest, mapping, merged(nest.rows, mapping), nest.inner) if mapping else nest


def mapped(
    nest: Nest, mapping: dict[Var, Index], rows: list[Var], inner: list[Var], move: Move | None = None
) -> Nest:
    """The nest with variables substituted, and accesses redirected by ``move``."""
    copier = Copier(mapping, move=move)
    items: list[list[Stmt] | Sweep] = []
    for item in nest.items:
        if isinstance(item, Sweep):
            items.append(Sweep(item.accs, list(copier.stmts(item.body))))
        else:
            items.append(list(copier.stmts(item)))
    return Nest(rows, inner, items, nest.params, nest.lanes, nest.scratch)


def _work(nest: Nest) -> float:
    """Elements times cost, a measure of running time; one that costs less than moving it counts as moved."""
    total = 1.0
    for var in (*nest.rows, *nest.inner):
        total *= var.extent
    return total * max(_cost(nest), MOVING_COST)


def _cost(nest: Nest) -> float:
    body = [s for item in nest.items for s in (item.body if isinstance(item, Sweep) else item)]
    cost = sum(expr_cost(s.value) for s in body if isinstance(s, Let | Store)) + 0.5 * len(body)
    return cost + GATHER_COST * sum(_gathers(s, [*nest.rows, *nest.inner][-1:]) for s in body)


def _gathers(stmt: Stmt, innermost: list[Var]) -> bool:
    """Whether a statement loads from run-time positions, another one for each element."""
    if not isinstance(stmt, Let) or not isinstance(stmt.value, Load):
        return False
    computed = [atom.expr for atom, _ in stmt.value.offset.terms if isinstance(atom, Computed)]
    return any(v in innermost for expr in computed for v in expr.vars())


def _chunk(nest: Nest, machine: Machine) -> int:
    widest = max((b.dtype.itemsize for b in nest.params.buffers.values()), default=4)
    lanes = machine.lanes(max(widest, 4))
    sums = max((len(item.accs) for item in nest.items if isinstance(item, Sweep)), default=0)
    if sums and _cost(nest) <= LIGHT_COST:  # every row is read in runs long enough for the memory to keep up
        return lanes * max(4, machine.registers // 2 // sums)
    return lanes * (2 if _cost(nest) > HEAVY_COST else 4)


def _along_rows(nest: Nest, machine: Machine, shared: str) -> tuple[Stmt, ...]:
    """Lanes run along the innermost reduced variable; one row, or a few short ones, after another."""
    body: list[Stmt] = [Local(b) for b in nest.scratch]
    for item in nest.items:
        if isinstance(item, Sweep):
            inner = loops("serial", nest.inner[:-1], strip(nest.inner[-1], nest.lanes, item.body))
            body.extend([Accumulate(item.accs, inner)] if item.accs else inner)
        else:
            body.extend(item)
    height = _rows_at_once(nest, machine)
    if height == 1:
        return _parallel_loops(nest.rows, tuple(body), shared)
    *others, last = nest.rows
    counter, unit = Var(f"{last.name}c", last.extent // height), Var(f"{last.name}t", height)
    tile = Loop("tile", unit, Copier({last: index(counter) * height + index(unit)}).stmts(body))
    return _parallel_loops([*others, counter], (tile,), shared)


def _rows_at_once(nest: Nest, machine: Machine) -> int:
    """How many rows share their steps: in short ones, much of the time is waiting for the total of the sweep before."""
    sweeps = [item for item in nest.items if isinstance(item, Sweep)]
    if not nest.rows or nest.scratch or len(sweeps) < 2:
        return 1
    itemsize = max((b.dtype.itemsize for b in nest.params.buffers.values()), default=4)
    row = prod(v.extent for v in nest.inner) * itemsize
    sums = max(len(sweep.accs) for sweep in sweeps) * nest.lanes // machine.lanes(4)
    for height, most in SHORT_ROWS:
        if row <= most and nest.rows[-1].extent % height == 0 and sums * height <= machine.registers // 2:
            return height
    return 1


def _across_rows(nest: Nest, vector: Var | None, chunk: int, shared: str) -> tuple[Stmt, ...]:
    """Lanes run over a row variable; each lane does its own row."""
    content: list[Stmt] = []
    for item in nest.items:
        if isinstance(item, Sweep):
            inner = loops("serial", nest.inner, tuple(item.body))
            content.extend([Accumulate(item.accs, inner)] if item.accs else inner)
        else:
            content.extend(item)
    others = [v for v in nest.rows if v != vector]
    if vector is None:
        return _parallel_loops(others, (*(Local(b) for b in nest.scratch), *content), shared)
    kind = "serial" if others else shared
    return _parallel_loops(others, strip(vector, chunk, content, kind, tuple(nest.scratch)), shared)


def _vector_row(nest: Nest, machine: Machine) -> Var | None:
    """The row variable with the most unit-stride accesses for its length; the innermost of equals."""
    accesses: list[tuple[Index, int]] = []
    for item in nest.items:
        for stmt in item.body if isinstance(item, Sweep) else item:
            accesses.extend(_accesses(stmt))
    best, best_score = None, 0.0
    for var in reversed(nest.rows):
        lanes = machine.lanes(4)
        filled = var.extent / (-(-var.extent // lanes) * lanes)
        unit = sum(weight for offset, weight in accesses if offset.coefficient(var) == 1)
        flat = sum(weight for offset, weight in accesses if offset.coefficient(var) == 0)
        score = (unit + 0.5 * flat + 0.1) * filled
        if score > best_score:
            best, best_score = var, score
    return best


def _transposed_pair(nest: Nest) -> tuple[Var, Var] | None:
    """``(load, store)`` variables of a nest that reads along one row variable and writes along another.

    What is written along may be as short as 2 if it interleaves what is read: no gaps, so whole vectors are stored.
    """
    if nest.inner:
        return None
    stmts = [s for item in nest.items if not isinstance(item, Sweep) for s in item]
    stores = [s.offset for s in stmts if isinstance(s, Store)]
    loads = [s.value.offset for s in stmts if isinstance(s, Let) and isinstance(s.value, Load)]
    along = [v for v in nest.rows if v.extent >= 2 and all(o.coefficient(v) == 1 for o in stores)]
    for store in along:
        across = [o for o in loads if o.coefficient(store) not in (0, 1)]
        if not across or any(o.coefficient(store) == 1 for o in loads):
            continue
        for load in nest.rows:
            wide = store.extent >= 4 or all(o.coefficient(load) == store.extent for o in stores)
            if wide and load.extent >= 4 and load != store and all(o.coefficient(load) == 1 for o in across):
                return load, store
    return None


def _transposed(nest: Nest, load: Var, store: Var, shared: str) -> tuple[Stmt, ...]:
    """Square blocks: vectors along what is read, tiles along what is written.

    Blocks follow each other in stripes, or, where stores pass the caches by, as rows are read from memory.
    """
    content = [s for item in nest.items if not isinstance(item, Sweep) for s in item]
    reads = [s.value.offset for s in content if isinstance(s, Let) and isinstance(s.value, Load)]
    others = [v for v in nest.rows if v not in (load, store)]
    inside = [v for v in others if reads and all(0 < (o.coefficient(v) or 0) <= load.extent for o in reads)]
    if not inside and not any(isinstance(s, Store) and s.stream for s in content):
        kind = "serial" if others else shared
        return _parallel_loops(others, _stripes(content, load, store, kind), shared)
    outside = [v for v in others if v not in inside]
    whole, rest = divmod(store.extent, BLOCK)
    result: list[Stmt] = []
    for count, height, first in ((whole, BLOCK, 0), (1, rest, whole * BLOCK)):
        if count and height:
            number, unit = Var(f"{store.name}c", count), Var(f"{store.name}t", height)
            copier = Copier({store: index(number) * BLOCK + index(unit) + first}, "e" if first else "")
            blocks = Loop("tile", unit, copier.stmts(loops("serial", inside, strip(load, BLOCK, content))))
            result.extend(_parallel_loops([*outside, number], (blocks,), shared))
    return tuple(result)


def _stripes(content: list[Stmt], load: Var, store: Var, kind: str) -> tuple[Stmt, ...]:
    """Blocks that follow each other in stripes along what is written, so that memory is written in long runs.

    A stripe is as wide as a few cache lines, so that no line is read by two stripes but the ones between them.
    """
    whole, rest = divmod(load.extent, STRIPE)
    body: list[Stmt] = []
    if whole:
        stripe, part = Var(f"{load.name}s", whole), Var(f"{load.name}p", STRIPE)
        copied = Copier({load: index(stripe) * STRIPE + index(part)}).stmts(content)
        body.append(Loop(kind, stripe, tiles(store, BLOCK, strip(part, BLOCK, copied))))
    if rest:
        part = Var(f"{load.name}q", rest)
        copied = Copier({load: index(part) + whole * STRIPE}, "q" if whole else "").stmts(content)
        body.extend(tiles(store, BLOCK, strip(part, BLOCK, copied)))
    return tuple(body)


def tiles(
    var: Var, height: int, body: Iterable[Stmt], kind: str = "serial", suffix: str = "e"
) -> tuple[Stmt, ...]:
    """The loop over ``var`` as unrolled tiles of ``height`` and a rest, whose names end in ``suffix``."""
    body = tuple(body)
    whole, rest = divmod(var.extent, height)
    result: list[Stmt] = []
    if whole:
        counter, unit = Var(f"{var.name}c", whole), Var(f"{var.name}t", height)
        start = index(counter) * height if whole > 1 else Index()
        tile = Loop("tile", unit, Copier({var: start + index(unit)}).stmts(body))
        result.append(Loop(kind, counter, (tile,)) if whole > 1 else tile)
    if rest:
        unit = Var(f"{var.name}e", rest)
        copier = Copier({var: index(unit) + whole * height}, suffix if whole else "")
        result.append(Loop("tile", unit, copier.stmts(body)))
    return tuple(result)


def _accesses(stmt: Stmt) -> Iterable[tuple[Index, int]]:
    if isinstance(stmt, Store):
        yield stmt.offset, 2
    if isinstance(stmt, Let) and isinstance(stmt.value, Load):
        yield stmt.value.offset, 1


def strip(
    var: Var, chunk: int, body: Iterable[Stmt], kind: str = "serial", scratch: tuple[Buffer, ...] = ()
) -> tuple[Stmt, ...]:
    """The loop over ``var`` as chunks of SIMD lanes and a masked rest."""
    body = tuple(body)
    whole, rest = divmod(var.extent, chunk)
    result: list[Stmt] = []
    if whole:
        counter = Var(f"{var.name}c", whole)
        start = index(counter) * chunk if whole > 1 else Index()
        lanes = _vector_loop(Var(f"{var.name}v", chunk), var, start, body, "", scratch)
        result.extend([Loop(kind, counter, lanes)] if whole > 1 else lanes)
    if rest:
        start = Index((), whole * chunk)
        result.extend(_vector_loop(Var(f"{var.name}r", rest), var, start, body, "r" if whole else "", scratch))
    return tuple(result)


def _vector_loop(
    lane: Var, var: Var, start: Index, body: tuple[Stmt, ...], suffix: str, scratch: tuple[Buffer, ...]
) -> tuple[Stmt, ...]:
    wide = {b: Buffer(b.name + suffix, b.dtype, b.size * lane.extent) for b in scratch}
    copier = Copier({var: start + index(lane)}, suffix, _per_lane(wide, lane))
    return (*(Local(b) for b in wide.values()), Loop("vector", lane, copier.stmts(body)))


def _per_lane(wide: dict[Buffer, Buffer], lane: Var) -> Move | None:
    if not wide:
        return None

    def move(buffer: Buffer, offset: Index) -> tuple[Buffer, Index]:
        if buffer in wide:
            return wide[buffer], offset * lane.extent + index(lane)
        return buffer, offset

    return move


def loops(kind: str, names: Iterable[Var], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Loops over ``names``, the first outermost, around ``body``."""
    for var in reversed(list(names)):
        body = (Loop(kind, var, body),) if body else ()
    return body


def _parallel_loops(names: list[Var], body: tuple[Stmt, ...], shared: str) -> tuple[Stmt, ...]:
    """Nested loops over ``names``, the outermost of kind ``shared`` unless the body has a loop that threads share."""
    inside = any(isinstance(s, Loop) and s.kind in SHARED for s in walk(body))
    if not body or not names or inside or shared == "serial":
        return loops("serial", names, body)
    first, *rest = names
    if rest and first.extent < 16:
        both = Var(f"{first.name}{rest[0].name}", first.extent * rest[0].extent)
        at = index(both)
        copier = Copier({first: at // rest[0].extent, rest[0]: at % rest[0].extent})
        body = copier.stmts(loops("serial", rest[1:], body))
        return (Loop(shared, both, body),)
    return (Loop(shared, first, loops("serial", rest, body)),)



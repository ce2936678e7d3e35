"""Scheduling nests that read along one variable and write along another: square blocks, turned in registers."""

from __future__ import annotations

from collections.abc import Iterable

from tracecomp.ir.index import Index, Var, index
from tracecomp.ir.loops import Let, Load, Loop, Stmt, Store
from tracecomp.passes.nest import Nest
from tracecomp.passes.rename import Copier
from tracecomp.passes.strips import joined, loops, one_after_another, parallel_loops, strip, tiles

BLOCK = 16
STRIPE = 64
STRIPES_ENOUGH = 16
FEW_PLACES = 4


def transposed_pair(nest: Nest) -> tuple[Var, Var] | None:
    """``(load, store)`` variables of a nest that reads along one row variable and writes along another.

    What is written along may be as short as 2 if it interleaves what is read: no gaps, so whole vectors are stored.
    Few of them may also be read at the same places (zeros between elements).
    """
    if nest.inner:
        return None
    stores = [s.offset for s in nest.stmts if isinstance(s, Store)]
    loads = [s.value.offset for s in nest.stmts if isinstance(s, Let) and isinstance(s.value, Load)]
    along = [v for v in nest.rows if v.extent >= 2 and all(o.coefficient(v) == 1 for o in stores)]
    for store in along:
        if any(o.coefficient(store) == 1 for o in loads):
            continue
        for load in (v for v in nest.rows if v.extent >= 4 and v != store):
            woven = all(o.coefficient(load) == store.extent for o in stores)
            alike = woven and store.extent <= FEW_PLACES
            across = [o for o in loads if alike or o.coefficient(store) != 0]
            if across and (woven or store.extent >= 4) and all(o.coefficient(load) == 1 for o in across):
                return load, store
    return None


def interleaved(nest: Nest) -> Nest:
    """The nest with the variable of few places that it writes along joined with the one that steps over these."""
    stores = [s.offset for s in nest.stmts if isinstance(s, Store)]
    if nest.inner or not stores:
        return nest
    for short in (v for v in nest.rows if v.extent < 4 and all(o.coefficient(v) == 1 for o in stores)):
        for var in (v for v in nest.rows if v != short and all(o.coefficient(v) == short.extent for o in stores)):
            both = Var(f"{var.name}{short.name}", var.extent * short.extent)
            mapping = {var: index(both) // short.extent, short: index(both) % short.extent}
            rows = [both if v == var else v for v in nest.rows if v != short]
            return nest.mapped(mapping, rows, [])
    return nest


def transposed(nest: Nest, load: Var, store: Var, shared: str) -> tuple[Stmt, ...]:
    """Square blocks: vectors along what is read, tiles along what is written.

    Blocks follow each other in stripes, or, where stores pass the caches by, as rows are read from memory.
    """
    content = nest.stmts
    reads = [s.value.offset for s in content if isinstance(s, Let) and isinstance(s.value, Load)]
    others = [v for v in nest.rows if v not in (load, store)]
    inside = [v for v in others if reads and all(0 < (o.coefficient(v) or 0) <= load.extent for o in reads)]
    if not inside and not any(isinstance(s, Store) and s.stream for s in content):
        kind = "serial" if others else shared
        return parallel_loops(others, _stripes(content, load, store, kind), shared)
    outside = [v for v in others if v not in inside]
    whole, rest = divmod(store.extent, BLOCK)
    result: list[Stmt] = []
    for count, height, first in ((whole, BLOCK, 0), (1, rest, whole * BLOCK)):
        if count and height:
            number, unit = Var(f"{store.name}c", count), Var(f"{store.name}t", height)
            copier = Copier({store: index(number) * BLOCK + index(unit) + first}, "e" if first else "")
            blocks = Loop("tile", unit, copier.stmts(loops("serial", inside, strip(load, BLOCK, content))))
            result.extend(parallel_loops([*outside, number], (blocks,), shared))
    return tuple(result)


def _stripes(content: list[Stmt], load: Var, store: Var, kind: str) -> tuple[Stmt, ...]:
    """Blocks that follow each other in stripes along what is written, so that memory is written in long runs.

    A stripe is as wide as a few cache lines, so that no line is read by two stripes but the ones between them. Threads
    share stripes, or the blocks of few.
    """
    whole, rest = divmod(load.extent, STRIPE)
    parts: list[Loop] = []
    for count, width, first in ((whole, STRIPE, 0), (1, rest, whole * STRIPE)):
        if count and width:
            stripe, part = Var(f"{load.name}s", count), Var(f"{load.name}p", width)
            at = index(part) + first + (index(stripe) * STRIPE if count > 1 else Index())
            copied = Copier({load: at}, "q" if whole and first else "").stmts(content)
            parts.append(Loop("serial", stripe, tiles(store, BLOCK, strip(part, BLOCK, copied))))
    if kind != "serial" and whole < STRIPES_ENOUGH:
        return one_after_another(kind, [blocks for part in parts for blocks in _blocks_of(part)])
    return tuple(s for part in parts for s in one_after_another(kind, [part]))


def _blocks_of(stripes: Loop) -> Iterable[Loop]:
    """The blocks of stripes, and what is left of each, by one variable."""
    for stmt in stripes.body:
        if isinstance(stmt, Loop) and stmt.kind == "serial":
            yield joined("serial", stripes.var, stmt.var, stmt.body)
        else:
            yield Loop("serial", stripes.var, (stmt,))

"""Loops over a variable: as chunks of SIMD lanes, as unrolled tiles, nested, shared among threads.

The primitives of loop tiling.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import prod

from tracecomp.ir.index import Index, Var, computed, index, unravel
from tracecomp.ir.loop_copy import Copier, Move
from tracecomp.ir.loops import SHARED, Buffer, If, IndexValue, Local, Loop, Stmt, in_range, walk
from tracecomp.ir.pieces import pieces


def tiles(
    var: Var, height: int, body: Iterable[Stmt], kind: str = "serial", suffix: str = "e", head: Iterable[Stmt] = ()
) -> tuple[Stmt, ...]:
    """Return the loop over ``var`` as unrolled tiles of ``height`` and a remainder, whose names end in ``suffix``.

    ``head`` runs before each whole tile, with ``var`` at the tile's start.
    """
    body = tuple(body)
    result: list[Stmt] = []
    for some in pieces(var.extent, height):
        # Full pieces, and one shorter remainder: there are at most two bodies to compile.
        whole = some.length == height
        counter, unit = Var(f"{var.name}c", some.count), Var(f"{var.name}{'t' if whole else 'e'}", some.length)
        start = some.start(index(counter) if some.count > 1 else Index())
        # The remainder's names get a suffix, as one kernel contains both bodies.
        tile = Loop("tile", unit, Copier({var: start + index(unit)}, suffix if some.first else "").stmts(body))
        # A loop of one iteration would only hide its body from later steps.
        before = Copier({var: start}).stmts(head) if whole else ()
        result.extend([Loop(kind, counter, (*before, tile))] if some.count > 1 else (*before, tile))
    return tuple(result)


def in_squares(names: list[Var], body: tuple[Stmt, ...], square: int, head: Iterable[Stmt] = ()) -> tuple[Stmt, ...]:
    """Loops over summed variables, a block of terms of the last one at a time: codegen transposes contiguous
    operands. ``head`` runs before each whole block."""
    return loops("serial", names[:-1], tiles(names[-1], square, body, head=head))


def strip(var: Var, chunk: int, body: Iterable[Stmt]) -> tuple[Stmt, ...]:
    """The loop over ``var`` as chunks of SIMD lanes and a masked remainder."""
    return one_after_another("serial", chunks(var, chunk, body))


def chunks(var: Var, chunk: int, body: Iterable[Stmt], scratch: tuple[Buffer, ...] = ()) -> list[Loop]:
    """Return the loop over whole chunks of SIMD lanes, and one over the masked remainder; each lane has separate
    ``scratch``."""
    body = tuple(body)
    result: list[Loop] = []
    for some in pieces(var.extent, chunk):
        whole = some.length == chunk
        counter = Var(f"{var.name}{'c' if whole else 'd'}", some.count)
        lane = Var(f"{var.name}{'v' if whole else 'r'}", some.length)
        start = some.start(index(counter) if some.count > 1 else Index())
        lanes = _vector_loop(lane, var, start, body, "r" if some.first else "", scratch)
        # A loop even for one chunk: threads that share chunks count them by its variable.
        result.append(Loop("serial", counter, lanes))
    return result


def _vector_loop(
    lane: Var, var: Var, start: Index, body: tuple[Stmt, ...], suffix: str, scratch: tuple[Buffer, ...]
) -> tuple[Stmt, ...]:
    # Lanes run in parallel, so each needs separate scratch: element by element, lanes adjacent, so that one vector
    # access serves them all.
    wide = {b: Buffer(b.name + suffix, b.dtype, b.size * lane.extent) for b in scratch}
    copier = Copier({var: start + index(lane)}, suffix, _per_lane(wide, lane))
    # Local to the chunk: threads have separate scratch for their chunks.
    return (*(Local(b) for b in wide.values()), Loop("vector", lane, copier.stmts(body)))


def _per_lane(wide: dict[Buffer, Buffer], lane: Var) -> Move | None:
    if not wide:
        return None

    def move(buffer: Buffer, offset: Index) -> tuple[Buffer, Index]:
        if buffer in wide:
            return wide[buffer], offset * lane.extent + index(lane)
        return buffer, offset

    return move


def piece(extent: int, most: int) -> int:
    """The length of pieces of up to ``most``: equal ones, if a length above half of that divides ``extent``."""
    most = min(extent, most)
    # The largest divisor. A small one (1 for a prime extent) would be worse than a remainder with a separate loop.
    length = next(n for n in range(most, 0, -1) if extent % n == 0)
    return length if 2 * length > most else most


def loops(kind: str, names: Iterable[Var], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Loops over ``names``, the first outermost, around ``body``."""
    # From the inside out.
    for var in reversed(list(names)):
        body = (Loop(kind, var, body),) if body else ()
    return body


def around_tiles(part: Stmt, names: list[Var]) -> tuple[Stmt, ...]:
    """Loops over ``names`` around every tile that ``tiles`` built, inside its loop."""
    # Inside of the loop over tiles, so that a tile's rows are used for all
    # values of ``names`` while they are in cache.
    if isinstance(part, Loop) and part.kind == "serial":
        return (replace(part, body=loops("serial", names, part.body)),)
    return loops("serial", names, (part,))


def parallel_loops(names: list[Var], body: tuple[Stmt, ...], shared: str) -> tuple[Stmt, ...]:
    """Nested loops over ``names``, the outermost of kind ``shared`` unless the body has such a loop."""
    # Threads share one loop of a nest, and this one is chosen already.
    inside = any(isinstance(s, Loop) and s.kind in SHARED for s in walk(body))
    if not body or not names or inside or shared == "serial":
        return loops("serial", names, body)
    first, *rest = names
    # With fewer than 16 iterations threads get uneven shares: one may do half more than another. Joining the loop with
    # the next one gives enough, as flat positions.
    if rest and first.extent < 16:
        return (joined(shared, first, rest[0], loops("serial", rest[1:], body)),)
    return (Loop(shared, first, loops("serial", rest, body)),)


def positions(names: list[Var], at: Index) -> dict[Var, Index]:
    """The values of ``names`` at flat position ``at``."""
    return dict(zip(names, unravel(at, tuple(v.extent for v in names)), strict=True))


def shared_out(kind: str, names: list[Var], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Loops over ``names``; joined into one loop if threads share them."""
    total = prod(v.extent for v in names)
    # A flat loop has chunks of equal size, for any extents.
    if kind == "serial" or total < 2:
        return loops("serial", names, body)
    block = Var("block", total)
    return (Loop(kind, block, Copier(positions(names, index(block))).stmts(body)),)


def joined(kind: str, outer: Var, inner: Var, body: Iterable[Stmt]) -> Loop:
    """Two loops, one around the other, as one of their kind."""
    both = Var(f"{outer.name}{inner.name}", outer.extent * inner.extent)
    return Loop(kind, both, Copier(positions([outer, inner], index(both))).stmts(body))


def one_after_another(kind: str, parts: list[Loop]) -> tuple[Stmt, ...]:
    """Concatenate the iterations of all loops; a single loop if threads share them, so that there is one barrier."""
    # Serial loops stay separate; only for threads are they numbered together, so that there is one barrier.
    if kind == "serial":
        return tuple(s for part in parts for s in loops(kind, [part.var] if part.var.extent > 1 else [], part.body))
    block = Var("block", sum(part.var.extent for part in parts))
    body: list[Stmt] = []
    first = 0
    for part in parts:
        count = part.var.extent
        own = index(block) - first
        # Each part runs for its own range of block numbers.
        condition = in_range(own, count)
        if condition:
            # The bounds are known where the condition holds; without them the index would count as data and get a
            # check.
            own = computed(IndexValue(own), (0, count - 1))
        stmts = Copier({part.var: own if count > 1 else Index()}).stmts(part.body)
        body.extend((If(condition, stmts),) if condition else stmts)
        first += count
    # A single block needs no threads.
    return (Loop(kind, block, tuple(body)),) if block.extent > 1 else tuple(body)

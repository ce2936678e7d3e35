"""Stores of adjacent elements become stores along one more variable: vectors are interleaved in registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tracecomp.ir.index import Index, Var, index
from tracecomp.ir.loops import Buffer, Const, IndexValue, Stmt, Store
from tracecomp.ir.scalars import call
from tracecomp.ir.types import int64
from tracecomp.passes.nests.loop_nest import Nest, ReductionPass


def with_interleaved_stores(nest: Nest) -> Nest:
    """Return the nest with a row variable over the adjacent elements, if all its stores are of this kind."""
    if nest.reduced or len(nest.items) != 1 or isinstance(nest.items[0], ReductionPass):
        return nest
    body = nest.items[0]
    families: dict[tuple[Buffer, Index], list[Store]] = {}
    for stmt in body:
        if isinstance(stmt, Store):
            # Same buffer, offsets that differ by a constant: candidates for neighbours.
            families.setdefault((stmt.buffer, stmt.offset - stmt.offset.const), []).append(stmt)
    stores = [s for family in families.values() for s in family]
    count = len(next(iter(families.values()), ()))
    # All of the body's stores have to be of this kind, as the new variable runs around everything.
    if count < 2 or not all(_neighbours(f, count) for f in families.values()) or not _together(body, stores):
        return nest
    place = Var("w", count)
    rest = body[: -len(stores)]
    return replace(nest, outer=[*nest.outer, place], items=[[*rest, *(_selected(f, place) for f in families.values())]])


def _neighbours(stores: list[Store], count: int) -> bool:
    """Whether the stores write ``count`` adjacent elements, and different ones in every iteration."""
    stores.sort(key=lambda s: s.offset.const)
    first = stores[0].offset
    follow = [s.offset.const - first.const for s in stores] == list(range(count))
    # First elements are multiples of the count, so that stores of two iterations never overlap: interleaving reorders
    # stores.
    apart = first.const % count == 0 and all(factor % count == 0 for _, factor in first.terms)
    return follow and apart and all(s.where is None for s in stores)


def _together(body: Sequence[Stmt], stores: Sequence[Store]) -> bool:
    return all(isinstance(s, Store) for s in body[-len(stores) :])


def _selected(stores: list[Store], place: Var) -> Store:
    """Select one of the ordered ``stores`` by ``place``."""
    # A select by position, which code generation turns into a shuffle, as all positions are in one vector.
    value = stores[-1].value
    for number, store in reversed(list(enumerate(stores[:-1], 1))):
        value = call("select", call("lt", IndexValue(index(place)), Const(number, int64)), store.value, value)
    return replace(stores[0], offset=stores[0].offset + index(place), value=value)

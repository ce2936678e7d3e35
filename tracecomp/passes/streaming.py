"""Stores past the caches: of large results that no kernel reads, where they are written once and in whole lines.

An ordinary store reads the line first, and puts it where what the kernel reads could be.
"""

from __future__ import annotations

from dataclasses import replace

from tracecomp.ir.index import Index
from tracecomp.ir.loops import LINE, Buffer, Load, Stmt, Store, expressions
from tracecomp.passes.nest import Nest, Sweep


def streamed(nest: Nest) -> Nest:
    """The nest with such stores marked."""
    params = nest.params
    loaded = {x.buffer for x in expressions(_statements(nest)) if isinstance(x, Load)}
    buffers = {params.buffers[v] for v in params.large if v in params.buffers} - loaded
    if not buffers:
        return nest
    items: list[list[Stmt] | Sweep] = [
        replace(item, body=_marked(item.body, buffers)) if isinstance(item, Sweep) else _marked(item, buffers)
        for item in nest.items
    ]
    return replace(nest, items=items)


def _statements(nest: Nest) -> list[Stmt]:
    return [s for item in nest.items for s in (item.body if isinstance(item, Sweep) else item)]


def _marked(body: list[Stmt], buffers: set[Buffer]) -> list[Stmt]:
    return [replace(s, stream=True) if isinstance(s, Store) and _streams(s, buffers) else s for s in body]


def _streams(store: Store, buffers: set[Buffer]) -> bool:
    return store.buffer in buffers and store.where is None and _in_lines(store.offset, store.buffer.dtype.itemsize)


def _in_lines(offset: Index, itemsize: int) -> bool:
    """Whether memory is contiguous along one variable, from the beginning of a line on whatever the others are."""
    factors = [factor for _, factor in offset.terms]
    others = [f for f in factors if f != 1]
    return factors.count(1) == 1 and all(f * itemsize % LINE == 0 for f in (*others, offset.const))

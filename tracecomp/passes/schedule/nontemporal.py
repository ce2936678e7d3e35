"""Non-temporal stores of large results that no kernel reads, if they are written once and in whole lines.

An ordinary store reads the line first, and evicts lines that the kernel may read. Results that fit three quarters of
the last cache together with their operands stay there, unless they are written across the order of the reads: then few
lines are written at a time and many are open. Results that only just fit stay there if threads share the work: together
they fill the cache faster than memory accepts non-temporal stores.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from tracecomp.ir.index import Index
from tracecomp.ir.loops import LINE, Buffer, Load, Stmt, Store, Stream, expressions
from tracecomp.passes.cost.machine import Machine
from tracecomp.passes.nests.loop_nest import Nest, ReductionPass
from tracecomp.passes.schedule.transposes import transposed_pair


def streamed(nest: Nest, machine: Machine) -> Nest:
    """Return the nest with such stores marked."""
    params = nest.params
    loaded = {x.buffer for x in expressions(nest.stmts) if isinstance(x, Load)}
    buffers = {params.buffers[v] for v in params.large if v in params.buffers} - loaded
    # Loads of the same buffer exclude it: a line that is read again soon is wanted in cache.
    stream = _stream(_held(buffers, loaded), transposed_pair(nest) is not None, machine.l3_bytes)
    if not buffers or not stream:
        return nest
    return _with(nest, buffers, stream)


def marking(nest: Nest) -> str:
    """Return how the stores of a nest are marked, as in schedules."""
    return next((s.stream for s in nest.stmts if isinstance(s, Store) and s.stream), "no")


def marked(nest: Nest, wanted: str) -> Nest:
    """Return the nest with its stores marked otherwise, if a schedule requests it."""
    if wanted == marking(nest):
        return nest
    loaded = {x.buffer for x in expressions(nest.stmts) if isinstance(x, Load)}
    stored = {s.buffer for s in nest.stmts if isinstance(s, Store)} - loaded
    stream: Stream = "always" if wanted == "always" else "alone" if wanted == "alone" else ""
    return _with(nest, stored, stream)


def _with(nest: Nest, buffers: Set[Buffer], stream: Stream) -> Nest:
    items: list[list[Stmt] | ReductionPass] = [
        replace(i, body=_marked(i.body, buffers, stream))
        if isinstance(i, ReductionPass)
        else _marked(i, buffers, stream)
        for i in nest.items
    ]
    return replace(nest, items=items)


def _stream(held: int, transposed: bool, cache: int) -> Stream:
    # Transposed: many lines are open at once, each written in parts. They would all be fetched and kept until complete.
    if transposed or held > cache:
        return "always"
    # Three quarters: the rest of the cache is for the program's other data.
    return "alone" if 4 * held > 3 * cache else ""


def _held(results: Set[Buffer], operands: Set[Buffer]) -> int:
    """Bytes of the results, and of their operands, each counted up to the bytes written."""
    written = sum(b.size * b.dtype.itemsize for b in results)
    # An operand that is read once per result competes for the cache by as much as is written, whatever its size.
    return written + sum(min(b.size * b.dtype.itemsize, written) for b in operands)


def _marked(body: list[Stmt], buffers: Set[Buffer], stream: Stream) -> list[Stmt]:
    return [replace(s, stream=stream) if isinstance(s, Store) and _streams(s, buffers) else s for s in body]


def _streams(store: Store, buffers: Set[Buffer]) -> bool:
    # Whole lines without a mask only: a partial line makes the processor read it after all.
    return store.buffer in buffers and store.where is None and _in_lines(store.offset, store.buffer.dtype.itemsize)


def _in_lines(offset: Index, itemsize: int) -> bool:
    """Whether memory is contiguous along one variable, and starts at a line for any values of the others."""
    factors = [factor for _, factor in offset.terms]
    others = [f for f in factors if f != 1]
    # One variable of stride 1, and all other offsets on line boundaries: then each vector store fills a separate line.
    return factors.count(1) == 1 and all(f * itemsize % LINE == 0 for f in (*others, offset.const))

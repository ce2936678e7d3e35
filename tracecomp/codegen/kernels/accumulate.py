"""Accumulators as SSA values: one per element, or one per lane, combined by halving."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tracecomp.codegen.kernels import convert, operations
from tracecomp.codegen.kernels.address import tail_mask
from tracecomp.codegen.text.emitter import Emitter, Value
from tracecomp.ir.index import Var
from tracecomp.ir.loops import Acc
from tracecomp.ir.types import DType, bool_

_BETTER = {"max": "ogt", "min": "olt"}

Key = tuple[tuple[int, ...], int]
"""Which accumulator: values of the variables it was declared under, and which part of its lanes."""


@dataclass(slots=True)
class State:
    """The current values of one declared accumulator.

    ``over`` are those ``surrounding`` tile and vector variables for each of whose elements it exists once. With
    ``lane_width`` the lanes live in vectors of that width, ``parts`` of them; without, each part is one lane (or the
    only value). Vectors of a largest or smallest float pass over NaN; one more part, a mask, records where one was.
    """

    acc: Acc
    over: tuple[Var, ...]
    surrounding: frozenset[Var]
    lane_width: int
    parts: int
    values: dict[Key, Value] = field(default_factory=dict)

    @property
    def notes_nan(self) -> bool:
        return self.lane_width > 0 and self.acc.op in _BETTER and self.acc.dtype.is_floating_point


def start(e: Emitter, state: State, where: tuple[int, ...], init: Value) -> None:
    """Let all parts be ``init``."""
    for part in range(state.parts):
        state.values[where, part] = init
    # The part behind the last: a mask, not a value.
    if state.notes_nan:
        state.values[where, state.parts] = e.const("i1", 0, state.lane_width)
        # An initial total may be NaN: continuing from stored totals.
        if init.const is None:
            note_nan(e, state, where, [init])


def note_nan(e: Emitter, state: State, where: tuple[int, ...], vectors: Sequence[Value]) -> None:
    """Remember the lanes in which one of ``vectors`` is NaN."""
    key = (where, state.parts)
    # Two at a time: one comparison detects NaN in either of its operands.
    for n in range(0, len(vectors), 2):
        found = e.compare("fcmp uno", vectors[n], vectors[min(n + 1, len(vectors) - 1)])
        state.values[key] = e.binary("or", state.values[key], found)


def combine(e: Emitter, op: str, dtype: DType, current: Value, args: list[Value]) -> Value:
    """``op(current, *args)``."""
    if op == "set":
        return args[0]
    # LLVM's order for fma: the addend last.
    operands = [*args, current] if op == "fma" else [current, *args]
    return operations.emit(e, op, operands, [dtype] * len(operands), dtype)


def update_part(e: Emitter, state: State, key: Key, args: list[Value]) -> None:
    """Combine scalars (or whole elements' vectors) into lane 0 of a part."""
    acc = state.acc
    if not state.lane_width:
        state.values[key] = combine(e, acc.op, acc.dtype, state.values[key], args)
        return
    vector = state.values[key]
    # An element outside of the vector loop counts for lane 0, in the order of the statements.
    scalar = combine(e, acc.op, acc.dtype, e.lane(vector, 0), args)
    state.values[key] = e.insert(vector, scalar, 0)
    if state.notes_nan:
        note_nan(e, state, key[0], [state.values[key]])


def update_lanes(
    e: Emitter, state: State, where: tuple[int, ...], args: list[Value], chunk: int, width: int, active: int
) -> list[Value]:
    """Combine ``width`` consecutive positions, of which the first ``active`` exist, into their lanes, in order.

    Returns the vectors whose NaN the caller has to record.
    """
    acc = state.acc
    args = [e.widen(a, width) for a in args]
    if acc.lanes == 1:
        # In order: one lane after the other goes into the same sum.
        for k in range(active):
            key = (where, 0)
            scalars = [e.lane(a, k) for a in args]
            state.values[key] = combine(e, acc.op, acc.dtype, state.values[key], scalars)
        return []
    lanes = state.lane_width
    # Positions of the chunk in the row; element k belongs to partial sum k mod lanes.
    first = chunk * width
    unnoted: list[Value] = []
    for start in range(0, min(width, active), lanes):
        key = (where, ((first + start) // lanes) % state.parts)
        # Lanes beyond the chunk stay open; they are masked below.
        positions = [start + k if start + k < width else -1 for k in range(lanes)]
        pieces = args if lanes == width else [e.shuffle(a, positions) for a in args]
        current = state.values[key]
        # Lanes that do not exist keep their partial sum, NaN and -0.0 included.
        mask = tail_mask(e, lanes, min(active - start, lanes))
        # The comparison instruction ignores NaN; lanes with one are recorded once for several vectors.
        if state.notes_nan:
            piece = e.select(mask, pieces[0], current) if mask else pieces[0]
            state.values[key] = _better(e, acc.op, piece, current)
            unnoted.append(piece)
            continue
        updated = combine(e, acc.op, acc.dtype, current, pieces)
        state.values[key] = e.select(mask, updated, current) if mask else updated
    return unnoted


def _better(e: Emitter, op: str, a: Value, b: Value) -> Value:
    """The larger or smaller, ``b`` when one of them is NaN: a single instruction."""
    return e.select(e.compare(f"fcmp {_BETTER[op]}", a, b), a, b)


def total(e: Emitter, state: State, where: tuple[int, ...]) -> Value:
    """The lanes combined by halving."""
    acc = state.acc
    parts = [state.values[where, p] for p in range(state.parts)]
    # Halving: lane i with lane i + n/2, first across vectors and then within one. The
    # same order at every vector width (docs/numerics.md, 3).
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [_joined(e, state, a, b) for a, b in zip(parts[:half], parts[half:], strict=True)]
    result = parts[0]
    width = state.lane_width
    # A mask is one integer: all or any of its bits.
    if width > 1 and acc.dtype is bool_:
        bits = e.mask_bits(result)
        every = acc.op == "and"
        return e.compare("icmp eq" if every else "icmp ne", bits, e.const(bits.elem, -1 if every else 0))
    while width > 1:
        half = width // 2
        low = e.shuffle(result, list(range(half)))
        result = _joined(e, state, low, e.shuffle(result, list(range(half, width))))
        width = half
    if not state.lane_width:
        # The only value, or a single lane.
        return result
    result = e.lane(result, 0)
    # Some lane has met NaN: the result is NaN, whichever it was.
    if state.notes_nan:
        bits = e.mask_bits(state.values[where, state.parts])
        result = e.select(e.compare("icmp ne", bits, e.const(bits.elem, 0)), e.const(result.elem, math.nan), result)
    return result


def _joined(e: Emitter, state: State, a: Value, b: Value) -> Value:
    """Combine two parts, or halves of one."""
    acc = state.acc
    if state.notes_nan:
        return _better(e, acc.op, a, b)
    # Partial sums of products are added, not multiplied.
    return combine(e, "add" if acc.op == "fma" else acc.op, acc.dtype, a, [b])


def zero(e: Emitter, dtype: DType, width: int) -> Value:
    return e.widen(convert.constant(e, 0, dtype), width) if width else convert.constant(e, 0, dtype)

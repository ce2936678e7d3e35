"""Accumulators as SSA values: one per element, or one per lane, combined by halving."""

from __future__ import annotations

from dataclasses import dataclass, field

from tracecomp.codegen import convert, operations
from tracecomp.codegen.address import tail_mask
from tracecomp.codegen.emitter import Emitter, Value
from tracecomp.ir.index import Var
from tracecomp.ir.loops import Acc
from tracecomp.ir.types import DType, bool_

Key = tuple[tuple[int, ...], int]
"""Which accumulator: values of the variables it was declared under, and which part of its lanes."""


@dataclass(slots=True)
class State:
    """The current values of one declared accumulator.

    ``over`` are the tile and vector variables (of those ``surrounding`` it) that it exists once per element of. With
    ``lane_width`` the lanes live in
    vectors of that width, ``parts`` of them; without, each part is one lane (or the only value).
    """

    acc: Acc
    over: tuple[Var, ...]
    surrounding: frozenset[Var]
    lane_width: int
    parts: int
    values: dict[Key, Value] = field(default_factory=dict)


def combine(e: Emitter, op: str, dtype: DType, current: Value, args: list[Value]) -> Value:
    """``op(current, *args)``."""
    if op == "set":
        return args[0]
    operands = [*args, current] if op == "fma" else [current, *args]
    return operations.emit(e, op, operands, [dtype] * len(operands), dtype)


def update_part(e: Emitter, state: State, key: Key, args: list[Value]) -> None:
    """Combine scalars (or whole elements' vectors) into lane 0 of a part."""
    acc = state.acc
    if not state.lane_width:
        state.values[key] = combine(e, acc.op, acc.dtype, state.values[key], args)
        return
    vector = state.values[key]
    scalar = combine(e, acc.op, acc.dtype, e.lane(vector, 0), args)
    state.values[key] = e.insert(vector, scalar, 0)


def update_lanes(
    e: Emitter, state: State, where: tuple[int, ...], args: list[Value], chunk: int, width: int, active: int
) -> None:
    """Combine ``width`` consecutive positions, the first ``active`` of which exist, into their lanes, in order."""
    acc = state.acc
    args = [e.widen(a, width) for a in args]
    if acc.lanes == 1:
        for k in range(active):
            key = (where, 0)
            scalars = [e.lane(a, k) for a in args]
            state.values[key] = combine(e, acc.op, acc.dtype, state.values[key], scalars)
        return
    lanes = state.lane_width
    first = chunk * width
    for start in range(0, min(width, active), lanes):
        key = (where, ((first + start) // lanes) % state.parts)
        positions = [start + k if start + k < width else -1 for k in range(lanes)]
        pieces = args if lanes == width else [e.shuffle(a, positions) for a in args]
        current = state.values[key]
        updated = combine(e, acc.op, acc.dtype, current, pieces)
        mask = tail_mask(e, lanes, min(active - start, lanes))
        state.values[key] = e.select(mask, updated, current) if mask else updated


def total(e: Emitter, state: State, where: tuple[int, ...]) -> Value:
    """The lanes combined by halving."""
    acc = state.acc
    op = "add" if acc.op == "fma" else acc.op
    parts = [state.values[where, p] for p in range(state.parts)]
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [combine(e, op, acc.dtype, a, [b]) for a, b in zip(parts[:half], parts[half:], strict=True)]
    result = parts[0]
    width = state.lane_width
    if width > 1 and acc.dtype is bool_:
        bits = e.mask_bits(result)
        every = acc.op == "and"
        return e.compare("icmp eq" if every else "icmp ne", bits, e.const(bits.elem, -1 if every else 0))
    while width > 1:
        half = width // 2
        low = e.shuffle(result, list(range(half)))
        result = combine(e, op, acc.dtype, low, [e.shuffle(result, list(range(half, width)))])
        width = half
    return e.lane(result, 0) if state.lane_width else result


def zero(e: Emitter, dtype: DType, width: int) -> Value:
    return e.widen(convert.constant(e, 0, dtype), width) if width else convert.constant(e, 0, dtype)

"""Sequences and values that may be missing: lists, and None."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.onnx.registry import Call, Value, ints, rule


@rule("SequenceConstruct", raw=True)
def construct(call: Call, *values: Value) -> Value:
    return [*values]


@rule("SequenceEmpty", raw=True)
def empty(call: Call) -> Value:
    return []


@rule("SequenceInsert", raw=True)
def insert(call: Call, values: list[Value], new: Value, place: Value = None) -> Value:
    at = len(values) if place is None else ints(place)[0]
    at += len(values) if at < 0 else 0
    return [*values[:at], new, *values[at:]]


@rule("SequenceErase", raw=True)
def erase(call: Call, values: list[Value], place: Value = None) -> Value:
    at = -1 if place is None else ints(place)[0]
    at += len(values) if at < 0 else 0
    return [v for k, v in enumerate(values) if k != at]


@rule("SequenceAt", raw=True)
def at(call: Call, values: list[Value], place: Value) -> Value:
    return values[ints(place)[0]]


@rule("SequenceLength", raw=True)
def length(call: Call, values: list[Value]) -> Value:
    return np.array(len(values), np.int64)


@rule("SplitToSequence", static=(1,))
def split_to_sequence(call: Call, x: Tensor, sizes: Value = None) -> Value:
    axis, keep = call.attr("axis", 0), call.attr("keepdims", 1)
    if sizes is None:
        return [x.narrow(axis, k, 1) if keep else x.select(axis, k) for k in range(x.shape[axis])]
    found = ints(sizes)
    if np.ndim(sizes) == 0:
        step = found[0]
        found = [min(step, x.shape[axis] - k) for k in range(0, x.shape[axis], step)]
    return [*T.split(x, found, axis)]


@rule("ConcatFromSequence", raw=True)
def concat_from_sequence(call: Call, values: list[Value]) -> Value:
    axis = call.attr("axis")
    found = [v if isinstance(v, Tensor) else T.from_numpy(np.array(v)) for v in values]
    return T.stack(found, axis) if call.attr("new_axis", 0) else T.cat(found, axis)


@rule("SequenceMap", raw=True)
def sequence_map(call: Call, values: list[Value], *others: Value) -> Any:
    body = call.attr("body")
    runs = []
    for k, value in enumerate(values):
        beside = [v[k] if isinstance(v, list) else v for v in others]
        runs.append(call.run_body(body, [value, *beside], call))
    return tuple([run[j] for run in runs] for j in range(len(body.outputs)))


@rule("Optional", raw=True)
def optional(call: Call, value: Value = None) -> Value:
    return value


@rule("OptionalGetElement", raw=True)
def get_element(call: Call, value: Value) -> Value:
    if value is None:
        raise ValueError("OptionalGetElement: the value is missing")
    return value


@rule("OptionalHasElement", raw=True)
def has_element(call: Call, value: Value = None) -> Value:
    return np.array(value is not None)

"""Operators with bodies. A branch that depends on values is a path of a recording."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.onnx.registry import Call, Value, ints, rule


def _truth(value: Value) -> bool:
    return bool(np.asarray(value).item()) if isinstance(value, np.ndarray) else bool(value)


@rule("If", raw=True)
def if_(call: Call, condition: Value) -> Any:
    return tuple(call.run_body(call.attr("then_branch" if _truth(condition) else "else_branch"), [], call))


@rule("Loop", raw=True)
def loop(call: Call, trips: Value = None, condition: Value = None, *carried: Value) -> Any:
    """The final carried values, and the other results of each iteration, stacked."""
    body, state = call.attr("body"), [*carried]
    limit = None if trips is None else ints(trips)[0]
    going, given, turn = condition is None or _truth(condition), [], 0
    while going and (limit is None or turn < limit):
        found = call.run_body(body, [np.array(turn, np.int64), np.array(True), *state], call)
        going, state = _truth(found[0]), found[1 : 1 + len(state)]
        given.append(found[1 + len(state) :])
        turn += 1
    count = len(body.outputs) - 1 - len(state)
    names = body.outputs[1 + len(state) :]
    return (
        *state,
        *[
            _stacked([g[k] for g in given]) if given else _none(body.types.get(n))
            for k, n in zip(range(count), names, strict=True)
        ],
    )


@rule("Scan", raw=True)
def scan(call: Call, *values: Value) -> Any:
    """State first, then the scanned inputs; before version 9 for each of a batch."""
    if call.opset < 9:
        if values[0] is not None:
            raise call.refuse("lengths of sequences")
        return _batched_scan(call, values[1:])
    count, body = call.attr("num_scan_inputs"), call.attr("body")
    state, series = [*values[: len(values) - count]], values[len(values) - count :]
    axes, back = call.attr("scan_input_axes", [0] * count), call.attr("scan_input_directions", [0] * count)
    results = len(body.outputs) - len(state)
    out_axes = call.attr("scan_output_axes", [0] * results)
    out_back = call.attr("scan_output_directions", [0] * results)
    steps = series[0].shape[axes[0]]
    given = []
    for t in range(steps):
        rows = [_at(x, a, steps - 1 - t if r else t) for x, a, r in zip(series, axes, back, strict=True)]
        found = call.run_body(body, [*state, *rows], call)
        state = found[: len(state)]
        given.append(found[len(state) :])
    made = []
    for k in range(results):
        parts = [g[k] for g in given]
        if parts:
            made.append(_stacked(parts[::-1] if out_back[k] else parts, out_axes[k]))
        else:
            made.append(np.moveaxis(_none(body.types.get(body.outputs[len(state) + k])), 0, out_axes[k]))
    return (*state, *made)


def _batched_scan(call: Call, values: tuple[Value, ...]) -> Any:
    count, body = call.attr("num_scan_inputs"), call.attr("body")
    states, back = len(values) - count, call.attr("directions", [0] * count)
    runs = []
    for n in range(values[0].shape[0]):
        state, given = [_at(v, 0, n) for v in values[:states]], []
        series = [_at(v, 0, n) for v in values[states:]]
        steps = series[0].shape[0]
        for t in range(steps):
            rows = [_at(x, 0, steps - 1 - t if r else t) for x, r in zip(series, back, strict=True)]
            found = call.run_body(body, [*state, *rows], call)
            state = found[:states]
            given.append(found[states:])
        runs.append([*state, *[_stacked([g[k] for g in given]) for k in range(len(body.outputs) - states)]])
    return tuple(_stacked([run[k] for run in runs]) for k in range(len(body.outputs)))


def _none(kind: Any) -> Value:
    """The rows of a loop that did not turn, as far as the model says what they would be."""
    told = kind.tensor_type if kind is not None else onnx.TypeProto().tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(told.elem_type) if told.elem_type else np.float32
    return np.zeros((0, *[d.dim_value for d in told.shape.dim]), dtype)


def _at(x: Value, axis: int, place: int) -> Value:
    return np.take(x, place, axis) if isinstance(x, np.ndarray) else x.select(axis, place)


def _stacked(parts: list[Value], axis: int = 0) -> Value:
    if not parts:
        return np.zeros((0,), np.float32)
    if all(isinstance(p, np.ndarray) for p in parts):
        return np.stack(parts, axis)
    return T.stack([p if isinstance(p, Tensor) else T.from_numpy(np.array(p)) for p in parts], axis)

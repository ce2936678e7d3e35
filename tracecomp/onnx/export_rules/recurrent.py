"""Recurrent layers, whole: ONNX's operators with the weights in its order of gates, and what makes a layer of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracecomp.ir.graph import Node
from tracecomp.onnx.export_rules.emitter import Emitter, whole_rule

Array = np.ndarray[Any, Any]
GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}
"""PyTorch's gates (i, f, g, o and r, z, n) in the order that ONNX has them in."""
_SHORT = {"weight_ih": "W", "weight_hh": "R", "bias_ih": "B"}
"""Names of weights and their ONNX counterparts."""


@whole_rule("LSTM", "GRU", "RNN")
def layer(e: Emitter, node: Node, *operands: str) -> Sequence[str]:
    op, told = node.op.name.removeprefix("onnx."), dict(node.attrs["stated"])
    x, *rest = ["" if g is None else operands[g] for g in node.attrs["given"]]
    first, weights = rest[: told["states"]], rest[told["states"] :]
    ways = len(weights) // 4
    w, wb, r, rb = ([*weights[k::4]] for k in range(4))
    bias = _packed(e, op, [[a, b] for a, b in zip(wb, rb, strict=True)]) if wb[0] else ""
    given = [x, _packed(e, op, [[n] for n in w]), _packed(e, op, [[n] for n in r]), bias, "", *first]
    while not given[-1]:
        given.pop()
    out, *finals = node.outputs
    attrs: dict[str, Any] = {
        "hidden_size": finals[0].shape[-1],
        "direction": "bidirectional" if ways == 2 else "forward",
    }
    if op == "GRU":
        attrs["linear_before_reset"] = 1
    if told["mode"] == "RNN_RELU":
        attrs["activations"] = ["Relu"] * ways
    series, *last = e.several(op, given, 1 + len(finals), **attrs)
    if ways == 1:
        return e.node("Squeeze", [series, e.ints(1)]), *last
    beside = e.node("Transpose", [series], perm=[0, 2, 1, 3])
    return e.node("Reshape", [beside, e.ints(*out.shape)]), *last


def _packed(e: Emitter, op: str, names: Sequence[Sequence[str]]) -> str:
    """Weights of each direction, joined, in ONNX's order of gates: an initializer where all of them are."""
    parts = [part for row in names for part in row]
    order = GATES[op]
    if all(part in e.arrays for part in parts):
        return e.made_of(_called(parts[0]), parts, lambda arrays: _joined(arrays, len(names[0]), order))
    rows = []
    for row in names:
        ordered = [_ordered(e, part, order) for part in row]
        joined = ordered[0] if len(ordered) == 1 else e.node("Concat", ordered, axis=0)
        rows.append(e.node("Unsqueeze", [joined, e.ints(0)]))
    return rows[0] if len(rows) == 1 else e.node("Concat", rows, axis=0)


def _ordered(e: Emitter, name: str, order: Sequence[int]) -> str:
    if len(order) == 1:
        return name
    parts = e.several("Split", [name], len(order), axis=0, num_outputs=len(order))
    return e.node("Concat", [parts[k] for k in order], axis=0)


def _joined(arrays: Sequence[Array], each: int, order: Sequence[int]) -> Array:
    turned = [np.concatenate([np.split(a, len(order))[k] for k in order]) for a in arrays]
    return np.stack([np.concatenate(turned[k : k + each]) for k in range(0, len(turned), each)])


def _called(name: str) -> str:
    for word, short in _SHORT.items():
        name = name.replace(word, short)
    return name

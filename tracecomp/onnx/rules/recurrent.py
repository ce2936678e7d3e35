"""Recurrent layers: PyTorch's where possible, otherwise steps over the first dimension.

Weights are in ONNX's order of gates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.nn import functional as F
from tracecomp.nn.rnn import layer
from tracecomp.onnx.registry import Call, Value, rule

_ACTIVATIONS: dict[str, Callable[[Tensor, float, float], Tensor]] = {
    "sigmoid": lambda x, a, b: T.sigmoid(x), "tanh": lambda x, a, b: T.tanh(x), "relu": lambda x, a, b: T.relu(x),
    "affine": lambda x, a, b: a * x + b, "leakyrelu": lambda x, a, b: F.leaky_relu(x, a),
    "thresholdedrelu": lambda x, a, b: T.where(x > a, x, T.zeros_like(x)),
    "scaledtanh": lambda x, a, b: a * T.tanh(b * x), "hardsigmoid": lambda x, a, b: T.clamp(a * x + b, 0, 1),
    "elu": lambda x, a, b: F.elu(x, a), "softsign": lambda x, a, b: F.softsign(x),
    "softplus": lambda x, a, b: F.softplus(x),
}  # fmt: skip
_ALPHA = {"leakyrelu": 0.01, "thresholdedrelu": 1.0, "hardsigmoid": 0.2, "elu": 1.0, "affine": 1.0, "scaledtanh": 1.0}
_BETA = {"hardsigmoid": 0.5, "affine": 0.0, "scaledtanh": 1.0}

Step = Callable[[Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]]


_GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
"""ONNX's gates (i, o, f, g and z, r, n) in PyTorch's order."""


def _layer_mode(call: Call, default: list[str], directions: int) -> str | None:
    """The kind of PyTorch's layer that this is; None where there is none."""
    op = call.node.op
    if call.attr("clip") is not None or call.attr("input_forget", 0) or call.attr("direction") == "reverse":
        return None
    if op == "GRU" and not call.attr("linear_before_reset", 0):
        return None
    names = [n.lower() for n in call.attr("activations", default * directions)]
    if op == "RNN" and names == ["relu"] * directions:
        return "RNN_RELU"
    if names != [n.lower() for n in default] * directions:
        return None
    return "RNN_TANH" if op == "RNN" else op


def _turned(op: str, weight: Tensor) -> Tensor:
    """A weight with its gates in PyTorch's order."""
    order = _GATES[op]
    parts = weight.chunk(len(order))
    return weight if len(order) == 1 else T.cat([parts[k] for k in order])


def _run_layer(
    call: Call, mode: str, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None, lengths: Tensor | None,
    states: list[Tensor | None],
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """The result of ``_run``, by PyTorch's layer."""
    op, turned = call.node.op, call.attr("layout", 0)
    if turned:
        x, states = x.transpose(0, 1), [None if s is None else s.transpose(0, 1) for s in states]
    steps, batch = x.shape[:2]
    zeros = T.zeros([w.shape[0], batch, call.attr("hidden_size")], dtype=x.dtype)
    first = None if all(s is None for s in states) else tuple(zeros if s is None else s for s in states)
    mask = None if lengths is None else (T.arange(steps).unsqueeze(1) < lengths).unsqueeze(-1)
    biases = [_biases(b, k) for k in range(w.shape[0])]
    of_input = [(_turned(op, w[k]), None if b is None else _turned(op, biases[k][0])) for k in range(w.shape[0])]
    of_state = [(_turned(op, r[k]), None if b is None else _turned(op, biases[k][1]), None) for k in range(w.shape[0])]
    out, last = layer(mode, x, mask, first, of_input, of_state, ["forwards", "backwards"][: w.shape[0]])
    if mask is not None:  # a sequence that has ended gives nothing
        out = T.where(mask, out, T.zeros_like(out))
    out = out.unflatten(-1, [w.shape[0], -1])
    if turned:
        return out.transpose(0, 1), [s.transpose(0, 1) for s in last]
    return out.transpose(1, 2), [*last]


def _functions(call: Call, default: list[str], directions: int) -> list[list[Callable[[Tensor], Tensor]]]:
    """The activations of each direction."""
    names = [n.lower() for n in call.attr("activations", default * directions)]
    alphas, betas = iter(call.attr("activation_alpha", [])), iter(call.attr("activation_beta", []))

    def make(name: str) -> Callable[[Tensor], Tensor]:
        a = next(alphas, _ALPHA[name]) if name in _ALPHA else 0.0
        b = next(betas, _BETA[name]) if name in _BETA else 0.0
        return lambda x: _ACTIVATIONS[name](x, a, b)

    found = [make(name) for name in names]
    return [found[k * len(default) : (k + 1) * len(default)] for k in range(directions)]


def _run(
    call: Call, x: Tensor, states: list[Tensor | None], lengths: Tensor | None, make: Callable[[int], Step]
) -> tuple[Tensor, list[Tensor]]:
    """All steps of all directions: the first states, [time, direction, batch, hidden], and the last of each."""
    if call.attr("layout", 0):
        x = x.transpose(0, 1)
        states = [None if s is None else s.transpose(0, 1) for s in states]
    direction = call.attr("direction", "forward")
    hidden, (steps, batch) = call.attr("hidden_size"), x.shape[:2]
    series, ends = [], []
    for k, way in enumerate(["forward", "reverse"] if direction == "bidirectional" else [direction]):
        step = make(k)
        state = tuple(T.zeros([batch, hidden], dtype=x.dtype) if s is None else s[k] for s in states)
        outputs: list[Any] = [None] * steps
        for t in range(steps) if way == "forward" else reversed(range(steps)):
            new = step(x[t], state)
            if lengths is not None:  # a sequence that has ended keeps its state
                on = (lengths > t).unsqueeze(-1)
                new = tuple(T.where(on, n, o) for n, o in zip(new, state, strict=True))
                outputs[t] = T.where(on, new[0], T.zeros_like(new[0]))
            else:
                outputs[t] = new[0]
            state = new
        series.append(T.stack(outputs) if steps else T.zeros([0, batch, hidden], dtype=x.dtype))
        ends.append(state)
    result = T.stack(series, 1)
    last = [T.stack(found) for found in zip(*ends, strict=True)]
    if call.attr("layout", 0):
        return result.permute([2, 0, 1, 3]), [s.transpose(0, 1) for s in last]
    return result, last


def _biases(b: Tensor | None, k: int) -> tuple[Any, Any]:
    """The biases of operands and of states."""
    return (0, 0) if b is None else (b[k, : b.shape[1] // 2], b[k, b.shape[1] // 2 :])


def _clipped(call: Call, x: Tensor) -> Tensor:
    bound = call.attr("clip")
    return x if bound is None else T.clamp(x, -bound, bound)


@rule("RNN")
def rnn(
    call: Call, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Value = None, h: Value = None
) -> Any:
    if x.numel() and (mode := _layer_mode(call, ["Tanh"], w.shape[0])):
        series, (last,) = _run_layer(call, mode, x, w, r, b, lengths, [h])
        return (series, last)[: call.results]
    functions = _functions(call, ["Tanh"], w.shape[0])

    def make(k: int) -> Step:
        wb, rb = _biases(b, k)
        (f,) = functions[k]
        return lambda x, s: (f(_clipped(call, x @ w[k].t() + s[0] @ r[k].t() + wb + rb)),)

    series, (last,) = _run(call, x, [h], lengths, make)
    return (series, last)[: call.results]


@rule("GRU")
def gru(
    call: Call, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Value = None, h: Value = None
) -> Any:
    if x.numel() and (mode := _layer_mode(call, ["Sigmoid", "Tanh"], w.shape[0])):
        series, (last,) = _run_layer(call, mode, x, w, r, b, lengths, [h])
        return (series, last)[: call.results]
    functions, n = _functions(call, ["Sigmoid", "Tanh"], w.shape[0]), call.attr("hidden_size")

    def make(k: int) -> Step:
        wb, rb = _biases(b, k)
        f, g = functions[k]
        hidden_bias = 0 if b is None else rb[2 * n :]

        def step(x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            (s,) = state
            gates = x @ w[k].t() + wb
            both = gates[:, : 2 * n] + s @ r[k][: 2 * n].t() + (0 if b is None else rb[: 2 * n])
            z, q = f(_clipped(call, both[:, :n])), f(_clipped(call, both[:, n:]))
            if call.attr("linear_before_reset", 0):
                new = gates[:, 2 * n :] + q * (s @ r[k][2 * n :].t() + hidden_bias)
            else:
                new = gates[:, 2 * n :] + (q * s) @ r[k][2 * n :].t() + hidden_bias
            return ((1 - z) * g(_clipped(call, new)) + z * s,)

        return step

    series, (last,) = _run(call, x, [h], lengths, make)
    return (series, last)[: call.results]


@rule("LSTM")
def lstm(
    call: Call, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Value = None, h: Value = None,
    c: Value = None, peepholes: Tensor | None = None,
) -> Any:  # fmt: skip
    mode = _layer_mode(call, ["Sigmoid", "Tanh", "Tanh"], w.shape[0]) if peepholes is None and x.numel() else None
    if mode:
        series, (last_h, last_c) = _run_layer(call, mode, x, w, r, b, lengths, [h, c])
        return (series, last_h, last_c)[: call.results]
    functions, n = _functions(call, ["Sigmoid", "Tanh", "Tanh"], w.shape[0]), call.attr("hidden_size")

    def make(k: int) -> Step:
        wb, rb = _biases(b, k)
        f, g, last = functions[k]
        seen = [0, 0, 0] if peepholes is None else [peepholes[k, j * n : (j + 1) * n] for j in range(3)]

        def step(x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            s, cell = state
            i, o, forget, new = T.chunk(x @ w[k].t() + s @ r[k].t() + wb + rb, 4, -1)
            i = f(_clipped(call, i + seen[0] * cell))
            forget = 1 - i if call.attr("input_forget", 0) else f(_clipped(call, forget + seen[2] * cell))
            cell = forget * cell + i * g(_clipped(call, new))
            return f(_clipped(call, o + seen[1] * cell)) * last(cell), cell

        return step

    series, (last_h, last_c) = _run(call, x, [h, c], lengths, make)
    return (series, last_h, last_c)[: call.results]

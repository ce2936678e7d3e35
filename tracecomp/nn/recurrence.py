"""One recurrent layer in one direction: the step of every kind of cell, and the scan over time around it.

A step is written with primitives, so the same code runs on tensors (single-step cells) and builds the scan's body.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.functional.primitives import prim
from tracecomp.ir.graph import Graph
from tracecomp.ir.types import TensorType
from tracecomp.ops.autodiff import Sym

State = tuple[Any, ...]


def _linear(x: Any, weight: Any, bias: Any) -> Any:
    y = prim.contract(x, weight, spec="nk,gk->ng")
    return y if bias is None else prim.add(y, bias)


def _split(x: Any, parts: int) -> list[Any]:
    """Equal parts of the columns of ``x``."""
    rows, columns = x.shape
    width = columns // parts
    return [prim.slice(x, starts=(0, i * width), stops=(rows, (i + 1) * width), steps=(1, 1)) for i in range(parts)]


def step(mode: str, projected: object, state: State, weight: object, bias: object, out: object) -> State:
    """The next state (N, hidden) from ``x W_ih^T + b_ih`` and the present one; ``out`` projects LSTM's output."""
    return _gates(mode, projected, _linear(state[0], weight, bias), state, out)


def _gates(mode: str, projected: Any, hidden: Any, state: State, out: object) -> State:
    """The next state from the projections of the input and of the present state."""
    if mode == "LSTM":
        i, f, g, o = _split(prim.add(projected, hidden), 4)
        kept = prim.mul(prim.sigmoid(f), state[1])
        c = prim.add(kept, prim.mul(prim.sigmoid(i), prim.tanh(g)))
        h = prim.mul(prim.sigmoid(o), prim.tanh(c))
        return (h if out is None else _linear(h, out, None)), c
    if mode == "GRU":
        x_r, x_z, x_n = _split(projected, 3)
        h_r, h_z, h_n = _split(hidden, 3)
        z = prim.sigmoid(prim.add(x_z, h_z))
        n = prim.tanh(prim.add(x_n, prim.mul(prim.sigmoid(prim.add(x_r, h_r)), h_n)))
        return (prim.add(n, prim.mul(z, prim.sub(state[0], n))),)
    total = prim.add(projected, hidden)
    return (prim.tanh(total) if mode == "RNN_TANH" else prim.maximum(total, 0.0),)


@lru_cache(maxsize=64)
def _body(mode: str, states: tuple[TensorType, ...], xs: tuple[TensorType, ...], consts: tuple[Any, ...]) -> Graph:
    """The scan's body: (state, x[, mask], weights) -> (state, state, projection), the last two to be stacked.

    The projection of the state is stacked so that the derivative does not compute it again.
    """
    graph = Graph(mode.lower())

    def inputs(name: str, types: Sequence[TensorType | None]) -> list[Any]:
        return [None if t is None else Sym(graph, graph.add_input(t, f"{name}{i}")) for i, t in enumerate(types)]

    state, at, (weight, bias, out) = inputs("state", states), inputs("x", xs), inputs("w", consts)
    hidden = _linear(state[0], weight, bias)
    new = _gates(mode, at[0], hidden, tuple(state), out)
    if len(at) == 2:
        new = tuple(prim.where(at[1], after, before) for after, before in zip(new, state, strict=True))
    for value in (*new, *new, hidden):
        graph.add_output(value.value)
    return graph


def _type(x: Tensor, drop: int = 0) -> TensorType:
    return TensorType(x.dtype, tuple(x.shape[drop:]))


def scan(
    mode: str, projected: Tensor, mask: Tensor | None, state: State, weight: Tensor, bias: Tensor | None,
    out: Tensor | None, reverse: bool,
) -> tuple[State, Tensor]:  # fmt: skip
    """Carry ``state`` over (T, N, gates): the last state and every output (T, N, hidden).

    The state does not change where ``mask`` (T, N, 1) is False.
    """
    xs = [projected] if mask is None else [projected, mask]
    weights = [weight, bias, out]
    body = _body(
        mode, tuple(map(_type, state)), tuple(_type(x, 1) for x in xs),
        tuple(None if w is None else _type(w) for w in weights),
    )  # fmt: skip
    results = prim.scan(
        *state, *xs, *(w for w in weights if w is not None), body=body, carries=len(state), xs=len(xs),
        length=projected.shape[0], reverse=reverse,
    )  # fmt: skip
    return tuple(results[: len(state)]), results[len(state)]

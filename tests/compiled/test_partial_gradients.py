"""Backward passes from some results of a compiled call: inputs receive what the other results contribute in eager mode,
which is nothing, not zeros."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest

import tracecomp as torch
from tracecomp.ir.arrays import same_bits


class Shifted(torch.autograd.Function):
    """Its gradient is not zero where the result's is."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * 5 + ctx.saved_tensors[0] + 1


def chain(x: Any, w: Any) -> tuple[Any, ...]:
    inner = x @ w
    return inner, inner.log(), (inner.log() * 2).sum()


PROGRAMS: dict[str, Callable[[Any, Any], tuple[Any, ...]]] = {
    "infinite derivative": lambda x, w: (x.sqrt(), x * 2, w.log() + x),
    "signs of zeros": lambda x, w: (-x.sin() * w, x * 2, (x - 1) * w),
    "own function": lambda x, w: (Shifted.apply(x), x * 3, Shifted.apply(w) * x),
    "result of a result": chain,
    "results of one node": lambda x, w: (x.sort(-1).values, x.max(-1).values.log(), (x * w).log()),
    "inputs of one result": lambda x, w: (x.sqrt(), w.sqrt(), x * 2 + w * 3),
}


def gradients(fn: Callable[..., tuple[Any, ...]], chosen: tuple[int, ...], rows: int) -> list[Any]:
    x = torch.zeros(rows, 2, requires_grad=True)
    w = torch.tensor([[0.0, -1.0], [2.0, 0.0]], requires_grad=True)
    results = fn(x, w if rows == 2 else w[0])
    torch.autograd.backward([(results[k] * -1).sum() for k in chosen])
    return [x.grad, w.grad]


SIZES = {name: [(2, 2, 2), (2, 3, 4)] for name in PROGRAMS} | {"result of a result": [(2, 2, 2)]}  # its w is a matrix


@pytest.mark.parametrize(("name", "sizes"), [(name, sizes) for name, found in SIZES.items() for sizes in found])
def test_gradients_of_some_results(name: str, sizes: tuple[int, ...]) -> None:
    fn = PROGRAMS[name]
    for count in (1, 2, 3):
        for chosen in combinations(range(3), count):
            compiled = torch.compile(fn)
            for rows in sizes:
                wanted = gradients(fn, chosen, rows)
                for got, want in zip(gradients(compiled, chosen, rows), wanted, strict=True):
                    assert (got is None) == (want is None)
                    assert got is None or same_bits(got.numpy(), want.numpy(), any_nan=True)


REPEATED: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda t, x: t + x, "view": lambda t, x: (t + x).reshape(1, -1)[0], "scaled": lambda t, x: t * 2 - x,
    "reduced": lambda t, x: t + x.sum(), "joined": lambda t, x: torch.cat([t[1:], x[:1]]),
    "product": lambda t, x: t * x,
}  # fmt: skip


@pytest.mark.parametrize("name", REPEATED)
def test_history_of_earlier_calls(name: str) -> None:
    """A backward pass through results of earlier calls, whose backward passes have run, fails where eager's does."""

    def step(state: dict[str, Any], x: Any) -> Any:
        state["t"] = REPEATED[name](state["t"], x)
        return state["t"].sum()

    def run(fn: Callable[..., Any]) -> list[Any]:
        state, seen = {"t": torch.ones(3)}, []
        for k in range(5):
            x = (torch.ones(3) + k).requires_grad_()
            result = fn(state, x)
            try:
                result.backward()
                seen.append(x.grad.tolist())
            except RuntimeError as error:
                seen.append(str(error)[:40])
        return seen

    assert run(torch.compile(step)) == run(step)


def test_one_function_serves_every_choice() -> None:
    """Choices that alternate are served by the same compiled call."""
    fn = PROGRAMS["infinite derivative"]
    compiled = torch.compile(fn)
    for chosen in [(0,), (1,), (0, 1), (1,), (2,), (1, 2), (1,), (0, 1, 2)] * 2:
        for got, want in zip(gradients(compiled, chosen, 2), gradients(fn, chosen, 2), strict=True):
            assert (got is None) == (want is None)
            assert got is None or same_bits(got.numpy(), want.numpy(), any_nan=True)
    assert compiled.recordings == 1

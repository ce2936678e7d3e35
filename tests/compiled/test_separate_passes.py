"""Backward passes from some results of a compiled call free what eager mode frees: other results keep their history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest

import tracecomp as torch

Program = Callable[[Any, Any], tuple[Any, ...]]


class Cubed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grads[0] * 3 * x * x


def chain(x: Any, y: Any) -> tuple[Any, ...]:
    first = x * y
    return first, first.exp(), first + x


PROGRAMS: dict[str, Program] = {
    "apart": lambda x, y: (x * x, y.exp(), x + y),
    "one shares values": lambda x, y: ((x * x).sin(), (x * x) + y.exp(), y * 2),
    "ancestors": chain,
    "no saved values": lambda x, y: (x + 1, x - y, y * 2),
    "an own function": lambda x, y: (Cubed.apply(x), y + 1, Cubed.apply(y) * x),
    "a factor that zeros lack": lambda x, y: (
        torch.linalg.cholesky(x.diag_embed() + 2 * torch.eye(3)).sum(), x + y, torch.linalg.inv(y.diag_embed() + 1.5),
    ),
}  # fmt: skip


def passes(fn: Program, order: Sequence[int], differentiated: bool) -> list[object]:
    """Return the gradients of each backward pass, or its error."""
    x, y = (torch.tensor(v, requires_grad=True) for v in ([1.5, 2.0, 0.25], [0.5, 1.0, 3.0]))
    results = fn(x, y)
    seen: list[object] = []
    for k in order:
        try:
            found = torch.autograd.grad(
                results[k].sum(), (x, y), allow_unused=True, create_graph=differentiated, retain_graph=False
            )
            seen.append([None if g is None else (g.tolist(), g.requires_grad) for g in found])
        except RuntimeError as error:
            seen.append(str(error))
    return seen


@pytest.mark.parametrize("differentiated", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_passes_from_some_results_leave_the_others_their_history(program: str, differentiated: bool) -> None:
    fn = PROGRAMS[program]
    compiled = torch.compile(fn)
    for _ in range(3):
        passes(compiled, (0,), False)
    for order in product(range(3), repeat=3):
        assert passes(compiled, order, differentiated) == passes(fn, order, differentiated), order


def test_a_chain_of_sums_over_calls_can_be_passed_again() -> None:
    """The state has a history that saves no values, next to results with freed values."""

    def run(step: Callable[[Any, Any], Any]) -> list[Any]:
        state, seen = torch.zeros(3), []
        for k in range(6):
            x = torch.full((3,), k + 1.0, requires_grad=True)
            square, state = step(x, state)
            torch.autograd.backward([square.sum(), state.sum()])
            seen.append((x.grad.tolist(), state.tolist()))
        return seen

    def step(x: Any, state: Any) -> Any:
        return x * x, state + x

    assert run(torch.compile(step)) == run(step)


def test_saved_values_are_dropped_when_no_result_can_read_them() -> None:
    compiled = torch.compile(lambda x: (x.exp(), x + 1))
    for _ in range(3):
        x = torch.ones(3, requires_grad=True)
        first, second = compiled(x)
        first.sum().backward()
    assert first.grad_fn.saved is None
    second.sum().backward()
    assert x.grad.tolist() == (x.exp() + 1).tolist()

"""The context of an own Function holds sizes and numbers: derivatives outside of the call use those of each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracecomp as torch


class Holder:
    """An object that holds a number, which the recorder does not replace."""

    def __init__(self, number: float) -> None:
        self.number = number


KEPT: dict[str, Callable[[Any, float], Any]] = {
    "shape": lambda x, k: tuple(x.shape),
    "sizes in containers": lambda x, k: {"n": x.shape[0] + 1, "m": [x.numel()]},
    "number": lambda x, k: k,
    "number and size": lambda x, k: (k, x.shape[0]),
    "plain number": lambda x, k: 3,
}


def total(kept: Any) -> Any:
    """The sum of the numbers in ``kept``."""
    kept = list(kept.values()) if isinstance(kept, dict) else kept
    return sum(map(total, kept)) if isinstance(kept, list | tuple) else kept


def keeping(keep: Callable[[Any, float], Any]) -> Any:
    """A Function whose gradient is multiplied by what its context holds."""

    class Own(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any, k: float) -> Any:
            return x * k

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.kept = keep(*inputs)
            ctx.save_for_backward(inputs[0])

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.saved_tensors[0] * total(ctx.kept), None

    return Own


def derivatives(step: Callable[..., Any], x: Any, y: Any) -> list[Any]:
    """First and second derivatives of ``step`` from outside."""

    def value(v: Any) -> Any:
        return step(v, y).sum()

    first = torch.func.grad(value)(x)
    second = torch.func.grad(lambda v: torch.func.grad(value)(v).sum())(x)
    leaf = x.clone().requires_grad_()
    (made,) = torch.autograd.grad(value(leaf), leaf, create_graph=True)
    made.sum().backward()
    return [t.tolist() for t in (first, second, leaf.grad)]


@pytest.mark.parametrize("mapped", [False, True], ids=["alone", "under vmap"])
@pytest.mark.parametrize("name", KEPT)
@settings(max_examples=4)
@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from([1.0, 2.0, 3.0])), min_size=3, max_size=6))
def test_derivatives_use_the_sizes_and_numbers_of_each_call(
    name: str, mapped: bool, calls: list[tuple[int, float]]
) -> None:
    own = keeping(KEPT[name])

    def step(x: Any, y: Any) -> Any:
        if mapped:
            return torch.func.vmap(lambda row: own.apply(row, 2.0))(x) * y
        return own.apply(x, float(y.sum())) * x

    compiled = torch.compile(step, dynamic=True)
    for rows, k in calls:
        x, y = torch.arange(rows * 2.0).reshape(rows, 2) + k, torch.full((2,), k)
        assert derivatives(compiled, x, y) == derivatives(step, x, y)


def test_a_size_within_an_object_of_the_context_is_never_that_of_another_call() -> None:
    own = keeping(lambda x, k: Holder(x.shape[0]))

    class Through(own):  # type: ignore[misc, valid-type]
        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.kept.number, None

    def step(x: Any) -> Any:
        return Through.apply(x, 2.0) * x

    compiled = torch.compile(step, dynamic=True)
    for rows in (2, 3, 4, 5):
        x = torch.arange(rows * 1.0)
        try:
            found = torch.func.grad(lambda v: compiled(v).sum())(x)
        except RuntimeError as error:
            assert "holds values of a compiled call" in str(error)
            continue
        assert found.tolist() == torch.func.grad(lambda v: step(v).sum())(x).tolist()

"""``associative_scan`` compared with a loop: numbers, gradients, compiled, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp._higher_order_ops.associative_scan import associative_scan


def combine(left: list[torch.Tensor], right: list[torch.Tensor]) -> list[torch.Tensor]:
    return [left[0] * right[0], left[1] * right[0] + right[1]]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("mode", ["pointwise", "generic"])
@pytest.mark.parametrize("reverse", [False, True])
def test_linear_recurrences_are_those_of_a_loop(n: int, mode: str, reverse: bool) -> None:
    rng = np.random.default_rng(n)
    a = torch.tensor(rng.uniform(0.5, 1, (2, n, 3)), requires_grad=True)
    b = torch.tensor(rng.normal(size=(2, n, 3)), requires_grad=True)

    def scanned(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return associative_scan(combine, [a, b], 1, reverse=reverse, combine_mode=mode)[1]

    state, states = torch.zeros(2, 3, dtype=torch.float64), {}
    for i in reversed(range(n)) if reverse else range(n):
        states[i] = state = a[:, i] * state + b[:, i]
    expected = torch.stack([states[i] for i in range(n)], 1)
    found = scanned(a, b)
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-12)
    for x, y in zip(
        torch.autograd.grad(found.square().sum(), b), torch.autograd.grad(expected.square().sum(), b), strict=True
    ):
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-10)
    fast = torch.compile(scanned)
    for _ in range(3):
        again = fast(a, b)
    assert np.array_equal(again.detach().numpy(), found.detach().numpy())


def test_functions_that_do_not_commute_and_slices_by_themselves() -> None:
    xs = torch.tensor(np.random.default_rng(0).normal(size=(4, 2, 2)))
    found = associative_scan(lambda a, b: a @ b, xs, 0, combine_mode="generic")
    expected = xs[0]
    for i in range(1, 4):
        expected = expected @ xs[i]
        np.testing.assert_allclose(found[i].numpy(), expected.numpy(), rtol=1e-12)


def test_what_is_refused() -> None:
    x = torch.ones(3)
    refused: list[tuple[Any, Any, str]] = [(3, x, "generic"), (torch.add, x, "fast"), (torch.add, [], "generic")]
    for fn, xs, mode in refused:
        with pytest.raises(ValueError, match="associative_scan"):
            associative_scan(fn, xs, 0, combine_mode=mode)
    wrong: list[Any] = [lambda a, b: [a], lambda a, b: (a + b).double(), lambda a, b: (a + b).sum()]
    for fn in wrong:
        with pytest.raises(RuntimeError, match="combine_fn"):
            associative_scan(fn, x, 0)

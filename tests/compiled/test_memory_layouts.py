"""Compiled writes to tensors whose memory layout differs from the one at recording."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as torch

LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda a: torch.from_numpy(a).t(),
    "strided": lambda a: torch.from_numpy(np.repeat(np.repeat(a, 2, 0), 2, 1))[::2, ::2],
    "inside": lambda a: torch.from_numpy(np.pad(a, 1))[1:-1, 1:-1],
    "in order": torch.from_numpy,
}


def one_row(x: Any) -> Any:
    x[0].add_(1)
    return x.sum(0)


def a_row_and_a_column(x: Any) -> Any:
    x[1] = x[0] * 2
    x.t()[2] *= 3
    return x * 1


def some_rows(x: Any) -> Any:
    x.index_add_(0, torch.tensor([3, 0]), torch.ones(2, 4))
    return x[3]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("write", [one_row, a_row_and_a_column, some_rows, lambda x: x.mul_(2)])
def test_arguments_are_written_however_they_lie(write: Callable[[Any], Any], layout: str) -> None:
    compiled, make = torch.compile(write), LAYOUTS[layout]
    for _ in range(3):
        compiled(torch.ones(4, 4))
    for seed in range(3):
        a = np.random.default_rng(seed).standard_normal((4, 4)).astype(np.float32)
        x, y = make(a.copy()), make(a.copy())
        want, got = write(x), compiled(y)
        np.testing.assert_array_equal(got.numpy(), want.numpy())
        np.testing.assert_array_equal(y.numpy(), x.numpy())


def test_state_is_written_however_it_lies() -> None:
    a = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    states = [torch.from_numpy(a.copy()).t(), torch.from_numpy(a.T.copy())]

    def step(state: Any) -> Any:
        return lambda x: (state[1].mul_(x), state.sum())[1]

    calls = [torch.compile(step(s)) for s in states]
    for k in range(4):
        assert calls[0](torch.tensor(1.0 + k)).item() == pytest.approx(calls[1](torch.tensor(1.0 + k)).item())
    np.testing.assert_array_equal(states[0].numpy(), states[1].numpy())


def test_memory_that_shows_elements_several_times_is_not_written() -> None:
    compiled = torch.compile(lambda x: x.add_(1))
    for _ in range(3):
        compiled(torch.ones(4, 4))
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        compiled(torch.ones(1, 4).expand(4, 4))


@pytest.mark.parametrize("pick", [
    lambda x, i: x.gather(0, i), lambda x, i: x.scatter_add(0, i, x[:2]), lambda x, i: x.index_add(0, i, x[:2]),
    lambda x, i: x[i],
])  # fmt: skip
def test_an_index_out_of_range_is_the_error_that_pytorch_raises(pick: Callable[[Any, Any], Any]) -> None:
    compiled, x = torch.compile(pick), torch.arange(4.0)
    for _ in range(3):
        compiled(x, torch.tensor([0, 3]))
    with pytest.raises((IndexError, RuntimeError)) as eager:
        pick(x, torch.tensor([0, 4]))
    with pytest.raises(type(eager.value), match="index 4 is out of bounds for dimension 0 with size 4"):
        compiled(x, torch.tensor([0, 4]))

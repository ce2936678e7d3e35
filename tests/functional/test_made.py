"""Small results of factories are kept: what they are given, and in which modes, decides all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as torch

CALLS: dict[str, Callable[[], Any]] = {
    "zeros": lambda: torch.zeros(3),
    "sizes": lambda: torch.ones((2, 3)),
    "several": lambda: torch.ones(2, 3),
    "full": lambda: torch.full((2,), 1.5),
    "whole": lambda: torch.full((2,), 1),
    "truth": lambda: torch.full((2,), True),
    "eye": lambda: torch.eye(3),
    "linspace": lambda: torch.linspace(0, 1, 5),
    "typed": lambda: torch.full((2,), 3, dtype=torch.float64),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_call_makes_a_tensor_of_its_own(name: str) -> None:
    first = CALLS[name]()
    wanted = first.clone()
    first.zero_()
    first.add_(7) if first.dtype is not torch.bool else first.logical_not_()
    for _ in range(3):
        again = CALLS[name]()
        assert again.dtype is wanted.dtype and torch.equal(again, wanted)
        again.zero_()
        again.requires_grad_(again.is_floating_point())
        assert again._version == 1 and not CALLS[name]().requires_grad


def test_what_is_equal_and_not_the_same_is_told_apart() -> None:
    for _ in range(3):
        assert [torch.full((2,), x).dtype for x in (1, True, 1.0)] == [torch.int64, torch.bool, torch.float32]
        signs = [np.signbit(torch.full((2,), x).numpy()).all() for x in (0.0, -0.0)]
        assert signs == [False, True]
        with pytest.raises(TypeError):
            torch.zeros((2.0, 3))  # type: ignore[arg-type]
        with pytest.raises(RuntimeError, match="negative"):
            torch.zeros(-1)


def test_modes_and_the_default_dtype_decide() -> None:
    for _ in range(3):
        assert torch.zeros(3).dtype is torch.float32
        torch.set_default_dtype(torch.float64)
        try:
            assert torch.zeros(3).dtype is torch.float64
        finally:
            torch.set_default_dtype(torch.float32)
        with torch.device("meta"):
            assert torch.zeros(3).is_meta
        with torch.inference_mode():
            assert torch.zeros(3).is_inference()
        assert not torch.zeros(3).is_inference()


def test_a_compiled_function_makes_them_anew() -> None:
    made = torch.compile(lambda x: x + torch.ones(3))
    for _ in range(3):
        assert made(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]
        torch.ones(3).zero_()


@pytest.mark.parametrize(
    "data",
    [1, 1.5, True, [1.0, 2.0], [1, 2], [True], [[1, 2], [3, 4]], [[1.0, 2.0], [3, 4]], [], [[], []], [1, 2.0], [(1, 2)],
     [[[1]]], [1e300], 2**63 - 1, [float("nan"), -0.0], [1 + 2j], [np.float64(1.0)], [torch.tensor(2.0)]],
)  # fmt: skip
def test_lists_of_one_plain_type_are_as_others_are(data: Any) -> None:
    """The way for all data is taken where a dtype is named."""
    found = torch.tensor(data)
    with np.errstate(all="ignore"):
        wanted = torch.tensor(data, dtype=found.dtype)
    assert found.shape == wanted.shape and found.numpy().tobytes() == wanted.numpy().tobytes()


@pytest.mark.parametrize("data", [[[1, 2], [3]], [2**63], "a", ["a"], [[1], 2]])
def test_what_is_wrong_with_data_is_said(data: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        torch.tensor(data)

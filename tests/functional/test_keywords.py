"""Calls with keyword arguments, again and again: checks that are skipped after the first call change no call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp.eager.overrides import TorchFunctionMode
from tracecomp.functional import publish

ANY: Any = torch
X: Any = torch.tensor([[1.5, -2.0, 3.25], [0.5, 4.0, -1.0]])
CALLS: dict[str, Callable[[], Any]] = {
    "sum dtype": lambda: torch.sum(X, dtype=torch.float64),
    "sum axis": lambda: X.sum(axis=1, keepdims=True),
    "mean of a list": lambda: X.mean([0, 1], keepdim=True),
    "softmax dtype": lambda: torch.softmax(X, dim=-1, dtype=torch.float64),
    "to dtype": lambda: X.to(dtype=torch.int32),
    "to copy": lambda: X.to(copy=True, dtype=torch.float32, device="cpu"),
    "clone": lambda: X.clone(memory_format=torch.contiguous_format),
    "full": lambda: torch.full((2,), True, dtype=torch.bool, device=torch.device("cpu")),
    "arange": lambda: torch.arange(4, dtype=torch.int64, device=X.device),
    "ones of a list": lambda: torch.ones([2, 2], dtype=torch.float16),
    "zeros_like": lambda: torch.zeros_like(X, dtype=torch.int8),
    "full with a history": lambda: torch.full((2,), 1.0, requires_grad=True),
    "pad": lambda: torch.nn.functional.pad(X, [1, 2], value=3.0),
    "cumsum": lambda: torch.cumsum(X, dim=1, dtype=torch.float64),
    "permute": lambda: X.permute([1, 0]),
    "all": lambda: torch.all(X > 0, dim=1),
    "argmax": lambda: torch.argmax(X, dim=1, keepdim=True),
}


class Passing(TorchFunctionMode):
    """A mode that calls the function."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def told(t: Any) -> Any:
    return t.dtype, tuple(t.shape), t.stride(), t.requires_grad, t.detach().numpy().tobytes()


@pytest.mark.parametrize("name", CALLS)
def test_later_calls_are_as_the_first(name: str) -> None:
    first = told(CALLS[name]())
    assert all(told(CALLS[name]()) == first for _ in range(40))


def test_checks_are_skipped_after_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "_MANY_KINDS", 1 << 20)  # earlier tests may have used the functions in many ways
    with Passing():
        CALLS["pad"]()
    calls = {name: call for name, call in CALLS.items() if name not in ("to copy", "full with a history")}
    for call in calls.values():
        call()
    monkeypatch.setattr(publish._Parameters, "refuse", lambda *given: pytest.fail("a check"))
    for call in calls.values():
        call()


def test_other_values_are_other_calls() -> None:
    """After a call with one value of a keyword, calls with other values are not served by its runner."""
    for _ in range(3):
        assert [torch.sum(X, dtype=d).dtype for d in (torch.float64, None, torch.float32)] == [
            torch.float64, torch.float32, torch.float32,
        ]  # fmt: skip
        assert torch.full((2,), 1.0, requires_grad=False).requires_grad is False
        assert torch.full((2,), 1.0, requires_grad=True).requires_grad is True
        assert torch.full((2,), 1.0, device="meta").device.type == "meta"
        assert torch.full((2,), 1.0, device="cpu").device.type == "cpu"
        kept, copy = X.to(dtype=torch.float32, copy=False), X.to(dtype=torch.float32, copy=True)
        assert kept is X and copy is not X
        assert X.sum(dim=[0]).shape == (3,) and X.sum(dim=[1]).shape == (2,)


@pytest.mark.parametrize("given", [{"wrong": None}, {"dtype": 1}, {"dtype": "float32"}, {"keepdim": None}])
def test_wrong_keywords_stay_errors(given: dict[str, Any]) -> None:
    torch.sum(X, dim=0, dtype=torch.float32)
    for _ in range(3):
        with pytest.raises(TypeError):
            torch.sum(X, dim=0, **given)
    with pytest.raises(TypeError, match=r"multiple values|unexpected"):
        ANY.softmax(X, 0, torch.float32, dtype=torch.float32)


def test_a_place_of_a_block_decides_after_calls_on_the_cpu() -> None:
    call: Callable[..., Any] = lambda: torch.ones(2, dtype=torch.float32)  # noqa: E731
    call()
    with torch.device("meta"):
        assert call().device.type == "meta"
        assert torch.ones(2, device="cpu").device.type == "cpu"
    assert call().device.type == "cpu"


def test_results_with_a_dtype_are_numpys() -> None:
    for _ in range(2):
        np.testing.assert_array_equal(
            torch.cumsum(X, dim=1, dtype=torch.float64).numpy(), X.numpy().cumsum(1, np.float64)
        )

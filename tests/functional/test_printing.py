"""The printed text of tensors, character by character as torch's."""

from __future__ import annotations

from typing import Any

import pytest

import tracecomp
from tests.functional.reference import same_text, torch

TEXTS = [
    "T.arange(5)", "T.arange(5.)", "T.tensor(3.5)", "T.tensor(3)", "T.tensor(True)", "T.zeros(0)", "T.zeros(0, 3)",
    "T.zeros(0, dtype=T.int64)", "T.tensor([1., 2.5, -3.25])", "T.tensor([1e-5, 1.])", "T.tensor([1e9, 1.])",
    "T.tensor([1e3, 2e4])", "T.tensor([float('nan'), 1., float('inf'), float('-inf')])", "T.tensor([float('nan')])",
    "T.arange(24.).reshape(2, 3, 4)", "T.arange(24).reshape(2, 3, 4) > 3", "T.arange(30.) / 7",
    "T.arange(2000)", "T.arange(2000.)", "T.arange(10000.).reshape(100, 100)", "T.arange(4000).reshape(10, 20, 20)",
    "T.ones(2, dtype=T.float64)", "T.ones(2, dtype=T.int32)", "T.ones(2, dtype=T.float16) / 3", "T.ones(2, 2, 2, 2)",
    "T.ones(2).requires_grad_()", "T.ones(3, 1, 1)", "T.tensor([[]])", "T.tensor([0.1, 100.])", "T.tensor([-0.0, 0.])",
    "T.tensor([1234567.])", "T.tensor([[1.5, -2], [300, 4]])", "T.arange(100)", "T.tensor([1e-10, 1e10])",
    "T.ones(2).max(0)", "T.tensor([3., 1.]).sort()", "T.Size([2, 3])", "T.ones(2, 3).shape", "T.float32",
    "T.device('cpu')", "T.device('cuda', 1)", "T.iinfo(T.int8)", "T.finfo(T.float32)",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_text(text: str) -> None:
    same_text(lambda T: eval(text, {"T": T}))


def test_long_suffix_moves_to_a_new_line() -> None:
    same_text(lambda T: T.arange(14, dtype=T.int32) + 10000)


@pytest.mark.parametrize(
    "options", [{"precision": 2}, {"sci_mode": True}, {"sci_mode": False}, {"linewidth": 40}, {"profile": "short"},
                {"threshold": 5, "edgeitems": 1}],
)  # fmt: skip
def test_options(options: dict[str, Any]) -> None:
    try:
        for library in (torch, tracecomp):
            library.set_printoptions(**options)
        for text in ("T.arange(12.) / 7", "T.tensor([1e-5, 3.])", "T.arange(40).reshape(4, 10)"):
            same_text(lambda T, text=text: eval(text, {"T": T}))  # type: ignore[misc]
    finally:
        for library in (torch, tracecomp):
            library.set_printoptions(profile="default")


def test_format() -> None:
    assert f"{tracecomp.tensor(3.14159):.2f}" == "3.14"
    assert f"{tracecomp.tensor([1, 2])}" == "tensor([1, 2])"

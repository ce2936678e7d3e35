"""A few functions with spoiled arguments; ``python -m tests.functional.spoiled`` tries all."""

from __future__ import annotations

import warnings

import pytest

import tracecomp
from tests.functional.spoiled import differences

torch = pytest.importorskip("torch")

NAMES = (
    "torch.abs_", "torch.einsum", "torch.bernoulli", "Tensor.view", "Tensor.expand", "Tensor.item", "Tensor.normal_",
    "F.linear", "F.interpolate",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_spoiled_arguments_raise_no_error_from_inside(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seen = list(differences(torch, tracecomp, name.__eq__))
    assert seen
    assert [(call, said) for what, call, said in seen if what == "raw"] == []

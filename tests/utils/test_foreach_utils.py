"""Groups of tensors by device and dtype, as optimizers of libraries ask for them."""

from __future__ import annotations

import pytest

import tracecomp as tc
from tracecomp.utils._foreach_utils import _group_tensors_by_device_and_dtype as group


def test_parallel_lists_are_cut_alike_in_the_order_met() -> None:
    a, b, c = tc.ones(1), tc.ones(1, dtype=tc.float64), tc.zeros(2)
    found = group([[a, b, c], ["a", "b", None]], with_indices=True)
    assert [(dtype, lists, at) for (_, dtype), (lists, at) in found.items()] == [
        (tc.float32, [[a, c], ["a", None]], [0, 2]), (tc.float64, [[b], ["b"]], [1]),
    ]  # fmt: skip


def test_lists_of_other_lengths_are_refused() -> None:
    with pytest.raises(RuntimeError, match="same number of tensors"):
        group([[tc.ones(1)], []])

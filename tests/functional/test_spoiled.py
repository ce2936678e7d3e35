"""A few functions with spoiled arguments; ``python -m tests.functional.spoiled`` tries all."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator

import pytest

import tracecomp
from tests.functional.spoiled import Ended, differences, from_process, shared

torch = pytest.importorskip("torch")

NAMES = (
    "torch.abs_", "torch.einsum", "torch.bernoulli", "Tensor.view", "Tensor.expand", "Tensor.item", "Tensor.normal_",
    "F.linear", "F.interpolate",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_spoiled_arguments_raise_no_error_from_inside(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seen = list(differences(torch, tracecomp, shared(torch, tracecomp, name.__eq__)))
    assert any(x.kind == "equal" for x in seen)
    assert [(x.call, x.said) for x in seen if x.kind == "raw"] == []


def _hangs() -> Iterator[int]:
    yield 1
    time.sleep(60)


def _crashes() -> Iterator[int]:
    yield 1
    os.abort()


@pytest.mark.parametrize("work", [_hangs, _crashes])
def test_a_process_that_stops_ends_with_the_items_before(work: Callable[[], Iterator[int]]) -> None:
    items = from_process(work, 0.5)
    assert next(items) == 1
    with pytest.raises(Ended):
        next(items)


def test_a_process_that_finishes_gives_all_items() -> None:
    assert list(from_process(lambda: iter("abc"), 10)) == ["a", "b", "c"]

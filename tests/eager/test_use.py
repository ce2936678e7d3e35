"""Modes and classes that override operators take effect while active; afterwards calls are served natively again."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

import tracecomp as torch
from tracecomp._subclasses.fake_tensor import FakeTensorMode
from tracecomp.eager.device import use
from tracecomp.utils._python_dispatch import TorchDispatchMode
from tracecomp.utils.flop_counter import FlopCounterMode


class Log(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


WAYS: dict[str, Callable[[], Any]] = {
    "a dispatch mode": Log,
    "a count of operations": lambda: FlopCounterMode(display=False),
    "a device": lambda: torch.device("meta"),
    "tensors without memory": FakeTensorMode,
}


def count() -> int:
    gc.collect()
    return len(use.begun)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_it_counts_while_it_is_there(way: str) -> None:
    before = count()
    with WAYS[way]():
        assert count() > before
        with WAYS[way]():
            (torch.ones(2, 3) * 2).sum()
        assert count() > before
    assert count() == before
    with pytest.raises(ZeroDivisionError), WAYS[way]():
        _ = 1 / 0
    assert count() == before


def test_tensors_without_memory_count_as_long_as_one_looks_at_them() -> None:
    before = count()
    model = torch.nn.Linear(3, 4, device="meta")
    result = model(torch.ones(2, 3, device="meta"))
    result.sum().backward()
    view = result[0]
    assert count() > before
    del model, result
    assert count() > before and view.shape == (4,)
    del view
    assert count() == before


def test_nothing_is_drawn_for_a_tensor_without_memory() -> None:
    assert torch.rand(10**13, device="meta").shape == (10**13,)


def test_an_operator_inside_is_seen_by_a_mode_though_calls_were_served_before() -> None:
    x = torch.ones(3)
    for _ in range(100):
        x + x
    with FlopCounterMode(display=False) as counter:
        torch.ones(2, 3) @ torch.ones(3, 4)
    assert counter.get_total_flops() == 2 * 2 * 3 * 4

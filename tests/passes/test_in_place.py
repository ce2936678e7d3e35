"""Writes at run-time positions go into the memory of a state that nothing else reads, without a copy of the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp


def kernels(step: Callable[..., Any], bank: Any, *args: Any) -> list[str]:
    """The kernels of ``step``, which writes into ``bank``; compiled calls leave there what eager ones do."""
    first = bank.clone()
    for _ in range(3):
        step(*args)
    expected = bank.numpy().copy()
    bank.copy_(first)
    run = tracecomp.compile(step)
    for _ in range(3):
        run(*args)
    np.testing.assert_array_equal(bank.numpy(), expected)
    return [call.kernel.name for call in run.entries[0].plan.forward.steps()]


def at(*positions: int) -> Any:
    return tracecomp.tensor(list(positions))


@pytest.mark.parametrize(
    "write",
    [
        lambda bank, x, i: bank.index_copy_(0, i, x),
        lambda bank, x, i: bank.index_add_(0, i, x),
        lambda bank, x, i: bank.__setitem__(i, x),
        lambda bank, x, i: bank.scatter_(0, i[:, None].expand(2, 3), x),
    ],
)
def test_nothing_is_copied(write: Callable[..., Any]) -> None:
    bank = tracecomp.arange(300.0).reshape(100, 3)
    found = kernels(lambda x, i: (write(bank, x, i), x.sum())[1], bank, tracecomp.ones(2, 3), at(5, 98))
    assert not any("copy" in name for name in found), found


def test_what_is_still_read_is_copied_first() -> None:
    bank = tracecomp.arange(300.0).reshape(100, 3)

    def from_itself(i: Any) -> Any:
        bank.index_copy_(0, i, bank[1:3])

    def before_and_after(i: Any) -> Any:
        before = bank[5:7] * 1
        bank.index_copy_(0, i, before + 1)
        return before + bank[5:7]

    def old_value_returned(i: Any) -> Any:
        before = bank.clone()
        bank.index_add_(0, i, bank[:2])
        return before

    for step in (from_itself, before_and_after, old_value_returned):
        kernels(step, bank, at(2, 1))

"""Sizes that no memory holds: the error is PyTorch's RuntimeError, not numpy's, and nothing is allocated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracecomp as torch
from tracecomp.nn import functional as F

HUGE = 2**62
WIDE = 2**40
CALLS: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda x: torch.zeros(HUGE),
    "ones": lambda x: torch.ones(WIDE, WIDE),
    "full": lambda x: torch.full((HUGE,), 1.0),
    "rand": lambda x: torch.rand(HUGE),
    "randn": lambda x: torch.randn(WIDE, WIDE),
    "negative": lambda x: torch.zeros(-1),
    "arange": lambda x: torch.arange(HUGE),
    "arange of floats": lambda x: torch.arange(0, 1e30),
    "randperm": lambda x: torch.randperm(HUGE),
    "expand": lambda x: x[:1].expand(HUGE, 4),
    "repeat": lambda x: x.repeat(WIDE, WIDE),
    "tile": lambda x: x.tile((HUGE, 1)),
    "pad": lambda x: F.pad(x, (0, HUGE)),
    "repeat_interleave": lambda x: x.repeat_interleave(HUGE),
    "as_strided": lambda x: x.as_strided((HUGE, HUGE), (0, 0)),
    "one_hot": lambda x: F.one_hot(torch.tensor([0]), HUGE),
    "view": lambda x: x.view(HUGE),
    "outer": lambda x: torch.outer(torch.zeros(1).expand(2**30), torch.zeros(1).expand(2**30)),
}


@pytest.mark.parametrize("name", CALLS)
def test_sizes_beyond_memory_are_runtime_errors(name: str) -> None:
    with pytest.raises(RuntimeError):
        CALLS[name](torch.ones(3, 4))

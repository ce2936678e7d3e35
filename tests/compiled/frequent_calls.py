"""Helpers of tests of frequent calls: calls until machine code serves them, operands, and results in bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp.eager_kernels import background
from tracecomp.functional.warm import EVERY
from tracecomp.runtime.object_layout import objects_are_known

Tensor = torch.Tensor
CALLS = 3 * EVERY
needs_native_calls = pytest.mark.skipif(
    not objects_are_known(), reason="calls go through Python on this interpreter, so eager ones are not served"
)


def heated(call: Callable[[], Any]) -> list[Any]:
    """Results of many calls: of the first, of some while machine code is made, and of one that it serves."""
    found = [call() for _ in range(CALLS)]
    background.finish()
    return [found[0], found[-1], call(), call()]


def bits(value: Any) -> list[bytes]:
    if isinstance(value, Tensor):
        return [value.detach().numpy().tobytes()]
    return [b for x in value for b in bits(x)]


def served(function: Callable[..., Any]) -> bool:
    """Whether machine code serves some calls of a published function."""
    while hasattr(function, "__wrapped__") and "accepted" not in function.__code__.co_freevars:
        function = function.__wrapped__
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    return any(type(run).__name__ != "Warm" for run in cells["accepted"].cell_contents.values())


def data(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))

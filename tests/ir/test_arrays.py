"""Large tensors begin at a cache line."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tracecomp
from tracecomp import Tensor, nn
from tracecomp.ir.arrays import at_line, new_array

MADE: dict[str, Callable[[], Tensor]] = {
    "tensor": lambda: tracecomp.tensor(np.ones((300, 301), np.float32)),
    "converted": lambda: tracecomp.tensor(np.ones((300, 301)), dtype=tracecomp.float32),
    "randn": lambda: tracecomp.randn(300, 301),
    "rand_like": lambda: tracecomp.rand_like(tracecomp.zeros(300, 301)),
    "zeros": lambda: tracecomp.zeros(300, 301, dtype=tracecomp.float64),
    "stack": lambda: tracecomp.stack([tracecomp.zeros(301)] * 300),
    "weight": lambda: nn.Linear(301, 300).weight,
}


@pytest.mark.parametrize("name", MADE)
def test_new_tensors(name: str) -> None:
    held = [MADE[name]() for _ in range(4)]
    assert [t.data_ptr() % 64 for t in held] == [0] * 4


def test_a_copy_only_where_it_is_needed() -> None:
    memory = new_array((40001,), np.float64)
    assert at_line(memory) is memory
    np.testing.assert_array_equal(at_line(memory[1:]), memory[1:])
    assert at_line(memory[1:]).ctypes.data % 64 == 0

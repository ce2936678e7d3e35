"""Signs of zeros that activations pass on."""

from __future__ import annotations

import pytest

import tracecomp as tc


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_relu_keeps_the_sign_of_zero_as_in_torch(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    numbers = [-0.0, 0.0, -1.0, 1.0, float("inf"), -float("inf")] * 7
    expected = torch.signbit(torch.relu(torch.tensor(numbers, dtype=getattr(torch, dtype)))).tolist()
    compiled = tc.compile(lambda x: tc.signbit(tc.relu(x)))
    for _ in range(3):
        assert compiled(tc.tensor(numbers, dtype=getattr(tc, dtype))).tolist() == expected

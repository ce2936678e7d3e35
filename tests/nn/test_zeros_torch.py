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


@pytest.mark.parametrize(("low", "high"), [(0.0, 6.0), (-0.0, 6.0), (-1.0, 0.0), (-1.0, -0.0)])
def test_limited_activations_keep_the_sign_of_zero_as_in_torch(low: float, high: float) -> None:
    torch = pytest.importorskip("torch")
    numbers = [-0.0, 0.0, -2.0, 7.0, 6.0, -1.0] * 7
    given = torch.tensor(numbers, requires_grad=True)
    expected = torch.nn.functional.hardtanh(given, low, high)
    expected.sum().backward()

    def signs(x: tc.Tensor) -> tuple[tc.Tensor, tc.Tensor]:
        out = tc.nn.functional.hardtanh(x, low, high)
        return tc.signbit(out), tc.autograd.grad(out.sum(), x)[0]

    for f in (signs, tc.compile(signs)):
        for _ in range(3):
            found, grad = f(tc.tensor(numbers, requires_grad=True))
            assert found.tolist() == torch.signbit(expected).tolist()
            assert grad.tolist() == given.grad.tolist()

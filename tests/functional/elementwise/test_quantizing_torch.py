"""Fake quantization against PyTorch: values, gradients, errors, compiled."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tracecomp  # noqa: E402

X = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32) * 3


def per_tensor(t: Any, x: Any) -> Any:
    return t.fake_quantize_per_tensor_affine(x, 0.1, 10, 0, 25)


def per_tensor_of_tensors(t: Any, x: Any) -> Any:
    return t.fake_quantize_per_tensor_affine(x, t.tensor(0.25), t.tensor(2, dtype=t.int32), -4, 9)


def per_channel(t: Any, x: Any) -> Any:
    scale, zero = t.tensor([0.1, 0.2, 0.3]), t.tensor([0, 3, -2], dtype=t.int32)
    return t.fake_quantize_per_channel_affine(x, scale, zero, 0, -8, 7)


@pytest.mark.parametrize("fn", [per_tensor, per_tensor_of_tensors, per_channel])
@pytest.mark.parametrize("compiled", [False, True])
def test_values_and_gradients(fn: Any, compiled: bool) -> None:
    def run(t: Any, x: Any) -> Any:
        y = fn(t, x)
        return y, t.autograd.grad((y * t.arange(5.0)).sum(), x)[0]

    ours = partial(run, tracecomp)
    ours = tracecomp.compile(ours) if compiled else ours
    expected = run(torch, torch.tensor(X, requires_grad=True))
    for _ in range(3):
        for a, b in zip(ours(tracecomp.tensor(X, requires_grad=True)), expected, strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda t: t.fake_quantize_per_tensor_affine(t.ones(2), 0.1, 0, 5, 1),
        lambda t: t.fake_quantize_per_tensor_affine(t.ones(2, dtype=t.int64), 0.1, 0, 0, 9),
        lambda t: t.fake_quantize_per_channel_affine(t.ones(2, 3), t.ones(3), t.zeros(3, dtype=t.int32), 0, 0, 9),
    ],
)
def test_errors(wrong: Any) -> None:
    for t in (torch, tracecomp):
        with pytest.raises(RuntimeError):
            wrong(t)

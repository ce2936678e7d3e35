"""Activations that overwrite a result between other layers, against PyTorch; parameters that change their dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp

torch = pytest.importorskip("torch")
LAYERS = [
    "ReLU", "ReLU6", "LeakyReLU", "ELU", "SELU", "CELU", "SiLU", "Mish", "Hardswish", "Hardsigmoid", "Hardtanh",
]  # fmt: skip


def gradients(library: Any, name: str, x: np.ndarray[Any, Any], compiled: bool) -> list[np.ndarray[Any, Any]]:
    layer = getattr(library.nn, name)(inplace=True)
    t = library.tensor(x, requires_grad=True)
    w = library.tensor(x[::-1].copy(), requires_grad=True)

    def run(t: Any, w: Any) -> Any:
        return library.autograd.grad((layer(t * w) * w).sum(), (t, w))

    if compiled:
        run = tracecomp.compile(run)
        run(t, w)
    return [g.numpy() for g in run(t, w)]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_a_product_overwritten_by_an_activation_has_its_gradient(name: str, compiled: bool) -> None:
    x = np.random.default_rng(0).normal(size=(6, 5)) * 3
    ours, theirs = gradients(tracecomp, name, x, compiled), gradients(torch, name, x, False)
    for own, its in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(own, its, rtol=1e-7, atol=1e-12)  # torch keeps 1/6 in float32


def test_random_leaky_relu_in_place_has_the_gradient_of_its_slopes() -> None:
    x = tracecomp.linspace(-2, 2, 9, requires_grad=True)
    y = x * 1.0
    out = tracecomp.nn.functional.rrelu(y, 0.25, 0.25, training=True, inplace=True)
    assert out is y
    out.sum().backward()
    assert x.grad is not None and tracecomp.equal(x.grad, tracecomp.where(x > 0, 1.0, 0.25))


@pytest.mark.parametrize("library", [tracecomp, torch])
def test_gradients_follow_data_to_another_dtype_and_shape(library: Any) -> None:
    p = library.nn.Parameter(library.ones(2))
    before = (p * p).sum()  # keeps the node that adds to p.grad
    p.data = library.ones(3, dtype=library.float64)
    (p * p).sum().backward()
    assert p.grad.dtype == library.float64 and p.grad.shape == (3,)
    assert before.item() == 2
